//! The description of a swarm's work: classes of clients, as a TOML file or as Rust values.
//!
//! Types only; `check.rs` checks which values are valid together. An unset value means that the behaviour is
//! off.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// All clients of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Seed of all random draws. The same seed gives each client the same objects, ranges and rates.
    pub seed: u64,
    /// Length of the run after the warm-up, in seconds; `None`: until `stop`.
    pub duration_s: Option<f64>,
    /// Seconds before the figures begin to count.
    pub warmup_s: f64,
    /// Clients of all classes together; needed only where classes give a `share`.
    pub clients: Option<u32>,
    /// The classes of clients, with unique names.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
}

/// Clients with the same behaviour.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name in all figures.
    pub name: String,
    /// Number of clients. A client has one connection at a time.
    pub clients: Option<u32>,
    /// Instead of `clients`: share of the workload's `clients`, 0..=1.
    pub share: Option<f64>,
    /// What limits a client besides its link.
    #[serde(default)]
    pub kind: Kind,
    /// Rate at which a client reads; `None`: as fast as possible. For a player, the rate of its film.
    pub rate: Option<Rate>,
    /// How a player fetches its film.
    pub segments: Option<Segments>,
    /// The bursts of a bursty client.
    pub burst: Option<Burst>,
    /// Addresses that the clients bind to, one after the other, as "10.1.0.1-10.1.3.232" or "10.1.0.0/24". Each
    /// may be a path of the WAN emulator. `None`: the kernel chooses.
    pub source: Option<String>,
    /// When the clients start; `None`: all at once.
    pub start: Option<Start>,
    /// The objects that they request.
    pub object: Objects,
    /// The part of an object that they request; `None`: all of it.
    pub part: Option<Part>,
    /// Requests arrive at a rate of their own, regardless of the answers (open loop). `None`: each client sends
    /// its next request when it has its answer (closed loop).
    pub arrivals: Option<Arrivals>,
    /// Think time in seconds of a client of a closed loop, between an answer and the next request.
    #[serde(default)]
    pub think_s: f64,
    /// Draws each think time from a bounded Pareto distribution between `think_s` and this, with shape 1.5, as those of
    /// people are (SURGE's inactive times; Barford and Crovella 1998). `None`: each lasts `think_s`.
    pub think_max_s: Option<f64>,
    /// True (default): one connection for all requests of a client. False: a new one for each.
    #[serde(default = "yes")]
    pub keep_alive: bool,
    /// Number of requests of a client of a closed loop; `None`: no limit.
    pub requests_each: Option<u32>,
    /// Behaviour of a client after its last request.
    #[serde(default)]
    pub afterwards: Afterwards,
    /// Clients that stop reading for a while, so that their receive window closes.
    pub pause: Option<Pause>,
    /// Clients that leave within a response.
    pub abort: Option<Abort>,
    /// Clients that change their rate at some time.
    #[serde(default)]
    pub change: Vec<Change>,
    /// SO_RCVBUF of the clients' sockets, which is about the window that they open. `None`: the kernel's
    /// autotuning. A plain client with a rate instead gets half a second of its rate, at least 64 KiB.
    /// Otherwise the kernel would buffer what the client does not read.
    pub receive_buffer_bytes: Option<u32>,
    /// SO_RCVLOWAT within a body: the client does not wake for fewer bytes. Thousands of clients that are
    /// limited by the network then cost little. `None`: wake for each packet. Not with a `rate`, which wakes by
    /// the clock.
    pub receive_at_least_bytes: Option<u32>,
    /// Run the clients in a thread of their own, with priority over the others on its core. Their timings then
    /// do not depend on how busy the swarm is with other clients.
    #[serde(default)]
    pub apart: bool,
    /// A client that waits longer than this for a byte, in seconds, has stalled.
    #[serde(default = "one")]
    pub stall_s: f64,
    /// A client that waits longer than this for a byte, in seconds, gives up: an error.
    #[serde(default = "thirty")]
    pub timeout_s: f64,
}

/// What limits a client besides its link. Each kind opens TCP's window as it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing, or its `rate`: its receive buffer is small enough that the kernel cannot hide the rate.
    #[default]
    Plain,
    /// Its own pace: it reads steadily at its `rate`, as a proxy or `curl --limit-rate` does. The kernel sizes
    /// its receive buffer, which may take in much more at once.
    SelfPaced,
    /// Its film: it fetches a segment, then waits until the next one is due. `rate` is the film's rate.
    Player,
    /// Its processing: it reads a burst as fast as possible, then nothing for a while.
    Bursty,
}

impl Kind {
    /// Its name in a workload file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::SelfPaced => "self-paced",
            Self::Player => "player",
            Self::Bursty => "bursty",
        }
    }
}

/// How a player fetches its film: from start to end, by ranges. It requests the first two segments at once,
/// then each one when playback of the previous one begins.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Segments {
    /// Length of a segment, in seconds of film.
    pub film_s: f64,
    /// Rate of reading, as a multiple of the film's rate; `None`: as fast as possible.
    pub times: Option<f64>,
}

/// The bursts of a bursty client.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Body bytes of a burst.
    pub len_bytes: u64,
    /// Seconds from the start of one burst to the start of the next.
    pub every_s: f64,
}

/// Rate of a class: one for all clients, or drawn for each.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The same rate for all.
    pub bits_per_s: Option<u64>,
    /// Distribution of the rates between `min` and `max`; `None`: `bits_per_s` applies.
    pub spread: Option<RateSpread>,
    /// Slowest client.
    pub min_bits_per_s: Option<u64>,
    /// Fastest client.
    pub max_bits_per_s: Option<u64>,
    /// Shape of a bounded Pareto distribution (default 1.2): a smaller value makes more of the clients fast.
    pub alpha: Option<f64>,
}

/// A distribution of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateSpread {
    /// All rates in the interval are equally likely.
    Uniform,
    /// Bounded Pareto: many slow clients, few fast ones.
    Pareto,
}

/// Start of the clients of a class.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Start of the span, in seconds after the start of the run.
    #[serde(default)]
    pub after_s: f64,
    /// Length of the span in seconds. All clients start within it (uniform), or the mean gap is such that all
    /// start within it on average (poisson).
    pub over_s: f64,
    /// Distribution of the starts in the span.
    #[serde(default)]
    pub spread: StartSpread,
}

/// Distribution of starts in their span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartSpread {
    /// Each client starts at a random time of its own in the span.
    #[default]
    Uniform,
    /// Gaps between two clients are exponential, as for independent users.
    Poisson,
}

/// The objects that a client requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// How the next object is chosen.
    pub choice: Choice,
    /// Path below the served root; "{n}" in it stands for the object's number.
    pub path: String,
    /// Number of objects, numbered from 0. Not for `one` and `trace`.
    pub count: Option<u32>,
    /// Digits of the number, with leading zeros; by default as many as needed.
    #[serde(default)]
    pub digits: u8,
    /// Length of each file in bytes, against which answers are checked. Required where `part` is not the whole.
    pub len_bytes: Option<u64>,
    /// Object of client 0 for `dealt` (default 0).
    #[serde(default)]
    pub first: u32,
    /// Exponent s of Zipf's law: object k is requested in proportion to 1/(k+1)^s.
    pub s: Option<f64>,
    /// Locality after TPF 4.1: this share of the clients, 0..=1, requests object 0; each other client requests
    /// its own (client k number k+1), again and again.
    pub p: Option<f64>,
    /// A web server's log for `trace`, `.tsv` or `.tsv.gz`; the path is relative to the workload's file.
    pub file: Option<PathBuf>,
}

/// How an object is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// There is only one.
    #[default]
    One,
    /// All are equally likely.
    Uniform,
    /// By Zipf's law: a few are requested most.
    Zipf,
    /// A share of the clients request a common object, the others have their own.
    Locality,
    /// Client k requests object `first` + k, modulo their number, again and again.
    Dealt,
    /// In the order of a log; `trace.rs` defines numbers and lengths.
    Trace,
}

/// The part of an object to request.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// How the part is chosen.
    pub choice: PartChoice,
    /// Length of a range in bytes (`ranges`).
    pub len_bytes: Option<u64>,
    /// Ranges, seeks and places begin at a multiple of this (default 1).
    pub align_bytes: Option<u64>,
    /// Seconds between two seeks (`seeks`).
    pub every_s: Option<f64>,
    /// Distance in bytes between two readers of one object (`places`).
    pub apart_bytes: Option<u64>,
    /// Varies that distance: from `apart_bytes` for the first object to this for the last, by equal factors.
    pub apart_max_bytes: Option<u64>,
}

/// How a part is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartChoice {
    /// All of the object, without a Range field.
    #[default]
    Whole,
    /// One range of `len_bytes` at a random place.
    Ranges,
    /// From a random place to the end. After `every_s` the client drops the connection, as a player does, and
    /// continues at another place.
    Seeks,
    /// From a fixed place to the end: the first reader of an object starts at its beginning, each further one
    /// `apart_bytes` further on.
    Places,
}

/// An offered load. Its requests go to any free connection. The time that they wait for one counts, as answers
/// are timed from the intended start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// Requests per second of the whole class. Not with `trace_speed`.
    pub requests_per_s: Option<f64>,
    /// Distribution of the requests in time.
    #[serde(default)]
    pub spread: ArrivalSpread,
    /// Instead of a rate: the times of the object's trace, sped up by this factor.
    pub trace_speed: Option<f64>,
}

/// Distribution of requests in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalSpread {
    /// Gaps are exponential.
    #[default]
    Poisson,
    /// Gaps are equal.
    Even,
}

/// Behaviour of a client after its last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Afterwards {
    /// Closes its connection.
    #[default]
    Close,
    /// Keeps its connection without requests.
    Idle,
}

/// A client stops reading.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Share of the clients that do, 0..=1 (default 1).
    #[serde(default = "one")]
    pub share: f64,
    /// Start of the pause, in seconds after the client's start.
    pub at_s: f64,
    /// Length of the pause in seconds.
    pub for_s: f64,
    /// Period of repeated pauses in seconds, from start to start; `None`: pause once.
    pub every_s: Option<f64>,
}

/// A client leaves within a response.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// Share of the clients that do, 0..=1 (default 1).
    #[serde(default = "one")]
    pub share: f64,
    /// How it leaves.
    pub how: Leave,
    /// Leave after this many bytes of the body.
    pub after_bytes: Option<u64>,
    /// Or leave this many seconds after the request.
    pub after_s: Option<f64>,
    /// True (default): the client returns with its next request. False: it is gone for good.
    #[serde(default = "yes")]
    pub come_back: bool,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// Resets at once (SO_LINGER of 0).
    Rst,
    /// Sends a FIN; the kernel answers later data with a reset.
    Fin,
    /// Sends a FIN for its own direction only: it still receives and checks the whole answer.
    HalfClose,
}

/// A change of the rate.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time in seconds after the start of the run.
    pub at_s: f64,
    /// The rate from then on; 0 = as fast as possible.
    pub bits_per_s: u64,
    /// Share of the clients that change, 0..=1 (default 1).
    #[serde(default = "one")]
    pub share: f64,
}

impl Workload {
    /// Number of clients of a class, with `share` resolved.
    pub fn clients_of(&self, class: &Class) -> u32 {
        let shared = f64::from(self.clients.unwrap_or(0)) * class.share.unwrap_or(0.0);
        class.clients.unwrap_or(shared.round() as u32)
    }
}

impl Class {
    /// A class whose clients request objects one after the other, as fast as possible.
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
            think_max_s: None,
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

    /// A rate drawn for each client.
    pub fn spread(spread: RateSpread, min_bits_per_s: u64, max_bits_per_s: u64) -> Self {
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

    /// A numbered set of objects with this choice.
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
