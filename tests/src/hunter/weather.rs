//! Conditions of a hunt: named sets of settings, each with its own dangers.

use super::plan::Taste;
use crate::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The file system of the directory for temporary files.
    Plain,
    /// An emulated disk of the lab with this rate, unless it is told to be fast.
    Emulated { rate_bytes_per_s: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Steady,
    Changing,
    /// The server may read hardly anything for a while, then everything again; others read at the disk's rate.
    Throttled,
    Hangs {
        most_ms: u64,
    },
    /// Some of its blocks are unreadable for a while.
    Fails,
}

/// Activity of others on the machine, in operations a second each.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    pub changes: u64,
    /// Reads of pieces of files into the page cache.
    pub fills: u64,
    /// Evictions of files, or pieces of them, from the page cache.
    pub drops: u64,
    /// Whether whole files are read from start to end, one after the other, as by a backup.
    pub backup: bool,
}

#[derive(Clone, Debug)]
pub struct Weather {
    pub name: &'static str,
    pub medium: Medium,
    pub mood: Mood,
    pub args: &'static str,
    pub clients: usize,
    pub taste: Taste,
    /// Number of files, and the length of the longest.
    pub files: (usize, u64),
    /// Two thirds of all requests go to this many files; 0: all files are equally popular.
    pub popular: usize,
    pub others: Others,
    /// Whether the server is a gateway in front of an origin with the files, which is killed now and then.
    pub gateway: bool,
    /// Whether NFS clients call, over an iSCSI target. Nothing else is set then: see `target`.
    pub target: bool,
    /// Whether responses may be 503.
    pub busy: bool,
    /// How long a response may stall while the disk works.
    pub stall_s: u64,
}

const MIB: u64 = 1 << 20;

const ALL_SORTS: Taste = Taste {
    leaves_early: 15,
    slow: 35,
    drips: 30,
    multipart: 30,
    range: 25,
    conditional: 25,
    other: 6,
    asks_max: 5,
};

const QUIET: Others = Others {
    changes: 0,
    fills: 0,
    drops: 0,
    backup: false,
};

/// Any requests for files that all clients like equally.
const USUAL: Weather = Weather {
    name: "",
    medium: Medium::Plain,
    mood: Mood::Steady,
    args: "--workers 2",
    clients: 24,
    taste: ALL_SORTS,
    files: (14, 8 * MIB),
    popular: 0,
    others: QUIET,
    gateway: false,
    target: false,
    busy: false,
    stall_s: 45,
};

const fn emulated(rate_bytes_per_s: u64) -> Medium {
    Medium::Emulated { rate_bytes_per_s }
}

const fn reads(fills: u64, drops: u64) -> Others {
    Others {
        fills,
        drops,
        ..QUIET
    }
}

pub const ALL: [Weather; 11] = [
    // More clients than there are places for; most of them leave after a moment.
    Weather {
        name: "crowd",
        args: "--workers 2 --connections-max 64",
        clients: 192,
        taste: Taste {
            leaves_early: 95,
            slow: 0,
            multipart: 5,
            range: 90,
            conditional: 0,
            other: 0,
            asks_max: 1,
            ..ALL_SORTS
        },
        files: (24, 4 * MIB),
        others: reads(0, 400),
        stall_s: 60,
        ..USUAL
    },
    // A few files that all clients want in pieces, on a disk that is slow now and then, while others read and evict
    // them.
    Weather {
        name: "popular",
        medium: emulated(150_000_000),
        mood: Mood::Throttled,
        args: "--workers 1",
        clients: 40,
        taste: Taste {
            leaves_early: 5,
            slow: 15,
            drips: 85,
            multipart: 50,
            range: 45,
            conditional: 5,
            other: 0,
            asks_max: 4,
        },
        files: (12, 24 * MIB),
        popular: 3,
        others: reads(60, 10),
        ..USUAL
    },
    // Another program reads what clients ask for, from a disk that is too slow for all.
    Weather {
        name: "backup",
        medium: emulated(2_000_000),
        clients: 10,
        taste: Taste {
            leaves_early: 40,
            slow: 20,
            multipart: 10,
            range: 60,
            conditional: 0,
            asks_max: 2,
            ..ALL_SORTS
        },
        files: (6, 8 * MIB),
        others: Others {
            backup: true,
            ..reads(4, 4)
        },
        stall_s: 60,
        ..USUAL
    },
    // Any requests, on a disk whose rate changes, while the page cache is filled and emptied.
    Weather {
        name: "throttle",
        medium: emulated(8_000_000),
        mood: Mood::Changing,
        clients: 32,
        files: (14, 24 * MIB),
        others: reads(20, 20),
        ..USUAL
    },
    // Files change in every way under their readers.
    Weather {
        name: "editors",
        clients: 40,
        taste: Taste {
            slow: 70,
            multipart: 15,
            ..ALL_SORTS
        },
        files: (16, 24 * MIB),
        others: Others {
            changes: 4,
            ..reads(5, 10)
        },
        stall_s: 20,
        ..USUAL
    },
    // The disk does not answer for seconds.
    Weather {
        name: "hangs",
        medium: emulated(100_000_000),
        mood: Mood::Hangs { most_ms: 1500 },
        others: reads(10, 20),
        stall_s: 20,
        ..USUAL
    },
    // Blocks of the disk are unreadable for a while.
    Weather {
        name: "failing",
        medium: emulated(100_000_000),
        mood: Mood::Fails,
        others: reads(5, 20),
        stall_s: 20,
        ..USUAL
    },
    // Hardly any memory, and a long pipeline of requests.
    Weather {
        name: "tiny",
        medium: emulated(50_000_000),
        mood: Mood::Changing,
        args: "--workers 2 --connections-max 128 --memory-max 96MiB --prefetch-memory 16MiB --object-cache 1MiB",
        clients: 64,
        taste: Taste {
            asks_max: 24,
            other: 10,
            ..ALL_SORTS
        },
        others: Others {
            changes: 3,
            ..reads(5, 20)
        },
        busy: true,
        ..USUAL
    },
    // Send memory is divided, and too small for all: shares shrink and grow below data in flight.
    Weather {
        name: "shares",
        medium: emulated(100_000_000),
        mood: Mood::Changing,
        args: "--workers 2 --connections-max 64 --send-memory 4MiB",
        clients: 80,
        taste: Taste {
            leaves_early: 30,
            slow: 50,
            ..ALL_SORTS
        },
        files: (14, 16 * MIB),
        others: reads(5, 10),
        ..USUAL
    },
    // A gateway with little memory, whose origin is killed now and then.
    Weather {
        name: "gateway",
        args: "--workers 2 --cache-memory 32MiB",
        clients: 40,
        files: (14, 16 * MIB),
        popular: 5,
        gateway: true,
        ..USUAL
    },
    // NFS over an iSCSI target: all programs are killed now and then.
    Weather {
        name: "target",
        target: true,
        ..USUAL
    },
];

/// The endless order in which a hunt of this seed goes through the weathers.
pub fn course(seed: u64) -> impl Iterator<Item = Weather> {
    let mut rng = Rng::new(seed);
    let mut left: Vec<Weather> = Vec::new();
    std::iter::from_fn(move || {
        if left.is_empty() {
            left = ALL.to_vec();
        }
        Some(left.swap_remove(rng.below(left.len())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_goes_through_all_before_one_comes_again() {
        let names = |seed| {
            course(seed)
                .map(|weather| weather.name)
                .take(ALL.len())
                .collect::<Vec<_>>()
        };
        let mut sorted = names(3);
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ALL.len());
        assert_eq!(names(3), names(3));
        assert!((4..9).any(|seed| names(seed) != names(3)));
    }
}
