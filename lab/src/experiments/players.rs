//! Video players beside downloads: does playback continue while the disk is busy?

use super::slow_disk::{self, PLAIN, beside_nginx, films, place, remote, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Kind, Segments};

const PLAYERS: u32 = 100;
const FILM_BITS_PER_S: u64 = 1_000_000;
const SEGMENT_S: f64 = 4.0;
/// A segment is read at this many times the film's rate; 0: as fast as possible.
const TIMES: [(&str, f64); 2] = [("4 x real time", 4.0), ("full speed", 0.0)];
const DOWNLOADS: u32 = 200;
/// Together more than the disk delivers.
const DOWNLOAD_BITS_PER_S: u64 = 2_400_000;
const MEMORY_MIB: u64 = 256;

/// Stalls, and the time to the first byte of a segment.
pub fn experiment() -> Experiment {
    let told = |metric| Judge::against(metric, PLAIN, Limit::None);
    let over = |metric, title| Figure::over("segments", metric, title);
    Experiment {
        asks: "100 players take a film each at 1 Mbit/s, in segments of 4 s: each is fetched when the one before it begins to be played, at four times real time or as fast \
            as it comes, and then nothing happens until the next one is due. Beside them 200 clients download films at 300 KB/s each, more than the disk has. How often does a \
            film stand still, and how long does the first byte of a segment take, of which nobody could know that it would be asked for now?",
        sweep: vec![
            Axis::named("segments", "segments", &TIMES.map(|(name, _)| name)).quick(&[0.0]),
        ],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            // Two segments for the start, and two more once all have started.
            warm_up_s: 16.0,
            window_s: 40.0,
            window_quick_s: 12.0,
        },
        judged: vec![
            Judge::alone("stalls@player", Fold::Sum, Limit::Zero),
            Judge::alone(
                "ttfb_p99_us@player",
                Fold::Median,
                Limit::ValueAtMost(300.0),
            ),
            told("stalls@player"),
            told("ttfb_p50_us@player"),
            told("ttfb_p99_us@player"),
            told("completion_p99_us@player"),
            told("goodput_bytes_per_s@download"),
        ],
        figures: vec![
            over("stalls@player", "Times that a film stood still"),
            over("ttfb_p50_us@player", "First byte of a segment, median").logarithmic(),
            over(
                "ttfb_p99_us@player",
                "First byte of a segment, 99th percentile",
            )
            .logarithmic(),
            over(
                "completion_p99_us@player",
                "A whole segment, 99th percentile",
            )
            .logarithmic(),
            over("goodput_bytes_per_s@download", "Goodput of the downloads"),
        ],
        ..beside_nginx(
            "players",
            "100 players beside 200 downloads that keep the disk busy",
            scenario,
        )
    }
}

fn scenario(at: &Point) -> Scenario {
    let all = PLAYERS + DOWNLOADS + 2;
    let (_, times) = TIMES[at.count("segments")];
    let mut player = viewers("player", PLAYERS, FILM_BITS_PER_S);
    let film = films("player", PLAYERS, all);
    player.kind = Kind::Player;
    player.object.len_bytes = film.files().first().map(|(_, len_bytes)| *len_bytes);
    player.segments = Some(Segments {
        film_s: SEGMENT_S,
        times: (times > 0.0).then_some(times),
    });
    let download = Class {
        kind: Kind::SelfPaced,
        ..viewers("download", DOWNLOADS, DOWNLOAD_BITS_PER_S)
    };
    let files = [film, films("download", DOWNLOADS, all)];
    slow_disk::scenario(remote(place(&files, MEMORY_MIB), vec![player, download]))
}
