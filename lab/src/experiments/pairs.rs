//! Two readers of one film at different places: which bytes are read once for both?

use super::slow_disk::{self, PLAIN, beside_nginx, dealt_films, dealt_to, place, remote, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::sweep::{Axis, Point};

const PAIRS: u32 = 20;
/// Together nearly the disk's throughput for 40 readers of 40 films.
const CLIENT_BITS_PER_S: u64 = 10_000_000;
const MEMORY_MIB: u64 = 128;
/// How far the second reader is ahead of the first, in bytes: from the first pair to the last.
const APART: [(&str, u64, Option<u64>); 6] = [
    ("40 films", 0, None),
    ("5 MB apart", 5_000_000, None),
    ("20 MB apart", 20_000_000, None),
    ("100 MB apart", 100_000_000, None),
    ("500 MB apart", 500_000_000, None),
    ("5 to 500 MB apart", 5_000_000, Some(500_000_000)),
];
const ALONE: usize = 0;

/// Bytes that the disk reads for each delivered byte, and the goodput.
pub fn experiment() -> Experiment {
    let paired: fn(&Point) -> bool = |at| at.count("apart") != ALONE;
    let told = |metric| Judge::against(metric, PLAIN, Limit::None);
    let over = |metric, title| Figure::over("apart", metric, title);
    let not_less = Limit::MedianRatioAtLeast(0.97);
    let mut figures = vec![
        over(
            "disk_over_goodput",
            "Bytes read over bytes that clients got",
        ),
        over("goodput_bytes_per_s", "Goodput"),
        over("demand_met_min", "Demand met, the worst-off client"),
    ];
    figures.extend(slow_disk::disk_figures(over));
    Experiment {
        asks: "20 films with two readers each, 40 clients of 1.25 MB/s, which is nearly all that a hard disk of 2003 has for so many places; the server has 128 MB. Beside it the \
            same clients with 40 films. The readers of a film are 5 to 500 MB apart. What the first one gets, the second one wants later: 4 s later at 5 MB, and to keep \
            it for all pairs would take 100 MB. So at 5 MB half of the bytes need not be read again, if memory were for nothing else; at 20 MB a quarter of the pairs could be \
            served so; from 100 MB on next to none. How much is read for each byte that a client gets, and does anybody get less than with a film of his own?",
        sweep: vec![
            Axis::named("apart", "readers", &APART.map(|(name, ..)| name))
                .quick(&[0.0, 1.0, 3.0, 5.0]),
        ],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 12.0,
            window_s: 30.0,
            window_quick_s: 10.0,
        },
        judged: vec![
            Judge::over_itself("goodput_bytes_per_s", "apart", ALONE as f64, not_less).at(paired),
            told("disk_over_goodput"),
            told("goodput_bytes_per_s"),
            told("demand_met_min"),
        ],
        figures,
        ..beside_nginx("pairs", "20 pairs of readers of one film", scenario)
    }
}

fn scenario(at: &Point) -> Scenario {
    let (_, apart_bytes, apart_max_bytes) = APART[at.count("apart")];
    let (films, apart) = match apart_bytes {
        0 => (2 * PAIRS, None),
        _ => (PAIRS, Some((apart_bytes, apart_max_bytes))),
    };
    let class = viewers("film", 2 * PAIRS, CLIENT_BITS_PER_S);
    let class = dealt_to(("film", films, 0), class, apart);
    let files = [dealt_films("film", films)];
    slow_disk::scenario(remote(place(&files, MEMORY_MIB), vec![class]))
}
