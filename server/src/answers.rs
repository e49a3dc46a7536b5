//! What a running server tells of itself: the questions that reach its workers, and the answers, which leave by the admin
//! socket as one JSON object a line. The unit of a number stands last in its name.
//!
//! Fields are only ever added within a [`VERSION`]; who reads ignores what it does not know.

use std::net::SocketAddr;

use ackpace_core::conn::ConnId;
use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

/// The version of requests and answers.
pub const VERSION: u32 = 1;

/// What a worker is asked. It answers on `reply`, which has room for all answers.
pub struct Question {
    /// What.
    pub ask: Ask,
    /// Where the answer goes.
    pub reply: Sender<Answer>,
}

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// How it stands, and its fastest responses under way, at most so many.
    Top(usize),
    /// Its responses under way from this place on, in the order of places, at most so many.
    Piece(u32, usize),
    /// Count how all connections stand, in the tally.
    Census,
    /// What is known of one connection.
    Why(Target),
}

/// Which connection is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By the name that `ackpace top` shows.
    Name {
        /// Of this worker.
        worker: u16,
        /// Its name there.
        conn: ConnId,
    },
    /// By the client's address.
    Peer(SocketAddr),
}

/// What a worker tells.
pub enum Answer {
    /// To [`Ask::Top`].
    Top(WorkerRow, Vec<Connection>),
    /// To [`Ask::Piece`], with their places, and from where on there may be more.
    Piece(Vec<(u32, Connection)>, Option<u32>),
    /// To [`Ask::Why`], from the worker that has the connection or remembers it.
    Why(Option<Box<Connection>>, Vec<Told>),
    /// To [`Ask::Census`], and to [`Ask::Why`] from the others.
    Nothing,
}

/// The answer to `top`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// [`VERSION`].
    pub version: u32,
    /// Who answers.
    pub server: Server,
    /// Each worker that answered.
    pub workers: Vec<WorkerRow>,
    /// Workers that did not answer in time: they hang in a system call.
    pub silent_workers: Vec<u16>,
    /// Connections with a response under way: the fastest first if so many were asked for, or else all by their names.
    pub connections: Vec<Connection>,
    /// How many more there are.
    pub left_out: u64,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its process.
    pub pid: u32,
    /// Its release.
    pub release: String,
    /// Since its start.
    pub uptime_us: u64,
    /// It is stopping.
    pub draining: bool,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Its number.
    pub worker: u16,
    /// Connections that are open.
    pub connections: u64,
    /// Responses under way.
    pub sending: u64,
    /// What arrived at those in the last seconds, per second.
    pub rate_bytes_per_s: u64,
    /// B_net: what those are believed to take, as far as that is known.
    #[serde(default)]
    pub believed_bytes_per_s: u64,
    /// T; null without margins.
    pub target_us: Option<u64>,
    /// Bytes given to sockets since the start.
    pub sent_bytes: u64,
    /// Times that it woke up.
    pub wakeups: u64,
}

/// A connection. What TCP knows is null on a unix socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Its name: worker, place, generation.
    pub id: String,
    /// Its client: address and port, or `unix`.
    pub peer: String,
    /// Where it stands.
    pub phase: String,
    /// The file that it gets; null for other answers.
    pub object: Option<String>,
    /// What arrived in the last seconds, per second.
    pub rate_bytes_per_s: u64,
    /// B_n as its socket is filled for it; 0: not known yet.
    #[serde(default)]
    pub believed_bytes_per_s: u64,
    /// B_n as the disk reads for it; 0: not known yet.
    #[serde(default)]
    pub prefetch_bytes_per_s: u64,
    /// T_n: the time for which its socket should have bytes; null while B_n is not known.
    pub margin_us: Option<u64>,
    /// What its socket is filled up to; null without margins.
    pub fill_bytes: Option<u64>,
    /// D1: in its socket, not sent.
    pub unsent_bytes: Option<u64>,
    /// D0: sent, not acknowledged.
    pub in_flight_bytes: Option<u64>,
    /// Round trip time.
    pub rtt_us: Option<u64>,
    /// Congestion window.
    pub cwnd_bytes: Option<u64>,
    /// The window that the client offers.
    pub window_bytes: Option<u64>,
    /// Segments that were sent again.
    pub retransmitted_segments: Option<u64>,
    /// Time in which the client's window held it up.
    pub window_limited_us: Option<u64>,
    /// Its response under way.
    pub response: Option<Response>,
}

/// A response under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// What its next bytes wait for: disk, margin, socket, window, turn.
    pub wait: String,
    /// For how long.
    pub wait_us: u64,
    /// Why its socket was filled last: first, called, near.
    pub top_up: String,
    /// Given to the kernel, head included.
    pub sent_bytes: u64,
    /// Still to be given to the kernel; of a listing, what is made.
    pub left_bytes: u64,
    /// Since its request.
    pub took_us: u64,
    /// Of that, standing still for the disk with nothing in its socket.
    pub waited_disk_us: u64,
    /// Of that, standing still for its client.
    pub waited_net_us: u64,
}

/// The answer to `why`, of a connection or a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// [`VERSION`].
    pub version: u32,
    /// The connection; null if it is gone and only remembered.
    pub connection: Option<Connection>,
    /// The device; null if it was asked for a connection.
    #[serde(default)]
    pub device: Option<DeviceRow>,
    /// How it stands, in plain sentences.
    pub now: Vec<String>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Told>,
}

/// A device that is read from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Its number, as in the metrics.
    pub device: u16,
    /// What the kernel calls its disks, as far as it does.
    pub disks: Vec<String>,
    /// It has an arm, or nobody knows.
    pub rotational: bool,
    /// N: streams that read from it.
    pub streams: u64,
    /// B_net: what they take together.
    pub rates_bytes_per_s: u64,
    /// T_D.
    pub target_us: u64,
    /// K.
    pub depth_reads: u64,
    /// Reads that it has now.
    pub in_flight_reads: u64,
    /// t_p.
    pub positioning_us: u64,
    /// R.
    pub media_bytes_per_s: u64,
    /// Memory for reading ahead that is in use.
    pub used_bytes: u64,
    /// M.
    pub memory_bytes: u64,
    /// It is read past the page cache where nobody shares.
    pub direct: bool,
    /// The kernel does not tell what is cached of its files.
    pub blind: bool,
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// How long ago.
    pub ago_us: u64,
    /// It was about all connections of the worker; of a device, about all its streams.
    pub of_worker: bool,
    /// A plain sentence.
    pub text: String,
}

/// The answer to what can't be answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// [`VERSION`].
    pub version: u32,
    /// Why not, and what to do.
    pub error: String,
}
