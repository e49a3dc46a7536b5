//! What is served, by the options.

use std::io;
use std::sync::Arc;
use std::thread;

use ackpace_wire::content_type::Overrides;
use ackpace_wire::hide::Hide;
use ackpace_wire::http::Coding;

use crate::config::{self, Layer};
use crate::failure::Failure;
use crate::front::charge::Room;
use crate::front::shelf::Shelf;
use crate::front::site::Site;
use crate::gateway::{Access, Address, Catalog, Gateway, Tls};
use crate::ledger::Ledger;
use crate::mailbox::ThreadWaker;
use crate::options::{ServeOptions, Sibling, Size, is_url};
use crate::shares::Shares;
use crate::store::device::Devices;
use crate::store::files::Files;
use crate::store::root::Root;
use crate::store::served::ServedDirectory;
use crate::store::slab::Slab;
use crate::store::tier::{self, Tier, TierError};

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
    let root = root.map_err(|error| {
        let text = format!("{}: {error}", config::place(given, error.option));
        match error.may_pass {
            true => Failure::not_now(text),
            false => Failure::operator(text),
        }
    });
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
    })
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
    let root = options.root.to_str().filter(|root| is_url(root));
    if root.is_none() && config::is_given(given, "root") {
        let text = "a directory and an origin can't be served together; leave one out";
        return Err(Failure::operator(format!(
            "{}: {text}",
            config::place(given, "origin")
        )));
    }
    let texts = root
        .into_iter()
        .chain(options.origin.iter().map(String::as_str));
    let failed = |option: &'static str, error: &dyn std::fmt::Display| {
        Failure::operator(format!("{}: {error}", config::place(given, option)))
    };
    let origins = origins(options, given, texts.collect(), &failed)?;
    let by_tls = origins.iter().any(|origin| origin.tls);
    let tls = by_tls.then(Tls::load).transpose();
    let tls = tls.map_err(|error| failed("origin", &error))?;
    let dir = Some(&*options.slab_dir).filter(|dir| dir.as_os_str() != "auto");
    let slab = Slab::open(dir, shares.slab_bytes);
    let mut slab = slab.map_err(|error| failed("cache_memory", &error))?;
    match options.tier_dir() {
        Some(dir) => tier::inspect(dir).map_err(|error| cache_dir_failure(given, &error))?,
        None if config::is_given(given, "cache_size") => {
            let text = "there is no cache_dir of this size; name one, or leave this out";
            return Err(failed("cache_size", &text));
        }
        None => {}
    }
    if options.compare.copies {
        slab = slab.copied();
    }
    let name = origins.first().map(ToString::to_string).unwrap_or_default();
    let waker = ThreadWaker::new();
    let waker = waker.map_err(|error| Failure::runtime(format!("eventfd: {error}")))?;
    let places = shares.connections_per_worker as usize * usize::from(shares.workers);
    let gateway = Gateway::new(
        origins,
        devices.origin(&name),
        (
            Catalog::new(shares.catalog_bytes() as usize),
            Arc::new(slab),
        ),
        2 * places,
        Arc::new(waker),
    );
    let gateway = gateway
        .by(tls)
        .folders(options.index.clone(), options.listing);
    Ok(Some(Arc::new(gateway)))
}

/// The origins of these texts: buckets all, or none.
fn origins(
    options: &ServeOptions,
    given: &Layer,
    texts: Vec<&str>,
    failed: &dyn Fn(&'static str, &dyn std::fmt::Display) -> Failure,
) -> Result<Vec<Address>, Failure> {
    let has_buckets = texts.iter().any(|text| text.starts_with("s3://"));
    let of_buckets = ["s3_endpoint", "s3_credentials_file"];
    let in_vain = of_buckets.iter().find(|key| config::is_given(given, key));
    if let Some(option) = in_vain.filter(|_| !has_buckets) {
        let why = "there is no s3:// origin that would need it; name one, or leave this out";
        return Err(failed(option, &why));
    }
    let access = match has_buckets {
        true => Access::of(
            Some(&*options.s3_endpoint).filter(|url| *url != "auto"),
            Some(&*options.s3_credentials_file).filter(|file| file.as_os_str() != "auto"),
            |name| std::env::var(name).ok(),
        ),
        false => Ok(Access::default()),
    };
    let access = access.map_err(|error| failed(error.option(), &error))?;
    let origins = texts.into_iter().map(|text| access.address(text));
    let origins = origins.collect::<Result<Vec<_>, _>>();
    let origins = origins.map_err(|error| failed("origin", &error))?;
    if has_buckets && origins.iter().any(|origin| origin.bucket.is_none()) {
        let why = "buckets and other origins can't stand in for each other";
        return Err(failed("origin", &why));
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
    let text = format!("{}: {error}", config::place(given, "cache_dir"));
    match error.may_pass() {
        true => Failure::not_now(text),
        false => Failure::operator(text),
    }
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
