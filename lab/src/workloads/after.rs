//! Evaluates a window afterwards: figures over time, the share of files still in memory, and the disk's work
//! for clients that had left.

use crate::corpus::{Set, below};
use crate::metrics::Values;
use crate::origin::{self, Origin};
use crate::testbed::Testbed;
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_base::pages;
use ackpace_lab_disk::{Disk, LoggedRead};
use ackpace_lab_swarm::summary::{ClassSecond, Second};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A read that reaches the disk later than this after the resets was submitted for departed clients.
const GRACE_US: u64 = 5_000;
/// What an order takes to an origin whose round trip is 10 ms, and a ms since its log has whole ones.
const TO_ORIGIN_US: u64 = 6_000;
/// Period after the resets for which the disk's work is examined.
const AFTERWARDS_US: u64 = 5_000_000;

/// Figures of each second of the window, by keys as in [`Values`]: the goodput of all and of each class, and
/// the mean goodput of a client. `begin_s` is the start of the window on the swarm's clock.
pub fn curves(seconds: &[Second], begin_s: f64) -> Value {
    let mut curves: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let of_window = seconds
        .iter()
        .filter(|second| second.at_s as f64 >= begin_s + 0.5);
    for second in of_window {
        let all: u64 = second.classes.iter().map(|class| class.bytes).sum();
        let mut add = |key: String, value: f64| curves.entry(key).or_default().push(value);
        add("goodput_bytes_per_s".into(), all as f64);
        for class in &second.classes {
            let (name, bytes) = (&class.class, class.bytes as f64);
            add(format!("goodput_bytes_per_s@{name}"), bytes);
            let key = format!("client_goodput_mean_bytes_per_s@{name}");
            add(key, bytes / clients(class));
        }
    }
    json!(curves)
}

/// Number of clients that wanted bytes in this second, at least 1: one that has just ended wanted some, too.
fn clients(class: &ClassSecond) -> f64 {
    class.active.max(1) as f64
}

/// Share of a set of files that is in memory, from 0 to 1.
pub fn resident_share(testbed: &Testbed, name: &str) -> Result<f64> {
    let set = files_named(testbed, name)?;
    let mut resident_bytes = 0;
    for (path, _) in set.list() {
        resident_bytes += pages::resident_bytes(&below(&testbed.root, &path))?;
    }
    Ok(resident_bytes as f64 / set.len_bytes() as f64)
}

/// Keeps a set's resident pages in memory on a machine that reclaims idle memory.
pub fn keeper(testbed: &Testbed, name: &str) -> Result<pages::Keeper> {
    let files = files_named(testbed, name)?.list();
    let paths = files
        .into_iter()
        .map(|(path, _)| below(&testbed.root, &path));
    pages::Keeper::of(&paths.collect::<Vec<_>>())
}

fn files_named<'a>(testbed: &'a Testbed, name: &str) -> Result<&'a Set> {
    let is_it = |set: &&Set| matches!(set, Set::Files { name: own, .. } if *own == name);
    let set = testbed.place.files.iter().find(is_it);
    set.ok_or_else(|| LabError::Setup(format!("no files are named {name}")))
}

/// A log of reads.
pub enum Log {
    /// Of the emulated disk.
    Disk(Arc<Disk>),
    /// Of the origin, whose ranges count as reads.
    Origin(Arc<Origin>),
}

/// Clients that left while reads for them are logged.
pub struct Gone {
    log: Log,
    class: String,
    at_us: u64,
}

impl Gone {
    /// Starts to log the origin's reads, or where there is none those of the disk; `None` without an emulated disk.
    pub fn logged(testbed: &Testbed) -> Option<Log> {
        if let Some(origin) = &testbed.instruments.origin {
            return Some(Log::Origin(origin.clone())); // it always does
        }
        let disk = testbed.instruments.disk.clone()?;
        disk.log(true);
        Some(Log::Disk(disk))
    }

    /// The class has left now.
    pub fn now(log: Log, class: String) -> Self {
        let at_us = match &log {
            Log::Disk(disk) => disk.counters().now_us,
            Log::Origin(_) => origin::now_us(),
        };
        Self { at_us, log, class }
    }

    /// Ends the log and adds the figures of what was read for departed clients.
    pub fn add(self, values: &mut Values) -> Result<()> {
        let (reads, grace_us) = match &self.log {
            Log::Disk(disk) => (disk.log(false), GRACE_US),
            Log::Origin(origin) => (origin.reads()?, GRACE_US + TO_ORIGIN_US),
        };
        let dead = format!("{}-", self.class);
        let after = after(&reads, (self.at_us, grace_us), &dead);
        values.set("dead_reads", after.dead_reads as f64);
        values.set("dead_read_bytes", after.dead_bytes as f64);
        let all_bytes = after.served_dead_bytes + after.served_living_bytes;
        if all_bytes > 0 {
            let share = after.served_living_bytes as f64 / all_bytes as f64;
            values.set("living_disk_share", share);
        }
        Ok(())
    }
}

/// The disk's work after clients had left.
#[derive(Debug, Default, PartialEq)]
struct After {
    /// Reads of the departed clients' files that reached the disk later than the grace period.
    dead_reads: u64,
    /// Bytes of these reads.
    dead_bytes: u64,
    /// Bytes of the departed clients' files that the disk delivered in the period, whenever they were
    /// requested.
    served_dead_bytes: u64,
    /// The same for all other files.
    served_living_bytes: u64,
}

/// Evaluates a disk's log. Files of departed clients begin with `dead`.
fn after(log: &[LoggedRead], (at_us, grace_us): (u64, u64), dead: &str) -> After {
    let mut after = After::default();
    for read in log {
        let dead = read.file.starts_with(dead);
        if dead && read.arrived_us > at_us + grace_us {
            after.dead_reads += 1;
            after.dead_bytes += read.len_bytes;
        }
        if (at_us..at_us + AFTERWARDS_US).contains(&read.finished_us) {
            let served = match dead {
                true => &mut after.served_dead_bytes,
                false => &mut after.served_living_bytes,
            };
            *served += read.len_bytes;
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_does_for_the_dead_counts_from_the_grace_on() {
        let read = |arrived_us, file: &str, finished_us| LoggedRead {
            arrived_us,
            finished_us,
            len_bytes: 4096,
            file: file.into(),
        };
        let log = [
            read(900, "gone-1", 1_100),   // in flight when they left
            read(6_000, "gone-1", 6_100), // within the grace
            read(6_001, "gone-1", 6_200), // beyond the grace
            read(7_000, "here-1", 8_000),
            read(9_000, "here-1", 5_001_000), // too late to count
        ];
        let expected = After {
            dead_reads: 1,
            dead_bytes: 4096,
            served_dead_bytes: 3 * 4096,
            served_living_bytes: 4096,
        };
        assert_eq!(after(&log, (1_000, GRACE_US), "gone-"), expected);
    }

    #[test]
    fn curves_begin_with_the_window_and_are_of_those_who_want_bytes() {
        let second = |at_s, bytes, active| Second {
            at_s,
            classes: vec![ClassSecond {
                class: "a".into(),
                bytes,
                active,
                ..ClassSecond::default()
            }],
        };
        let seconds = [second(3, 9, 9), second(4, 600, 3), second(5, 100, 0)];
        let curves = curves(&seconds, 3.01);
        assert_eq!(curves["goodput_bytes_per_s"], json!([600.0, 100.0]));
        let mean = &curves["client_goodput_mean_bytes_per_s@a"];
        assert_eq!(*mean, json!([200.0, 100.0]));
    }
}
