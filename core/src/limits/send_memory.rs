//! Bounds of send memory that is divided (`crate::sndbuf`).

use crate::units::{KIB, US_PER_S};

/// The largest pool of send memory. Above: it counts as this, more than a machine has.
pub const SEND_POOL_BYTES_MAX: u64 = 1 << 40;
/// The most that one connection claims of it in flight, and again unsent: the fastest rate believed, for T. Above: it
/// counts as this.
pub const NEED_BYTES_MAX: u64 = 1 << 36;
/// A connection claims at least so many segments: with fewer in flight, each waits for a delayed ACK. With more, floors
/// alone would fill a small pool, and all would have the same. Where an equal part of the pool is less, it gets that.
pub const SHARE_SEGMENTS_MIN: u64 = 2;
/// What a connection claims of which nothing is known, in segments: the first flight (RFC 6928).
pub const SHARE_SEGMENTS_START: u64 = 10;
/// The payload of an Ethernet's segment with timestamps: what a segment counts as where TCP does not say.
pub const ETHERNET_SEGMENT_BYTES: u64 = 1_448;
/// The least that a socket may hold while send memory is divided: two segments of an Ethernet. A pool has room for no
/// more connections than have this; more wait in the listen backlog.
pub const SHARE_BYTES_MIN: u64 = 2 * ETHERNET_SEGMENT_BYTES;
/// The kernel's least SO_SNDBUF (`SOCK_MIN_SNDBUF`, Linux 6.x). A smaller one counts as this.
pub const SEND_BUFFER_BYTES_MIN: u64 = 4_608;
/// What one of the kernel's buffers costs beside its payload at least; 64-bit Linux takes some 900 bytes.
pub const SEND_BUFFER_COST_BYTES: u64 = 512;
/// A share that lasts for less than this, until only what must be in flight is left, is filled when EPOLLOUT fires. A timer
/// is late by a part of a millisecond, and knows nothing of ACKs.
pub const REFILL_US_MIN: u64 = 10_000;
/// One that lasts longer, too: EPOLLOUT seldom fires for it, and its client may become faster.
pub const REFILL_US_MAX: u64 = 400_000;
/// How fast a share is used up is measured over this time at least, first and where a socket is found nearly empty. Less:
/// ACKs come in bursts.
pub const DEPLETION_SAMPLE_US_MIN: u64 = 20_000;
/// And else over this time. Less: rates scatter, and with them the times at which sockets are filled. More: a client that
/// becomes slower is filled too early for longer.
pub const DEPLETION_STEADY_US_MIN: u64 = 100_000;
/// How often send memory is divided anew, with a look at each connection that sends.
pub const DIVIDE_EACH_US: u64 = US_PER_S;
/// How often it is divided at most, for connections that join.
pub const DIVIDE_APART_US: u64 = 100_000;
/// How long a division waits for workers. A worker that hangs longer: its connections keep their shares.
pub const DIVIDE_WAIT_US: u64 = 300_000;
/// A round trip longer than the shortest one by less than this shows no queue: clocks and interrupts scatter by as much.
pub const RTT_SCATTER_US: u64 = 1_000;
/// One round of samples in so many may begin a drain, in which round trips without a queue show. More: a new connection claims
/// for longer what a queue holds. Fewer: drains cost more.
pub const DRAIN_EACH_ROUNDS: u64 = 8;
/// How long a drain lasts: a full queue of 100 ms empties, and there are some round trips without it. Longer: those whom
/// their shares hold up lose more.
pub const DRAIN_US: u64 = 300_000;
/// A share that grows by less than this, in hundredths, is not worth a system call. One that shrinks always is, or the
/// shares would exceed the pool.
pub const SHARE_GROWTH_PERCENT_MIN: u64 = 3;
/// One part in so many of the send memory is kept for connections that join until the next division. Less: they would wait
/// for the memory of others with two segments.
pub const START_PART: u64 = 16;
/// A client that acknowledges nothing for so long, while its socket holds bytes for it, claims no more than these. A
/// second is a long timeout of TCP, and samples are a second apart.
pub const STALLED_US: u64 = 3 * US_PER_S;
/// One part in so many of the send memory may be held by clients that have stalled while others need more. Beyond: those
/// that stalled first have [`PAUSED_US`](super::PAUSED_US), not `pause_timeout`.
pub const STALLED_PART: u64 = 2;
/// The least TCP_NOTSENT_LOWAT for a socket of another program whose share has room for it. A smaller one wakes the
/// program more often; a larger one holds more for clients that take little.
pub const LOWAT_BYTES_MIN: u64 = 16 * KIB;
/// The least clamp of a socket whose congestion control models its path, in segments: twice bbr's own least window. With
/// less it could not measure.
pub const CLAMP_MODEL_SEGMENTS_MIN: u64 = 8;
/// What is set for another program's socket allows so much less than its share, one part in this: a share that falls by less
/// needs no order. Less: more orders. More: more memory lies idle.
pub const SETTING_BELOW_PART: u64 = 16;
/// A clamp of another program's socket rises by one part in this of itself at least, since it erases what a loss has taught. Less: a share
/// that goes up and down by a tenth takes an order each time. More: a socket may be further below its share.
pub const CLAMP_RISE_PART_MIN: u64 = 4;
/// The same for a control that models its path: a clamp that is too small makes it measure less.
pub const CLAMP_MODEL_RISE_PART_MIN: u64 = 8;
/// TCP_NOTSENT_LOWAT of another program's socket changes by one part in this of itself at least, where it is within the share.
/// Less: more orders. More: the program is woken more often than its share asks for, 1.5 times with this one.
pub const LOWAT_PART_MIN: u64 = 2;
/// Connections that a worker looks at in one turn for the division of send memory, some 2 us each. More: its next turn
/// goes on.
pub const READINGS_PER_TURN_MAX: usize = 128;
/// Round trips in which a connection sent, until its estimates count.
pub const ROUNDS_KNOWN_MIN: u64 = 10;
/// Segments, lately, without which a connection's loss counts as none: one event in fewer says little.
pub const LOSS_SEGMENTS_MIN: u64 = 50;
/// Delivery rates of which the fastest counts, one a second. More: the oldest is forgotten.
pub const DELIVERY_RATES_MAX: usize = 10;
/// A share that holds its connection up in less of the time than this, in hundredths, does not have to grow.
pub const SHARE_LIMITED_PERCENT_MIN: u64 = 10;
/// Addresses whose estimates are kept for their next connections, 48 bytes each. Full: the oldest of four is forgotten,
/// and its client starts like a new one.
pub const ADDRESSES_REMEMBERED_MAX: usize = 16_384;
/// How long they are kept. Longer: the path may have changed.
pub const ADDRESS_REMEMBERED_US: u64 = 600 * US_PER_S;
