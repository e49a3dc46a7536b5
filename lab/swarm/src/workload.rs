//! What a swarm does: classes of clients, as a TOML file or as Rust values.
//!
//! Types only; which values make sense together is said in `check.rs`. Unset means: not done.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// All clients of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Start of all random draws. The same seed gives each client the same objects, ranges and rates.
    pub seed: u64,
    /// Length of the run after the warm-up, in seconds. Without it, until `stop`.
    pub duration_s: Option<f64>,
    /// Seconds before the figures begin to count.
    pub warmup_s: f64,
    /// Clients of all classes together; needed only where classes give a `share`.
    pub clients: Option<u32>,
    /// Classes of clients, each with a name of its own.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
}

/// Clients that behave alike.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name in all figures.
    pub name: String,
    /// Number of clients. A client has one connection at a time.
    pub clients: Option<u32>,
    /// Instead: part of the workload's `clients`, 0..=1.
    pub share: Option<f64>,
    /// What limits a client, beside its link.
    #[serde(default)]
    pub kind: Kind,
    /// Pace at which a client reads. Without it: as fast as it can. Of a player: of its film.
    pub rate: Option<Rate>,
    /// How a player takes its film.
    pub segments: Option<Segments>,
    /// What a bursty client reads at once.
    pub burst: Option<Burst>,
    /// Addresses that the clients bind to, one after the other, as "10.1.0.1-10.1.3.232" or
    /// "10.1.0.0/24": each may be a path of the WAN emulator. Without it: the kernel's choice.
    pub source: Option<String>,
    /// When the clients begin. Without it: all at once.
    pub start: Option<Start>,
    /// What they get.
    pub object: Objects,
    /// Which part of it. Without it: all of it.
    pub part: Option<Part>,
    /// Requests come at a rate of their own, whatever the answers do (open loop). Without it each
    /// client asks when it has its answer (closed loop).
    pub arrivals: Option<Arrivals>,
    /// Seconds that a client of a closed loop waits between an answer and the next request.
    #[serde(default)]
    pub think_s: f64,
    /// One connection for all requests of a client (default), or a new one for each.
    #[serde(default = "yes")]
    pub keep_alive: bool,
    /// Requests of a client of a closed loop. Without it: no end.
    pub requests_each: Option<u32>,
    /// What a client does after its last request.
    #[serde(default)]
    pub afterwards: Afterwards,
    /// Clients that stop reading for a while, so that their window closes.
    pub pause: Option<Pause>,
    /// Clients that leave within a response.
    pub abort: Option<Abort>,
    /// Clients that read at another pace from some time on.
    #[serde(default)]
    pub change: Vec<Change>,
    /// SO_RCVBUF of the clients' sockets, which is about the window that they open. Without it: the kernel's
    /// autotuning, or half a second of the rate (at least 64 KiB) for a plain client with a rate, else the kernel
    /// would take in what it does not.
    pub receive_buffer_bytes: Option<u32>,
    /// SO_RCVLOWAT within a body: the client is not woken for less, so that thousands of them cost little where
    /// the network is what limits them. Without it: for each packet. Not with a `rate`, which wakes by the clock.
    pub receive_at_least_bytes: Option<u32>,
    /// The clients have a thread of their own, before the others on its core: what they are timed by is then not how
    /// busy the others keep the swarm.
    #[serde(default)]
    pub apart: bool,
    /// A client that waits for a byte longer than this has stalled.
    #[serde(default = "one")]
    pub stall_s: f64,
    /// A client that waits for a byte longer than this gives up: an error.
    #[serde(default = "thirty")]
    pub timeout_s: f64,
}

/// What limits a client, beside its link. Each opens TCP's window as it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing; or its `rate`, with a receive buffer that is too small to hide it.
    #[default]
    Plain,
    /// Itself: it reads steadily at its `rate`, as a proxy or `curl --limit-rate` does, from a receive buffer that is
    /// the kernel's affair, and may be filled at once by much more.
    SelfPaced,
    /// Its film: it fetches a segment, then does nothing until the next one is due. `rate` is the film's.
    Player,
    /// What it does with the bytes: it reads a burst as fast as it can, then nothing for a while.
    Bursty,
}

impl Kind {
    /// Its name in a workload.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::SelfPaced => "self-paced",
            Self::Player => "player",
            Self::Bursty => "bursty",
        }
    }
}

/// How a player takes its film: from the begin to the end, by ranges. The first two segments at once, then each when
/// the one before it begins to be played.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Segments {
    /// Seconds of film in a segment.
    pub film_s: f64,
    /// It is read at so many times the film's rate. Without it: as fast as it can be.
    pub times: Option<f64>,
}

/// What a bursty client reads at once.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Bytes of bodies.
    pub len_bytes: u64,
    /// Seconds from the begin of a burst to the begin of the next.
    pub every_s: f64,
}

/// Pace of a class: one for all, or drawn for each client.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The same for all.
    pub bits_per_s: Option<u64>,
    /// How it is drawn between `min` and `max`; without it `bits_per_s` holds.
    pub spread: Option<Spread>,
    /// Slowest client.
    pub min_bits_per_s: Option<u64>,
    /// Fastest client.
    pub max_bits_per_s: Option<u64>,
    /// Shape of a bounded Pareto distribution (default 1.2): smaller = more of the clients are fast.
    pub alpha: Option<f64>,
}

/// A distribution of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Each rate between the two is as likely.
    Uniform,
    /// Bounded Pareto: many slow ones, few fast ones.
    Pareto,
}

/// Begin of the clients of a class.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The first client begins this long after the run.
    #[serde(default)]
    pub after_s: f64,
    /// Seconds over which all have begun (uniform), or in which as many as there are begin on average
    /// (poisson).
    pub over_s: f64,
    /// How the begins lie.
    #[serde(default)]
    pub spread: StartSpread,
}

/// How begins lie in their span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartSpread {
    /// Each client at an instant of its own, drawn from the span.
    #[default]
    Uniform,
    /// Gaps between two clients are exponential, as of people who do not know each other.
    Poisson,
}

/// What a client asks for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// How the next one is chosen.
    pub choice: Choice,
    /// Path below the served root; "{n}" in it becomes the object's number.
    pub path: String,
    /// Number of objects: numbers run from 0. Not for `one` and `trace`.
    pub count: Option<u32>,
    /// Digits of the number, with leading zeros. Without it: as many as it has.
    #[serde(default)]
    pub digits: u8,
    /// Length of each file: answers are held against it. Needed where `part` is not the whole.
    pub len_bytes: Option<u64>,
    /// Object of client 0, of `dealt` ones (default 0).
    #[serde(default)]
    pub first: u32,
    /// Exponent of Zipf's law: object k is asked for in proportion to 1/(k+1)^s.
    pub s: Option<f64>,
    /// Locality after TPF 4.1: this part of the clients, 0..=1, get object 0, all others an object of
    /// their own (client k gets number k+1), again and again.
    pub p: Option<f64>,
    /// A web server's log, `.tsv` or `.tsv.gz`, for `trace`; relative to the workload's file.
    pub file: Option<PathBuf>,
}

/// How an object is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// There is one.
    #[default]
    One,
    /// Each is as likely.
    Uniform,
    /// A few are asked for most.
    Zipf,
    /// A part of the clients share one, the others have their own.
    Locality,
    /// Client k gets object `first` + k, modulo their number, again and again.
    Dealt,
    /// In the order of a log; see `trace.rs` for the numbers and lengths.
    Trace,
}

/// Which part of an object.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// How it is chosen.
    pub choice: PartChoice,
    /// Length of a range (`ranges`).
    pub len_bytes: Option<u64>,
    /// Ranges, seeks and places begin at a multiple of this (default 1).
    pub align_bytes: Option<u64>,
    /// Seconds between two seeks (`seeks`).
    pub every_s: Option<f64>,
    /// Between two readers of one object (`places`).
    pub apart_bytes: Option<u64>,
    /// Instead of the same for all objects: from `apart_bytes` between the readers of the first one to this between
    /// those of the last, by equal factors.
    pub apart_max_bytes: Option<u64>,
}

/// How a part is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartChoice {
    /// All of the object, without a Range field.
    #[default]
    Whole,
    /// One range of `len_bytes` somewhere in it.
    Ranges,
    /// From somewhere to the end. After `every_s` the client drops the connection, as a player does,
    /// and goes on from somewhere else.
    Seeks,
    /// From a place of its own to the end: the first reader of an object from its begin, the next one `apart_bytes`
    /// further on.
    Places,
}

/// An offered load. Its requests go to whichever connection is free; the time that they wait for one
/// counts, as the answer's time is counted from the intended begin.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Requests a second of the whole class. Not with `trace_speed`.
    pub requests_per_s: Option<f64>,
    /// How they lie in time.
    #[serde(default)]
    pub spread: ArrivalSpread,
    /// Instead: at the times of the object's trace, this many times as fast.
    pub trace_speed: Option<f64>,
}

/// How requests lie in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalSpread {
    /// Gaps are exponential.
    #[default]
    Poisson,
    /// Gaps are equal.
    Even,
}

/// What follows a client's last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Afterwards {
    /// It closes its connection.
    #[default]
    Close,
    /// It keeps its connection and says nothing.
    Idle,
}

/// A client stops reading.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Part of the clients that do, 0..=1 (default 1).
    #[serde(default = "one")]
    pub share: f64,
    /// Seconds after the client's begin.
    pub at_s: f64,
    /// Length of the pause.
    pub for_s: f64,
    /// Again after so many seconds, counted from begin to begin. Without it: once.
    pub every_s: Option<f64>,
}

/// A client leaves within a response.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// Part of the clients that do, 0..=1 (default 1).
    #[serde(default = "one")]
    pub share: f64,
    /// How it leaves.
    pub how: Leave,
    /// After so many bytes of the body.
    pub after_bytes: Option<u64>,
    /// Or after so many seconds since the request.
    pub after_s: Option<f64>,
    /// Comes back with its next request (default), or is gone for good.
    #[serde(default = "yes")]
    pub come_back: bool,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// A reset at once (SO_LINGER of 0).
    Rst,
    /// A FIN; what still comes is answered by the kernel with a reset.
    Fin,
    /// A FIN of its own direction only: it still takes, and checks, the whole answer.
    HalfClose,
}

/// Another pace.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Seconds after the begin of the run.
    pub at_s: f64,
    /// Pace from then on; 0 = as fast as it can.
    pub bits_per_s: u64,
    /// Part of the clients that change, 0..=1 (default 1).
    #[serde(default = "one")]
    pub share: f64,
}

impl Workload {
    /// Clients of a class, its share resolved.
    pub fn clients_of(&self, class: &Class) -> u32 {
        let shared = f64::from(self.clients.unwrap_or(0)) * class.share.unwrap_or(0.0);
        class.clients.unwrap_or(shared.round() as u32)
    }
}

impl Class {
    /// A class whose clients get the objects one after the other, as fast as they can.
    pub fn new(name: &str, clients: u32, object: Objects) -> Self {
        Self {
            name: name.into(),
            clients: Some(clients),
            share: None,
            kind: Kind::Plain,
            rate: None,
            segments: None,
            burst: None,
            source: None,
            start: None,
            object,
            part: None,
            arrivals: None,
            think_s: 0.0,
            keep_alive: true,
            requests_each: None,
            afterwards: Afterwards::Close,
            pause: None,
            abort: None,
            change: Vec::new(),
            receive_buffer_bytes: None,
            receive_at_least_bytes: None,
            apart: false,
            stall_s: one(),
            timeout_s: thirty(),
        }
    }
}

impl Rate {
    /// The same rate for all.
    pub fn fixed(bits_per_s: u64) -> Self {
        Self {
            bits_per_s: Some(bits_per_s),
            ..Self::default()
        }
    }

    /// Drawn for each client.
    pub fn spread(spread: Spread, min_bits_per_s: u64, max_bits_per_s: u64) -> Self {
        Self {
            spread: Some(spread),
            min_bits_per_s: Some(min_bits_per_s),
            max_bits_per_s: Some(max_bits_per_s),
            ..Self::default()
        }
    }
}

impl Objects {
    /// One file.
    pub fn one(path: &str) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// A numbered set, from which `choice` chooses.
    pub fn set(choice: Choice, path: &str, count: u32) -> Self {
        Self {
            choice,
            path: path.into(),
            count: Some(count),
            ..Self::default()
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn thirty() -> f64 {
    30.0
}
