//! What is served, by the options.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use ackpace_wire::content_type::Overrides;
use ackpace_wire::hide::Hide;
use ackpace_wire::http::Coding;
use ackpace_wire::iscsi::{Session, SettingsError};

use crate::cluster::{Parts, Peers, relay_addr};
use crate::config::{self, Layer};
use crate::failure::Failure;
use crate::front::charge::Room;
use crate::front::shelf::Shelf;
use crate::front::site::Site;
use crate::gateway::{Access, Address, Catalog, Gateway, Tls};
use crate::ledger::Ledger;
use crate::lun;
use crate::mailbox::ThreadWaker;
use crate::options::{ClusterAt, ServeOptions, Sibling, Size, UnitAt, has_port, shown_path};
use crate::shares::Shares;
use crate::store::device::Devices;
use crate::store::files::Files;
use crate::store::root::{Root, RootError};
use crate::store::served::ServedDirectory;
use crate::store::slab::Slab;
use crate::store::tier::{self, Tier, TierError};
use crate::unit::Unit;

/// How often a thread looks whether the root is there. Longer: clients are told for so long that single files are not there,
/// or can't be read.
const ROOT_LOOK_EACH: std::time::Duration = std::time::Duration::from_secs(1);

/// What is served; `given` says where the options came from.
pub fn site(
    options: &ServeOptions,
    given: &Layer,
    shares: &Shares,
    ledger: &Arc<Ledger>,
) -> Result<Site, Failure> {
    let devices = Arc::new(Devices::default().at_most(shares.devices));
    let gateway = gateway(options, given, shares, &devices)?;
    let peers = peers(options, given, shares, &devices)?;
    let unit = unit(options, given, shares, &devices)?;
    let hide = Hide::new(&options.hide)
        .ok_or_else(|| Failure::operator("hide: a pattern that matches no name"))?;
    let (follow, allowed) = (options.follow_symlinks, &options.allow_roots);
    let root = match &gateway {
        Some(_) => Root::nothing(),
        None => Root::open(&options.root, follow, allowed, hide),
    };
    let types = options
        .types
        .iter()
        .map(|pair| (pair.extension.as_str(), pair.media_type.as_str()));
    let root = root.map_err(|error| root_failure(options, given, &error));
    Ok(Site {
        root: root?.with(Arc::clone(&devices)),
        files: Files::default(),
        devices,
        types: Overrides::new(types),
        index: options.index.clone(),
        listing: options.listing,
        siblings: options
            .precompressed
            .iter()
            .map(|sibling| coding(*sibling))
            .collect(),
        shelf: Shelf::new(shares.listing_bytes, Some(Arc::clone(ledger))),
        ranges: Room::new(shares.ranges_bytes, Some(Arc::clone(ledger))),
        gateway,
        peers,
        unit,
    })
}

fn root_failure(options: &ServeOptions, given: &Layer, error: &RootError) -> Failure {
    let place = config::place(given, error.option);
    let shown = shown_path(&options.root);
    if error.option == "root" && has_port(&shown) && !options.root.exists() {
        return Failure::operator(format!(
            "{place}: {shown} is neither here nor the URL of an origin, which begins with http://, https:// or s3://"
        ));
    }
    failure(error.may_pass, format!("{place}: {error}"))
}

/// `may_pass`: a later start may do.
fn failure(may_pass: bool, text: String) -> Failure {
    match may_pass {
        true => Failure::not_now(text),
        false => Failure::operator(text),
    }
}

/// The gateway, if origins are served.
fn gateway(
    options: &ServeOptions,
    given: &Layer,
    shares: &Shares,
    devices: &Devices,
) -> Result<Option<Arc<Gateway>>, Failure> {
    if !options.has_origin() {
        return Ok(None);
    }
    let texts: Vec<_> = options.origins().collect();
    let has_root = texts.iter().any(|(option, _)| *option == "root");
    if !has_root && config::is_given(given, "root") {
        let text = "a directory and an origin can't be served together; leave one out";
        return Err(refused(given, "origin", &text));
    }
    let origins = origins(options, given, &texts)?;
    let of_tls = origins.iter().zip(&texts).find(|(origin, _)| origin.tls);
    let tls = of_tls.map(|(_, (option, _))| Tls::load().map_err(|error| (*option, error)));
    let tls = tls.transpose();
    let tls = tls.map_err(|(option, error)| refused(given, option, &error))?;
    let slab = slab(options, given, shares)?;
    match options.tier_dir() {
        Some(dir) => tier::inspect(dir).map_err(|error| cache_dir_failure(given, &error))?,
        None if config::is_given(given, "cache_size") => {
            let text = "there is no cache_dir of this size; name one, or leave this out";
            return Err(refused(given, "cache_size", &text));
        }
        None => {}
    }
    let name = origins.first().map(ToString::to_string).unwrap_or_default();
    let places = shares.connections_per_worker as usize * usize::from(shares.workers);
    let catalog = Catalog::new(shares.catalog_bytes() as usize);
    let gateway = Gateway::new(
        origins,
        devices.origin(&name),
        (catalog, slab),
        2 * places,
        waker()?,
    );
    let gateway = gateway
        .by(tls)
        .folders(options.index.clone(), options.listing);
    Ok(Some(Arc::new(gateway)))
}

/// The unit on which files of NFS lie, if there is one.
fn unit(
    options: &ServeOptions,
    given: &Layer,
    shares: &Shares,
    devices: &Devices,
) -> Result<Option<Arc<Unit>>, Failure> {
    let UnitAt::At(address) = &options.iscsi.iscsi else {
        return Ok(None);
    };
    let settings = lun::settings(&options.iscsi, given, address)?;
    let refused = |error: SettingsError| refused(given, "iscsi", &error);
    let session = Session::new(address, settings, lun::PATIENCE_US).map_err(refused)?;
    let url = address.to_string();
    let slab = (slab(options, given, shares)?, shares.maps_bytes);
    let device = devices.origin(&url);
    Ok(Some(Arc::new(Unit::new(
        (url, session),
        device,
        slab,
        waker()?,
    ))))
}

/// The memory for payload that several clients want.
fn slab(options: &ServeOptions, given: &Layer, shares: &Shares) -> Result<Arc<Slab>, Failure> {
    let dir = Some(&*options.slab_dir).filter(|dir| dir.as_os_str() != "auto");
    let slab = Slab::open(dir, shares.slab_bytes).map_err(|error| {
        let place = config::named(given, error.option());
        failure(error.may_pass(), format!("{place}: {error}"))
    })?;
    Ok(Arc::new(match options.compare.copies {
        true => slab.copied(),
        false => slab,
    }))
}

fn waker() -> Result<Arc<ThreadWaker>, Failure> {
    let waker = ThreadWaker::new();
    let waker = waker.map_err(|error| Failure::runtime(format!("eventfd: {error}")))?;
    Ok(Arc::new(waker))
}

/// The other nodes of the cluster, if this server is one of its nodes.
fn peers(
    options: &ServeOptions,
    given: &Layer,
    shares: &Shares,
    devices: &Arc<Devices>,
) -> Result<Option<Peers>, Failure> {
    let cluster = &options.cluster;
    let (ClusterAt::Tcp(own), true) = (cluster.cluster_listen, cluster.is_on()) else {
        return Ok(None);
    };
    let parts = Parts {
        devices: Arc::clone(devices),
        slab: slab(options, given, shares)?,
        catalog_bytes: shares.catalog_bytes() as usize / shares.nodes.max(1) as usize,
        from: own.ip(),
    };
    let peers = Peers::new(1 + shares.nodes as usize, parts);
    let mut nodes: Vec<(&str, Option<SocketAddr>)> = vec![(&cluster.node, None)];
    let pinned = cluster.peer.iter();
    nodes.extend(pinned.map(|peer| (&*peer.name, Some(relay_addr(peer.addr)))));
    nodes.sort_unstable();
    for (place, (name, addr)) in nodes.into_iter().enumerate() {
        let met = addr.map_or(Ok(()), |addr| peers.meet(place, name, addr));
        met.map_err(|error| Failure::runtime(format!("node {name}: {error}")))?;
    }
    Ok(Some(peers))
}

fn refused(given: &Layer, option: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::operator(format!("{}: {error}", config::named(given, option)))
}

/// The origins of these texts, each with the option that has it: buckets all, or none.
fn origins(
    options: &ServeOptions,
    given: &Layer,
    texts: &[(&'static str, &str)],
) -> Result<Vec<Address>, Failure> {
    let has_buckets = options.has_bucket();
    let of_buckets = ["s3_endpoint", "s3_credentials_file"];
    let in_vain = of_buckets.iter().find(|key| config::is_given(given, key));
    if let Some(option) = in_vain.filter(|_| !has_buckets) {
        let why = "there is no s3:// origin that would need it; name one, or leave this out";
        return Err(refused(given, option, &why));
    }
    let access = match has_buckets {
        true => Access::of(
            Some(&*options.s3_endpoint).filter(|url| *url != "auto"),
            Some(&*options.s3_credentials_file).filter(|file| file.as_os_str() != "auto"),
            |name| std::env::var(name).ok(),
        ),
        false => Ok(Access::default()),
    };
    let access = access.map_err(|error| match error.option() {
        Some(option) => {
            let place = config::named(given, option);
            failure(error.may_pass(), format!("{place}: {error}"))
        }
        None => Failure::operator(error.to_string()),
    })?;
    let mut origins = Vec::new();
    for (option, text) in texts {
        let address = access.address(text);
        let address = address.map_err(|error| refused(given, option, &error))?;
        if has_buckets && address.bucket.is_none() {
            let why = "buckets and other origins can't stand in for each other";
            return Err(refused(given, option, &format!("{text}: {why}")));
        }
        origins.push(address);
    }
    Ok(origins)
}

/// Takes the cache folder of a gateway, if it has one, for as long as the process lives.
pub fn take_cache_folder(
    site: &Site,
    options: &ServeOptions,
    given: &Layer,
    shares: &Shares,
) -> Result<(), Failure> {
    let (Some(gateway), Some(dir)) = (&site.gateway, options.tier_dir()) else {
        return Ok(());
    };
    let bytes = |of_bytes| match options.cache_size {
        Size::Auto => of_bytes / 10,
        size => size.resolve(of_bytes),
    };
    let tier = Tier::open(dir, bytes, shares.tier_files())
        .map_err(|error| cache_dir_failure(given, &error))?;
    gateway.tier.get_or_init(|| Arc::new(tier));
    Ok(())
}

fn cache_dir_failure(given: &Layer, error: &TierError) -> Failure {
    let place = config::place(given, "cache_dir");
    failure(error.may_pass(), format!("{place}: {error}"))
}

/// Starts the threads that look whether what is served is there; they may hang, and nobody waits for them.
pub fn watch_root(site: &Arc<Site>) -> io::Result<()> {
    // A thread for each: one that hangs holds up no other.
    for nth in 0..site.root.served().count() {
        let site = Arc::clone(site);
        let watch = move || loop {
            thread::sleep(ROOT_LOOK_EACH);
            site.root
                .served()
                .skip(nth)
                .take(1)
                .for_each(ServedDirectory::look);
        };
        thread::Builder::new()
            .name("root".to_owned())
            .spawn(watch)?;
    }
    Ok(())
}

fn coding(sibling: Sibling) -> Coding {
    match sibling {
        Sibling::Zst => Coding::Zstd,
        Sibling::Br => Coding::Brotli,
        Sibling::Gz => Coding::Gzip,
    }
}
