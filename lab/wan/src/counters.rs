//! The emulator's counters, as plain data.

use super::engine::{Engine, LinkState};
pub use super::engine::{PathTotals, Strays};
use super::plan::Direction;
use super::plan::LinkId;
use serde::{Deserialize, Serialize};

/// Counters since the start, except for the lateness, which counts since the last call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Time since the start, in us.
    pub elapsed_us: u64,
    /// By path, in the topology's order.
    pub paths: Vec<PathCounters>,
    /// By link: the shared ones, then each path's own, down and up.
    pub links: Vec<LinkCounters>,
    /// Frames that belong to no path.
    pub strays: Strays,
    /// How late the emulator wrote frames.
    pub lateness: Lateness,
    /// Frames that a kernel refused to accept.
    pub refused: u64,
    /// Frames dropped by the server's and by the client's kernel because the emulator read too slowly.
    pub overruns: [u64; 2],
}

/// One path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathCounters {
    /// Name of the path in the topology.
    pub name: String,
    /// From the server to the client.
    pub down: PathTotals,
    /// From the client to the server.
    pub up: PathTotals,
}

/// One link in one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Name of the link in the topology; a path's own links are `PATH down` and `PATH up`.
    pub name: String,
    /// Packets offered to it.
    pub offered_packets: u64,
    /// Bytes offered to it.
    pub offered_bytes: u64,
    /// Packets that arrive at its far end.
    pub delivered_packets: u64,
    /// Bytes that arrive at its far end.
    pub delivered_bytes: u64,
    /// Packets dropped by a full queue.
    pub dropped_full_packets: u64,
    /// Packets dropped early by RED.
    pub dropped_red_packets: u64,
    /// Packets lost on the wire.
    pub lost_packets: u64,
    /// Packets delivered with "congestion experienced".
    pub marked_packets: u64,
    /// Time that the transmitter was sending; a link without a rate sends in no time.
    pub busy_us: u64,
    /// Time that the transmitter was idle.
    pub idle_us: u64,
    /// Bytes in the queue now.
    pub queue_bytes: u64,
}

/// How late frames were written, relative to the time at which they should arrive.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of frames.
    pub frames: u64,
    /// Sum of their lateness.
    pub sum_ns: u64,
    /// Lateness of the latest frame.
    pub max_ns: u64,
}

impl Counters {
    /// The counters of an engine; the caller adds the names.
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
    /// Counts one more frame.
    pub(crate) fn saw(&mut self, late_ns: u64) {
        self.frames += 1;
        self.sum_ns += late_ns;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// Returns the lateness since the last call, and resets it.
    pub(crate) fn taken(&mut self) -> Lateness {
        std::mem::take(self)
    }

    /// Mean lateness in us.
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / 1e3 / self.frames.max(1) as f64
    }
}
