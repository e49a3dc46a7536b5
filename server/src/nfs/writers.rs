//! Files that are open for writing, each for its user: the broker has opened them with his rights.
//!
//! A descriptor is kept for the next WRITE, and for what only it knows: that its user might write when it was opened, also if the
//! file's mode forbids it since; and whether an earlier write has failed that nobody was told of (errseq, fsync(2)).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackpace_wire::nfs3::Verifier;
use rustix::fs::Statx;

use super::caller::Caller;
use super::identity::Identity;
use crate::store::attributes::known;

/// Files that are open for writing. More: the one that was not used for longest is closed, and opened again when it is written.
pub const WRITERS_MAX: usize = 512;
/// A file that was not used for so long is closed. Longer: leases of other programs on it wait, and its file system can't be
/// unmounted.
const IDLE: Duration = Duration::from_secs(30);

/// Memory of all at worst, with a table that is half empty.
pub const WRITERS_BYTES: u64 = (WRITERS_MAX * 2 * size_of::<(Identity, Caller, Kept)>()) as u64;

/// Open files by file and user.
#[derive(Debug, Default)]
pub struct Writers(Mutex<HashMap<(Identity, Caller), Kept>>);

/// A file that is open for writing.
#[derive(Debug)]
pub struct Writable {
    /// Itself.
    pub file: OwnedFd,
    /// Its mount, as we and the broker see it. A file system that was lost with what it had not written, and mounted again, has another
    /// one: what was written by the old one may not be committed by the new one.
    mounts: [u64; 2],
}

impl Writable {
    fn new(file: OwnedFd, told: &Statx) -> Writable {
        let own = known(&file).map_or(0, |told| told.stx_mnt_id);
        Writable {
            mounts: [told.stx_mnt_id, own],
            file,
        }
    }

    /// What clients compare to learn whether all that they have written is still there: another one for another run of ours, which
    /// has a number, or another mount.
    pub fn verifier(&self, run: Verifier) -> Verifier {
        let [ours, brokers] = self.mounts;
        (u64::from_be_bytes(run) ^ ours ^ brokers.rotate_left(32)).to_be_bytes()
    }
}

#[derive(Debug)]
struct Kept {
    file: Arc<Writable>,
    /// Mode, owner and group when it was opened: with others, the kernel is asked again.
    rights: (u16, u32, u32),
    used_at: Instant,
}

impl Writers {
    /// The file, open for this user, if the rights by which it was opened still hold.
    pub fn get(&self, file: &Identity, by: &Caller, told: &Statx) -> Option<Arc<Writable>> {
        let mut all = self.lock();
        let kept = all.get_mut(&(*file, by.clone()))?;
        let is_there = kept.file.mounts[0] == told.stx_mnt_id;
        if !is_there || (kept.rights != rights(told) && !by.owns(told)) {
            return None;
        }
        kept.used_at = Instant::now();
        Some(Arc::clone(&kept.file))
    }

    /// Keeps an open file. One of the same mount that is there already stays, since it may know of a failure; the file that is to be
    /// used is returned.
    pub fn keep(
        &self,
        file: &Identity,
        by: &Caller,
        told: &Statx,
        opened: OwnedFd,
    ) -> Arc<Writable> {
        let opened = Arc::new(Writable::new(opened, told));
        let mut closed = Vec::new(); // without the lock
        let mut all = self.lock();
        let key = (*file, by.clone());
        let same = all.get_mut(&key);
        if let Some(kept) = same.filter(|kept| kept.file.mounts == opened.mounts) {
            kept.rights = rights(told);
            kept.used_at = Instant::now();
            return Arc::clone(&kept.file);
        }
        while all.len() >= WRITERS_MAX {
            let oldest = all.iter().min_by_key(|(_, kept)| kept.used_at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            closed.extend(all.remove(&oldest));
        }
        let kept = Kept {
            file: Arc::clone(&opened),
            rights: rights(told),
            used_at: Instant::now(),
        };
        closed.extend(all.insert(key, kept));
        drop(all);
        drop(closed);
        opened
    }

    /// Closes removed files, and those that nobody uses; about once a second.
    pub fn sweep(&self) {
        let files: Vec<((Identity, Caller), Arc<Writable>, bool)> = {
            let all = self.lock();
            let each = all.iter().map(|(key, kept)| {
                let is_idle = kept.used_at.elapsed() >= IDLE;
                (key.clone(), Arc::clone(&kept.file), is_idle)
            });
            each.collect()
        };
        for (key, file, is_idle) in files {
            let is_there = known(&file.file).is_ok_and(|told| told.stx_nlink > 0);
            if is_idle || !is_there {
                let closed = self.lock().remove(&key);
                drop(closed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Identity, Caller), Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rights(told: &Statx) -> (u16, u32, u32) {
    (told.stx_mode, told.stx_uid, told.stx_gid)
}
