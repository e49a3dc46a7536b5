//! A worker and clients of each kind: those that a path holds up, those that read at a pace of their own, and those
//! that the disk starves. What TCP counts of them is what the worker knows.
//!
//! The world is the shell: it proceeds by milliseconds, executes the worker's orders, and notes what is believed of
//! each client.

mod shell;

use ackpace_core::units::Instant;
use ackpace_core::worker::SendPolicy;

use crate::models::tcp::Profile;

/// How often it is noted what is believed of a client, milliseconds.
pub const NOTED_EACH_MS: u64 = 250;
/// From the beginning of a response until its client counts, milliseconds: its path is being filled.
pub const BEGINNING_MS: u64 = 500;

/// One client.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Its path and its program.
    pub profile: Profile,
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
    /// A segment of a film, and the next one when its turn has come, as a player does.
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
    /// They are in the page cache.
    Cached,
    /// A disk reads them piece by piece, and too slowly.
    Late {
        /// Length of a piece.
        piece_bytes: u64,
        /// From one piece to the next at least, milliseconds.
        every_ms: u64,
        /// From this age of the client on, a piece comes as soon as it is wanted, milliseconds.
        until_ms: u64,
    },
}

/// What became of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// B_n for sending and for prefetch, each [`NOTED_EACH_MS`] from its beginning on, bytes per second; 0: not known.
    pub believed_bytes_per_s: Vec<[u64; 2]>,
    /// What its program had read by then.
    pub read_noted_bytes: Vec<u64>,
    /// How fast it reads as long as it has something to read, bytes per second: by its program, or by what its path
    /// carried from [`BEGINNING_MS`] on.
    pub true_bytes_per_s: u64,
    /// All that its program read from [`BEGINNING_MS`] on, over that time, bytes per second.
    pub got_bytes_per_s: u64,
    /// All that its program read.
    pub read_bytes: u64,
    /// Time in which its program wanted bytes and its socket had none to send, milliseconds. It counts from
    /// [`BEGINNING_MS`] after the beginning of a response, and after the disk was late for the last time.
    pub underrun_ms: u64,
}

/// Results of a run. What is summed or bounded over all clients counts from [`World::measured_from_ms`] on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Each client, in the order given.
    pub readers: Vec<Reader>,
    /// Wake-ups of the worker.
    pub wakes: u64,
    /// Sockets filled, the first filling of each response excepted.
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
    pub clients: Vec<Client>,
    /// SendPolicy that fills the sockets.
    pub send: SendPolicy,
    /// When counting begins.
    pub measured_from_ms: u64,
    /// When it ends.
    pub ends_ms: u64,
}

impl World {
    /// Runs the world until `ends_ms`.
    pub fn run(&self) -> Outcome {
        shell::Shell::new(self).run()
    }
}

impl Client {
    /// What its program reads at most as long as it has something to read, bytes per second; `None`: its path decides.
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
