//! The disk tier of a gateway: windows of objects as files of a cache folder, behind the [`Slab`] in memory.
//!
//! What reads bring into the slab is wanted by several, and goes to the folder, too, window by window, as soon as a window
//! is whole. When the slab has lost it, it is read from there rather than from the origin, into the same memory. A
//! restart finds it again. [`Index`] knows which files there are and which leaves next; this is its shell.
//!
//! | who | does |
//! |---|---|
//! | the upstream's thread | asks the index, hands over windows and reads ([`TierHandle`]), never waits for a disk |
//! | the keeper (`tier/keeper.rs`) | looks through the folder at the start, writes windows, and removes what leaves |
//! | the readers (`tier/reader.rs`) | read, and remove what is damaged |
//!
//! **A file is whole or not there.** It has no name while it is written (O_TMPFILE), so that nothing is left of one that
//! was not completed. It is not synced: after a power failure it may lack bytes. Its first page (`tier/page.rs`) says of which
//! version of which object of which origin it is a window, and has the checksum of its bytes, which is compared when
//! it is first read after a start. A file that does not agree is removed, and the origin has its bytes.
//!
//! **Nothing is removed because an object changed**: a file of another version is never asked for again, and leaves
//! when its turn comes. An operator's purge is another matter ([`Tier::purge`]): the origin may have the same version,
//! and the operator knows better.
//!
//! Files are read and written through the page cache: what memory is left on the machine makes the tier faster.

mod folder;
mod keeper;
mod page;
mod reader;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::disk::ReadId;
use ackpace_core::tier::{Index, Name, window_span};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};

use self::folder::Folder;
pub use self::folder::{TierError, inspect};
use self::keeper::Keeper;
pub use self::reader::Room;
use self::reader::TierReader;
use crate::clock::Clock;
use crate::log::Seldom;
use crate::mailbox::ThreadWaker;
use crate::sched;
use crate::store::slab::Slab;

/// The least size of a tier. Less: it is taken to be this.
pub const TIER_BYTES_MIN: u64 = 16 << 20;
/// What the smallest file takes: a page about it, and one with its bytes.
pub const FILE_BYTES_MIN: u64 = 2 * page::LEN as u64;
/// Threads that read. A disk with an arm gains nothing from more, and others are fast enough with these.
const READERS: u64 = 4;
/// Threads of a tier.
pub const THREADS: u64 = 1 + READERS;
/// Reads that wait for one of them, more than an upstream has at once but for cancelled ones. More: the origin is asked.
const READS_MAX: usize = 64;
/// Windows that wait to be written: what a fast origin brings in the second that a disk takes for them. More: they are
/// not kept, but perhaps when they are read the next time.
const WINDOWS_MAX: usize = 512;
/// Memory of its queues and of the buffers of its threads.
pub const QUEUES_BYTES: u64 = ((WINDOWS_MAX + READS_MAX)
    * (IDENTITY_BYTES_MAX + size_of::<TierRead>())) as u64
    + READERS * reader::PIECE_BYTES as u64;
/// The longest identity that has room in the first page of a file. Longer: the object is not kept on disk.
const IDENTITY_BYTES_MAX: usize = page::ROOM_BYTES;

/// A window of an object.
#[derive(Clone, Debug)]
pub struct Window {
    /// The object in the slab, whose name is not used again, not even by another process.
    pub object: ObjectId,
    /// What tells this version of this object of this origin apart from all others, forever: three lines, of which the
    /// second one is its target.
    pub identity: Arc<[u8]>,
    /// The length of the object.
    pub object_len_bytes: u64,
    /// Which of its windows, from 0 on.
    pub number: u64,
}

impl Window {
    fn name(&self) -> Name {
        Name::of(&self.identity, self.object_len_bytes, self.number)
    }

    /// Its bytes in the object.
    pub fn span(&self) -> Span {
        window_span(self.object_len_bytes, self.number)
    }

    /// Its file takes so much of the disk.
    fn cost_bytes(&self) -> u32 {
        cost_bytes(page::LEN as u64 + self.span().len_bytes)
    }
}

/// What a file of this length takes, in whole pages.
fn cost_bytes(file_len_bytes: u64) -> u32 {
    let pages_bytes = file_len_bytes.next_multiple_of(page::LEN as u64);
    u32::try_from(pages_bytes).unwrap_or(u32::MAX)
}

/// Bytes to be read.
#[derive(Debug)]
pub struct TierRead {
    /// Its number, for the [`TierDone`].
    pub read: ReadId,
    /// The window in which they begin.
    pub window: Window,
    /// They may go on in the next windows.
    pub span: Span,
    /// Where they go: there is room for all of them.
    pub room: Room,
}

/// A read came back.
#[derive(Debug)]
pub struct TierDone {
    /// Its number.
    pub read: ReadId,
    /// What it was given.
    pub room: Room,
    /// Bytes from its start that were read. Fewer than asked for: the others are not there.
    pub got_bytes: u64,
}

/// What a tier counts.
#[derive(Debug, Default)]
pub struct TierTally {
    /// Reads that brought bytes.
    pub reads: AtomicU64,
    /// The bytes that they brought.
    pub read_bytes: AtomicU64,
    /// Windows that were written.
    pub writes: AtomicU64,
    /// Their bytes.
    pub written_bytes: AtomicU64,
    /// Windows that were not written: the disk is too slow, or is left alone after an error, or the slab lost them first.
    pub skipped: AtomicU64,
    /// Files that made room for others.
    pub evicted: AtomicU64,
    /// Files that were not what they should be, and were removed.
    pub damaged: AtomicU64,
    /// Calls that failed, a full disk among them.
    pub errors: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

/// The tier of a process, shared by its threads.
#[derive(Debug)]
pub struct Tier {
    folder: Folder,
    /// Locked for a look-up, never over a system call.
    index: Mutex<Index>,
    /// What is being purged: how its targets begin.
    purged: Mutex<Option<Box<[u8]>>>,
    bytes_max: u64,
    tally: TierTally,
}

impl Tier {
    /// The tier in this folder, which is made if it is missing. `size` tells from the size of its file system how many
    /// bytes the files may take.
    ///
    /// # Errors
    /// The folder can't be used, or another process uses it.
    pub fn open(
        dir: &Path,
        size: impl FnOnce(u64) -> u64,
        files_max: usize,
    ) -> Result<Tier, TierError> {
        let folder = Folder::open(dir)?;
        let bytes_max = size(folder.file_system_bytes()?).max(TIER_BYTES_MIN);
        Ok(Tier {
            folder,
            index: Mutex::new(Index::new(bytes_max, files_max)),
            purged: Mutex::default(),
            bytes_max,
            tally: TierTally::default(),
        })
    }

    /// The folder, and the bytes that its files may take.
    pub fn place(&self) -> (&Path, u64) {
        (self.folder.path(), self.bytes_max)
    }

    /// What it counted.
    pub fn tally(&self) -> &TierTally {
        &self.tally
    }

    /// How many files there are, and the bytes that they take.
    pub fn kept(&self) -> (usize, u64) {
        self.index().kept()
    }

    /// Removes the windows of all objects whose target begins with `prefix`, on a thread of its own, which reads the first
    /// page of each file. Meanwhile none of them is read or written. Says whether it began: one purge at a time.
    pub fn purge(self: &Arc<Tier>, prefix: &[u8]) -> bool {
        let mut purged = self.purged();
        if purged.is_some() {
            return false;
        }
        *purged = Some(prefix.into());
        drop(purged);
        let tier = Arc::clone(self);
        let work = move || {
            sched::give_way();
            let removed = (0..=u8::MAX)
                .map(|nth| tier.purge_folder(nth))
                .sum::<usize>();
            *tier.purged() = None;
            let dir = tier.folder.path().display();
            tracing::info!("{dir}: {removed} files were purged");
        };
        let spawned = thread::Builder::new().name("purge".to_owned()).spawn(work);
        if spawned.is_err() {
            *self.purged() = None;
        }
        spawned.is_ok()
    }

    fn purge_folder(&self, nth: u8) -> usize {
        let files = self.folder.list(nth).files.into_iter();
        let meant = files.filter(|(name, _)| {
            let mut first = [0; page::LEN];
            let read = |file| rustix::io::pread(file, &mut first[..], 0);
            self.folder.read(*name).and_then(read) == Ok(page::LEN)
                && page::identity(&first).is_some_and(|identity| self.is_purged(identity))
        });
        meant.map(|(name, _)| self.discard(name)).count()
    }

    /// Whether objects of this identity are being purged.
    fn is_purged(&self, identity: &[u8]) -> bool {
        let target = identity.split(|byte| *byte == b'\n').nth(1);
        let purged = self.purged();
        let prefix = purged.as_ref().zip(target);
        prefix.is_some_and(|(prefix, target)| target.starts_with(prefix))
    }

    fn purged(&self) -> MutexGuard<'_, Option<Box<[u8]>>> {
        self.purged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts its threads, which live as long as the process. They take windows from `slab`, and wake by `waker` whoever
    /// waits for reads.
    pub fn start(
        self: &Arc<Tier>,
        slab: &Arc<Slab>,
        waker: &Arc<ThreadWaker>,
        (clock, seldom): (Clock, &Arc<Seldom>),
    ) -> io::Result<TierHandle> {
        let (windows, to_keep) = bounded(WINDOWS_MAX);
        let (reads, to_read) = bounded::<TierRead>(READS_MAX);
        let (done, came) = unbounded();
        let troubles = Troubles {
            tier: Arc::clone(self),
            clock,
            seldom: Arc::clone(seldom),
        };
        let keeper = Keeper::new(troubles.clone(), Arc::clone(slab), to_keep);
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name).spawn(|| {
                sched::give_way();
                work();
            })
        };
        spawn("tier".to_owned(), Box::new(|| keeper.run()))?;
        for n in 0..READERS {
            let mut reader = TierReader::new(troubles.clone());
            let (to_read, done, waker) = (to_read.clone(), done.clone(), Arc::clone(waker));
            let work = move || {
                for read in to_read {
                    let _ = done.send(reader.perform(read));
                    waker.wake();
                }
            };
            spawn(format!("tier-read.{n}"), Box::new(work))?;
        }
        Ok(TierHandle {
            tier: Arc::clone(self),
            windows,
            reads,
            done: came,
        })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file that should not be there, or not any more.
    fn discard(&self, name: Name) {
        self.folder.remove(name);
        self.index().remove(name); // after the file: a window that is not in the index may be written
    }
}

/// How the upstream's thread uses a tier.
#[derive(Debug)]
pub struct TierHandle {
    tier: Arc<Tier>,
    windows: Sender<Window>,
    reads: Sender<TierRead>,
    /// At most one for each read that was handed over.
    done: Receiver<TierDone>,
}

impl TierHandle {
    /// Whether this window is there, as far as is known.
    pub fn has(&self, window: &Window) -> bool {
        self.tier.index().has(window.name()) && !self.tier.is_purged(&window.identity)
    }

    /// This window is whole in the slab: it is written when its turn comes, if the slab has it still.
    pub fn keep(&self, window: Window) {
        if window.identity.len() > IDENTITY_BYTES_MAX || self.has(&window) {
            return;
        }
        if self.windows.try_send(window).is_err() {
            count(&self.tier.tally.skipped, 1);
        }
    }

    /// Begins a read; [`TierHandle::done`] has its result. The read comes back: too many wait.
    #[must_use]
    pub fn read(&self, read: TierRead) -> Option<TierRead> {
        let sent = self.reads.try_send(read);
        sent.map_err(TrySendError::into_inner).err()
    }

    /// The next read that came back.
    pub fn done(&self) -> Option<TierDone> {
        self.done.try_recv().ok()
    }
}

/// How threads of a tier tell the operator what goes wrong.
#[derive(Clone)]
struct Troubles {
    tier: Arc<Tier>,
    clock: Clock,
    seldom: Arc<Seldom>,
}

impl Troubles {
    /// A line of this sentence about the folder.
    fn tell(&self, text: std::fmt::Arguments<'_>) {
        let dir = self.tier.folder.path().display().to_string();
        let topic = crate::log::Topic::Tier;
        self.seldom.tell(topic, Some(&dir), text, self.clock.now());
    }
}

#[cfg(test)]
mod tests;
