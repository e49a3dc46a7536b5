//! `ackpace cache`: what a gateway keeps, and how some of it is forgotten.

use std::sync::atomic::Ordering::Relaxed;

use super::Board;
use crate::answers::{CacheState, FolderState, OriginState, Purged, VERSION};
use crate::gateway::{Answered, Gateway};
use crate::store::tier::Tier;

fn gateway(board: &Board) -> Result<&Gateway, String> {
    let gateway = board.shared.site.gateway.as_deref();
    gateway.ok_or_else(|| "this server has no origin, and caches nothing of one".to_owned())
}

pub fn state(board: &Board) -> Result<CacheState, String> {
    let gateway = gateway(board)?;
    let (counts, (objects, _)) = (gateway.slab.counts(), gateway.catalog.held());
    let origins = gateway.origins.iter().zip(&gateway.tally.origins);
    Ok(CacheState {
        version: VERSION,
        objects: objects as u64,
        kept_bytes: counts.kept_bytes,
        allocated_bytes: counts.allocated_bytes,
        size_bytes: gateway.slab.len_bytes(),
        pinned_segments: counts.segments_pinned.into(),
        folder: gateway.tier.get().map(|tier| folder(tier)),
        answers: Answered::NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).to_owned(), gateway.tally.answered(at)))
            .collect(),
        origins: origins
            .map(|(origin, tally)| OriginState {
                origin: origin.to_string(),
                requests: tally.requests.load(Relaxed),
                fetched_bytes: tally.fetched_bytes.load(Relaxed),
                faults: tally.faults.load(Relaxed),
                connections: tally.links.load(Relaxed),
            })
            .collect(),
    })
}

fn folder(tier: &Tier) -> FolderState {
    let ((path, size_bytes), (windows, kept_bytes)) = (tier.place(), tier.kept());
    let tally = tier.tally();
    FolderState {
        path: path.display().to_string(),
        windows: windows as u64,
        kept_bytes,
        size_bytes,
        reads: tally.reads.load(Relaxed),
        read_bytes: tally.read_bytes.load(Relaxed),
    }
}

pub fn purge(board: &Board, prefix: &str, only_stale: bool) -> Result<Purged, String> {
    let gateway = gateway(board)?;
    if !prefix.starts_with('/') {
        return Err(format!(
            "{} is no beginning of a path: it starts with a slash",
            crate::options::shown(prefix)
        ));
    }
    Ok(Purged {
        version: VERSION,
        objects: gateway.purge(prefix.as_bytes(), only_stale)? as u64,
    })
}
