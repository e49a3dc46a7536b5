//! A viewer seeks within a film while the disk is busy with all others.

use super::slow_disk::{self, PLAIN, beside_nginx, films, place, remote, viewers};
use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Scenario};
use crate::judge::{Fold, Judge, Limit};
use ackpace_lab_swarm::workload::{Arrivals, Choice, Class, Objects, Part, PartChoice};

const STREAMS: u32 = 300;
const STREAM_BITS_PER_S: u64 = 2_400_000;
const SEEKS_PER_S: f64 = 2.0;
const OPENS_PER_S: f64 = 1.0;
const SEEK_BYTES: u64 = 1 << 20;
const MEMORY_MIB: u64 = 256;
const SOUGHT_COUNT: u32 = 32;
const SOUGHT_LEN_BYTES: u64 = 256 << 20;
const SOUGHT: Set = Set::Files {
    name: "sought",
    count: SOUGHT_COUNT as usize,
    len_bytes: SOUGHT_LEN_BYTES,
};

/// Enough small files that hardly any is requested twice: the kernel must read their inodes, too.
const UNKNOWN_COUNT: u32 = 4096;
const UNKNOWN: Set = Set::Files {
    name: "unknown",
    count: UNKNOWN_COUNT as usize,
    len_bytes: 64 << 10,
};

/// Time to the first byte of a cold range.
pub fn experiment() -> Experiment {
    let most = |metric, ms| Judge::alone(metric, Fold::Median, Limit::ValueAtMost(ms));
    let told = |metric| Judge::against(metric, PLAIN, Limit::None);
    Experiment {
        asks: "300 clients of 300 KB/s want more than a hard disk can give. Twice a second, somebody asks for a megabyte somewhere in \
            a film that nobody has touched, and once a second for a small file that nobody has asked for. How long until the first byte?",
        judged: vec![
            most("ttfb_p50_us@seeker", 120.0),
            most("ttfb_p99_us@seeker", 300.0),
            told("ttfb_p50_us@seeker"),
            told("ttfb_p99_us@seeker"),
            told("ttfb_p50_us@opener"),
            told("goodput_bytes_per_s@film"),
        ],
        figures: vec![
            Figure::plain("ttfb_p50_us@seeker", "First byte of a seek, median").logarithmic(),
            Figure::plain(
                "ttfb_p99_us@seeker",
                "First byte of a seek, 99th percentile",
            )
            .logarithmic(),
            Figure::plain(
                "ttfb_p50_us@opener",
                "First byte of an unknown file, median",
            )
            .logarithmic(),
            Figure::plain("completion_p50_us@seeker", "A whole megabyte, median").logarithmic(),
            Figure::plain("goodput_bytes_per_s@film", "Goodput of the streams"),
        ],
        ..beside_nginx(
            "seek",
            "Seeks beside 300 streams that keep the disk busy",
            |_| scenario(),
        )
    }
}

fn scenario() -> Scenario {
    let object = Objects {
        digits: 5,
        len_bytes: Some(SOUGHT_LEN_BYTES),
        ..Objects::set(Choice::Uniform, "/sought-{n}.bin", SOUGHT_COUNT)
    };
    let unknown = Objects {
        digits: 5,
        ..Objects::set(Choice::Uniform, "/unknown-{n}.bin", UNKNOWN_COUNT)
    };
    let seeker = Class {
        part: Some(Part {
            choice: PartChoice::Ranges,
            len_bytes: Some(SEEK_BYTES),
            align_bytes: Some(4096),
            ..Part::default()
        }),
        arrivals: Some(Arrivals {
            requests_per_s: Some(SEEKS_PER_S),
            ..Arrivals::default()
        }),
        ..Class::new("seeker", 32, object) // connections: more than are ever needed at once
    };
    let opener = Class {
        arrivals: Some(Arrivals {
            requests_per_s: Some(OPENS_PER_S),
            ..Arrivals::default()
        }),
        ..Class::new("opener", 16, unknown)
    };
    let streams = viewers("film", STREAMS, STREAM_BITS_PER_S);
    let files = [films("film", STREAMS, STREAMS + 1), SOUGHT, UNKNOWN];
    slow_disk::scenario(remote(
        place(&files, MEMORY_MIB),
        vec![streams, seeker, opener],
    ))
}
