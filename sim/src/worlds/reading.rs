//! A worker and clients of each kind: those that a path limits, those that read at a pace of their own, and those that
//! the disk starves. The worker knows of them what TCP counts.
//!
//! The world is the shell: it proceeds by milliseconds, executes the worker's orders, and records how fast the worker
//! believes each client to be.

mod shell;

use ackpace_core::units::Instant;
use ackpace_core::worker::SendPolicy;

use crate::models::tcp::ConnectionProfile;

/// Interval at which the believed rates are recorded, milliseconds.
pub const NOTED_EACH_MS: u64 = 250;
/// Time from the beginning of a response until its client counts, milliseconds: until then its path is being filled.
pub const BEGINNING_MS: u64 = 500;

/// A client that is limited by its program, its path or the disk.
#[derive(Clone, Copy, Debug)]
pub struct ReadingClient {
    /// Its path and its program.
    pub profile: ConnectionProfile,
    /// When it connects and sends its request, milliseconds.
    pub starts_ms: u64,
    /// What it asks for.
    pub asks: Asks,
    /// Where its bytes come from.
    pub supply: Supply,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// One endless file.
    File,
    /// The segments of a film, each when it is due, as a player does.
    Segments {
        /// Length of a segment.
        len_bytes: u64,
        /// From one request to the next, milliseconds.
        every_ms: u64,
    },
}

/// Where the bytes of a response come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// From the page cache.
    Cached,
    /// From a disk that reads them piece by piece, and too slowly.
    Late {
        /// Length of a piece.
        piece_bytes: u64,
        /// Minimum time from one piece to the next, milliseconds.
        every_ms: u64,
        /// Age of the client from which on a piece comes as soon as it is wanted, milliseconds.
        until_ms: u64,
    },
}

/// Results of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// B_n, each [`NOTED_EACH_MS`] from its beginning on, bytes per second; 0: not known.
    pub believed_bytes_per_s: Vec<u64>,
    /// Bytes that its program had read by each of these times.
    pub read_noted_bytes: Vec<u64>,
    /// How fast it reads while it has something to read, bytes per second: the rate of its program, or what its path
    /// carried from [`BEGINNING_MS`] on.
    pub true_bytes_per_s: u64,
    /// Mean rate at which its program read from [`BEGINNING_MS`] on, bytes per second.
    pub got_bytes_per_s: u64,
    /// Bytes that its program read in all.
    pub read_bytes: u64,
    /// Time in which its program wanted bytes and its socket had none to send, milliseconds. It counts from
    /// [`BEGINNING_MS`] after the beginning of a response, and after the disk was late for the last time.
    pub underrun_ms: u64,
}

/// Results of a run. Sums and maxima over all clients count from [`World::measured_from_ms`] on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Each client, in the order given.
    pub readers: Vec<Reader>,
    /// Wake-ups of the worker.
    pub wakes: u64,
    /// Sockets that were refilled, without the first filling of each response.
    pub top_ups: u64,
    /// Bytes that the programs read.
    pub read_bytes: u64,
    /// Mean over time of the unsent bytes in all sockets together.
    pub queue_mean_bytes: u64,
    /// The maximum of these, from the start of the world.
    pub queue_max_bytes: u64,
    /// The most that one socket held unsent, from the start of the world.
    pub socket_max_bytes: u64,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// Who downloads.
    pub clients: Vec<ReadingClient>,
    /// When and how far sockets are filled.
    pub send: SendPolicy,
    /// When counting begins.
    pub measured_from_ms: u64,
    /// When it ends.
    pub ends_ms: u64,
}

impl World {
    /// Runs the world until `ends_ms`.
    pub fn run(&self) -> Outcome {
        shell::Run::new(self).run()
    }
}

impl ReadingClient {
    /// The rate of its program while it has something to read, bytes per second; `None`: its path decides.
    fn own_bytes_per_s(&self) -> Option<u64> {
        let link_bytes_per_s = self.profile.link_bytes_per_s;
        match (self.profile.program.mean_bytes_per_s(), self.supply) {
            (Some(bytes_per_s), _) => Some(bytes_per_s.min(link_bytes_per_s)),
            (None, Supply::Late { .. }) => Some(link_bytes_per_s),
            (None, Supply::Cached) => None,
        }
    }
}

impl Outcome {
    /// Wake-ups per 10^9 bytes.
    pub fn wakes_per_gb(&self) -> f64 {
        self.wakes as f64 / (self.read_bytes as f64 / 1e9)
    }

    /// Top-ups per 10^9 bytes.
    pub fn top_ups_per_gb(&self) -> f64 {
        self.top_ups as f64 / (self.read_bytes as f64 / 1e9)
    }
}

fn instant(ms: u64) -> Instant {
    Instant { us: ms * 1_000 }
}
