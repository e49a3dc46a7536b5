//! Bounds of the data path that a client or an operator can notice: why each is what it is, and what happens when it is
//! reached. Any other stands beside the code that has it.
//!
//! Those of parsers are in `wire/src/limits.rs`. `ackpace limits` prints those that clients
//! or operators notice, and the memory that all of them add up to.

use crate::units::{KIB, MIB, US_PER_S};

/// Connections of one worker. Full: others get what it accepts; all full: the listen backlogs hold the rest.
pub const CONNECTIONS_MAX: u32 = 16_384;
/// Connections accepted in one turn. More: the next turn takes them, after others had theirs.
pub const ACCEPTS_PER_TURN_MAX: u32 = 64;
/// How long accepting pauses when the process is out of descriptors or memory; closing a connection ends the pause
/// early.
pub const ACCEPT_RETRY_US: u64 = 100_000;
/// A connection that has been idle for less is not closed to make room for another one, microseconds. Shorter: its next
/// request may already be on its way.
pub const IDLE_SPARED_US: u64 = US_PER_S;
/// How long until idle connections are looked for again, if none was found while there was no room, microseconds.
pub const IDLE_LOOK_US: u64 = 50_000;
/// Slots that are looked at for an idle connection at once. More: the others of the worker wait.
pub const IDLE_LOOKS_MAX: u32 = 256;

/// Events taken from epoll at once. More: they stay in the kernel until the next turn.
pub const EVENTS_PER_TURN_MAX: usize = 256;
/// Orders executed in one turn, some 5 us each: a turn stays far below a millisecond. More: the next turn goes on with
/// them after it has taken new events.
pub const OUTS_PER_TURN_MAX: u32 = 64;
/// Body bytes handed to the kernel in one turn: a quarter of a millisecond of copying. More: the next turn goes on with
/// them after it has taken new events. Taking events after half of it costs 1 % of the CPU with 200 busy connections.
pub const TURN_BYTES_MAX: u64 = 4 * MIB;
/// Of those, the bytes of top-ups that were all that their clients needed, each counted as at least
/// [`TOP_UP_BYTES_MIN`]. It bounds how long a new client waits behind a round of top-ups. More: the next turn goes on
/// with them after it has taken new events. Half of it costs 3 % of the CPU with 500 slow clients. A smaller
/// TURN_BYTES_MAX for all costs unpaced clients goodput.
pub const TURN_TOP_UP_BYTES_MAX: u64 = MIB;
/// Body bytes that one connection sends before the next gets its turn: two windows, if both are believed to be in
/// memory, since one long sendfile costs less than two short ones.
pub const SEND_BYTES_MAX: u64 = 2 * MIB;
/// The least T, the time for which a socket is filled. A shorter one wakes the worker more often; a longer one saves
/// little and costs memory.
pub const TARGET_US_MIN: u64 = 100_000;
/// The longest T, for workers with little to send.
pub const TARGET_US_MAX: u64 = 200_000;
/// What the sockets of one worker hold unsent together, as long as T stays at least [`TARGET_US_MIN`]. More
/// connections, or faster ones: a shorter T.
pub const SEND_QUEUE_BYTES: u64 = 52 * MIB;
/// The part of that, in hundredths, for what clients take in T: 145 ms at 2 Gbit/s. The rest is for slow clients, whose
/// sockets hold what they take in a longer time.
pub const SEND_QUEUE_PERCENT: u64 = 79;
/// The longest T of clients that read at their own pace from the page cache. Their sockets hold pages of files that are
/// in memory anyway, and a longer T would save little.
pub const STEADY_US_MAX: u64 = 4 * US_PER_S;
/// What the socket of such a client is filled with at most: half of what the kernel lets it hold (tcp_wmem).
pub const STEADY_BYTES_MAX: u64 = 2 * MIB;
/// What the sockets of one worker hold for such clients together. More of them: a shorter T, down to that of other
/// clients.
pub const STEADY_QUEUE_BYTES: u64 = 384 * MIB;
/// The size of the kernel's buffers for sending.
pub const SEND_BUFFER_BYTES: u64 = 64 * KIB;
/// A full socket becomes writable when it has bytes left for this long: time to top it up before it is empty, even if
/// its client has become ten times as fast.
pub const EPOLLOUT_US: u64 = 30_000;
/// But not later than when this is left: what a slow client takes at once.
pub const EPOLLOUT_BYTES_MIN: u64 = 8 * KIB;
/// A slow client's socket is filled with at least this, one of the kernel's buffers, which is more than it takes in T.
pub const TOP_UP_BYTES_MIN: u64 = SEND_BUFFER_BYTES;
/// With many slow clients it is more, so that a worker makes no more top-ups than this for all of them.
pub const SLOW_TOP_UPS_PER_S: u64 = 2_250;
/// But never more than this.
pub const TOP_UP_BYTES_MAX: u64 = 128 * KIB;
/// If less than this should go into a socket, the kernel decides how much does: level and rate are estimates.
pub const ROOM_BYTES_MIN: u64 = 16 * KIB;
/// Rounds of top-ups reach no further ahead than this, however slow all clients are; or half of the shortest T, if that
/// is more.
pub const REACH_US_MAX: u64 = 400_000;
/// The demand that a round found is out of date after this time.
pub const DEMAND_US_MAX: u64 = 2 * STEADY_US_MAX;
/// The greatest TCP_NOTSENT_LOWAT: SO_SNDBUF grows up to about this (tcp_wmem).
pub const LOWAT_BYTES_MAX: u32 = 8 * MIB as u32;
/// The most that a socket is filled with of bytes that are in memory for its connection alone.
pub const OWN_BYTES_MAX: u64 = 512 * KIB;
/// TCP_NOTSENT_LOWAT of a connection whose rate is not known yet.
pub const LOWAT_BYTES_START: u32 = 128 * KIB as u32;
/// A congestion window below this leaves as a burst that every queue takes.
pub const PACED_WINDOW_BYTES_MIN: u64 = 64 * KIB;
/// Longer responses are not paced: their first window is a small part. Also, the kernel goes on pacing a socket that
/// was paced once, with a timer for each of its buffers, and long responses should not pay for that.
pub const PACED_RESPONSE_BYTES_MAX: u64 = 16 * MIB;
/// Paths with a shorter round trip than this are local: spreading a window over it gains nothing.
pub const PACED_RTT_US_MIN: u64 = 2_000;
/// If a client had nothing to take for a while, its first rate is not estimated from less than this.
pub const FIRST_SAMPLE_BYTES_MIN: u64 = 64 * KIB;
/// A rate is measured over at least this, and the first one over half of it.
pub const INTERVAL_US_MIN: u64 = US_PER_S;
/// Counters older than this say nothing about the present.
pub const FLOW_US_MAX: u64 = 60 * US_PER_S;
/// A client that reads at its own pace is sampled at least this often once its rate is known, and each second before.
pub const FLOW_SAMPLE_US_MAX: u64 = 5 * US_PER_S;
/// A connection whose socket is full is sampled (TCP_INFO) when the last sample is older than this: two system calls of
/// a microsecond each.
pub const FLOW_EACH_US: u64 = 400_000;
/// The same, for a connection whose path limits it, as TCP's counters have said: what leaves its socket tells its rate,
/// too.
pub const FLOW_PATH_EACH_US: u64 = 1_200_000;
/// How long the kernel holds back a partial segment for what follows (tcp(7), TCP_CORK), while it counts its socket as
/// busy.
pub const CORKED_US: u64 = 200_000;
/// What a socket holds if nothing but the head of a response is in it, or the corked rest of a piece.
pub const THIN_BYTES_MAX: u64 = 4 * KIB;
/// A first guess of a rate over less time than this is noise.
pub const RATE_SAMPLE_US_MIN: u64 = 2_000;
/// The greatest rate believed of a client: 1 Tbit/s, more than any path carries today. Above: it counts as this fast.
/// So the rates of all connections add up to something that a `u64` holds.
pub const RATE_BYTES_PER_S_MAX: u64 = 125_000_000_000;
/// Steps of requests and short answers before a waiting body has one, of up to [`SEND_BYTES_MAX`]: under a flood of
/// small files, downloads still get most of the bytes.
pub const SHORT_STEPS_MAX: u32 = 32;
/// Ended streams whose memory is kept for new ones, half a kilobyte each. More: it is freed.
pub const STREAMS_SPARE_MAX: usize = 256;
/// Requests of one connection answered in a row. More: the other connections come first.
pub const PIPELINED_MAX: u32 = 64;

/// Files are judged resident or cold, wanted and read in windows of this size. At 4 ms of positioning and 56 MB/s,
/// reads of 1 MB get 45 MB/s from a disk; twice as much gains 9 %.
pub const WINDOW_BYTES: u64 = MIB;
/// The greatest queue depth of one device; `core/src/disk/room.rs` has the depth in use. Full: the next read is chosen when
/// one completes.
pub const READS_IN_FLIGHT_MAX: usize = 64;
/// The first read of a stream of unknown rate.
pub const FIRST_READ_BYTES: u64 = 128 * KIB;
/// A rest of a response no longer than this is read next when its client has run dry, and in one read if the client's rate
/// is not known. In overload a sweep takes many seconds, and a client that needs little should not wait for several of them.
pub const SHORT_REST_BYTES: u64 = MIB;
/// No read is shorter, unless its file ends: a disk positions longer than it reads this. If memory is short, the read
/// waits.
pub const READ_BYTES_MIN: u64 = 64 * KIB;
/// H_max: no read is longer. A disk with an arm is near its medium's rate by then.
pub const READ_BYTES_MAX: u64 = 4 * MIB;
/// A device with an arm makes longer reads if it is so fast that it brings more than [`READ_BYTES_MAX`] in this time.
/// In an array, each disk gets only a part of a read and positions for it as long as for a whole one.
pub const READ_US_MAX: u64 = 75_000;
/// Still longer reads would gain little: an eighth of this from each of eight disks is near its medium's rate.
pub const READ_BYTES_LONG_MAX: u64 = 32 * MIB;
/// T_D is at most this long, since a client may leave.
pub const READ_TARGET_US_MAX: u64 = 20 * US_PER_S;
/// Reading ahead keeps at least this much memory, over all disks together, whatever others want: one read of
/// [`READ_BYTES_MAX`]. Less memory: the server refuses to start.
pub const AHEAD_BYTES_MIN: u64 = 4 * MIB;
/// A sixteenth of the memory stays free for others, and at least this much: forty connections of 47 KB that come at
/// once. More at once: accepting pauses until reading ahead has given some back, which takes some hundredths of a
/// second.
pub const AHEAD_RESERVE_BYTES_MIN: u64 = 2 * MIB;
/// The most that stays free for others: a thousand connections do not come in one turn.
pub const AHEAD_RESERVE_BYTES_MAX: u64 = 64 * MIB;
/// How often reading ahead is given more or less memory at most.
pub const AHEAD_EACH_US: u64 = 250_000;
/// While others lack memory, how often reading ahead checks how much of its own is free again.
pub const AHEAD_SHORT_US: u64 = 10_000;
/// Reads begin and end at multiples of this, which O_DIRECT requires with few exceptions (statx(2), STATX_DIOALIGN).
pub const READ_ALIGN_BYTES: u64 = 4 * KIB;
/// The pool of prefetch memory is divided into slots of this size. A slot is free when its last byte is sent.
pub const SLOT_BYTES: u64 = 16 * KIB;
/// First reads of new streams before the sweep has its turn: a flood of new clients does not starve the others.
pub const URGENT_IN_A_ROW_MAX: u32 = 4;
/// Reads in a row that may go before one whose turn it is, because it lacks memory and they do not, or because a first
/// read is in the device and holds the sweep back. After that it is held back no more, and no other read takes the
/// memory that becomes free for it. With fewer, a thousand clients that come at once would wait for those that were
/// there before.
pub const BYPASSES_MAX: u32 = 1_024;
/// A stream of unknown rate is assumed to have bytes for this long once it has been given some.
pub const UNKNOWN_MARGIN_US: u64 = 300_000;
/// A stream of unknown rate that has more than it takes is assumed to have enough for this long. It is read for again
/// when it takes some.
pub const UNTAKEN_US: u64 = 600 * US_PER_S;
/// A client whose window stays closed for this long has paused: what was fetched for it is given back.
pub const PAUSED_US: u64 = 20 * US_PER_S;
/// A connection that reads from a disk is sampled (TCP_INFO) when its socket was given bytes, if the last sample is
/// older than this. So congestion signals are at most this old. Sampling a thousand such connections costs a thousandth
/// of a core.
pub const WATCH_US: u64 = 250_000;
/// A want gets a new deadline if that moves by more than this, later or earlier.
pub const REDATE_US_MIN: u64 = 100_000;
/// Pieces fetched for one stream ahead of what is sent; consecutive reads of one kind form one piece. More: the stream
/// wants more later.
pub const FETCHED_MAX: usize = 8;
/// How often a stream that waits for the disk is checked for a lost wakeup: something must be at work for it.
pub const AWAITED_CHECK_US: u64 = US_PER_S;
/// Memory for one remembered file at most, including where its extents lie.
pub const OBJECT_BYTES: u64 = 672;
/// A device remembers one file for this much of its memory for reading ahead, [`OBJECTS_REMEMBERED_MAX`] at most: the
/// memory for files stays small beside that for reads.
pub const REMEMBERED_EACH_BYTES: u64 = 8 * KIB;
/// But never fewer than this. Full: the oldest that nobody reads is forgotten.
pub const OBJECTS_REMEMBERED_MIN: usize = 512;

/// The longest file whose response is cached: with longer ones, what is saved would not count.
pub const CACHED_FILE_BYTES_MAX: u64 = 64 * KIB;
/// A file up to this length is cached as a copy, since copying 8 KiB costs what a second system call costs. A longer
/// one is kept open for sendfile.
pub const CACHED_COPY_BYTES_MAX: u64 = 8 * KIB;
/// The longest path of a cached response. Longer: the file is served as usual; popular files have short names.
pub const CACHED_PATH_BYTES_MAX: usize = 1 << 10;
/// Files that one worker keeps open for cached responses. More: the one that was unused for longest is closed.
pub const CACHED_OPEN_MAX: usize = 512;
/// The table has one slot for a cached response for each this many bytes of memory; one with the shortest of bodies
/// takes some 700. More responses: the one unused for longest makes room, though bytes may be left.
pub const CACHED_RESPONSE_BYTES_MIN: usize = 1 << 10;
/// Cached responses of one worker, whatever its memory. More: as above.
pub const CACHED_RESPONSES_MAX: usize = 1 << 20;
/// The step in which the response cache takes memory from the account, bytes.
pub const RESPONSE_CACHE_STEP_BYTES: usize = 256 << 10;
/// Cached responses examined to find one that was not used recently. More: the last one makes room, used or not.
pub const CLOCK_STEPS_MAX: usize = 64;
/// Cached responses that make room for one new one; a dozen small ones hold as much as a long one. More: the new one is
/// not cached, since the evicted ones are still being sent.
pub const EVICTIONS_MAX: usize = 32;
/// Paths remembered as asked for once. A collision forgets the older one, which costs one more response by way of the
/// page cache.
pub const ASKED_ONCE_MAX: usize = 4096;

/// Request body that is skipped so that the connection may carry another request. Longer: the
/// connection ends after the answer.
pub const BODY_SKIP_BYTES_MAX: u64 = MIB;
/// Input that is discarded after the last answer, so that a reset does not destroy the answer
/// before the client reads it. More: the connection is closed.
pub const LINGER_BYTES_MAX: u64 = 64 * MIB;
/// How long we wait for more such input, or for the client's FIN.
pub const LINGER_QUIET_US: u64 = 5 * US_PER_S;
/// How long such input is discarded in all.
pub const LINGER_US: u64 = 30 * US_PER_S;

/// How long a stopping server waits for the first byte on a new connection.
pub const DRAIN_SILENT_US: u64 = US_PER_S;

/// The tick in which time limits are measured: one ends a connection at most this, and [`TICK_SLACK_US`], late.
pub const SCAN_PERIOD_US: u64 = US_PER_S;
/// How much later than a tick the shell of a worker may wake it, microseconds. Longer: time limits end connections later. Shorter: a
/// worker that events wake a hundred times a second wakes for ticks, too.
pub const TICK_SLACK_US: u64 = 20_000;
/// Connections that the timer scan checks before ordinary work has a step.
pub const SCAN_SLICE: u32 = 8;
/// Connections whose next check is still to be scheduled. More: it is done for these before others have their turn.
pub const TOUCHED_MAX: usize = 64;
/// A sending connection that took bytes this recently is not sampled for its time limits.
pub const SAMPLE_QUIET_US: u64 = 5 * US_PER_S;
/// Time over which `rate_min` is measured.
pub const RATE_MIN_WINDOW_US: u64 = 60 * US_PER_S;
/// Unanswered zero-window probes up to which a paused peer counts as alive.
pub const PROBES_UNANSWERED_MAX: u32 = 2;
/// Responses of one connection whose arrival is still to be logged. More: the oldest is logged
/// with what is known.
pub const ARRIVALS_MAX: usize = 64;
/// What a worker keeps for the log, of requests whose response is under way or not acknowledged yet: some 15,000
/// ordinary ones, and less where memory is small. Full: the response that has waited longest is logged with what is
/// known. If all are under way, the fields of a new one are cut to [`RECORD_BRIEF_BYTES_MAX`].
pub const RECORDS_BYTES_MAX: u64 = 8 * MIB;
/// What the log keeps of a request at least, all included: each connection has this much for itself.
pub const RECORD_BRIEF_BYTES_MAX: u64 = KIB;
/// Memory of a response that waits for its last ACK, in the worker's table, which may be half empty.
pub const ARRIVAL_BYTES: u64 = 320;

/// Decisions of one worker that `ackpace why` can show. More: a new one replaces the oldest.
pub const DECISIONS_MAX: usize = 1024;

/// Threads for operations that may block: open, stat, getdents; one device has half of them at most. More work: it
/// queues, one job per connection.
pub const RESOLVERS_MAX: usize = 16;
/// A listing is made and sent in pieces of about this size.
pub const SLICE_BYTES: usize = 16 * KIB as usize;
/// Names held by all listings under way; less where memory is small. Full: further listings read their directory again
/// for each slice.
pub const LISTING_BYTES_MAX: u64 = 64 * MIB;
/// Files whose identity is remembered after their last stream, so that what is known of their
/// residency survives between requests. Full: the oldest is forgotten.
pub const OBJECTS_REMEMBERED_MAX: usize = 4096;

/// Calls of one connection under way. Linux' client has as many READs under way as it reads ahead, some 16, and more calls
/// only under load. Full: its input waits in the socket.
pub const NFS_CALLS_MAX: usize = 64;
/// Memory that replies of one connection may take, without payload; those that are still made count with their longest. Full:
/// its input waits in the socket. The call that exceeds it is carried out.
pub const NFS_REPLIES_BYTES_MAX: u64 = 256 * KIB;
/// Files, or places in one file, that a connection reads in order at once. More: the one unused for longest makes room, and
/// if READs wait in all of them, a READ gets no more than it asks for.
pub const NFS_RUNS_MAX: usize = 16;
/// Parts that are read ahead of one client and file at once. Fewer: a target 10 ms away that sends 400 MB/s stands idle between two
/// reads. Full: the next part begins when one has come.
pub const NFS_PARTS_MAX: usize = 3;
/// A part that is read ahead, at most: one read.
pub const NFS_PART_BYTES: u64 = READ_BYTES_MAX;
/// The rate of a client that reads in order is measured over this time at least: some round trips of a slow target.
pub const NFS_RATE_US_MIN: u64 = 50_000;
/// A client that has asked for nothing for this long is not read ahead for until it asks again.
pub const NFS_PAUSE_US: u64 = US_PER_S;

/// What a connection holds at worst, as its shell knows.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Its entries in all tables.
    pub state_bytes: u64,
    /// A request head lent from the pool.
    pub head_bytes: u64,
    /// The texts of a planned response.
    pub plan_bytes: u64,
    /// An open file with its path, or the directory of a listing.
    pub file_bytes: u64,
    /// One slice of a listing; 0: nothing is listed.
    pub slice_bytes: u64,
    /// A request that will be logged; 0: none.
    pub record_bytes: u64,
}

/// The most memory that one connection costs, without kernel memory. With a listing, the planned texts are short, and
/// the next slice is made when the one before is sent and freed.
pub const fn connection_bytes_max(of: &Holdings) -> u64 {
    let listing_bytes = of.slice_bytes + KIB;
    let response_bytes = if listing_bytes > of.plan_bytes {
        listing_bytes
    } else {
        of.plan_bytes
    };
    of.state_bytes + of.head_bytes + of.file_bytes + response_bytes + of.record_bytes
}

const _: () = assert!(
    SEND_BYTES_MAX <= TURN_BYTES_MAX,
    "one connection's share fits into a turn"
);
const _: () = assert!(
    LINGER_QUIET_US <= LINGER_US,
    "waiting for more is part of lingering"
);
const _: () = assert!(
    RATE_BYTES_PER_S_MAX < u64::MAX / (CONNECTIONS_MAX as u64 * 4096),
    "the rates of all connections of 4,096 workers add up without overflow"
);
const _: () = assert!(UNTAKEN_US > READ_TARGET_US_MAX, "who has enough is not due");
