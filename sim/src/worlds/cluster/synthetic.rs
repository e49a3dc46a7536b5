//! Workloads by a few published figures: SPECweb99's file set, and sets like those of known servers.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::workload::Workload;

/// Connections that are open at once: their requests come mixed.
const OPEN: usize = 300;

/// A set of files and what is asked of them.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// How many files.
    pub files: usize,
    /// Mean length of a file, bytes; lengths are lognormal.
    pub mean_bytes: f64,
    /// Standard deviation of the logarithm of the lengths.
    pub sigma: f64,
    /// Zipf's exponent of the pages.
    pub zipf: f64,
    /// Files of a page, which are asked for one after the other.
    pub page_files: usize,
    /// Requests of a connection in the mean; their number is geometric.
    pub each: f64,
    /// Requests that go to another page than the one before would lead to, in hundredths (DTCP, Tables 1 and 2).
    pub unrelated_percent: u32,
}

struct Dice(Pcg64Mcg);

impl Dice {
    /// Uniform, from 0 to 1, both exclusive.
    fn part(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.part() * bound as f64) as usize
    }

    /// Normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (radius, turn) = (self.part(), self.part());
        (-2.0 * radius.ln()).sqrt() * (turn * std::f64::consts::TAU).cos()
    }
}

/// Sums of Zipf's weights.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: usize, exponent: f64) -> Zipf {
        let sums = (1..=count).scan(0.0, |sum, nth| {
            *sum += (nth as f64).powf(-exponent);
            Some(*sum)
        });
        Zipf(sums.collect())
    }

    fn draw(&self, dice: &mut Dice) -> usize {
        let at = dice.part() * self.0[self.0.len() - 1];
        self.0
            .partition_point(|sum| *sum < at)
            .min(self.0.len() - 1)
    }
}

/// A connection that is open: its number, and requests that are left on it.
struct Open {
    connection: u32,
    left: usize,
    /// The file that it asked for last.
    file: Option<usize>,
}

/// Requests on mixed connections. `each` says how many a new one has, `next` what is asked for after what.
fn asked(
    requests: usize,
    dice: &mut Dice,
    each: impl Fn(&mut Dice) -> usize,
    next: impl Fn(&mut Dice, Option<usize>) -> usize,
) -> Vec<(u32, u32)> {
    let mut connections = 0;
    let mut begin = |dice: &mut Dice| {
        connections += 1;
        Open {
            connection: connections - 1,
            left: each(dice).max(1),
            file: None,
        }
    };
    let mut open: Vec<Open> = (0..OPEN).map(|_| begin(dice)).collect();
    let mut asked = Vec::with_capacity(requests);
    for _ in 0..requests {
        let nth = dice.below(OPEN);
        let one = &mut open[nth];
        let file = next(dice, one.file);
        asked.push((file as u32, one.connection));
        (one.left, one.file) = (one.left - 1, Some(file));
        if one.left == 0 {
            *one = begin(dice);
        }
    }
    asked
}

impl Synthetic {
    /// So many requests, from a seed.
    pub fn draw(&self, requests: usize, seed: u64) -> Workload {
        let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
        let middle = self.mean_bytes.ln() - self.sigma * self.sigma / 2.0;
        let length = |dice: &mut Dice| (middle + self.sigma * dice.normal()).exp();
        let lengths: Vec<u32> = (0..self.files)
            .map(|_| length(&mut dice).clamp(64.0, 4e6) as u32)
            .collect();
        let pages = Zipf::new(self.files / self.page_files, self.zipf);
        let goes_on = 1.0 - 1.0 / self.each;
        let each = |dice: &mut Dice| 1 + (dice.part().ln() / goes_on.ln()) as usize;
        let next = |dice: &mut Dice, before: Option<usize>| {
            let unrelated = dice.below(100) < self.unrelated_percent as usize;
            match before.map(|file| file + 1) {
                Some(file) if !unrelated && file % self.page_files != 0 => file,
                _ => pages.draw(dice) * self.page_files,
            }
        };
        let asked = asked(requests, &mut dice, each, next);
        Workload::new(lengths, &asked)
    }
}

/// Which of the nine files of a class, in 1,000 cases, summed up: the fifth in 353 of them.
const FILE_UP_TO: [usize; 8] = [39, 98, 186, 363, 716, 834, 905, 955];

/// SPECweb99's files of so many directories: four classes of nine lengths, asked for in 35, 50, 14 and 1 of 100 cases.
/// Directories follow Zipf's law. Requests of a connection have nothing to do with each other, and are 10 in the mean.
pub fn specweb99(directories: usize, requests: usize, seed: u64) -> Workload {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let length = |nth: usize| 1024 * 10u32.pow((nth % 36 / 9) as u32) / 10 * (nth as u32 % 9 + 1);
    let lengths = (0..directories * 36).map(length).collect();
    let zipf = Zipf::new(directories, 1.0);
    let each = |dice: &mut Dice| 5 + dice.below(11);
    let next = |dice: &mut Dice, _| {
        let (class, file) = (dice.below(100), dice.below(1_000));
        let class = [35, 85, 99].partition_point(|up_to| *up_to <= class);
        let file = FILE_UP_TO.partition_point(|up_to| *up_to <= file);
        zipf.draw(dice) * 36 + class * 9 + file
    };
    let asked = asked(requests, &mut dice, each, next);
    Workload::new(lengths, &asked)
}
