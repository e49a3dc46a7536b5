//! What the emulator counted, as plain data.

use super::engine::{Engine, LinkState};
pub use super::engine::{PathTotals, Strays};
use super::plan::Direction;
use super::plan::LinkId;
use serde::{Deserialize, Serialize};

/// Everything since the start, but for the lateness, which is since the last look.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Since the start, in us.
    pub elapsed_us: u64,
    /// By path, in the topology's order.
    pub paths: Vec<PathCounters>,
    /// By link: the shared ones, then the own ones of each path, down and up.
    pub links: Vec<LinkCounters>,
    /// Frames of no path.
    pub strays: Strays,
    /// How punctual the emulator was.
    pub lateness: Lateness,
    /// Frames that a kernel refused to take.
    pub refused: u64,
    /// Frames that the server's and the client's kernel dropped, since the emulator read too slowly.
    pub overruns: [u64; 2],
}

/// One path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathCounters {
    /// As in the topology.
    pub name: String,
    /// From the server to the client.
    pub down: PathTotals,
    /// From the client to the server.
    pub up: PathTotals,
}

/// One link, one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    /// As in the topology; own links are `PATH down` and `PATH up`.
    pub name: String,
    /// Packets offered to it.
    pub offered_packets: u64,
    /// Bytes offered to it.
    pub offered_bytes: u64,
    /// Packets that arrive.
    pub delivered_packets: u64,
    /// Bytes that arrive.
    pub delivered_bytes: u64,
    /// Dropped by a full queue.
    pub dropped_full_packets: u64,
    /// Dropped early by RED.
    pub dropped_red_packets: u64,
    /// Lost on the wire.
    pub lost_packets: u64,
    /// Delivered with "congestion experienced".
    pub marked_packets: u64,
    /// Time that the transmitter sent; a link without a rate sends in no time.
    pub busy_us: u64,
    /// Time that it did not.
    pub idle_us: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
}

/// How late frames were written, after the time at which they should arrive.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Frames.
    pub frames: u64,
    /// Sum over them.
    pub sum_ns: u64,
    /// The latest.
    pub max_ns: u64,
}

impl Counters {
    /// Of an engine; names are added by who knows them.
    pub(crate) fn of(engine: &Engine, now_ns: u64, elapsed_ns: u64) -> Counters {
        let path = |nth| PathCounters {
            name: String::new(),
            down: engine.path_totals(nth, Direction::Down),
            up: engine.path_totals(nth, Direction::Up),
        };
        let link = |nth| LinkCounters::of(&engine.link_state(LinkId(nth), now_ns), elapsed_ns);
        Counters {
            elapsed_us: elapsed_ns / 1000,
            paths: (0..engine.path_count()).map(path).collect(),
            links: (0..engine.link_count()).map(link).collect(),
            strays: engine.strays(),
            ..Counters::default()
        }
    }

    /// A path by its name.
    pub fn path(&self, name: &str) -> Option<&PathCounters> {
        self.paths.iter().find(|path| path.name == name)
    }

    /// A link by its name.
    pub fn link(&self, name: &str) -> Option<&LinkCounters> {
        self.links.iter().find(|link| link.name == name)
    }
}

impl LinkCounters {
    fn of(state: &LinkState, elapsed_ns: u64) -> LinkCounters {
        let totals = state.totals;
        LinkCounters {
            name: String::new(),
            offered_packets: totals.offered_packets,
            offered_bytes: totals.offered_bytes,
            delivered_packets: totals.delivered_packets,
            delivered_bytes: totals.delivered_bytes,
            dropped_full_packets: totals.dropped_full_packets,
            dropped_red_packets: totals.dropped_red_packets,
            lost_packets: totals.lost_packets,
            marked_packets: totals.marked_packets,
            busy_us: state.busy_ns / 1000,
            idle_us: elapsed_ns.saturating_sub(state.busy_ns) / 1000,
            queue_bytes: state.queue_bytes,
        }
    }
}

impl Lateness {
    /// One more frame.
    pub(crate) fn saw(&mut self, late_ns: u64) {
        self.frames += 1;
        self.sum_ns += late_ns;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// What was seen since the last call.
    pub(crate) fn taken(&mut self) -> Lateness {
        std::mem::take(self)
    }

    /// Mean, in us.
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / 1e3 / self.frames.max(1) as f64
    }
}
