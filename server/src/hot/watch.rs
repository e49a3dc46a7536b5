//! Hearing of changes to the files that are kept ready (inotify(7)).
//!
//! Watched are the directories in which they lie. What inotify does not tell (a change of a directory
//! further up, a write by mmap(2) or to another link of the file, another machine's write to a network file system), and
//! everything where it is refused or has too much to tell, is noticed within a second all the same.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ackpace_core::units::Instant;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::changes::{Change, Changes, Loud, Moment, Sight};
use crate::limits::{HEARD_READS_MAX, WATCH_PAUSE_US, WATCHES_PAUSED_MAX};

/// The kernel's end of it; what it has told stands in [`Changes`].
pub struct Watch {
    inotify: OwnedFd,
    /// Hashes of the paths of loud directories, and until when they are not watched, by the low bits of the former.
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

    /// Watch for changes of a file that was looked up at `moment`. `None`: its directory is loud, there is no room for it, or
    /// inotify refuses.
    pub fn add(
        &mut self,
        directory: &Path,
        name: &[u8],
        changes: &mut Changes,
        moment: Moment,
    ) -> Option<Sight> {
        let what = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let path_hash = changes.hash(directory.as_os_str().as_bytes());
        let (paused, until) = *self.pause(path_hash);
        if paused == path_hash && moment.at < until {
            return None;
        }
        let watch = inotify::add_watch(&self.inotify, directory, what).ok()?;
        let known = changes.sight(watch, name, moment);
        if known.is_some() {
            return known;
        }
        let gone = changes.enter(watch, path_hash).unwrap_or(Some(watch));
        if let Some(gone) = gone {
            let _ = inotify::remove_watch(&self.inotify, gone); // it may be gone by itself
        }
        changes.sight(watch, name, moment)
    }

    fn pause(&mut self, path_hash: u64) -> &mut (u64, Instant) {
        &mut self.paused[path_hash as usize % WATCHES_PAUSED_MAX]
    }

    /// Hear what has changed, some at a time: what is left makes epoll report it again.
    pub fn hear(&mut self, changes: &mut Changes, now: Instant) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut loud = Vec::new();
        let mut reader = Reader::new(self.inotify.as_fd(), &mut buffer);
        let mut reads = 0;
        // What was read has to be heard to its end, or it would be lost.
        while reads < HEARD_READS_MAX || !reader.is_buffer_empty() {
            reads += usize::from(reader.is_buffer_empty());
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break, // EAGAIN: all was heard
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.lost();
                continue;
            }
            let name = event.file_name().map(|name| name.to_bytes());
            let change = change(event.events(), name);
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

fn change(events: ReadFlags, name: Option<&[u8]>) -> Change<'_> {
    let names = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
    match name {
        _ if events.contains(ReadFlags::IGNORED) => Change::Gone,
        Some(name) if !events.intersects(names) => Change::Of(name),
        _ => Change::All,
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

    /// Of a file that was looked up now.
    fn sight(watch: &mut Watch, path: &Path, name: &str, changes: &mut Changes) -> Option<Sight> {
        let moment = changes.moment(NOW);
        watch.add(path, name.as_bytes(), changes, moment)
    }

    /// Until nothing is left to hear; says in how many goes.
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
        let first = sight(&mut watch, &path, "a", &mut changes).expect("watched");
        assert!(
            !changes.still(first),
            "it was looked up before it was watched"
        );
        let [a, b] = ["a", "b"].map(|name| sight(&mut watch, &path, name, &mut changes));
        let [a, b] = [a, b].map(|sight| sight.expect("watched"));
        hear(&mut watch, &mut changes);
        assert!(changes.still(a) && changes.still(b));
        fs::write(path.join("a"), "2").expect("written");
        hear(&mut watch, &mut changes);
        assert!(!changes.still(a) && changes.still(b));
        fs::rename(path.join("a"), path.join("b")).expect("renamed");
        hear(&mut watch, &mut changes);
        assert!(!changes.still(b));
        fs::remove_dir_all(&path).expect("our own");
    }

    #[test]
    fn a_directory_that_goes_takes_its_answers_along() {
        let path = directory("gone");
        let (mut watch, mut changes) = (Watch::new().expect("inotify"), Changes::default());
        sight(&mut watch, &path, "a", &mut changes);
        let a = sight(&mut watch, &path, "a", &mut changes).expect("watched");
        assert!(changes.still(a));
        fs::remove_dir_all(&path).expect("our own");
        hear(&mut watch, &mut changes);
        assert!(!changes.still(a));
        let there = sight(&mut watch, &path, "a", &mut changes);
        assert_eq!(there, None, "there is no such directory");
    }

    #[test]
    fn who_writes_without_pause_is_heard_a_little_in_each_turn_and_then_not_at_all() {
        let path = directory("loud");
        let (mut watch, mut changes) = (Watch::new().expect("inotify"), Changes::default());
        sight(&mut watch, &path, "a", &mut changes);
        let a = sight(&mut watch, &path, "a", &mut changes).expect("watched");
        assert!(changes.still(a));
        // Two names in turn, since the kernel makes one of two equal events.
        let names = ["b", "c"].map(|name| path.join(name));
        let writes = |count: u32| {
            for nth in 0..count as usize {
                fs::write(&names[nth % 2], "1").expect("written");
            }
        };
        writes(WATCH_EVENTS_MAX);
        let goes = hear(&mut watch, &mut changes);
        let at_once = HEARD_READS_MAX * 4096 / 32;
        assert!(
            goes >= WATCH_EVENTS_MAX as usize / at_once,
            "all in {goes} goes"
        );
        assert!(!changes.still(a));
        assert_eq!(
            sight(&mut watch, &path, "a", &mut changes),
            None,
            "it is loud"
        );
        writes(WATCH_EVENTS_MAX);
        assert_eq!(hear(&mut watch, &mut changes), 0, "the kernel was told so");
        let later = changes.moment(NOW.plus_us(WATCH_PAUSE_US));
        assert!(watch.add(&path, b"a", &mut changes, later).is_some());
        fs::remove_dir_all(&path).expect("our own");
    }
}
