//! Profiles of disks: parses TOML into the model's figures. Errors name the file, the key and the allowed
//! values.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_sim::models::disk::profile::{
    ArrayProfile, Discipline, DiskProfile, FlashProfile, Profile, QueueProfile, Seek,
};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The built-in profiles: name and text.
const BUILT_IN: [(&str, &str); 4] = [
    (
        "10k-scsi-2003",
        include_str!("../profiles/10k-scsi-2003.toml"),
    ),
    ("7200-sata", include_str!("../profiles/7200-sata.toml")),
    (
        "raid0-4x7200",
        include_str!("../profiles/raid0-4x7200.toml"),
    ),
    ("flash", include_str!("../profiles/flash.toml")),
];

const GB: u64 = 1_000_000_000;
const PB: u64 = 1_000_000 * GB;

/// Numbers of a hard disk: key, minimum, maximum.
const DISK: &[(&str, u64, u64)] = &[
    ("size_bytes", 1 << 20, PB),
    ("rpm", 1_000, 60_000),
    ("rate_outer_bytes_per_s", 100_000, 10 * GB),
    ("rate_inner_bytes_per_s", 100_000, 10 * GB),
    ("zones", 1, 1_000),
    ("heads", 1, 100),
    ("seek_settle_us", 0, 100_000),
    ("seek_sqrt_us", 0, 1_000_000),
    ("seek_linear_us", 0, 1_000_000),
    ("overhead_us", 1, 100_000),
    ("bus_bytes_per_s", 1_000_000, 100 * GB),
    ("segments", 0, 1_024),
    ("segment_bytes", 0, 1 << 30),
    ("queue_depth", 1, 1_024),
    ("queue_age_max_us", 0, 3_600_000_000),
];
/// Additional numbers of an array, beside those of its disks.
const ARRAY: &[(&str, u64, u64)] = &[("disks", 1, 64), ("chunk_bytes", 4_096, 1 << 30)];
/// Numbers of a flash device.
const FLASH: &[(&str, u64, u64)] = &[
    ("size_bytes", 1 << 20, PB),
    ("channels", 1, 256),
    ("stripe_bytes", 4_096, 1 << 30),
    ("latency_us", 1, 100_000),
    ("channel_bytes_per_s", 100_000, 100 * GB),
];

/// Names of the built-in profiles.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// Loads a profile by its name, or by the path of a file (a text with a `/` or ending in `.toml`).
///
/// # Errors
/// An unknown name, a missing file, invalid TOML, an unknown or missing key, or a value out of its range.
pub fn load(name_or_path: &str) -> Result<Profile> {
    if name_or_path.contains('/') || name_or_path.ends_with(".toml") {
        let text = std::fs::read_to_string(Path::new(name_or_path));
        return parse(name_or_path, &text.doing(|| name_or_path.to_owned())?);
    }
    match BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
        Some((name, text)) => parse(&format!("lab/disk/profiles/{name}.toml"), text),
        None => Err(LabError::Setup(format!(
            "no profile of a disk is called {name_or_path}; there are {}, and any file given by its path",
            names().join(", ")
        ))),
    }
}

/// Parses a profile; `file` is its name in errors.
fn parse(file: &str, text: &str) -> Result<Profile> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let what = format!("not TOML: {}", error.message().replace('\n', "; "));
        wrong(file, text, at, &what)
    })?;
    let mut reading = Reading {
        file,
        text,
        table: table.get_ref(),
        numbers: BTreeMap::new(),
    };
    let kinds = ["disk", "array", "flash"];
    match reading.word("kind", &kinds)? {
        "disk" => {
            reading.known(&[DISK], &["kind", "queue"])?;
            Ok(Profile::Disk(reading.disk()?))
        }
        "array" => {
            reading.known(&[DISK, ARRAY], &["kind", "queue", "mirrored"])?;
            Ok(Profile::Array(reading.array()?))
        }
        _ => {
            reading.known(&[FLASH], &["kind"])?;
            Ok(Profile::Flash(FlashProfile {
                size_bytes: reading.get("size_bytes") / 4096 * 4096,
                channels: reading.get("channels") as usize,
                stripe_bytes: reading.get("stripe_bytes"),
                latency_ns: reading.get("latency_us") * 1000,
                channel_bytes_per_s: reading.get("channel_bytes_per_s"),
            }))
        }
    }
}

fn wrong(file: &str, text: &str, at: usize, what: &str) -> LabError {
    let before = text.get(..at).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    LabError::Setup(format!("{file}:{line}: {what}"))
}

/// A file being parsed.
struct Reading<'a> {
    file: &'a str,
    text: &'a str,
    table: &'a DeTable<'a>,
    numbers: BTreeMap<&'static str, u64>,
}

impl<'a> Reading<'a> {
    /// Checks that all keys belong to the tables or words, and stores the numbers.
    fn known(&mut self, tables: &[&[(&'static str, u64, u64)]], words: &[&str]) -> Result<()> {
        let numbers = || tables.iter().flat_map(|table| table.iter());
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !words.contains(&name) && !numbers().any(|(known, _, _)| *known == name) {
                let mut all: Vec<&str> = numbers().map(|(known, _, _)| *known).collect();
                all.extend(words);
                let what = format!("unknown key {name}; allowed are {}", all.join(", "));
                return Err(wrong(self.file, self.text, key.span().start, &what));
            }
        }
        for (key, least, greatest) in numbers() {
            let value = self.value(key, &format!("a whole number, {least} to {greatest}"))?;
            let number = match value.get_ref() {
                DeValue::Integer(number) => {
                    let digits = number.as_str().replace('_', "");
                    i128::from_str_radix(&digits, number.radix()).ok()
                }
                _ => None,
            };
            let number = number.and_then(|number| u64::try_from(number).ok());
            match number.filter(|number| (*least..=*greatest).contains(number)) {
                Some(number) => self.numbers.insert(key, number),
                None => {
                    let what = format!("{key} must be a whole number, {least} to {greatest}");
                    return Err(wrong(self.file, self.text, value.span().start, &what));
                }
            };
        }
        Ok(())
    }

    fn disk(&self) -> Result<DiskProfile> {
        let discipline = match self.word("queue", &["fifo", "clook", "sptf"])? {
            "fifo" => Discipline::Fifo,
            "clook" => Discipline::Clook,
            _ => Discipline::Sptf,
        };
        let (outer, inner) = ("rate_outer_bytes_per_s", "rate_inner_bytes_per_s");
        if self.get(inner) > self.get(outer) {
            let what = format!(
                "{inner} must not be above {outer}, {}: offset 0 is outside, where tracks are longest",
                self.get(outer)
            );
            let at = self.value(inner, "")?.span().start;
            return Err(wrong(self.file, self.text, at, &what));
        }
        Ok(DiskProfile {
            size_bytes: self.get("size_bytes") / 4096 * 4096,
            rpm: self.get("rpm"),
            rate_outer_bytes_per_s: self.get(outer),
            rate_inner_bytes_per_s: self.get(inner),
            zones: self.get("zones"),
            heads: self.get("heads"),
            seek: Seek {
                settle_ns: self.get("seek_settle_us") * 1000,
                sqrt_ns: self.get("seek_sqrt_us") * 1000,
                linear_ns: self.get("seek_linear_us") * 1000,
            },
            overhead_ns: self.get("overhead_us") * 1000,
            bus_bytes_per_s: self.get("bus_bytes_per_s"),
            segments: self.get("segments") as usize,
            segment_bytes: self.get("segment_bytes"),
            queue: QueueProfile {
                discipline,
                depth: self.get("queue_depth") as usize,
                age_max_ns: self.get("queue_age_max_us") * 1000,
            },
        })
    }

    fn array(&self) -> Result<ArrayProfile> {
        let mirrored = self.value("mirrored", "true or false")?;
        let DeValue::Boolean(is_mirrored) = mirrored.get_ref() else {
            let at = mirrored.span().start;
            return Err(wrong(
                self.file,
                self.text,
                at,
                "mirrored must be true or false",
            ));
        };
        let disks = self.get("disks") as usize;
        if *is_mirrored && disks % 2 != 0 {
            let at = self.value("disks", "")?.span().start;
            let what = "disks must be even where they are mirrored";
            return Err(wrong(self.file, self.text, at, what));
        }
        Ok(ArrayProfile {
            disk: self.disk()?,
            disks,
            chunk_bytes: self.get("chunk_bytes") / 4096 * 4096,
            mirrored: *is_mirrored,
        })
    }

    /// A number that [`Self::known`] has stored.
    fn get(&self, key: &str) -> u64 {
        self.numbers[key]
    }

    fn word(&self, key: &str, allowed: &[&str]) -> Result<&'a str> {
        let value = self.value(key, &format!("one of {}", allowed.join(", ")))?;
        match value.get_ref() {
            DeValue::String(word) if allowed.contains(&word.as_ref()) => Ok(word),
            _ => {
                let what = format!("{key} must be one of {}", allowed.join(", "));
                Err(wrong(self.file, self.text, value.span().start, &what))
            }
        }
    }

    fn value(&self, key: &str, what: &str) -> Result<&'a Spanned<DeValue<'a>>> {
        self.table.get(key).ok_or_else(|| {
            LabError::Setup(format!("{}: the key {key} is missing: {what}", self.file))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_that_come_along_are_right_and_one_is_that_of_the_papers() {
        for name in names() {
            let profile = load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.size_bytes() % 4096, 0, "{name}");
        }
        let Profile::Disk(disk) = load("10k-scsi-2003").unwrap() else {
            panic!("a disk");
        };
        assert_eq!((disk.rpm, disk.seek.sqrt_ns), (10_000, 6_000_000));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_line_key_and_what_is_allowed() {
        let good = BUILT_IN[3].1;
        let say = |text: &str| parse("x.toml", text).unwrap_err().to_string();
        assert_eq!(
            say(&good.replace("latency_us = 140", "latency_us = 0")),
            "x.toml:6: latency_us must be a whole number, 1 to 100000"
        );
        assert_eq!(
            say(&good.replace("channels = 8", "chanels = 8")),
            "x.toml:4: unknown key chanels; allowed are size_bytes, channels, stripe_bytes, latency_us, \
             channel_bytes_per_s, kind"
        );
        assert_eq!(
            say(&good.replace("channels = 8\n", "")),
            "x.toml: the key channels is missing: a whole number, 1 to 256"
        );
        assert_eq!(
            say("kind = \"tape\"\n"),
            "x.toml:1: kind must be one of disk, array, flash"
        );
        assert!(say("kind = \n").starts_with("x.toml:1: not TOML: "));
        let disk = BUILT_IN[0].1;
        let inner = "rate_inner_bytes_per_s = 38_000_000";
        assert_eq!(
            say(&disk.replace(inner, "rate_inner_bytes_per_s = 90_000_000")),
            "x.toml:6: rate_inner_bytes_per_s must not be above rate_outer_bytes_per_s, 62000000: \
             offset 0 is outside, where tracks are longest"
        );
        let odd = BUILT_IN[2]
            .1
            .replace("disks = 4", "disks = 3")
            .replace("mirrored = false", "mirrored = true");
        assert_eq!(
            say(&odd),
            "x.toml:3: disks must be even where they are mirrored"
        );
    }

    #[test]
    fn a_name_that_is_none_tells_the_names() {
        let text = load("floppy").unwrap_err().to_string();
        assert!(
            text.contains("10k-scsi-2003, 7200-sata, raid0-4x7200, flash"),
            "{text}"
        );
    }
}
