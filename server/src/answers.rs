//! Views of a running server: the questions that reach its workers, and the answers, which leave by the admin socket as
//! one JSON object a line. The unit of a number is the last word of its name.
//!
//! Within a [`VERSION`], fields are only ever added; clients ignore fields that they do not know.

use std::net::SocketAddr;

use ackpace_core::conn::ConnId;
use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

/// The version of requests and answers.
pub const VERSION: u32 = 1;

/// A question to a worker. It answers on `reply`, which has room for all answers.
pub struct Question {
    pub ask: Ask,
    pub reply: Sender<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The worker's state, and its fastest responses under way, at most so many.
    Top(usize),
    /// Its responses under way from this slot on, in the order of slots, at most so many.
    Piece(u32, usize),
    /// Count the states of all connections, in the tally.
    Census,
    Why(Target),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// By the name that `ackpace top` shows.
    Name {
        worker: u16,
        /// The connection's id in that worker.
        conn: ConnId,
    },
    Peer(SocketAddr),
}

pub enum Answer {
    /// To [`Ask::Top`].
    Top(WorkerRow, Vec<Connection>),
    /// To [`Ask::Piece`], with their slots, and the slot from which there may be more.
    Piece(Vec<(u32, Connection)>, Option<u32>),
    /// To [`Ask::Why`], from the worker that has the connection or remembers it.
    Why(Option<Box<Connection>>, Vec<Told>),
    /// To [`Ask::Census`], and to [`Ask::Why`] from the others.
    Nothing,
}

/// What a gateway keeps and has done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheState {
    pub version: u32,
    /// Targets of which something is known.
    pub objects: u64,
    pub kept_bytes: u64,
    pub allocated_bytes: u64,
    pub size_bytes: u64,
    pub pinned_segments: u64,
    /// The cache folder; null: there is none.
    #[serde(default)]
    pub folder: Option<FolderState>,
    /// Requests by how they were answered.
    pub answers: Vec<(String, u64)>,
    pub origins: Vec<OriginState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginState {
    pub origin: String,
    pub requests: u64,
    pub fetched_bytes: u64,
    pub faults: u64,
    pub connections: u64,
}

/// What a gateway keeps in its cache folder (`cache_dir`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FolderState {
    pub path: String,
    /// Files, each with a window of 1 MiB of an object or less.
    pub windows: u64,
    /// What they take of the disk.
    pub kept_bytes: u64,
    pub size_bytes: u64,
    /// Reads that brought bytes from there in place of an origin, since the start.
    pub reads: u64,
    pub read_bytes: u64,
}

/// How much was forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Purged {
    pub version: u32,
    pub objects: u64,
}

/// A cluster, as one of its nodes sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterState {
    pub version: u32,
    /// The node that was asked.
    pub node: String,
    /// Objects of which it knows a node that has them.
    pub objects: u64,
    pub sent_frames: u64,
    pub heard_frames: u64,
    /// Streams that stood and broke.
    pub broken_streams: u64,
    /// Streams that were refused: a wrong key or name, or rubbish.
    pub refused_streams: u64,
    /// Connections of this node that others serve, or that are on their way.
    #[serde(default)]
    pub away_connections: u64,
    /// Connections that it serves for others.
    #[serde(default)]
    pub guest_connections: u64,
    pub nodes: Vec<NodeState>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    pub node: String,
    /// Where it listens for the other nodes.
    pub address: String,
    /// Where it serves HTTP to them; null: it can't be reached.
    pub relay: Option<String>,
    /// `up`, `draining`, `down` (nobody hears from it) or `ended` (its process has ended).
    pub standing: String,
    /// How long it is so.
    pub since_us: u64,
    /// The version of the nodes' messages; 0: not known.
    pub protocol: u16,
    /// Responses under way.
    pub processing: u32,
    /// Streams that read from its disks.
    pub disk: u32,
    pub connections: u32,
}

/// A node was told to drain, or no longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drained {
    pub version: u32,
    pub node: String,
    pub draining: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Top {
    pub version: u32,
    pub server: Server,
    pub workers: Vec<WorkerRow>,
    /// Workers that did not answer in time: they hang in a system call.
    pub silent_workers: Vec<u16>,
    /// Workers that have ended: while the server stops, since their last connection has ended; else the log says why.
    #[serde(default)]
    pub ended_workers: Vec<u16>,
    /// Threads of NFS; empty where that is not served.
    #[serde(default)]
    pub nfs_threads: Vec<NfsRow>,
    /// Connections with a response under way: the fastest first if so many were asked for, or else all by their names.
    pub connections: Vec<Connection>,
    pub left_out: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    pub pid: u32,
    pub release: String,
    pub uptime_us: u64,
    pub draining: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub worker: u16,
    pub connections: u64,
    pub sending: u64,
    /// The bytes that arrived in the last seconds at the clients of those, per second.
    pub rate_bytes_per_s: u64,
    /// B_net: the sum of those clients' estimated rates, where known.
    #[serde(default)]
    pub believed_bytes_per_s: u64,
    /// T: the time for which sockets are filled; null without margins.
    pub target_us: Option<u64>,
    /// Bytes given to sockets since the start.
    pub sent_bytes: u64,
    pub wakeups: u64,
}

/// What a thread of NFS has done since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NfsRow {
    pub thread: u16,
    /// Those that are open now.
    pub connections: u64,
    pub calls: u64,
    /// READs whose bytes were not in memory.
    pub missed_reads: u64,
    pub sent_bytes: u64,
    pub written_bytes: u64,
}

/// A connection. TCP's fields are null on a unix socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Its name: worker, slot, generation.
    pub id: String,
    /// Its client: address and port, or `unix`.
    pub peer: String,
    pub phase: String,
    /// The file that is sent; null for other responses.
    pub object: Option<String>,
    /// The bytes that arrived in the last seconds, per second.
    pub rate_bytes_per_s: u64,
    /// B_n, by which its socket is filled and the disk reads for it; 0: not known yet.
    #[serde(default)]
    pub believed_bytes_per_s: u64,
    /// T_n: for how long its socket should have bytes; null while B_n is not known.
    pub margin_us: Option<u64>,
    /// The level to which its socket is filled; null without margins.
    pub fill_bytes: Option<u64>,
    /// Its share of the send memory: the most that its socket holds, unsent and in flight; null where that is not divided.
    #[serde(default)]
    pub share_bytes: Option<u64>,
    /// D1: bytes in its socket that are not sent.
    pub unsent_bytes: Option<u64>,
    /// D0: bytes sent and not acknowledged.
    pub in_flight_bytes: Option<u64>,
    pub rtt_us: Option<u64>,
    pub cwnd_bytes: Option<u64>,
    /// The window that the client offers.
    pub window_bytes: Option<u64>,
    pub retransmitted_segments: Option<u64>,
    /// Time in which the client's window limited it.
    pub window_limited_us: Option<u64>,
    pub response: Option<Response>,
    /// Where it and its response came from; null without a cluster, and if there is nothing to tell.
    #[serde(default)]
    pub placement: Option<Placement>,
}

/// A connection in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// As in the access log: here, kept, relayed, fetched; or handed_over, as long as it waits to be. Null: the response was not placed.
    pub by: Option<String>,
    /// The node that has the bytes, if that is another one.
    pub from: Option<String>,
    /// Why that node.
    pub why: Option<String>,
    /// The node that accepted the connection, if that is another one.
    pub home: Option<String>,
    /// How often the connection has moved between nodes.
    pub moves: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// What the next bytes wait for: disk, margin, socket, window, turn.
    pub wait: String,
    /// The time since this wait began.
    pub wait_us: u64,
    /// Why the socket was last filled: first, writable, near.
    pub top_up: String,
    /// Bytes given to the kernel, head included.
    pub sent_bytes: u64,
    /// Bytes still to be given to the kernel; of a listing, those made so far.
    pub left_bytes: u64,
    pub took_us: u64,
    /// The part of it in which it was stalled for the disk with nothing in its socket.
    pub waited_disk_us: u64,
    /// The part of it in which it was stalled for its client.
    pub waited_net_us: u64,
}

/// The answer to `why`, about a connection or a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    pub version: u32,
    /// The connection; null if it is closed and only its decisions are remembered.
    pub connection: Option<Connection>,
    /// The device; null if the question was about a connection, and while no thread can read from the device.
    #[serde(default)]
    pub device: Option<DeviceRow>,
    pub now: Vec<String>,
    pub decisions: Vec<Told>,
}

/// A device that is read from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Its number, as in the metrics.
    pub device: u16,
    /// The kernel's names of its disks, as far as it has any.
    pub disks: Vec<String>,
    /// Whether it has an arm, or may have one.
    pub rotational: bool,
    /// N: streams that read from it.
    pub streams: u64,
    /// B_net: the rate of all these together.
    pub rates_bytes_per_s: u64,
    /// T_D: the time for which a stream's bytes are to last after a read.
    pub target_us: u64,
    /// K: reads given to the device at once.
    pub depth_reads: u64,
    /// Reads that are in the device now.
    pub in_flight_reads: u64,
    /// t_p: the time of positioning at the present load.
    pub positioning_us: u64,
    /// R: the rate of the medium.
    pub media_bytes_per_s: u64,
    /// Memory for reading ahead in use.
    pub used_bytes: u64,
    /// M: memory for reading ahead.
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub ago_us: u64,
    /// Whether it was about all connections of the worker; of a device, about all its streams.
    pub is_about_all: bool,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    pub version: u32,
    /// Why not, and what to do.
    pub error: String,
}
