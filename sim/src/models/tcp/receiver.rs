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

/// How a receive buffer follows what its program reads in a round trip (net/ipv4/tcp_input.c of Linux 6.18,
/// `tcp_rcv_space_adjust` and `tcp_rcvbuf_grow`). It never shrinks.
#[derive(Clone, Copy, Debug)]
struct Tuning {
    /// Upper bound (`tcp_rmem`). A buffer that begins with this size is fixed (SO_RCVBUF).
    most_bytes: u64,
    /// Round trip as the receiver measures it.
    rtt_ms: u64,
    /// The most that was read in one measurement.
    space_bytes: u64,
    /// When the current measurement began, and what had been read by then.
    since_ms: u64,
    since_bytes: u64,
}

impl Tuning {
    /// The program has read. Returns the new minimum size of the buffer.
    fn adjust(&mut self, read_bytes: u64, now_ms: u64) -> u64 {
        if now_ms < self.since_ms + self.rtt_ms {
            return 0;
        }
        let (new_bytes, old_bytes) = (read_bytes - self.since_bytes, self.space_bytes);
        (self.since_ms, self.since_bytes) = (now_ms, read_bytes);
        if new_bytes <= old_bytes {
            return 0;
        }
        self.space_bytes = new_bytes;
        // The measurement is a round trip old, and in slow start the sender has doubled its rate since.
        let wanted_bytes = 2 * new_bytes;
        let faster_bytes = 2 * (wanted_bytes * (new_bytes - old_bytes) / old_bytes);
        (wanted_bytes + faster_bytes).min(self.most_bytes)
    }
}

/// The receiver of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    program: Program,
    buffer_bytes: u64,
    tuning: Tuning,
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
            tuning: Tuning {
                most_bytes: buffer_bytes,
                rtt_ms: 1,
                space_bytes: buffer_bytes.min(10 * segment_bytes).max(1),
                since_ms: 0,
                since_bytes: 0,
            },
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

    /// The same with a buffer that grows up to `most_bytes`, on a path with this round trip.
    pub fn tuned(self, most_bytes: u64, rtt_ms: u64) -> Receiver {
        let tuning = Tuning {
            most_bytes,
            rtt_ms,
            ..self.tuning
        };
        Receiver { tuning, ..self }
    }

    /// From now on the buffer has this size, and stays so (SO_RCVBUF). What it holds and what was announced stands.
    pub fn set_buffer(&mut self, buffer_bytes: u64) {
        self.buffer_bytes = buffer_bytes;
        self.tuning.most_bytes = buffer_bytes;
    }

    /// From now on this program reads.
    pub fn set_program(&mut self, program: Program) {
        self.program = program;
    }

    /// Current size of the buffer.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
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
        if bytes > 0 {
            let least_bytes = self.tuning.adjust(self.read_bytes, now_ms);
            self.buffer_bytes = self.buffer_bytes.max(least_bytes);
        }
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
