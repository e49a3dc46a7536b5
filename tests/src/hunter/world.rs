//! The files, and what others do to them: change them, read them into the page cache, evict them from it, break their
//! disk.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::content::State;
use super::files::{device_offset, modified_ns, set_time, some_age, write_all};
use super::history::{Change, History, Life};
use super::plan::Span;
use super::weather::{Medium, Mood, Weather};
use crate::{Disk, Rng, Setup, Throttle, Tree, skip};

/// Whether a file never changes: every second one.
const fn is_still(file: usize) -> bool {
    file % 2 == 0
}

/// A range of a file that a client waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub file: usize,
    pub span: Span,
    /// Others read from here up to `end`.
    pub from: u64,
    /// End of what others read (exclusive).
    pub end: u64,
}

/// Ranges that are remembered; further ones are ignored.
const WANTED: usize = 6;

/// The files that the server serves, while others change them.
pub struct World {
    /// The content of each file over time.
    pub history: History,
    /// True once others are to stop.
    pub over: AtomicBool,
    disk: Option<Disk>,
    throttle: OnceLock<Throttle>,
    tree: Tree,
    weather: Weather,
    seed: u64,
    start: Instant,
    /// End of the disk's hang, in ms since the start; `u64::MAX`: not known yet.
    hangs_until_ms: AtomicU64,
    versions: AtomicU64,
    /// Ranges that clients wait for, and those of them that have been read since.
    wanted: Mutex<VecDeque<Wanted>>,
    read: Mutex<VecDeque<Wanted>>,
}

impl World {
    /// Creates the files. `None` where the machine has no disk for this weather, which is reported as skipped.
    pub fn new(weather: &Weather, seed: u64) -> Option<World> {
        let disk = match weather.medium {
            Medium::Plain => None,
            Medium::Emulated { rate_bytes_per_s } => Some(Disk::slow(rate_bytes_per_s)?),
        };
        let tree = Tree::new();
        tree.dir("site");
        let mut world = World {
            history: History::default(),
            over: AtomicBool::new(false),
            disk,
            throttle: OnceLock::new(),
            tree,
            weather: weather.clone(),
            seed,
            start: Instant::now(),
            hangs_until_ms: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            wanted: Mutex::default(),
            read: Mutex::default(),
        };
        fs::create_dir_all(world.root().join("site")).expect("a directory");
        fs::create_dir_all(world.root().join("new")).expect("a directory");
        let mut rng = Rng::new(seed ^ 1);
        let (count, longest) = weather.files;
        let lives = (0..count)
            .map(|file| world.make(file, &mut rng, longest))
            .collect();
        world.history = History::new(lives);
        let probe = world.root().join("probe");
        fs::write(&probe, "probe").expect("a file");
        set_time(&probe, Duration::from_secs(3600)).expect("its time");
        world.sync();
        world.tell("fast off");
        Some(world)
    }

    fn make(&self, file: usize, rng: &mut Rng, longest: u64) -> Life {
        // A few short files; all others up to the longest.
        let len_bytes = match file % 8 {
            6 => 1 + rng.below(5000) as u64,
            7 => 1 + rng.below(200_000) as u64,
            _ => longest / 4 + rng.below(longest as usize * 3 / 4) as u64,
        };
        let state = State::new(file as u8, self.next_version(), len_bytes);
        let path = self.path(file);
        write_all(&File::create(&path).expect("a file"), &state, 0).expect("room for the files");
        set_time(&path, some_age(rng, 3600)).expect("its time");
        Life::new(
            &format!("/site/f{file:02x}"),
            Some(state),
            Instant::now() - super::history::STALE_FOR,
        )
    }

    /// Path of the files for this process.
    fn root(&self) -> PathBuf {
        match &self.disk {
            Some(disk) => disk.at(""),
            None => self.tree.at("site"),
        }
    }

    fn path(&self, file: usize) -> PathBuf {
        self.root().join(format!("site/f{file:02x}"))
    }

    /// A server of these files, to be started.
    pub fn setup(&self) -> Setup {
        let at = self.tree.at("site");
        let setup = Setup::new(&at);
        match &self.disk {
            Some(disk) => disk.served_at(&at, setup),
            None => setup,
        }
    }

    /// Names the server's process.
    pub fn serves(&self, pid: u32) {
        if self.weather.mood == Mood::Throttled {
            match Throttle::new(pid, &self.root()) {
                Ok(throttle) => drop(self.throttle.set(throttle)),
                Err(error) => skip(&format!(
                    "no group for a process that reads slowly: {error}; the disk is slow for all instead"
                )),
            }
        }
    }

    fn throttle(&self, rate_bytes_per_s: Option<u64>) {
        match self.throttle.get() {
            Some(throttle) => throttle.limit(rate_bytes_per_s).expect("a group of ours"),
            None => self.tell(if rate_bytes_per_s.is_some() {
                "fast off"
            } else {
                "fast on"
            }),
        }
    }

    /// When the disk last hung; the present time if it hangs now.
    pub fn hung_at(&self) -> Option<Instant> {
        match self.hangs_until_ms.load(Ordering::Acquire) {
            0 => None,
            u64::MAX => Some(Instant::now()),
            ms => Some(self.start + Duration::from_millis(ms)),
        }
    }

    fn tell(&self, words: &str) {
        if let Some(disk) = &self.disk {
            disk.tell(words);
        }
    }

    fn sync(&self) {
        let root = File::open(self.root()).expect("the directory");
        // SAFETY: an open descriptor.
        unsafe { libc::syncfs(root.as_raw_fd()) };
    }

    /// Whether others are to stop.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn next_version(&self) -> u32 {
        self.versions.fetch_add(1, Ordering::Relaxed) as u32 + 1
    }

    /// Stops the others, and makes the disk work at full speed.
    pub fn calm_down(&self) {
        self.over.store(true, Ordering::Release);
        self.tell("heal");
        self.tell("fast on");
        self.throttle(None);
    }

    /// Runs all others until the weather is over, each in a thread of the scope.
    pub fn others<'scope>(self: &'scope Arc<World>, scope: &'scope std::thread::Scope<'scope, '_>) {
        let others = self.weather.others;
        let each = |per_s: u64, salt: u64, act: fn(&World, &mut Rng)| {
            if per_s == 0 {
                return;
            }
            scope.spawn(move || {
                let mut rng = Rng::new(self.seed ^ salt);
                while !self.is_over() {
                    act(self, &mut rng);
                    self.rest(1 + rng.below(2000 / per_s as usize) as u64);
                }
            });
        };
        each(others.changes, 2, World::change);
        for salt in 10..14 {
            each(others.fills.div_ceil(4), salt, World::fill);
        }
        each(others.drops, 5, World::drop_pages);
        each(others.backup.into(), 6, World::back_up);
        each(
            u64::from(self.weather.mood != Mood::Steady),
            7,
            World::disturb,
        );
    }

    /// Pauses between two acts; returns early if the weather is over.
    pub fn rest(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while !self.is_over() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(ms.min(20)));
        }
    }

    fn some_file(&self, rng: &mut Rng) -> Option<(File, u64)> {
        let file = File::open(self.path(rng.below(self.weather.files.0))).ok()?;
        let len = file.metadata().ok()?.len();
        Some((file, len.max(1)))
    }

    /// Notes a range that a client waits for, so that another process may read it too. Returns false if too many are
    /// noted already.
    pub fn wanted(&self, wanted: Wanted) -> bool {
        let mut all = lock(&self.wanted);
        if self.weather.others.fills == 0 || all.len() >= WANTED {
            return false;
        }
        all.push_back(wanted);
        true
    }

    /// Returns a range that a client waited for and another process has read since.
    pub fn read_since(&self) -> Option<Wanted> {
        lock(&self.read).pop_front()
    }

    fn fill(&self, rng: &mut Rng) {
        let wanted = lock(&self.wanted).pop_front();
        if let Some(wanted) = wanted {
            if let Ok(file) = File::open(self.path(wanted.file)) {
                self.read_piece(&file, wanted.from, wanted.end);
                lock(&self.read).push_back(wanted);
            }
        } else if let Some((file, len)) = self.some_file(rng) {
            let from = rng.below(len as usize) as u64;
            self.read_piece(&file, from, from + (1 + rng.below(4 << 20)) as u64);
        }
    }

    fn read_piece(&self, file: &File, mut at: u64, end: u64) {
        let mut piece = vec![0; 128 << 10];
        while at < end && !self.is_over() {
            match file.read_at(&mut piece, at) {
                Ok(0) | Err(_) => return,
                Ok(read) => at += read as u64,
            }
        }
    }

    fn drop_pages(&self, rng: &mut Rng) {
        let Some((file, len)) = self.some_file(rng) else {
            return;
        };
        let at = rng.below(len as usize) as i64;
        let (at, count) = if rng.below(2) == 0 {
            (0, 0)
        } else {
            (at, 4 << 20)
        };
        // SAFETY: no pointers. Dirty pages stay.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), at, count, libc::POSIX_FADV_DONTNEED) };
    }

    fn back_up(&self, rng: &mut Rng) {
        let Some((mut file, _)) = self.some_file(rng) else {
            return;
        };
        // SAFETY: no pointers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let mut piece = vec![0; 128 << 10];
        while !self.is_over() && file.read(&mut piece).is_ok_and(|read| read > 0) {}
    }

    fn disturb(&self, rng: &mut Rng) {
        match self.weather.mood {
            Mood::Steady => {}
            Mood::Changing => {
                self.tell("fast off");
                self.rest(500 + rng.below(4000) as u64);
                self.tell("fast on");
                self.rest(rng.below(1500) as u64);
            }
            Mood::Throttled => {
                self.throttle(Some([50_000, 50_000, 2_000_000][rng.below(3)]));
                self.rest(500 + rng.below(3000) as u64);
                self.throttle(None);
                self.rest(rng.below(1500) as u64);
            }
            Mood::Hangs { most_ms } => {
                self.hangs_until_ms.store(u64::MAX, Ordering::Release);
                self.tell("hang");
                self.rest(rng.below(most_ms as usize) as u64);
                self.tell("heal");
                let ms = self.start.elapsed().as_millis() as u64;
                self.hangs_until_ms.store(ms, Ordering::Release);
                self.rest(rng.below(1500) as u64);
            }
            Mood::Fails => {
                let Some((file, len)) = self.some_file(rng) else {
                    return;
                };
                if let Some(at) = device_offset(&file, rng.below(len as usize) as u64) {
                    self.tell(&format!("eio {at} {}", 4096 << rng.below(6)));
                    self.rest(rng.below(800) as u64);
                    self.tell("heal");
                }
                self.rest(rng.below(400) as u64);
            }
        }
    }

    /// Changes a file in one of the ways that people and programs do.
    fn change(&self, rng: &mut Rng) {
        let file = rng.below(self.weather.files.0);
        if is_still(file) {
            return;
        }
        let now = self.history.lives()[file].now().clone();
        let done = match now.state {
            None => self.replace(file, rng, Change::Appear, None),
            Some(state) => match rng.below(14) {
                0..2 => self.grow(file, &state, rng),
                2..6 => self.rewrite(file, &state, rng, now.modified_ns),
                6 => self.replace(file, rng, Change::Replace, None),
                7 => {
                    let alike = Some((state.len_bytes(), now.modified_ns));
                    self.replace(file, rng, Change::Replace, alike)
                }
                8 => self.cut(file, &state, rng),
                9 if rng.below(3) == 0 => self.remove(file),
                _ => self.touch(file, state, rng),
            },
        };
        done.unwrap_or_else(|error| panic!("changing {}: {error}", self.path(file).display()));
        let modified_ns = modified_ns(&self.path(file)).unwrap_or(0);
        self.history.end(file, modified_ns);
    }

    fn grow(&self, file: usize, state: &State, rng: &mut Rng) -> io::Result<()> {
        let more = 1 + rng.below(300_000) as u64;
        let grown = state.grown(self.next_version(), more);
        self.history
            .begin(file, Change::Grow, Some(Arc::clone(&grown)));
        let out = File::options().write(true).open(self.path(file))?;
        write_all(&out, &grown, state.len_bytes())
    }

    /// Overwrites the file in place: like `cp`, which truncates it first, or like `rsync --inplace`. Sometimes it
    /// restores the old time.
    fn rewrite(&self, file: usize, state: &State, rng: &mut Rng, modified: i128) -> io::Result<()> {
        let old = state.len_bytes();
        let new = match rng.below(6) {
            0..2 => old,
            2..5 => old + 1 + rng.below(100_000) as u64,
            _ => 1 + rng.below(old as usize) as u64,
        };
        let next = State::new(file as u8, self.next_version(), new);
        self.history
            .begin(file, Change::InPlace, Some(Arc::clone(&next)));
        let first_cut = rng.below(3) == 0;
        let out = File::options()
            .write(true)
            .truncate(first_cut)
            .open(self.path(file))?;
        write_all(&out, &next, 0)?;
        out.set_len(new)?;
        if new == old && modified != 0 && rng.below(2) == 0 {
            let since = Duration::from_nanos(modified as u64);
            out.set_modified(SystemTime::UNIX_EPOCH + since)?;
        }
        Ok(())
    }

    fn cut(&self, file: usize, state: &State, rng: &mut Rng) -> io::Result<()> {
        let len = 1 + rng.below(state.len_bytes() as usize) as u64;
        self.history
            .begin(file, Change::InPlace, Some(state.cut(len)));
        File::options()
            .write(true)
            .open(self.path(file))?
            .set_len(len)
    }

    /// Renames another file over it. `alike`: the new one has the same length, and its time lies in the same second.
    fn replace(
        &self,
        file: usize,
        rng: &mut Rng,
        change: Change,
        alike: Option<(u64, i128)>,
    ) -> io::Result<()> {
        let longest = self.weather.files.1 as usize;
        let len = alike.map_or(1 + rng.below(longest) as u64, |alike| alike.0);
        let next = State::new(file as u8, self.next_version(), len);
        let new = self.root().join("new").join(format!("{file}"));
        write_all(&File::create(&new)?, &next, 0)?;
        match alike {
            Some((_, modified_ns)) if modified_ns > 0 => {
                let ns = rng.below(1_000_000_000) as u32;
                let second = Duration::new((modified_ns / 1_000_000_000) as u64, ns);
                File::options()
                    .write(true)
                    .open(&new)?
                    .set_modified(SystemTime::UNIX_EPOCH + second)?;
            }
            _ if rng.below(2) == 0 => set_time(&new, some_age(rng, 60))?,
            _ => {}
        }
        self.history.begin(file, change, Some(next));
        fs::rename(new, self.path(file))
    }

    fn remove(&self, file: usize) -> io::Result<()> {
        self.history.begin(file, Change::Vanish, None);
        fs::remove_file(self.path(file))
    }

    /// Sets an old time, so that its tag is strong.
    fn touch(&self, file: usize, state: Arc<State>, rng: &mut Rng) -> io::Result<()> {
        self.history.begin(file, Change::Touch, Some(state));
        set_time(&self.path(file), some_age(rng, 60))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
