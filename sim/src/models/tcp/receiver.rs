//! The receiving end: a receive buffer, the program that reads from it, and the window that is announced as Linux does
//! it (net/ipv4/tcp_output.c `__tcp_select_window`; net/ipv4/tcp.c `tcp_cleanup_rbuf`).

/// How long a delayed ACK waits, milliseconds (TCP_ATO_MIN).
const DELAYED_ACK_MS: u64 = 40;
/// Segments at the start that are acknowledged at once (TCP_MAX_QUICKACKS).
const QUICK_ACKS: u32 = 16;

/// When a program reads, and how much. It never reads faster to make up for bytes that came late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Reads all bytes as they come: its path limits it.
    All,
    /// Reads at one rate in bytes per second, as `curl --limit-rate` does.
    Steady(u64),
    /// Reads the bytes of a whole period at its beginning, then nothing until the next period.
    Periodic {
        /// Mean rate, bytes per second.
        rate_bytes_per_s: u64,
        /// Length of the period, milliseconds.
        every_ms: u64,
        /// Its rate while it reads, in multiples of the mean.
        times: u64,
    },
}

impl Program {
    /// Its mean rate in bytes per second; `None` if it reads all that comes.
    pub fn mean_bytes_per_s(&self) -> Option<u64> {
        match self {
            Program::All => None,
            Program::Steady(rate_bytes_per_s) => Some(*rate_bytes_per_s),
            Program::Periodic {
                rate_bytes_per_s, ..
            } => Some(*rate_bytes_per_s),
        }
    }
}

/// An ACK: what the receiver tells the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Bytes that have arrived since the beginning.
    pub acked_bytes: u64,
    /// Right edge of the window, as a number of bytes since the beginning.
    pub edge_bytes: u64,
}

/// The receiver of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    program: Program,
    buffer_bytes: u64,
    segment_bytes: u64,
    arrived_bytes: u64,
    read_bytes: u64,
    told: Ack,
    quick: u32,
    /// Since when bytes wait for their ACK.
    unacked_since_ms: Option<u64>,
    /// What the program may still read in this period.
    period_bytes: u64,
    /// Fraction of a byte, in thousandths.
    carry: u64,
    /// The program wanted bytes in the last millisecond, and there were none.
    wanted: bool,
}

impl Receiver {
    /// An empty buffer, the whole of which is offered as the window.
    pub fn new(program: Program, buffer_bytes: u64, segment_bytes: u64) -> Receiver {
        Receiver {
            program,
            buffer_bytes,
            segment_bytes,
            arrived_bytes: 0,
            read_bytes: 0,
            told: Ack {
                acked_bytes: 0,
                edge_bytes: buffer_bytes,
            },
            quick: QUICK_ACKS,
            unacked_since_ms: None,
            period_bytes: 0,
            carry: 0,
            wanted: false,
        }
    }

    /// Bytes that the program has read since the beginning.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Whether the program found less than it wanted in the last millisecond.
    pub fn is_hungry(&self) -> bool {
        self.wanted
    }

    /// The last ACK.
    pub fn told(&self) -> Ack {
        self.told
    }

    /// Advances by a millisecond: bytes arrive, and the program reads. Returns the last ACK of the millisecond, if any.
    pub fn pass(&mut self, bytes: u64, now_ms: u64) -> Option<Ack> {
        let mut says = bytes > 0 && self.arrive(bytes, now_ms);
        let read_bytes = self.read(now_ms);
        says |= read_bytes > 0 && self.tells_after_reading();
        says |= (self.unacked_since_ms).is_some_and(|since| now_ms >= since + DELAYED_ACK_MS);
        if !says {
            return None;
        }
        self.unacked_since_ms = None;
        self.told = Ack {
            acked_bytes: self.arrived_bytes,
            // A window is never taken back once it is announced.
            edge_bytes: (self.arrived_bytes + self.window_bytes()).max(self.told.edge_bytes),
        };
        Some(self.told)
    }

    fn unread_bytes(&self) -> u64 {
        self.arrived_bytes - self.read_bytes
    }

    /// The window that it would announce now: 0 rather than a small one.
    fn window_bytes(&self) -> u64 {
        let free_bytes = self.buffer_bytes.saturating_sub(self.unread_bytes());
        let least_bytes = (self.buffer_bytes / 16).max(self.segment_bytes);
        match free_bytes < self.buffer_bytes / 2 && free_bytes < least_bytes {
            true => 0,
            false => free_bytes,
        }
    }

    /// Bytes arrive. Returns whether they are acknowledged at once.
    fn arrive(&mut self, bytes: u64, now_ms: u64) -> bool {
        self.arrived_bytes += bytes;
        self.unacked_since_ms.get_or_insert(now_ms);
        let told_window_bytes = self.told.edge_bytes - self.told.acked_bytes;
        let many = self.arrived_bytes - self.told.acked_bytes > self.segment_bytes;
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        quick || many && self.window_bytes() >= told_window_bytes
    }

    /// Whether reading alone triggers an ACK.
    fn tells_after_reading(&self) -> bool {
        let untold_bytes = self.arrived_bytes - self.told.acked_bytes;
        let acks = untold_bytes > self.segment_bytes || self.unread_bytes() == 0;
        if self.unacked_since_ms.is_some() && acks {
            return true;
        }
        // A window update is sent only if the window is twice as large as what is left of the last one.
        let left_bytes = self.told.edge_bytes - self.arrived_bytes;
        let window_bytes = self.window_bytes();
        2 * left_bytes <= self.buffer_bytes && window_bytes > 0 && window_bytes >= 2 * left_bytes
    }

    fn read(&mut self, now_ms: u64) -> u64 {
        let may_bytes = self.may_read_bytes(now_ms);
        let bytes = may_bytes.min(self.unread_bytes());
        self.wanted = bytes < may_bytes;
        self.read_bytes += bytes;
        self.period_bytes = self.period_bytes.saturating_sub(bytes);
        bytes
    }

    /// Bytes that the program wants in this millisecond. It does not make up for a read that found nothing.
    fn may_read_bytes(&mut self, now_ms: u64) -> u64 {
        let rate_bytes_per_s = match self.program {
            Program::All => return self.unread_bytes().max(1),
            Program::Steady(rate_bytes_per_s) => rate_bytes_per_s,
            Program::Periodic {
                rate_bytes_per_s,
                every_ms,
                times,
            } => {
                if now_ms % every_ms == 0 {
                    self.period_bytes = rate_bytes_per_s * every_ms / 1000;
                }
                rate_bytes_per_s * times
            }
        };
        let milli_bytes = rate_bytes_per_s + self.carry;
        self.carry = milli_bytes % 1000;
        let bytes = milli_bytes / 1000;
        match self.program {
            Program::Periodic { .. } => bytes.min(self.period_bytes),
            Program::All | Program::Steady(_) => bytes,
        }
    }
}
