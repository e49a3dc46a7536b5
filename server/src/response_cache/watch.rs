//! Watches the files of cached responses for changes (inotify(7)).
//!
//! Each directory is watched for names that come and go, and each copied file for its bytes. One watch could cover the
//! bytes of all files of a directory. But the kernel then walks all names of the directory in its cache, missing ones
//! included, and no file there can be opened meanwhile: a quarter of a second after two million 404s.
//!
//! Some changes inotify does not report: of a directory further up, by a write through mmap(2), by another machine on a
//! network file system. These are noticed within a second all the same, and so is everything where inotify is refused
//! or reports too much.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ackpace_core::units::Instant;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::changes::{Change, Changes, Full, LookedUpAt, Loud, WatchState};
use crate::limits::{HEARD_READS_MAX, WATCH_PAUSE_US, WATCHES_PAUSED_MAX};

/// Names that come to a directory or go.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
/// Changes that affect the response of a file: its bytes, its times, its permissions.
const BYTES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DONT_FOLLOW);

/// How changes of a file's bytes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes<'a> {
    /// By inotify: the bytes are copied after this.
    Copied {
        /// The file's name in its directory.
        name: &'a [u8],
    },
    /// By a check before each send.
    Open,
}

/// The inotify instance; its reports are kept in [`Changes`].
pub struct Watch {
    inotify: OwnedFd,
    /// Path hashes of what changed too often, and until when it is not watched, by the low bits of the hash.
    paused: Box<[(u64, Instant)]>,
}

impl Watch {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// Where inotify is refused or its instances are used up (fs.inotify.max_user_instances).
    pub fn new() -> io::Result<Watch> {
        Ok(Watch {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            paused: vec![(0, Instant::default()); WATCHES_PAUSED_MAX].into(),
        })
    }

    /// Watches a file that was looked up at `looked_up`. `through` leads to its directory as `directory` does, and asks no
    /// daemon on the way. `None`: file or directory changes too often, there is no room, or inotify refuses.
    pub fn add(
        &mut self,
        directory: &Path,
        through: &Path,
        bytes: Bytes<'_>,
        changes: &mut Changes,
        looked_up: LookedUpAt,
    ) -> Option<WatchState> {
        let path_hash = changes.hash(directory.as_os_str().as_bytes());
        let watch = self.place(through, NAMES, path_hash, looked_up)?;
        let Some(state) = changes.watch_state(watch, looked_up) else {
            self.entered(watch, changes.enter(watch, path_hash));
            return changes.watch_state(watch, looked_up); // which is old: it was looked up before
        };
        let Bytes::Copied { name } = bytes else {
            return Some(state);
        };
        let name = OsStr::from_bytes(name);
        let path_hash = changes.hash(directory.join(name).as_os_str().as_bytes());
        let watch = self.place(&through.join(name), BYTES, path_hash, looked_up)?;
        changes.watch_state_of_file(state, watch).or_else(|| {
            self.entered(watch, changes.enter_file(watch, path_hash));
            changes.watch_state_of_file(state, watch)
        })
    }

    fn place(
        &mut self,
        path: &Path,
        what: WatchFlags,
        path_hash: u64,
        looked_up: LookedUpAt,
    ) -> Option<i32> {
        let (paused, until) = *self.pause(path_hash);
        if paused == path_hash && looked_up.at < until {
            return None;
        }
        inotify::add_watch(&self.inotify, path, what).ok()
    }

    /// Removes the watch that the new one replaces, or the new one if there was no place for it.
    fn entered(&self, watch: i32, entered: Result<Option<i32>, Full>) {
        if let Some(gone) = entered.unwrap_or(Some(watch)) {
            let _ = inotify::remove_watch(&self.inotify, gone); // it may be gone by itself
        }
    }

    fn pause(&mut self, path_hash: u64) -> &mut (u64, Instant) {
        &mut self.paused[path_hash as usize % WATCHES_PAUSED_MAX]
    }

    /// Reads some events; epoll reports the rest again.
    pub fn hear(&mut self, changes: &mut Changes, now: Instant) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut loud = Vec::new();
        let mut reader = Reader::new(self.inotify.as_fd(), &mut buffer);
        let mut reads = 0;
        // Events that were read have to be taken to the last one, or they would be lost.
        while reads < HEARD_READS_MAX || !reader.is_buffer_empty() {
            reads += usize::from(reader.is_buffer_empty());
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break, // EAGAIN: no more events
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.lost();
                continue;
            }
            let change = match event.events().contains(ReadFlags::IGNORED) {
                true => Change::Gone,
                false => Change::Some,
            };
            if let Some(told) = changes.heard(event.wd(), change, now) {
                loud.push((event.wd(), told));
            }
        }
        for (watch, Loud { path_hash }) in loud {
            let _ = inotify::remove_watch(&self.inotify, watch);
            *self.pause(path_hash) = (path_hash, now.plus_us(WATCH_PAUSE_US));
        }
    }
}

/// For epoll.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WATCH_EVENTS_MAX;
    use std::fs;
    use std::path::PathBuf;

    const NOW: Instant = Instant { us: 5_000_000 };

    fn directory(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("ackpace-watch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a fresh directory");
        path
    }

    /// Of a file that was looked up now, and is copied.
    fn state(
        watch: &mut Watch,
        path: &Path,
        name: &str,
        changes: &mut Changes,
    ) -> Option<WatchState> {
        let looked_up = changes.looked_up_at(NOW);
        let name = name.as_bytes();
        watch.add(path, path, Bytes::Copied { name }, changes, looked_up)
    }

    /// The masks of all that the kernel watches for us (proc(5)).
    fn masks(watch: &Watch) -> Vec<u32> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fdinfo/{}", watch.inotify.as_raw_fd());
        let text = fs::read_to_string(path).expect("proc(5)");
        let masks = text.lines().filter_map(|line| line.split(" mask:").nth(1));
        let masks = masks.map(|rest| rest.split(' ').next().unwrap_or_default());
        masks
            .map(|hex| u32::from_str_radix(hex, 16).expect("a mask"))
            .collect()
    }

    #[test]
    fn no_directory_is_watched_for_what_happens_inside_of_its_files() {
        // For these the kernel walks all names of the directory, while no file there can be opened.
        let walks = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::ACCESS
            | WatchFlags::OPEN
            | WatchFlags::CLOSE;
        let path = directory("walk");
        fs::write(path.join("a"), "1").expect("written");
        let (mut watch, mut changes) = (Watch::new().expect("inotify"), Changes::default());
        let looked_up = changes.looked_up_at(NOW);
        watch.add(&path, &path, Bytes::Open, &mut changes, looked_up);
        let looked_up = changes.looked_up_at(NOW);
        let open = watch.add(&path, &path, Bytes::Open, &mut changes, looked_up);
        assert!(open.is_some_and(|open| changes.is_unchanged_since(open)));
        let of_directory = masks(&watch);
        assert_eq!(of_directory.len(), 1, "nothing else");
        assert_eq!(of_directory[0] & walks.bits(), 0);
        let copied = state(&mut watch, &path, "a", &mut changes);
        assert!(copied.is_some_and(|copied| changes.is_unchanged_since(copied)));
        assert_eq!(masks(&watch).len(), 2);
        fs::remove_dir_all(&path).expect("our own");
    }

    /// Until no events are left; returns the number of calls.
    fn hear(watch: &mut Watch, changes: &mut Changes) -> usize {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut goes = 0;
        loop {
            let mut polled = [PollFd::new(&watch.inotify, PollFlags::IN)];
            if poll(&mut polled, Some(&Timespec::default())) == Ok(0) {
                return goes;
            }
            watch.hear(changes, NOW);
            goes += 1;
        }
    }

    #[test]
    fn a_change_of_a_file_makes_its_answer_old_and_no_other() {
        let path = directory("file");
        fs::write(path.join("a"), "1").expect("written");
        fs::write(path.join("b"), "1").expect("written");
        let (mut watch, mut changes) = (Watch::new().expect("inotify"), Changes::default());
        let first = state(&mut watch, &path, "a", &mut changes).expect("watched");
        assert!(
            !changes.is_unchanged_since(first),
            "it was looked up before it was watched"
        );
        let [a, b] = ["a", "b"].map(|name| state(&mut watch, &path, name, &mut changes));
        let [a, b] = [a, b].map(|state| state.expect("watched"));
        hear(&mut watch, &mut changes);
        assert!(changes.is_unchanged_since(a) && changes.is_unchanged_since(b));
        fs::write(path.join("a"), "2").expect("written");
        hear(&mut watch, &mut changes);
        assert!(!changes.is_unchanged_since(a) && changes.is_unchanged_since(b));
        let a = state(&mut watch, &path, "a", &mut changes).expect("watched");
        // By another name elsewhere.
        let link = path.with_extension("link");
        fs::hard_link(path.join("a"), &link).expect("a link");
        hear(&mut watch, &mut changes);
        assert!(!changes.is_unchanged_since(a), "its times changed");
        let a = state(&mut watch, &path, "a", &mut changes).expect("watched");
        fs::write(&link, "3").expect("written");
        hear(&mut watch, &mut changes);
        assert!(!changes.is_unchanged_since(a) && changes.is_unchanged_since(b));
        fs::remove_file(&link).expect("our own");
        fs::rename(path.join("a"), path.join("b")).expect("renamed");
        hear(&mut watch, &mut changes);
        assert!(!changes.is_unchanged_since(b));
        fs::remove_dir_all(&path).expect("our own");
    }

    #[test]
    fn a_directory_that_goes_takes_its_answers_along() {
        let path = directory("gone");
        fs::write(path.join("a"), "1").expect("written");
        let (mut watch, mut changes) = (Watch::new().expect("inotify"), Changes::default());
        state(&mut watch, &path, "a", &mut changes);
        let a = state(&mut watch, &path, "a", &mut changes).expect("watched");
        assert!(changes.is_unchanged_since(a));
        fs::remove_dir_all(&path).expect("our own");
        hear(&mut watch, &mut changes);
        assert!(!changes.is_unchanged_since(a));
        let there = state(&mut watch, &path, "a", &mut changes);
        assert_eq!(there, None, "there is no such directory");
    }

    #[test]
    fn who_changes_without_pause_is_heard_a_little_in_each_turn_and_then_not_at_all() {
        let path = directory("loud");
        fs::write(path.join("a"), "1").expect("written");
        fs::write(path.join("b"), "1").expect("written");
        let (mut watch, mut changes) = (Watch::new().expect("inotify"), Changes::default());
        state(&mut watch, &path, "a", &mut changes);
        let a = state(&mut watch, &path, "a", &mut changes).expect("watched");
        let b = state(&mut watch, &path, "b", &mut changes).expect("watched");
        assert!(changes.is_unchanged_since(a) && changes.is_unchanged_since(b));
        // Two files in turn, since the kernel merges two equal events.
        let names = ["a", "b"].map(|name| path.join(name));
        let writes = |count: u32| {
            for nth in 0..count as usize {
                let file = fs::File::options().write(true).open(&names[nth % 2]);
                io::Write::write_all(&mut file.expect("it is there"), b"1").expect("written");
            }
        };
        writes(2 * WATCH_EVENTS_MAX + 2);
        let goes = hear(&mut watch, &mut changes);
        let at_once = HEARD_READS_MAX * 4096 / 16;
        assert!(
            goes >= WATCH_EVENTS_MAX as usize / at_once,
            "all in {goes} goes"
        );
        assert!(!changes.is_unchanged_since(a) && !changes.is_unchanged_since(b));
        // The later one: it may have taken the place of the pause of the other.
        assert_eq!(
            state(&mut watch, &path, "b", &mut changes),
            None,
            "it is loud"
        );
        writes(WATCH_EVENTS_MAX);
        assert_eq!(hear(&mut watch, &mut changes), 0, "the kernel was told so");
        let later = changes.looked_up_at(NOW.plus_us(WATCH_PAUSE_US));
        let name = b"b";
        let anew = watch.add(&path, &path, Bytes::Copied { name }, &mut changes, later);
        assert!(anew.is_some());
        // Changes of a file that is not cached cost nothing.
        fs::write(path.join("c"), "1").expect("written");
        hear(&mut watch, &mut changes);
        fs::write(path.join("c"), "2").expect("written");
        assert_eq!(hear(&mut watch, &mut changes), 0);
        fs::remove_dir_all(&path).expect("our own");
    }
}
