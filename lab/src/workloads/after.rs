//! Evaluates a window afterwards: figures over time, the share of files still in memory, and the disk's work
//! for clients that had left.

use crate::corpus::{Set, below};
use crate::metrics::Values;
use crate::testbed::Testbed;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::pages;
use ackpace_lab_disk::Disk;
use ackpace_lab_swarm::summary::{ClassSecond, Second};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A read that reaches the disk later than this after the resets was submitted for departed clients.
const GRACE_US: u64 = 5_000;
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

/// A disk whose requests are being traced.
pub struct Traced {
    disk: Arc<Disk>,
    file: PathBuf,
}

/// Clients that left while their disk's requests were traced.
pub struct Gone {
    traced: Traced,
    class: String,
    at_us: u64,
}

impl Gone {
    /// Starts to trace the disk's requests; `None` without an emulated disk.
    pub fn trace(testbed: &Testbed) -> Result<Option<Traced>> {
        let Some(disk) = testbed.instruments.disk.clone() else {
            return Ok(None);
        };
        let file = testbed.scratch().join("departure.tsv");
        disk.trace(Some(&file))?;
        Ok(Some(Traced { disk, file }))
    }

    /// Ends the trace and adds the figures of the disk's work for departed clients.
    pub fn add(self, values: &mut Values, testbed: &Testbed) -> Result<()> {
        self.traced.disk.trace(None)?;
        let what = || self.traced.file.display().to_string();
        let text = std::fs::read_to_string(&self.traced.file).doing(what)?;
        let names: Vec<String> = testbed
            .place
            .files
            .iter()
            .flat_map(Set::list)
            .map(|(path, _)| path)
            .collect();
        let dead = format!("{}-", self.class);
        let is_file = |file: &str| {
            names
                .iter()
                .any(|name| name.trim_start_matches('/') == file)
        };
        let after = after(&text, self.at_us, |file| match is_file(file) {
            false => None,
            true => Some(file.starts_with(&dead)),
        });
        let after = after.ok_or_else(|| unreadable(&self.traced.file))?;
        values.set("dead_reads", after.dead_reads as f64);
        values.set("dead_read_bytes", after.dead_bytes as f64);
        let all_bytes = after.served_dead_bytes + after.served_living_bytes;
        if all_bytes > 0 {
            let share = after.served_living_bytes as f64 / all_bytes as f64;
            values.set("living_disk_share", share);
        }
        let _ = std::fs::remove_file(&self.traced.file);
        Ok(())
    }
}

impl Traced {
    /// Records that the class has left now.
    pub fn gone(self, class: String) -> Gone {
        Gone {
            at_us: self.disk.counters().now_us,
            traced: self,
            class,
        }
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

/// Evaluates a disk's trace. `is_dead` judges a file's path and returns `None` for anything else. Returns
/// `None` if a line can't be parsed.
fn after(text: &str, at_us: u64, is_dead: impl Fn(&str) -> Option<bool>) -> Option<After> {
    let mut after = After::default();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |nth: usize| fields.get(nth)?.parse::<u64>().ok();
        let (arrived_us, len_bytes, finished_us) = (number(0)?, number(5)?, number(12)?);
        let Some(dead) = is_dead(fields[2]).filter(|_| fields[1] == "read") else {
            continue;
        };
        if dead && arrived_us > at_us + GRACE_US {
            after.dead_reads += 1;
            after.dead_bytes += len_bytes;
        }
        if (at_us..at_us + AFTERWARDS_US).contains(&finished_us) {
            let served = if dead {
                &mut after.served_dead_bytes
            } else {
                &mut after.served_living_bytes
            };
            *served += len_bytes;
        }
    }
    Some(after)
}

fn unreadable(path: &Path) -> LabError {
    LabError::Setup(format!("{}: not a trace of a disk", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_does_for_the_dead_counts_from_the_grace_on() {
        let line = |arrived_us: u64, file: &str, finished_us: u64| {
            format!(
                "{arrived_us}\tread\t{file}\t0\t0\t4096\t0\t0\t0\t0\t0\t0\t{finished_us}\tmedium\n"
            )
        };
        let text = [
            "head\n".to_owned(),
            line(900, "gone-1", 1_100),   // in flight when they left
            line(6_000, "gone-1", 6_100), // within the grace
            line(6_001, "gone-1", 6_200), // beyond the grace
            line(7_000, "here-1", 8_000),
            line(7_000, "-", 8_000),          // the file system's own
            line(9_000, "here-1", 5_001_000), // too late to count
        ]
        .concat();
        let is_dead = |file: &str| (file != "-").then(|| file.starts_with("gone-"));
        let expected = After {
            dead_reads: 1,
            dead_bytes: 4096,
            served_dead_bytes: 3 * 4096,
            served_living_bytes: 4096,
        };
        assert_eq!(after(&text, 1_000, is_dead), Some(expected));
        assert_eq!(after("head\nno trace\n", 0, is_dead), None);
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
