//! K, the queue depth: how many reads a device is given at once, found by measurement.
//!
//! A read in the device can't be cancelled, and a new client's first read waits for those before it. So K is as small
//! as pays. A deeper queue lets the drive save positioning and keeps all disks of an array busy; how much that brings
//! can't be told from outside. The mean time between completions gives a starting value: as many reads as complete in
//! [`IN_DEVICE_US`], so a new client's first read waits for about that long (Little's law). A device without an arm starts
//! with [`READS_START_FLASH`] for each disk at most. From there K is tried against twice as many and half as many, in short alternating
//! turns. More are kept if they bring 2 %, fewer if they cost no more than 1 %. A result holds for reads of one length,
//! give or take a factor of two, and is tried again from time to time.
//!
//! A read counts only if many of the last streams that had their turn had run dry, and if some due stream waited for room
//! all the time that the read took. Where all are served in time, K stays at or below its starting value: nobody would need
//! what the device gained, and first reads would wait. A longer read takes longer whatever K is, so turns are compared
//! without the time that the medium needs ([`Served::medium_us`]).

use crate::limits::{IN_DEVICE_US, IN_DEVICE_US_MAX, READS_IN_FLIGHT_MIN, READS_START_FLASH};

/// The values of K that are tried.
const LADDER: [usize; 11] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Steps on the ladder to the value tried next: twice or half as many.
const STEP: usize = 2;
/// The least number of reads that count in a turn.
const TURN_READS: usize = 24;
/// Pairs of turns before a verdict: the least, if it is clear, and the most, if it is not.
const PAIRS_LEAST: u32 = 6;
const PAIRS_MOST: u32 = 20;
/// The least gain for which K is doubled, and the largest loss for which it is halved.
const GAIN_LEAST: f64 = 0.02;
const LOSS_MOST: f64 = 0.01;
/// A verdict is clear if the mean gain is this many standard errors away from the least one.
const CLEAR: f64 = 2.0;
/// A trial is given up when more than so many times [`TURN_READS`] reads of one turn did not count.
const PATIENCE: usize = 4;
/// From this share of dry streams on, the device is too slow.
const UNDERRUN_SHARE: f64 = 0.25;
/// Reads to rest after a trial that changed K. Each trial without a change doubles the next rest; both directions are tried
/// before the first one.
const REST_READS: u32 = 500;
const REST_READS_MOST: u32 = 32_000;
/// Classes of read lengths, by factors of two from `CLASS_BYTES` on.
const CLASSES: usize = 12;
const CLASS_BYTES: u64 = 16 << 10;

/// A completed read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its length.
    pub len_bytes: u64,
    /// Time since the completion of the read before, or since the device began with this one.
    pub us: u64,
    /// How long the medium takes for it, without positioning.
    pub medium_us: u64,
    /// All that time some stream was due whose read would have been made with a greater K, or with more memory.
    pub asked: bool,
}

/// What sets K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthBound {
    /// [`IN_DEVICE_US`]: nothing else was measured, or all streams are served in time.
    FirstRead,
    /// What was measured for reads of this length.
    Measured,
    /// [`IN_DEVICE_US_MAX`].
    FirstReadLate,
    /// [`crate::limits::READS_IN_FLIGHT_MAX`].
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
            DepthBound::Measured => "that was measured to be best for reads of this length",
            DepthBound::FirstReadLate => {
                "with more of them a new client would wait far too long for its first bytes"
            }
            DepthBound::Most => "no device gets more",
            DepthBound::Memory => "memory has room for no more (memory_max)",
            DepthBound::Setting => "it is set",
        }
    }
}

/// The outcome of a trial: one value of K measured against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialOutcome {
    /// K before.
    pub from: usize,
    /// What was tried.
    pub to: usize,
    /// How much more the device delivered with it, in thousandths.
    pub gain_permille: i32,
    /// Whether K is `to` now.
    pub adopted: bool,
}

/// Finds K for one device.
#[derive(Clone, Debug)]
pub struct Depth {
    rotational: bool,
    spindles: usize,
    /// Means of the last reads: length in bytes, duration and time on the medium in microseconds.
    mean_len: f64,
    mean_time: f64,
    mean_medium: f64,
    /// The share of turns that went to streams that had run dry.
    underruns: f64,
    class: usize,
    /// What was found for each class of lengths: an index into [`LADDER`].
    found: [Option<usize>; CLASSES],
    trial: Option<Trial>,
    /// Reads until the next trial.
    rest: u32,
    /// Reads to wait after it.
    rest_next: u32,
    /// The next trial is of a greater K.
    up: bool,
}

/// One value of K against another.
#[derive(Clone, Debug)]
struct Trial {
    /// Indexes into [`LADDER`]: the current K, and the one being tried.
    from: usize,
    to: usize,
    /// It follows a trial that changed K.
    goes_on: bool,
    turns: u32,
    turn: TrialTurn,
    /// The first turn of a pair: microseconds per read.
    first: f64,
    pairs: u32,
    sum: f64,
    sum_squares: f64,
}

#[derive(Clone, Debug, Default)]
struct TrialTurn {
    skipped: usize,
    reads: usize,
    lost: usize,
    /// Time beyond what the medium takes, microseconds.
    over: f64,
}

impl Depth {
    /// For a device about which nothing is known but whether it has an arm and how many disks it is said to be made of.
    pub fn new(rotational: bool, spindles: u32) -> Depth {
        Depth {
            rotational,
            spindles: spindles.max(1) as usize,
            mean_len: CLASS_BYTES as f64 * 8.0,
            mean_time: 10_000.0,
            mean_medium: 2_000.0,
            underruns: 0.0,
            class: 3,
            found: [None; CLASSES],
            trial: None,
            rest: 0,
            rest_next: REST_READS,
            up: true,
        }
    }

    /// K now.
    pub fn reads(&self) -> usize {
        let reads = match &self.trial {
            Some(trial) => LADDER[trial.now()],
            None => self.best(),
        };
        reads.min(if self.short() {
            self.most()
        } else {
            self.start()
        })
    }

    /// K outside of the current trial, and what sets it.
    pub fn settled(&self) -> (usize, DepthBound) {
        let measured = self.found[self.class].map(|at| LADDER[at]);
        let (start, most) = (self.start(), self.most());
        match measured {
            Some(reads) if self.short() && reads > most => (most, DepthBound::FirstReadLate),
            Some(reads) if self.short() || reads <= start => (reads, DepthBound::Measured),
            _ if start == LADDER[LADDER.len() - 1] => (start, DepthBound::Most),
            _ => (start, DepthBound::FirstRead),
        }
    }

    /// The K being tried.
    pub fn tried(&self) -> Option<usize> {
        self.trial.as_ref().map(|trial| LADDER[trial.to])
    }

    /// Mean length of the last reads.
    pub fn mean_read_bytes(&self) -> u64 {
        self.mean_len as u64
    }

    /// A stream has its turn to be read; `underrun`: it had run dry.
    pub fn stream_turn(&mut self, underrun: bool) {
        self.underruns += (f64::from(u8::from(underrun)) - self.underruns) / 64.0;
    }

    /// Whether streams run dry more often than now and then.
    fn short(&self) -> bool {
        self.underruns > UNDERRUN_SHARE
    }

    /// A read completed. Returns the outcome of a trial that ends with it.
    pub fn done(&mut self, served: &Served) -> Option<TrialOutcome> {
        let fade = |mean: &mut f64, value: u64| *mean += (value as f64 - *mean) / 16.0;
        fade(&mut self.mean_len, served.len_bytes);
        fade(&mut self.mean_time, served.us);
        fade(&mut self.mean_medium, served.medium_us);
        self.classify();
        let counts = served.asked && self.short();
        let Some(mut trial) = self.trial.take() else {
            self.rest = self.rest.saturating_sub(counts.into());
            if self.rest == 0 && counts {
                self.trial = self.next_trial();
            }
            return None;
        };
        if !trial.ends_turn(served, counts) {
            self.trial = Some(trial).filter(|trial| trial.turn.lost <= PATIENCE * TURN_READS);
            self.rest = REST_READS; // if the trial is given up
            return None;
        }
        let verdict = trial.verdict(self.mean_medium);
        match &verdict {
            Some(verdict) => self.conclude(&trial, verdict.adopted),
            None => self.trial = Some(trial),
        }
        verdict
    }

    /// The best K known, whether or not it is allowed now.
    fn best(&self) -> usize {
        self.found[self.class].map_or_else(|| self.start(), |at| LADDER[at])
    }

    /// The starting value, before anything is found.
    fn start(&self) -> usize {
        let reads = in_time(IN_DEVICE_US, self.mean_time);
        if self.rotational {
            reads
        } else {
            reads.min(READS_START_FLASH * self.spindles)
        }
    }

    /// The greatest K: a first read must not wait longer than with this.
    fn most(&self) -> usize {
        in_time(IN_DEVICE_US_MAX, self.mean_time)
    }

    /// Lengths follow the load, so a change by half as much again, or less, is not another class.
    fn classify(&mut self) {
        let class_from = (CLASS_BYTES << self.class) as f64;
        let class = if self.mean_len > 1.5 * class_from * 2.0 {
            (self.class + 1).min(CLASSES - 1)
        } else if self.mean_len < class_from / 1.5 {
            self.class.saturating_sub(1)
        } else {
            return;
        };
        if class != self.class {
            self.class = class;
            self.trial = None;
            (self.rest, self.rest_next, self.up) = (0, REST_READS, true);
        }
    }

    fn next_trial(&mut self) -> Option<Trial> {
        let from = nearest(self.best());
        let up = from + STEP;
        let up = Some(up).filter(|up| LADDER.get(*up).is_some_and(|reads| *reads <= self.most()));
        let down = Some(from.saturating_sub(STEP)).filter(|down| *down < from);
        let to = if self.up { up.or(down) } else { down.or(up) };
        self.up = !self.up;
        if to.is_none() {
            self.rest = REST_READS;
        }
        to.map(|to| Trial::new(from, to))
    }

    /// Takes the outcome of a trial, and says when the next one begins:
    ///
    /// | the trial | next |
    /// |---|---|
    /// | changed K | one more step in its direction, at once |
    /// | changed K, but there is no further step | after a first step the way back, at once; after several a rest |
    /// | changed nothing, the first one for reads of this length | the other direction, at once |
    /// | changed nothing | a rest, each time twice as long |
    ///
    /// The way back measures the same two values again: a second look, since the verdict may be chance. A rest in its place
    /// was tried. The devices of `sim/tests/delivery/depth.txt` then delivered 98.6 % of what they do with their best K, in
    /// place of 98.9 % (the mean of ten rows).
    fn conclude(&mut self, trial: &Trial, change: bool) {
        let at = if change { trial.to } else { trial.from };
        self.found[self.class] = Some(at);
        if change {
            self.up = trial.is_up();
            self.rest_next = REST_READS;
            let next = self.next_trial();
            self.trial = next.filter(|next| next.is_up() == trial.is_up());
            if let Some(next) = &mut self.trial {
                next.goes_on = true;
                return;
            }
        }
        let is_first = !trial.goes_on && self.rest_next == REST_READS;
        self.rest = if is_first { 0 } else { self.rest_next };
        self.rest_next = (self.rest_next * 2).min(REST_READS_MOST);
    }
}

impl Trial {
    fn new(from: usize, to: usize) -> Trial {
        Trial {
            from,
            to,
            goes_on: false,
            turns: 0,
            turn: TrialTurn::default(),
            first: 0.0,
            pairs: 0,
            sum: 0.0,
            sum_squares: 0.0,
        }
    }

    /// Whether it tries a greater K.
    fn is_up(&self) -> bool {
        self.to > self.from
    }

    /// In the order A, B, B, A, so that a steady drift affects both alike.
    fn now(&self) -> usize {
        match self.turns % 4 {
            1 | 2 => self.to,
            _ => self.from,
        }
    }

    /// Whether a read ends a turn; `counts`: it is one that counts.
    fn ends_turn(&mut self, served: &Served, counts: bool) -> bool {
        let most = LADDER[self.from.max(self.to)];
        // The first reads of a turn were given to the device under the other K.
        if self.turn.skipped < most {
            self.turn.skipped += 1;
            return false;
        }
        if !counts {
            self.turn.lost += 1;
            return false;
        }
        self.turn.reads += 1;
        self.turn.over += served.us as f64 - served.medium_us as f64;
        self.turn.reads >= TURN_READS.max(2 * most)
    }

    /// The outcome at the end of a turn, once it is clear.
    fn verdict(&mut self, medium: f64) -> Option<TrialOutcome> {
        let turn = core::mem::take(&mut self.turn);
        let us = (turn.over / turn.reads as f64 + medium).max(1.0);
        self.turns += 1;
        if self.turns % 2 == 1 {
            self.first = us;
            return None;
        }
        // In every other pair the second turn had the current K and not the new one.
        let gain = 2.0 * (self.first - us) / (self.first + us);
        let gain = if self.turns % 4 == 2 { gain } else { -gain };
        self.pairs += 1;
        self.sum += gain;
        self.sum_squares += gain * gain;
        let count = f64::from(self.pairs);
        let mean = self.sum / count;
        let least = if self.is_up() { GAIN_LEAST } else { -LOSS_MOST };
        let beyond = mean - least;
        let error_squared =
            (self.sum_squares / count - mean * mean).max(0.0) / (count - 1.0).max(1.0);
        let clear = beyond * beyond > CLEAR * CLEAR * error_squared;
        let enough = self.pairs >= PAIRS_MOST || clear && self.pairs >= PAIRS_LEAST;
        enough.then(|| TrialOutcome {
            from: LADDER[self.from],
            to: LADDER[self.to],
            gain_permille: (mean * 1000.0) as i32,
            adopted: beyond > 0.0,
        })
    }
}

/// The number of reads of `each` microseconds in this time.
fn in_time(us: u64, each: f64) -> usize {
    let reads = us as f64 / each.max(1.0);
    (reads as usize).clamp(READS_IN_FLIGHT_MIN, LADDER[LADDER.len() - 1])
}

/// The last index into [`LADDER`] with no more than this.
fn nearest(reads: usize) -> usize {
    LADDER
        .partition_point(|step| *step <= reads)
        .saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that takes `us(K)` for a read of 1 MiB, give or take a tenth, after so many reads.
    fn settled(depth: &mut Depth, reads: u32, us: impl Fn(usize) -> u64) -> usize {
        let mut dice = 12_345u64;
        (0..200).for_each(|_| depth.stream_turn(true));
        for _ in 0..reads {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let us = us(depth.reads()) * (90 + (dice >> 33) % 21) / 100;
            depth.done(&Served {
                len_bytes: 1 << 20,
                us,
                medium_us: 500,
                asked: true,
            });
        }
        depth.trial = None;
        depth.reads()
    }

    #[test]
    fn where_it_begins_a_first_read_waits_for_sixty_milliseconds() {
        for (us, reads) in [(80_000, 2), (15_000, 4), (7_000, 8), (900, 64)] {
            let mut depth = Depth::new(true, 1);
            (0..100).for_each(|_| {
                depth.done(&Served {
                    len_bytes: 1 << 20,
                    us,
                    medium_us: us / 2,
                    asked: false,
                });
            });
            assert_eq!(depth.reads(), reads, "{us} us");
        }
        assert_eq!(Depth::new(false, 1).reads(), 6);
    }

    #[test]
    fn as_few_as_cost_nothing() {
        let mut flash = Depth::new(false, 1);
        assert_eq!(settled(&mut flash, 4_000, |_| 2_000), 2);
    }

    #[test]
    fn as_many_as_bring_something() {
        // As fast as its queue allows, up to this many at once.
        for disks in [4, 16, 32] {
            let mut array = Depth::new(false, 1);
            let found = settled(&mut array, 8_000, |reads| 40_000 / reads.min(disks) as u64);
            assert!((disks..2 * disks).contains(&found), "{found} for {disks}");
        }
    }

    #[test]
    fn no_first_read_waits_for_longer_than_it_may() {
        let mut slow = Depth::new(true, 1);
        let found = settled(&mut slow, 4_000, |reads| 80_000 / reads.min(4) as u64);
        assert!((4..=6).contains(&found), "{found} of 20 ms each");
        let mut endless = Depth::new(true, 1);
        let most = settled(&mut endless, 8_000, |reads| 70_000 - reads as u64 * 1_000);
        assert_eq!(most, 2, "each takes 68 ms");
    }

    #[test]
    fn a_first_step_that_ends_the_ladder_is_looked_at_again_before_a_rest() {
        let mut depth = Depth::new(true, 1);
        let flat = Served {
            len_bytes: 1 << 20,
            us: 15_000,
            medium_us: 500,
            asked: true,
        };
        (0..200).for_each(|_| _ = depth.done(&flat)); // nobody had run dry: no trial
        (0..200).for_each(|_| depth.stream_turn(true));
        let mut outcomes = (0..4_000).filter_map(|_| depth.done(&flat));
        let change = outcomes.find(|outcome| outcome.adopted);
        let change = change.expect("fewer cost nothing");
        assert_eq!((change.from, change.to), (4, 2));
        depth.done(&flat);
        assert_eq!(depth.tried(), Some(4), "the way back");
        let back = (0..4_000).find_map(|_| depth.done(&flat));
        assert!(back.is_some_and(|outcome| !outcome.adopted));
        for _ in 0..REST_READS {
            depth.done(&flat);
            assert_eq!((depth.tried(), depth.reads()), (None, 2));
        }
    }

    #[test]
    fn what_is_found_holds_for_reads_of_one_length() {
        let mut depth = Depth::new(false, 1);
        assert_eq!(settled(&mut depth, 4_000, |_| 2_000), 2);
        let short = Served {
            len_bytes: 64 << 10,
            us: 200,
            medium_us: 50,
            asked: false,
        };
        (0..200).for_each(|_| _ = depth.done(&short));
        assert_eq!(depth.reads(), READS_START_FLASH);
        let long = Served {
            len_bytes: 1 << 20,
            us: 2_000,
            ..short
        };
        (0..200).for_each(|_| _ = depth.done(&long));
        assert_eq!(depth.reads(), 2);
    }

    #[test]
    fn nothing_is_tried_while_nobody_waits() {
        let mut depth = Depth::new(false, 1);
        let calm = Served {
            len_bytes: 1 << 20,
            us: 2_000,
            medium_us: 500,
            asked: false,
        };
        (0..10_000).for_each(|_| {
            depth.done(&calm);
            assert!(depth.trial.is_none());
        });
        assert_eq!(depth.reads(), READS_START_FLASH);
        // A trial under way is given up.
        (0..200).for_each(|_| depth.stream_turn(true));
        depth.done(&Served {
            asked: true,
            ..calm
        });
        assert!(depth.trial.is_some());
        (0..1_000).for_each(|_| _ = depth.done(&calm));
        assert!(depth.trial.is_none());
    }
}
