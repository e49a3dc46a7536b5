//! The description of a swarm's work: classes of clients. An unset value means that the behaviour is off.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Alignment of ranges and places, as direct reads require.
pub const ALIGN_BYTES: u64 = 4096;

/// All clients of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Workload {
    /// Seed of all random draws. The same seed gives each client the same objects, ranges and start.
    pub seed: u64,
    /// The classes of clients, with unique names.
    pub classes: Vec<Class>,
}

/// Clients with the same behaviour.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Class {
    /// Name in all figures.
    pub name: String,
    /// Number of clients. A client has one connection at a time.
    pub clients: u32,
    /// What limits a client besides its link.
    pub kind: Kind,
    /// Rate at which a client reads; `None`: as fast as possible. For a player, the rate of its film.
    pub rate_bits_per_s: Option<u64>,
    /// Addresses that the clients bind to, one after the other, as "10.1.0.1-10.1.3.232". Each may be a path of the WAN
    /// emulator. `None`: the kernel chooses.
    pub source: Option<String>,
    /// When the clients start.
    pub start: Start,
    /// The objects that they request.
    pub object: Objects,
    /// The part of an object that they request.
    pub part: Part,
    /// Requests per second of the whole class, at random times and regardless of the answers (open loop). They go to any
    /// free connection, and the time that they wait for one counts. `None`: each client sends its next request when it
    /// has its answer (closed loop).
    pub arrivals_per_s: Option<f64>,
    /// Think time in seconds of a client of a closed loop, between an answer and the next request.
    pub think_s: f64,
    /// Draws each think time from a bounded Pareto distribution between `think_s` and this, with shape 1.5, as those of
    /// people are (SURGE's inactive times; Barford and Crovella 1998). `None`: each lasts `think_s`.
    pub think_max_s: Option<f64>,
    /// True: one connection for all requests of a client. False: a new one for each.
    pub keep_alive: bool,
    /// Number of requests of a client of a closed loop, after which it keeps its connection; `None`: no limit.
    pub requests_each: Option<u32>,
    /// Seconds after its request at which a client resets its connection, for good.
    pub leaves_after_s: Option<f64>,
    /// SO_RCVBUF of the clients' sockets, which is about the window that they open. `None`: the kernel's
    /// autotuning. A plain client with a rate instead gets half a second of its rate, at least 64 KiB.
    /// Otherwise the kernel would buffer what the client does not read.
    pub receive_buffer_bytes: Option<u32>,
    /// SO_RCVLOWAT within a body: the client does not wake for fewer bytes. Thousands of clients that are
    /// limited by the network then cost little. `None`: wake for each packet. Not with a rate, which wakes by
    /// the clock.
    pub receive_at_least_bytes: Option<u32>,
    /// Run the clients in a thread of their own, with priority over the others on its core. Their timings then
    /// do not depend on how busy the swarm is with other clients.
    pub apart: bool,
    /// A client that waits longer than this for a byte, in seconds, gives up: an error.
    pub timeout_s: f64,
}

/// What limits a client besides its link. Each kind opens TCP's window as it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub enum Kind {
    /// Nothing, or its rate: its receive buffer is small enough that the kernel cannot hide the rate.
    #[default]
    Plain,
    /// Its own pace: it reads steadily at its rate, as a proxy or `curl --limit-rate` does. The kernel sizes
    /// its receive buffer, which may take in much more at once.
    SelfPaced,
    /// Its film, of the class's rate, fetched from start to end by ranges. It requests the first two segments at
    /// once, then each one when playback of the previous one begins.
    Player {
        /// Length of a segment, in seconds of film.
        film_s: f64,
        /// Rate of reading, as a multiple of the film's rate; `None`: as fast as possible.
        times: Option<f64>,
    },
    /// Its processing: it reads a burst as fast as possible, then nothing for a while.
    Bursty {
        /// Body bytes of a burst.
        len_bytes: u64,
        /// Seconds from the start of one burst to the start of the next.
        every_s: f64,
    },
}

/// Start of the clients of a class: each at a random time of its own in a span.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Start {
    /// Start of the span, in seconds after the start of the run.
    pub after_s: f64,
    /// Length of the span in seconds.
    pub over_s: f64,
}

impl Start {
    /// A span from the start of the run on.
    pub fn over(over_s: f64) -> Self {
        Self {
            after_s: 0.0,
            over_s,
        }
    }

    /// All at once.
    pub fn after(after_s: f64) -> Self {
        Self {
            after_s,
            over_s: 0.0,
        }
    }
}

/// The objects that a client requests: files of a set, whose names are those of [`path`].
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Objects {
    /// Name of the set.
    pub set: String,
    /// Number of objects, numbered from 0.
    pub count: u32,
    /// `None`: a client requests any of them. Else client k requests object `first` + k, modulo their number, again
    /// and again.
    pub first: Option<u32>,
    /// Length of each file in bytes, against which answers are checked. Required where a part is requested.
    pub len_bytes: Option<u64>,
}

impl Objects {
    /// One file.
    pub fn one(set: &str) -> Self {
        Self::any(set, 1)
    }

    /// All of a set are equally likely.
    pub fn any(set: &str, count: u32) -> Self {
        Self {
            set: set.into(),
            count,
            first: None,
            len_bytes: None,
        }
    }

    /// Client k requests object `first` + k, modulo their number.
    pub fn dealt(set: &str, count: u32, first: u32) -> Self {
        Self {
            first: Some(first),
            ..Self::any(set, count)
        }
    }

    /// An object of its own for each client: client k requests object k + 1.
    pub fn own(set: &str, clients: u32) -> Self {
        Self::dealt(set, clients + 1, 1)
    }
}

/// Path below the root of file `nth` of a set, with a leading slash: "/cold-00007.bin".
pub fn path(set: &str, nth: usize) -> String {
    format!("/{set}-{nth:05}.bin")
}

/// The part of an object to request. Ranges and places begin at a multiple of [`ALIGN_BYTES`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub enum Part {
    /// All of the object, without a Range field.
    #[default]
    Whole,
    /// A range at a random place.
    Range {
        /// Its length.
        len_bytes: u64,
    },
    /// From a fixed place to the end: the first reader of an object starts at its beginning, each further one
    /// `apart_bytes` further on.
    Places {
        /// Distance between two readers of one object.
        apart_bytes: u64,
        /// Varies that distance: from `apart_bytes` for the first object to this for the last, by equal factors.
        apart_max_bytes: Option<u64>,
    },
}

impl Class {
    /// A class whose clients request objects one after the other, as fast as possible.
    pub fn new(name: &str, clients: u32, object: Objects) -> Self {
        Self {
            name: name.into(),
            clients,
            kind: Kind::Plain,
            rate_bits_per_s: None,
            source: None,
            start: Start::default(),
            object,
            part: Part::Whole,
            arrivals_per_s: None,
            think_s: 0.0,
            think_max_s: None,
            keep_alive: true,
            requests_each: None,
            leaves_after_s: None,
            receive_buffer_bytes: None,
            receive_at_least_bytes: None,
            apart: false,
            timeout_s: 30.0,
        }
    }

    /// The first address of `source` and the number of addresses; `None` without `source`.
    ///
    /// # Errors
    /// The text is not a valid range of addresses.
    pub fn sources(&self) -> Result<Option<(Ipv4Addr, u32)>, String> {
        let Some(text) = &self.source else {
            return Ok(None);
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let both = first.parse().ok().zip(last.parse().ok());
        let range = both.and_then(|(first, last): (Ipv4Addr, Ipv4Addr)| {
            let count = u32::from(last).checked_sub(first.into())?;
            Some((first, count.saturating_add(1)))
        });
        let wrong = || format!("class \"{}\": source: \"{text}\"", self.name);
        range.ok_or_else(wrong).map(Some)
    }
}
