//! Hearing of changes to the files that are kept ready (inotify(7)).
//!
//! Watched are the directories in which they lie. What inotify does not tell (a change of a directory
//! further up, a write by mmap(2), another machine's write to a network file system), and everything where it is
//! refused, is noticed within a second all the same.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::Hot;
use crate::limits::{WATCHED_FILES_MAX, WATCHES_MAX};

/// The directories that are watched, and which targets depend on them.
pub struct Watch {
    inotify: OwnedFd,
    directories: HashMap<i32, Directory>,
}

#[derive(Default)]
struct Directory {
    files: Vec<Watched>,
}

/// A file of a watched directory.
struct Watched {
    name: Box<[u8]>,
    /// The target whose answer it is.
    target: Box<[u8]>,
}

impl Watch {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// Where inotify is refused or its instances are used up (fs.inotify.max_user_instances).
    pub fn new() -> io::Result<Watch> {
        Ok(Watch {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            directories: HashMap::new(),
        })
    }

    /// Watch for changes of a file, from before it is read. Where there is no room for it, nothing is watched.
    pub fn add(&mut self, directory: &Path, name: &[u8], target: &[u8], hot: &Hot) {
        let what = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let Ok(wd) = inotify::add_watch(&self.inotify, directory, what) else {
            return;
        };
        if self.directories.len() >= WATCHES_MAX {
            self.tidy(wd, hot);
        }
        if self.directories.len() >= WATCHES_MAX && !self.directories.contains_key(&wd) {
            let _ = inotify::remove_watch(&self.inotify, wd);
            return;
        }
        let files = &mut self.directories.entry(wd).or_default().files;
        if files.len() >= WATCHED_FILES_MAX {
            files.retain(|file| hot.holds(&file.target));
        }
        let noted = files.iter().any(|file| *file.target == *target);
        if !noted && files.len() < WATCHED_FILES_MAX {
            files.push(Watched {
                name: name.into(),
                target: target.into(),
            });
        }
    }

    /// Stop watching directories of which nothing is kept any more, but for one.
    fn tidy(&mut self, but: i32, hot: &Hot) {
        let inotify = &self.inotify;
        self.directories.retain(|wd, directory| {
            directory.files.retain(|file| hot.holds(&file.target));
            let stays = *wd == but || !directory.files.is_empty();
            if !stays {
                let _ = inotify::remove_watch(inotify, *wd);
            }
            stays
        });
    }

    /// Forget the answers that changes have made old.
    pub fn hear(&mut self, hot: &mut Hot) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let Watch {
            inotify,
            directories,
        } = self;
        let mut reader = Reader::new(inotify.as_fd(), &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return, // EAGAIN: all was heard
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                hot.clear();
                continue;
            }
            let Some(directory) = directories.get_mut(&event.wd()) else {
                continue;
            };
            let name = event.file_name().map(|name| name.to_bytes());
            directory.changed(event.events(), name, hot);
            if event.events().contains(ReadFlags::IGNORED) {
                directories.remove(&event.wd());
            }
        }
    }
}

/// For epoll.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Directory {
    fn changed(&mut self, events: ReadFlags, name: Option<&[u8]>, hot: &mut Hot) {
        // A name that comes or goes may be an index file, or stand in for another name; a change of
        // the directory itself concerns all.
        let names =
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let all = name.is_none() || events.intersects(names);
        self.files.retain(|file| {
            let concerned = all || name == Some(&*file.name);
            if concerned {
                hot.forget(&file.target);
            }
            !concerned
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keep, kept};
    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let path =
            std::env::temp_dir().join(format!("ackpace-watch-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a fresh directory");
        path
    }

    #[test]
    fn a_change_of_a_file_forgets_its_answer_and_no_other() {
        let path = directory("file");
        std::fs::write(path.join("a"), "1").expect("written");
        std::fs::write(path.join("b"), "1").expect("written");
        let (mut watch, mut hot) = (Watch::new().expect("inotify"), Hot::new(10_000));
        for name in ["a", "b"] {
            let target = format!("/{name}");
            watch.add(&path, name.as_bytes(), target.as_bytes(), &hot);
            keep(&mut hot, &target);
        }
        watch.hear(&mut hot);
        assert!(kept(&mut hot, "/a") && kept(&mut hot, "/b"));
        std::fs::write(path.join("a"), "2").expect("written");
        watch.hear(&mut hot);
        assert!(!kept(&mut hot, "/a") && kept(&mut hot, "/b"));
        std::fs::rename(path.join("a"), path.join("b")).expect("renamed");
        watch.hear(&mut hot);
        assert!(!kept(&mut hot, "/b"));
        std::fs::remove_dir_all(&path).expect("our own");
    }

    #[test]
    fn a_directory_that_goes_takes_its_answers_along() {
        let path = directory("gone");
        std::fs::write(path.join("a"), "1").expect("written");
        let (mut watch, mut hot) = (Watch::new().expect("inotify"), Hot::new(10_000));
        watch.add(&path, b"a", b"/a", &hot);
        keep(&mut hot, "/a");
        std::fs::remove_dir_all(&path).expect("our own");
        watch.hear(&mut hot);
        assert!(!kept(&mut hot, "/a") && watch.directories.is_empty());
        watch.add(&path, b"a", b"/a", &hot);
        assert!(watch.directories.is_empty(), "there is no such directory");
    }
}
