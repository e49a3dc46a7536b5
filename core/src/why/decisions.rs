//! The last decisions of a worker or a device, each with the numbers that it was made from.

use alloc::vec::Vec;
use core::fmt;

use super::{TopUp, Wait, Why};
use crate::congestion::{Delay, Signal};
use crate::conn::ConnId;
use crate::limits::THIN_BYTES_MAX;
use crate::prefetch::{DepthBound, LengthBound, TargetBound};
use crate::units::{Bytes, Instant, Time, US_PER_S};

/// One decision: when, about whom, what, and the numbers that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// About whom; `None`: about all connections of the worker, or about the device.
    pub conn: Option<ConnId>,
    /// What, with its reason.
    pub what: What,
}

/// What was decided. Its `Display` is a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A socket was filled until it took no more.
    ToppedUp {
        /// Why it was its turn.
        top_up: TopUp,
        /// What it waits for now.
        wait: Wait,
        /// What the socket took.
        given_bytes: u64,
        /// D1: what it holds unsent; `None` where this can't be known (unix sockets).
        unsent_bytes: Option<u64>,
        /// The level up to which it is filled.
        fill_bytes: u64,
        /// B_n; 0: not known yet.
        rate_bytes_per_s: u64,
    },
    /// The response is stalled for something other than its socket.
    Waits {
        /// For what.
        wait: Wait,
        /// Bytes of the response that the kernel has not taken yet.
        left_bytes: u64,
        /// What its socket holds, as far as is known.
        socket_bytes: u64,
    },
    /// T of all connections has changed by a tenth or more.
    Target {
        /// T before.
        from_us: u64,
        /// T now.
        to_us: u64,
        /// B_net, what all connections take together.
        rates_bytes_per_s: u64,
    },
    /// T_D of a device has changed.
    ReadTarget {
        /// T_D before.
        from_us: u64,
        /// T_D now.
        to_us: u64,
        /// What sets it.
        bound: TargetBound,
        /// How many streams read from the device.
        streams: u64,
        /// What these take together.
        rates_bytes_per_s: u64,
    },
    /// The queue depth of a device has changed.
    Depth {
        /// Reads at once before.
        from: u64,
        /// And now.
        to: u64,
        /// What sets it.
        bound: DepthBound,
    },
    /// The memory in which a device reads ahead was resized.
    Memory {
        /// Before.
        from_bytes: u64,
        /// Now.
        to_bytes: u64,
    },
    /// The first window of a response is spread over a round trip.
    Paced {
        /// The window: what would leave at once.
        window_bytes: u64,
        /// How fast it leaves instead.
        rate_bytes_per_s: u64,
        /// For how long: the round trip time.
        for_us: u64,
    },
    /// The path is congested, and the stream's want at the disk gets a new deadline.
    Congested {
        /// How TCP tells.
        signal: Signal,
        /// What is done about it.
        delay: Delay,
        /// B_n before.
        from_bytes_per_s: u64,
        /// B_n now.
        to_bytes_per_s: u64,
    },
    /// The disk machine had bytes of the response read, and they are in memory.
    Read(Chosen),
    /// A response ended early, or after it had waited.
    Ended {
        /// Why.
        why: Why,
        /// Bytes of it that the kernel took.
        sent_bytes: u64,
        /// Since its request.
        took_us: u64,
    },
    /// A connection was closed for an unusual reason.
    Closed {
        /// Why.
        why: Why,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            What::ToppedUp { top_up, .. } => self.topped_up(top_up, f),
            What::Waits {
                wait,
                left_bytes,
                socket_bytes,
            } => waits(wait, left_bytes, socket_bytes, f),
            What::Target {
                from_us,
                to_us,
                rates_bytes_per_s,
            } => write!(
                f,
                "the margin of all connections goes from {} to {}, since together they take {}/s",
                Time(from_us),
                Time(to_us),
                Bytes(rates_bytes_per_s)
            ),
            What::ReadTarget { .. } | What::Depth { .. } | What::Memory { .. } => self.device(f),
            What::Paced {
                window_bytes,
                rate_bytes_per_s,
                for_us,
            } => write!(
                f,
                "paced at {}/s for {}, a round trip, since nothing was in flight: its window of {} would leave at once, and \
                 overflow a queue on the way",
                Bytes(rate_bytes_per_s),
                Time(for_us),
                Bytes(window_bytes)
            ),
            What::Congested { signal, .. } => {
                write!(f, "its path is congested: {}; ", signal.sentence())?;
                self.delayed(f)
            }
            What::Read(chosen) => chosen.fmt(f),
            What::Ended {
                why,
                sent_bytes,
                took_us,
            } => write!(
                f,
                "the response ended ({why}) after {} in {}",
                Bytes(sent_bytes),
                Time(took_us)
            ),
            What::Closed { why } => write!(f, "the connection was closed ({why})"),
        }
    }
}

impl What {
    /// What has changed about a device.
    fn device(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            What::ReadTarget {
                from_us,
                to_us,
                bound,
                streams,
                rates_bytes_per_s,
            } => write!(
                f,
                "the target goes from {} to {}, since {}; {streams} streams take {}/s together",
                Time(from_us),
                Time(to_us),
                bound.sentence(),
                Bytes(rates_bytes_per_s)
            ),
            What::Depth { from, to, bound } => write!(
                f,
                "the depth goes from {from} to {to} reads at once: {}",
                bound.sentence()
            ),
            What::Memory {
                from_bytes,
                to_bytes,
            } => {
                let why = match from_bytes < to_bytes {
                    true => "which nobody else uses now",
                    false => "since others want the rest",
                };
                let (from, to) = (Bytes(from_bytes), Bytes(to_bytes));
                write!(
                    f,
                    "memory for reading ahead goes from {from} to {to}, {why}"
                )
            }
            _ => Ok(()),
        }
    }

    /// What a socket was given, why, and what it holds now.
    fn topped_up(&self, top_up: TopUp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What::ToppedUp {
            wait,
            given_bytes,
            unsent_bytes,
            fill_bytes,
            rate_bytes_per_s,
            ..
        } = *self
        else {
            return Ok(());
        };
        let because = match top_up {
            TopUp::First => "its response began",
            TopUp::Writable => "the socket became writable: little was left in it",
            TopUp::Near => "the socket would have become writable before the next round",
            TopUp::Empty => "the socket had counted as full, and was empty",
        };
        write!(f, "given {} because {because}; ", Bytes(given_bytes))?;
        if let Some(unsent_bytes) = unsent_bytes {
            write!(f, "the socket holds {} unsent", Bytes(unsent_bytes))?;
            if let Some(us) = (unsent_bytes * US_PER_S).checked_div(rate_bytes_per_s) {
                let rate = Bytes(rate_bytes_per_s);
                write!(f, ", {} at the {rate}/s that it takes", Time(us))?;
            }
            let level = Bytes(fill_bytes);
            match unsent_bytes > fill_bytes {
                true => write!(f, ", more than the {level} up to which it is filled now")?,
                false => write!(f, ", and is filled up to {level}")?,
            }
            f.write_str("; ")?;
        }
        write!(f, "now it waits for {}", wait.sentence())
    }

    /// What is done about congestion.
    fn delayed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What::Congested {
            delay,
            from_bytes_per_s,
            to_bytes_per_s,
            ..
        } = *self
        else {
            return Ok(());
        };
        let (from, to) = (Bytes(from_bytes_per_s), Bytes(to_bytes_per_s));
        match delay {
            Delay::Rate if from_bytes_per_s == to_bytes_per_s => {
                write!(f, "whether it is slower than {from}/s is measured now")
            }
            Delay::Rate => write!(
                f,
                "taken for {to}/s instead of {from}/s, so its next bytes are read later"
            ),
            Delay::Paper => f.write_str(
                "its next read is put off for half of the target, if the disk is busy (delay = paper)",
            ),
            Delay::Off => f.write_str("nothing changes (delay = off)"),
        }
    }
}

fn waits(
    wait: Wait,
    left_bytes: u64,
    socket_bytes: u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let left = Bytes(left_bytes);
    if wait == Wait::Disk && socket_bytes > THIN_BYTES_MAX {
        let held = Bytes(socket_bytes);
        return write!(
            f,
            "its next bytes are not in memory yet, and its socket should hold {held} until then; {left} are left"
        );
    }
    write!(f, "waits for {}; {left} are left", wait.sentence())
}

/// The last decisions of a worker or a device. One writer; readers get copies. Nothing is allocated after the start: a new one
/// replaces the oldest.
#[derive(Clone, Debug)]
pub struct Decisions {
    pub(super) ring: Vec<Decision>,
    next: usize,
    most: usize,
}

impl Decisions {
    /// None yet, with room for `most`, at least one.
    pub fn new(most: usize) -> Decisions {
        let most = most.max(1);
        Decisions {
            ring: Vec::with_capacity(most),
            next: 0,
            most,
        }
    }

    /// Records a decision: the only way in.
    pub fn record(&mut self, at: Instant, conn: Option<ConnId>, what: What) {
        let decision = Decision { at, conn, what };
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = decision,
            None => self.ring.push(decision),
        }
        self.next = (self.next + 1) % self.most;
    }

    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}

/// Why a read was chosen. Its `Display` is a sentence for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Why it was the stream's turn.
    pub reason: Reason,
    /// What set the length.
    pub bound: LengthBound,
    /// The length.
    pub len_bytes: u64,
    /// T_n: the time until the stream would have run dry, and T_D/2 at most where only its client still has bytes.
    pub margin_us: u64,
    /// T_D at that time.
    pub target_us: u64,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// From the order to the answer.
    pub took_us: u64,
}

/// Why it was a stream's turn at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It had received nothing yet: first reads don't wait for the sweep.
    First,
    /// It was the short rest of a response: who is nearly done does not wait for the sweep, either.
    Rest,
    /// It was due, and the sweep came by.
    Due,
    /// The same, and it had run dry meanwhile.
    Late,
    /// Its next bytes were read for another stream.
    Shared,
    /// It had ended, and its want was read all the same.
    Left,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, took) = (Bytes(self.len_bytes), Time(self.took_us));
        write!(f, "read {len} in {took}, ")?;
        let (margin, target) = (Time(self.margin_us), Time(self.target_us));
        match self.reason {
            Reason::First => {
                f.write_str("before all who have something, since it had nothing yet")?
            }
            Reason::Rest => {
                f.write_str("before others, since it was the short rest of a response")?
            }
            Reason::Due if self.rate_bytes_per_s == 0 => {
                f.write_str("since it was due and the sweep came by")?
            }
            Reason::Due => write!(
                f,
                "since it was due and the sweep came by: it had enough for {margin}, less than half of the target, {target}"
            )?,
            Reason::Late => write!(
                f,
                "since it was due and the sweep came by: it had run dry; the target is {target}"
            )?,
            Reason::Shared => f.write_str("together with others who get the same file")?,
            Reason::Left => f.write_str("though it had left (cancel = off)")?,
        }
        match self.bound {
            LengthBound::Rate => write!(
                f,
                "; so long that it has enough for {target} at the {}/s that it takes",
                Bytes(self.rate_bytes_per_s)
            ),
            bound => write!(f, "; this long because {}", bound.sentence()),
        }
    }
}
