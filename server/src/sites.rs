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
use crate::ledger::Ledger;
use crate::options::{ServeOptions, Sibling};
use crate::shares::Shares;
use crate::store::device::Devices;
use crate::store::files::Files;
use crate::store::root::Root;
use crate::store::served::ServedDirectory;

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
    let hide = Hide::new(&options.hide)
        .ok_or_else(|| Failure::operator("hide: a pattern that matches no name"))?;
    let (follow, allowed) = (options.follow_symlinks, &options.allow_roots);
    let root = Root::open(&options.root, follow, allowed, hide);
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
    })
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
