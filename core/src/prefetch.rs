//! How much to read ahead for whom: TPF's TDAP, from each connection's rate and from what it still has.
//!
//! T_n (eq. 5) is the time until stream n runs dry. A stream is due when T_n ≤ T_D/2. Then one read, of D4 bytes (eq. 7),
//! fills it up to T_D. The paper leaves T_D's unit open (eq. 6); here it follows from what a sweep takes:
//! N streams cost N positionings, and while they are served all of them go on taking bytes, so that a
//! sweep in which each is read once lasts C = N t_p / (1 - B_net/R). T_D is 2C: a stream that is due with C left waits for
//! one sweep at most, and is served in time.
//!
//! Memory bounds T_D from above: B_net T_D is what all buffers hold when they are full, and half of that if each is empty when it is
//! read for again. A controller ([`PoolController`]) finds what may be planned for by how full the pool really is.

use crate::limits::{
    FIRST_READ_BYTES, READ_BYTES_MAX, READ_BYTES_MIN, READ_TARGET_US_MAX, SEND_BUFFER_BYTES,
    SHORT_REST_BYTES, SLOT_BYTES,
};
use crate::model::Model;
use crate::units::{Instant, KIB, US_PER_S};

/// T_D is at least this long where memory allows: shorter ones save nothing.
const READ_TARGET_US_MIN: u64 = US_PER_S;
/// B_D of the paper's rule is what a disk gives to scattered reads of this length, TPF's H_max (128 pages). The paper says
/// "random disk I/O access" and gives no length.
const PAPER_READ_BYTES: u64 = 512 * KIB;
/// The share of the pool that is to be in use when a read begins.
const FILL: f64 = 0.8;
/// Reads are planned for so much of the memory at first: buffers are half full in the mean.
const PLANNED_START: f64 = 2.0;
/// For no less and no more: a pool that stays full or empty for another reason moves reads no further.
const PLANNED_LEAST: f64 = 0.5;
const PLANNED_MOST: f64 = 16.0;
/// The part of the gap to [`FILL`] that one sweep closes.
const FILL_GAIN: f64 = 0.5;
/// Each time that memory becomes too short for the next read, reads become shorter by this factor.
const FILL_SHORT: f64 = 0.98;

/// How the length of a read is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// By T_D of the present load, as the module says.
    Tdap,
    /// By eqs. 6 and 7 as they are printed, with units that fit (docs/papers.md): T_D is 2 B_D / B_net seconds, where B_D is what
    /// the disk gives to scattered reads, and each stream has its rate's part of the memory that is free.
    Paper,
    /// By a constant T_D.
    Rate {
        /// T_D.
        target_us: u64,
    },
    /// The same for all, as a kernel's readahead does: read when no more than one such read is left.
    Fixed {
        /// Length of each read.
        read_bytes: u64,
    },
}

/// What the length of a read follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadNeed {
    /// T_D.
    pub target_us: u64,
    /// T_n: the stream runs dry in this time.
    pub margin_us: u64,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// Which read of the stream it is, from 0 on.
    pub nth: u32,
    /// What is left of its response.
    pub rest_bytes: u64,
    /// H_max, greater on faster devices ([`Model::read_bytes_max`]): no read that follows from T_D is longer.
    pub most_bytes: u64,
    /// M_a: what is free of the memory.
    pub free_bytes: u64,
    /// B_net.
    pub rates_bytes_per_s: u64,
}

/// What sets the length of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthBound {
    /// T_D - T_n at the stream's rate: nothing else binds.
    Rate,
    /// [`FIRST_READ_BYTES`].
    First,
    /// The stream's rate is still not known after its first read: [`READ_BYTES_MIN`] at its second one, which is less, and then twice
    /// as much each time.
    Unknown,
    /// [`Prefetch::Fixed`].
    Fixed,
    /// [`READ_BYTES_MIN`].
    Floor,
    /// H_max ([`ReadNeed::most_bytes`]).
    Ceiling,
    /// What is free of the memory, or the largest part of it that one may have.
    Memory,
    /// Others come for the same bytes soon, and are read for in windows ([`crate::limits::WINDOW_BYTES`]).
    Window,
    /// What the stream wants ends.
    End,
}

impl LengthBound {
    /// The rest of the sentence "it is this long because".
    pub fn sentence(self) -> &'static str {
        match self {
            LengthBound::Rate => "that lasts for the target at its rate",
            LengthBound::First | LengthBound::Unknown => {
                "its rate is not known yet, and a short read finds it out"
            }
            LengthBound::Fixed => "all reads are (prefetch = fixed)",
            LengthBound::Floor => "less is not worth the positioning",
            LengthBound::Ceiling => "more makes a disk no faster",
            LengthBound::Memory => "memory has room for no more (memory_max)",
            LengthBound::Window => "it goes to the end of the window that readers near by share",
            LengthBound::End => "that is all that is left to read",
        }
    }
}

/// What sets T_D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetBound {
    /// It is the time of two sweeps.
    Sweeps,
    /// A second; memory may make it shorter still.
    Floor,
    /// [`READ_TARGET_US_MAX`].
    Ceiling,
    /// The memory for reading ahead.
    Memory,
    /// [`Prefetch::Paper`].
    Paper,
    /// [`Prefetch::Rate`] or [`Prefetch::Fixed`].
    Setting,
}

impl TargetBound {
    /// The rest of the sentence "the target is so long since".
    pub fn sentence(self) -> &'static str {
        match self {
            TargetBound::Sweeps => "two sweeps take so long",
            TargetBound::Floor => "two sweeps take less, and a shorter one saves nothing",
            TargetBound::Ceiling => "two sweeps take longer, but clients may leave meanwhile",
            TargetBound::Memory => "memory has room for no more (memory_max)",
            TargetBound::Paper => {
                "it is twice the disk's rate over that of all streams (prefetch = paper)"
            }
            TargetBound::Setting => "it is set (prefetch)",
        }
    }
}

/// What sets K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthBound {
    /// The time for which a new client's first read may wait for it.
    FirstRead,
    /// The most for a device, or for each disk without an arm.
    Most,
    /// The memory for reading ahead.
    Memory,
    /// A constant.
    Setting,
}

impl DepthBound {
    /// The rest of the sentence "it gets so many reads at once since".
    pub fn sentence(self) -> &'static str {
        match self {
            DepthBound::FirstRead => {
                "more would make a new client wait too long for its first bytes"
            }
            DepthBound::Most => "no device of its kind gets more",
            DepthBound::Memory => "memory has room for no more (memory_max)",
            DepthBound::Setting => "it is set",
        }
    }
}

/// What is asked of a device together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    /// N.
    pub streams: u64,
    /// B_net, the sum of their rates.
    pub rates_bytes_per_s: u64,
    /// M, the memory in which their bytes may wait.
    pub memory_bytes: u64,
    /// Memory that reads are planned for, in hundredths of M: see [`PoolController`].
    pub planned_percent: u64,
}

/// Finds how much memory reads may be planned for, by how full the pool really is. Clients that take their bytes at once and keep
/// them in their receive buffers leave it emptier than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolController {
    factor: f64,
}

impl Default for PoolController {
    fn default() -> PoolController {
        PoolController {
            factor: PLANNED_START,
        }
    }
}

impl PoolController {
    /// One of `streams` has its turn, when `used` of `max` slots are in use, in a sweep whose reads memory bounds
    /// ([`Prefetch::lacks_memory`]).
    /// A pool that is too empty makes reads longer only for a stream in an `underrun`: longer reads are of no use to the others.
    /// One that is too full always makes them shorter.
    pub fn turn(&mut self, underrun: bool, used: u32, max: u32, streams: u64) {
        let gap = FILL - f64::from(used) / f64::from(max.max(1));
        if underrun || gap < 0.0 {
            let step = 1.0 + gap * FILL_GAIN / streams.max(1) as f64;
            self.set(self.factor * step);
        }
    }

    /// A read was to begin, and memory was lacking for it.
    pub fn short(&mut self) {
        self.set(self.factor * FILL_SHORT);
    }

    /// For [`DeviceLoad::planned_percent`].
    pub fn percent(&self) -> u64 {
        (self.factor * 100.0) as u64
    }

    fn set(&mut self, factor: f64) {
        self.factor = factor.clamp(PLANNED_LEAST, PLANNED_MOST);
    }
}

impl Prefetch {
    /// Whether memory makes T_D shorter than it would be.
    pub fn lacks_memory(self, load: &DeviceLoad, model: &Model) -> bool {
        self == Prefetch::Tdap && memory_us(load, model) < sweeps_us(load, model)
    }

    /// T_D at this load of a device.
    pub fn target_us(self, load: &DeviceLoad, model: &Model) -> u64 {
        self.target(load, model).0
    }

    /// T_D at this load of a device, in microseconds, and what sets it.
    pub fn target(self, load: &DeviceLoad, model: &Model) -> (u64, TargetBound) {
        match self {
            Prefetch::Tdap => tdap(load, model),
            Prefetch::Paper => (paper_us(load, model), TargetBound::Paper),
            Prefetch::Rate { target_us } => (target_us, TargetBound::Setting),
            Prefetch::Fixed { .. } => (0, TargetBound::Setting),
        }
    }

    /// When a stream counts as running dry that does so at `underrun_at`: it is due T_D/2 before that. `Fixed` has no T_D, and takes
    /// off the time that one read lasts.
    pub fn dry_at(self, underrun_at: Instant, rate_bytes_per_s: u64) -> Instant {
        match self {
            Prefetch::Fixed { read_bytes } if rate_bytes_per_s > 0 => Instant {
                us: underrun_at
                    .us
                    .saturating_sub(us_for(read_bytes, rate_bytes_per_s)),
            },
            _ => underrun_at,
        }
    }

    /// D4 (eq. 7): how much to read for a stream, in bytes, and what sets that. While its rate is unknown reads are short, except for
    /// `Fixed`. Memory bounds `Tdap` by T_D already.
    pub fn read_bytes(self, asked: &ReadNeed) -> (u64, LengthBound) {
        match self {
            Prefetch::Fixed { read_bytes } => (read_bytes, LengthBound::Fixed),
            _ if asked.rate_bytes_per_s == 0 => unknown_bytes(asked),
            Prefetch::Paper => asked.read_bytes(asked.share_bytes(), SLOT_BYTES),
            Prefetch::Tdap | Prefetch::Rate { .. } => asked.read_bytes(u64::MAX, READ_BYTES_MIN),
        }
    }
}

impl ReadNeed {
    /// Eq. 7, but never less than `least_bytes`.
    fn read_bytes(&self, by_memory: u64, least_bytes: u64) -> (u64, LengthBound) {
        let (by_time, h_max) = (self.lasting_bytes(), self.most_bytes);
        let bytes = by_time.min(by_memory).min(h_max);
        let bound = match bytes {
            _ if bytes < least_bytes => LengthBound::Floor,
            _ if bytes == by_time => LengthBound::Rate,
            _ if bytes == by_memory => LengthBound::Memory,
            _ => LengthBound::Ceiling,
        };
        (bytes.max(least_bytes), bound)
    }

    /// (T_D - T_n) B_n.
    fn lasting_bytes(&self) -> u64 {
        let us = u128::from(self.target_us.saturating_sub(self.margin_us));
        let bytes = us * u128::from(self.rate_bytes_per_s) / u128::from(US_PER_S);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// M_a B_n / B_net.
    fn share_bytes(&self) -> u64 {
        let rates = self.rates_bytes_per_s.max(self.rate_bytes_per_s).max(1);
        let bytes =
            u128::from(self.free_bytes) * u128::from(self.rate_bytes_per_s) / u128::from(rates);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

fn unknown_bytes(asked: &ReadNeed) -> (u64, LengthBound) {
    let rest_bytes = asked.rest_bytes;
    match asked.nth {
        0 if rest_bytes <= SHORT_REST_BYTES / 4 => (rest_bytes, LengthBound::End),
        0 => (FIRST_READ_BYTES, LengthBound::First),
        _ if rest_bytes <= SHORT_REST_BYTES => (rest_bytes, LengthBound::End),
        nth => (
            (READ_BYTES_MIN << (nth - 1).min(16)).min(READ_BYTES_MAX),
            LengthBound::Unknown,
        ),
    }
}

/// How long `bytes` last at a rate; for ever if that is 0.
pub fn us_for(bytes: u64, rate_bytes_per_s: u64) -> u64 {
    let us = (u128::from(bytes) * u128::from(US_PER_S)).checked_div(rate_bytes_per_s.into());
    us.map_or(u64::MAX, |us| u64::try_from(us).unwrap_or(u64::MAX))
}

/// Eq. 6, taken for seconds. B_D is what the disk gives to reads of [`PAPER_READ_BYTES`].
fn paper_us(load: &DeviceLoad, model: &Model) -> u64 {
    let disk = model.throughput_bytes_per_s(PAPER_READ_BYTES);
    us_for(2 * disk, load.rates_bytes_per_s).clamp(READ_TARGET_US_MIN / 10, READ_TARGET_US_MAX)
}

fn tdap(load: &DeviceLoad, model: &Model) -> (u64, TargetBound) {
    let (sweeps_us, memory_us) = (sweeps_us(load, model), memory_us(load, model));
    match sweeps_us {
        _ if memory_us < sweeps_us => (memory_us, TargetBound::Memory),
        READ_TARGET_US_MIN => (sweeps_us, TargetBound::Floor),
        READ_TARGET_US_MAX => (sweeps_us, TargetBound::Ceiling),
        _ => (sweeps_us, TargetBound::Sweeps),
    }
}

/// T_D of two sweeps.
fn sweeps_us(load: &DeviceLoad, model: &Model) -> u64 {
    cycle_us(load, model)
        .saturating_mul(2)
        .clamp(READ_TARGET_US_MIN, READ_TARGET_US_MAX)
}

/// The longest T_D for which memory is planned: the pool's, and what waits in the sockets.
fn memory_us(load: &DeviceLoad, model: &Model) -> u64 {
    // How fast memory drains: what is asked for, or what the device can give.
    let most = model.throughput_bytes_per_s(model.read_bytes_max()).max(1);
    let rate = load.rates_bytes_per_s.min(most).max(1);
    let sockets_bytes = load.streams.saturating_mul(SEND_BUFFER_BYTES);
    let bytes = (load.memory_bytes / 10 * 9).saturating_add(sockets_bytes);
    us_for(bytes, rate).saturating_mul(load.planned_percent) / 100
}

/// C: the time of a sweep in which each stream is read once; `u64::MAX` in overload (B_net ≥ R).
fn cycle_us(load: &DeviceLoad, model: &Model) -> u64 {
    let media = model.media_bytes_per_s();
    let left = media.saturating_sub(load.rates_bytes_per_s);
    let us = u128::from(load.streams) * u128::from(model.positioning_us()) * u128::from(media);
    let us = us.checked_div(left.into());
    us.map_or(u64::MAX, |us| u64::try_from(us).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    const TDAP: Prefetch = Prefetch::Tdap;

    fn load(streams: u64, each: u64, memory_mib: u64) -> DeviceLoad {
        DeviceLoad {
            streams,
            rates_bytes_per_s: streams * each,
            memory_bytes: memory_mib * MIB,
            planned_percent: 200,
        }
    }

    fn asked(target_us: u64, margin_us: u64, rate_bytes_per_s: u64, nth: u32) -> ReadNeed {
        ReadNeed {
            target_us,
            margin_us,
            rate_bytes_per_s,
            nth,
            rest_bytes: u64::MAX,
            most_bytes: READ_BYTES_MAX,
            free_bytes: 48 * MIB,
            rates_bytes_per_s: 30_000_000,
        }
    }

    /// t_p 4 ms, R 56 MB/s.
    fn disk() -> Model {
        let mut model = Model::new(true);
        let mut now = Instant { us: 1 };
        model.begun(true, now);
        for n in 0..2_000u64 {
            let len_bytes = 65_536 + n * 7_919 % 2_000_000;
            now = now.plus_us(4_000 + len_bytes * US_PER_S / 56_000_000);
            model.done(len_bytes, now);
        }
        model
    }

    #[test]
    fn with_memory_enough_t_d_is_two_sweeps() {
        // 480 streams, 30 MB/s: C = 480 * 4 ms / (1 - 30/56) = 4.1 s
        let target_us = TDAP.target_us(&load(480, 62_500, 10_000), &disk());
        assert!(target_us.abs_diff(8_270_000) < 300_000, "{target_us}");
    }

    #[test]
    fn t_d_tells_what_sets_it() {
        let bound = |streams, each, mib| TDAP.target(&load(streams, each, mib), &disk()).1;
        assert_eq!(bound(480, 62_500, 10_000), TargetBound::Sweeps);
        assert_eq!(bound(480, 62_500, 48), TargetBound::Memory);
        assert_eq!(bound(1, 62_500, 48), TargetBound::Floor);
        assert_eq!(bound(200, 300_000, 1 << 20), TargetBound::Ceiling);
        let set = Prefetch::Rate { target_us: 7 };
        let target = set.target(&load(1, 1, 1), &disk());
        assert_eq!(target, (7, TargetBound::Setting));
    }

    #[test]
    fn little_memory_shortens_t_d_and_overload_fills_it() {
        let disk = disk();
        let short_us = TDAP.target_us(&load(480, 62_500, 48), &disk);
        assert!((4_500_000..5_200_000).contains(&short_us), "{short_us}");
        // 200 x 300 KB/s is more than the disk has: all of the memory is half a buffer each.
        let full_us = TDAP.target_us(&load(200, 300_000, 256), &disk);
        let (read_bytes, _) = TDAP.read_bytes(&asked(full_us, 0, 300_000, 1));
        assert!((2_700_000..3_200_000).contains(&read_bytes), "{read_bytes}");
    }

    #[test]
    fn a_pool_that_stays_empty_makes_reads_longer_and_a_full_one_shorter() {
        let disk = disk();
        let mut load = load(200, 300_000, 64);
        let calculated_us = TDAP.target_us(&load, &disk);
        let mut fill = PoolController::default();
        let mut sweeps = |used, count| {
            (0..count * load.streams).for_each(|_| fill.turn(true, used, 1_000, load.streams));
            load.planned_percent = fill.percent();
            TDAP.target_us(&load, &disk)
        };
        let longer_us = sweeps(300, 2);
        assert!(
            longer_us > calculated_us * 5 / 4,
            "{longer_us} {calculated_us}"
        );
        let shorter_us = sweeps(1_000, 8);
        assert!(shorter_us < calculated_us, "{shorter_us}");
        let least_us = sweeps(1_000, 1_000);
        assert!((least_us + 1) * 4 >= calculated_us, "{least_us}");
    }

    #[test]
    fn memory_is_lacking_where_it_makes_reads_shorter() {
        assert!(TDAP.lacks_memory(&load(200, 300_000, 64), &disk()));
        assert!(!TDAP.lacks_memory(&load(100, 10_000, 1_000), &disk()));
        let constant = Prefetch::Rate { target_us: 1 };
        assert!(!constant.lacks_memory(&load(200, 300_000, 64), &disk()));
    }

    #[test]
    fn the_papers_rule_comes_near_its_times_and_lengths() {
        // TPF 4.3: 180 clients of 1 Mbit/s and 300 of 200 kbit/s, T_D of 2.76 to 3.08 s, reads of 184 KB. On our disk
        // T_D is less, and so is a read for a stream that is due (T_n = T_D/2).
        let target_us = Prefetch::Paper.target_us(&load(480, 62_500, 48), &disk());
        assert!((2_550_000..2_650_000).contains(&target_us), "{target_us}");
        let read = |rate| Prefetch::Paper.read_bytes(&asked(target_us, target_us / 2, rate, 1));
        let (bytes, bound) = read(125_000);
        assert!((160_000..166_000).contains(&bytes), "{bytes}");
        assert_eq!(bound, LengthBound::Rate);
        assert_eq!(read(1 << 40), (READ_BYTES_MAX, LengthBound::Ceiling));
        let little = ReadNeed {
            free_bytes: 24_000_000,
            ..asked(2_900_000, 0, 125_000, 1)
        };
        assert_eq!(
            Prefetch::Paper.read_bytes(&little),
            (100_000, LengthBound::Memory)
        );
    }

    #[test]
    fn a_read_follows_the_rate_within_its_bounds() {
        let read = |rate| TDAP.read_bytes(&asked(4_000_000, 1_000_000, rate, 0));
        assert_eq!(read(0), (FIRST_READ_BYTES, LengthBound::First));
        assert_eq!(read(1_000), (READ_BYTES_MIN, LengthBound::Floor));
        assert_eq!(read(125_000), (375_000, LengthBound::Rate));
        assert_eq!(read(1 << 40), (READ_BYTES_MAX, LengthBound::Ceiling));
        let fixed = Prefetch::Fixed {
            read_bytes: 131_072,
        };
        assert_eq!(
            fixed.read_bytes(&asked(0, 0, 125_000, 0)),
            (131_072, LengthBound::Fixed)
        );
        let underrun_at = Instant { us: 5_000_000 };
        assert_eq!(fixed.dry_at(underrun_at, 131_072).us, 4_000_000);
        assert_eq!(fixed.dry_at(underrun_at, 0), underrun_at, "nobody knows");
    }
}
