//! Every bound of the data path: why it is what it is, and what happens when it is hit.
//!
//! Bounds of parsers stand in `wire/src/limits.rs`. `ackpace limits` prints both, and the memory
//! that they add up to.

use crate::units::{KIB, MIB, US_PER_S};

/// Connections of one worker. Full: accepting pauses and the listen backlog holds the rest.
pub const CONNECTIONS_MAX: u32 = 16_384;
/// Connections accepted in one turn. More: the next turn takes them, after others had theirs.
pub const ACCEPTS_PER_TURN_MAX: u32 = 64;
/// Pause of accepting when the process is out of descriptors or memory; closing a connection ends it early.
pub const ACCEPT_RETRY_US: u64 = 100_000;

/// Events taken from epoll at once. More: they stay in the kernel until the next turn.
pub const EVENTS_PER_TURN_MAX: usize = 256;
/// Orders executed in one turn, some 5 us each: a turn stays far below a millisecond. More: the
/// next turn goes on with them after a look at new events.
pub const OUTS_PER_TURN_MAX: u32 = 64;
/// Body bytes handed to the kernel in one turn: a quarter of a millisecond of copying. More: the next turn goes on with
/// them after a look at new events. A look at half of it costs 1 % of the CPU with 200 busy connections.
pub const TURN_BYTES_MAX: u64 = 4 * MIB;
/// Of those, the bytes of top-ups that were all that their clients needed, each counted as [`TOP_UP_BYTES_MIN`] at least: so long who
/// comes anew waits for a round of them. More: the next turn goes on with them after a look at new events. Half of it costs 3 % of the
/// CPU with 500 slow clients; TURN_BYTES_MAX for all costs unpaced clients goodput if it is less.
pub const TURN_TOP_UP_BYTES_MAX: u64 = MIB;
/// Body bytes that one connection sends before the next gets its turn: two windows, if both are believed to be in
/// memory, since a long sendfile costs less than two short ones.
pub const SEND_BYTES_MAX: u64 = 2 * MIB;
/// The least that the kernel is asked about before a long send to a socket that refused more. Less: two short sends cost more than
/// the pages that need not be asked about.
pub const REACH_BYTES_MIN: u64 = 256 << 10;
/// T, the time for which a socket is filled: shorter wakes the worker more often, longer than this saves little and costs
/// memory.
pub const TARGET_US_MIN: u64 = 100_000;
/// The longest T, for workers with little to send.
pub const TARGET_US_MAX: u64 = 200_000;
/// What the sockets of one worker are to hold unsent together, as long as T stays at least [`TARGET_US_MIN`]. More connections,
/// or faster ones: a shorter T.
pub const SEND_QUEUE_BYTES: u64 = 52 * MIB;
/// So much of that, in hundredths, is for what clients take in T, 145 ms at 2 Gbit/s. The rest is for slow ones, whose sockets hold what
/// they take in a longer time.
pub const SEND_QUEUE_PERCENT: u64 = 79;
/// The longest T of clients that read at a pace of their own, from the page cache: their sockets hold pages of files that are in memory in any case,
/// and a still longer one saves little.
pub const STEADY_US_MAX: u64 = 4 * US_PER_S;
/// What the socket of one of them is filled with at most: half of what the kernel lets it hold (tcp_wmem).
pub const STEADY_BYTES_MAX: u64 = 2 * MIB;
/// What the sockets of one worker are to hold for these together. More of them: a shorter T, down to that of others.
pub const STEADY_QUEUE_BYTES: u64 = 384 * MIB;
/// The kernel's buffers for sending are of this size.
pub const SEND_BUFFER_BYTES: u64 = 64 * KIB;
/// A full socket calls when it has bytes for so long: time to top it up before it is empty, even if its client has become ten
/// times as fast.
pub const CALL_US: u64 = 30_000;
/// Nor does it wait until less than this is left: what a slow client takes at once.
pub const CALL_BYTES_MIN: u64 = 8 * KIB;
/// A slow client's socket is filled for this at least, one of the kernel's buffers, which is more than it takes in T.
pub const TOP_UP_BYTES_MIN: u64 = SEND_BUFFER_BYTES;
/// With many of them it is more, so that a worker does not top up more often than this for all of them.
pub const SLOW_TOP_UPS_PER_S: u64 = 2_250;
/// But it is never more than this.
pub const TOP_UP_BYTES_MAX: u64 = 128 * KIB;
/// If less than this should go into a socket, the kernel is asked what does: level and rate are estimates.
pub const ROOM_BYTES_MIN: u64 = 16 * KIB;
/// Rounds of top-ups look no further ahead than this, however slow all clients are; or half of the shortest T, if that is more.
pub const REACH_US_MAX: u64 = 400_000;
/// What a round found says nothing of now if it is longer ago than this.
pub const DEMAND_US_MAX: u64 = 2 * STEADY_US_MAX;
/// TCP_NOTSENT_LOWAT is never more: SO_SNDBUF grows up to about this (tcp_wmem).
pub const LOWAT_BYTES_MAX: u32 = 8 * MIB as u32;
/// A socket is filled up to this at most for bytes that are in memory for their connection alone.
pub const OWN_BYTES_MAX: u64 = 512 * KIB;
/// TCP_NOTSENT_LOWAT of a connection whose rate is not known yet.
pub const LOWAT_BYTES_START: u32 = 128 * KIB as u32;
/// A congestion window below this leaves as a burst that every queue takes.
pub const PACED_WINDOW_BYTES_MIN: u64 = 64 * KIB;
/// Of longer responses the first window is a small part. And the kernel goes on pacing a socket that was paced once, by a timer
/// for each of its buffers: what is longer shall not pay for that.
pub const PACED_RESPONSE_BYTES_MAX: u64 = 16 * MIB;
/// Paths with a shorter round trip than this are local: nothing is gained by spreading a window over it.
pub const PACED_RTT_US_MIN: u64 = 2_000;
/// If a client had nothing to take for a while, its first rate is not guessed from less than this.
pub const FIRST_SAMPLE_BYTES_MIN: u64 = 64 * KIB;
/// For prefetch a rate is measured over at least this, and the first one over half of it.
pub const STRETCH_US_MIN: u64 = US_PER_S;
/// Two looks at TCP's counters that are nearer than this are one: what is in between is noise.
pub const FLOW_US_MIN: u64 = 10_000;
/// Counters of longer ago than this say nothing of now.
pub const FLOW_US_MAX: u64 = 60 * US_PER_S;
/// Bytes that a client read before a sample of its rate is believed, half of them for the first one, if that does not take eight times as
/// long as any: windows open in steps.
pub const FLOW_READ_BYTES_MIN: u64 = 64 * KIB;
/// Windows open in steps, and programs read in bursts: of a client's reading, a stretch counts when it has so many of the largest one.
pub const FLOW_STEPS: u64 = 4;
/// Whoever reads at a pace of its own is looked at after this time at the latest, and more often while little is known of it.
pub const FLOW_LOOK_US_MAX: u64 = 5 * US_PER_S;
/// A connection whose socket is full is asked for TCP's counters when the last answer is older than this: two system calls of a
/// microsecond each.
pub const FLOW_EACH_US: u64 = 400_000;
/// The rate that is shown of a connection is that of so many seconds, or of up to twice as many: windows open in steps.
pub const SHOWN_US: u64 = 4 * US_PER_S;
/// A connection of which nothing was heard for longer than this, and than it was usual with it, is shown as one that got nothing since.
pub const SHOWN_SILENT_US: u64 = 3 * US_PER_S / 2;
/// So long the kernel holds back the begin of a segment for what is to follow (tcp(7), TCP_CORK), and counts its socket as busy.
pub const CORKED_US: u64 = 200_000;
/// What a socket holds if nothing but the head of a response is in it, or the corked rest of a piece.
pub const THIN_BYTES_MAX: u64 = 4 * KIB;
/// A rate measured over less time than this is noise.
pub const RATE_SAMPLE_US_MIN: u64 = 2_000;
/// No client is believed to take more: 1 Tbit/s, more than any path carries today. Above: it is taken for that fast. So the
/// rates of all connections add up to something that a `u64` holds.
pub const RATE_BYTES_PER_S_MAX: u64 = 125_000_000_000;
/// Steps of requests and short answers before a body that waits has one, of up to [`SEND_BYTES_MAX`]: with a flood of
/// small files, downloads still get most of the bytes.
pub const SHORT_STEPS_MAX: u32 = 32;
/// Streams that ended whose memory is kept for those that begin, half a kilobyte each. More: it goes back.
pub const STREAMS_SPARE_MAX: usize = 256;
/// Requests of one connection answered in a row. More: the other connections come first.
pub const PIPELINED_MAX: u32 = 64;

/// Files are judged resident or cold, wanted and read in windows of this size: at 4 ms of
/// positioning and 56 MB/s, reads of 1 MB get 45 MB/s from a disk, twice as much gains 9 %.
pub const WINDOW_BYTES: u64 = MIB;
/// Reads given to one device at once, at most. A read that the kernel has can't be withdrawn, so a deep queue is
/// dead weight: see `core/src/disk.rs` for how many it is at a time. Full: the next is chosen when one finishes.
pub const READS_IN_FLIGHT_MAX: usize = 64;
/// Reads given to a disk with an arm at once, at least: it is never idle while we choose.
pub const READS_IN_FLIGHT_MIN: usize = 2;
/// Reads given at once to one disk without an arm, until it is measured whether more or fewer are better.
pub const READS_START_FLASH: usize = 8;
/// A device is given as many reads as take it so long, until it is measured whether more or fewer are better: a new client's first
/// read waits for them.
pub const IN_DEVICE_US: u64 = 60_000;
/// Whatever is gained by more, a first read does not wait for more than takes so long.
pub const IN_DEVICE_US_MAX: u64 = 120_000;
/// The first read of a stream whose rate nobody knows yet.
pub const FIRST_READ_BYTES: u64 = 128 * KIB;
/// What is left of a response and no longer than this is read next, and whole: in overload a sweep takes many seconds, and
/// who wants little should not wait for several of them.
pub const SHORT_REST_BYTES: u64 = MIB;
/// No read is shorter, unless its file ends: a disk positions longer than it reads this. If memory is short, it waits.
pub const READ_BYTES_MIN: u64 = 64 * KIB;
/// B_D of the paper's rule is what a disk gives to scattered reads of this length, TPF's H_max (128 pages).
pub const PAPER_READ_BYTES: u64 = 512 * KIB;
/// H_max: no read is longer. A disk with an arm is near its medium's rate by then.
pub const READ_BYTES_MAX: u64 = 4 * MIB;
/// A device with an arm that is so fast that it brings more in this time reads longer pieces: each of an array's disks gets only a
/// part of a read, and positions for it as long as for a whole one.
pub const READ_US_MAX: u64 = 75_000;
/// Still longer reads would gain little: an eighth of this from each of eight disks is near its medium's rate.
pub const READ_BYTES_LONG_MAX: u64 = 32 * MIB;
/// T_D is at least this long where memory allows: short ones save nothing.
pub const READ_TARGET_US_MIN: u64 = US_PER_S;
/// T_D is at most this long: a client may leave.
pub const READ_TARGET_US_MAX: u64 = 20 * US_PER_S;
/// Memory is not taken to hold less or more than so many hundredths of what is calculated.
pub const FILL_PERCENT_MIN: u64 = 50;
/// See above.
pub const FILL_PERCENT_MAX: u64 = 1_600;
/// Reading ahead is left so much memory, of all disks together, whatever others want: one read of [`READ_BYTES_MAX`]. Less memory:
/// the start is refused.
pub const AHEAD_BYTES_MIN: u64 = 4 * MIB;
/// Others find a sixteenth of the memory free, so much at least: eighty connections of 47 KB that come at once. More at once: accepting
/// pauses until reading ahead has given some back, which takes some hundredths of a second.
pub const AHEAD_RESERVE_BYTES_MIN: u64 = 2 * MIB;
/// See above; not more than this, since a thousand connections a turn do not come.
pub const AHEAD_RESERVE_BYTES_MAX: u64 = 64 * MIB;
/// Reading ahead is given more or less memory this often at most.
pub const AHEAD_EACH_US: u64 = 250_000;
/// But when others lack some it looks so often how much of its own has come back.
pub const AHEAD_SHORT_US: u64 = 10_000;
/// Reads begin and end at multiples of this: what O_DIRECT asks for (statx(2), STATX_DIOALIGN), with few exceptions.
pub const READ_ALIGN_BYTES: u64 = 4 * KIB;
/// The pool of prefetch memory is given out in pieces of this size. What is sent of a piece comes back with its last byte.
pub const SLOT_BYTES: u64 = 16 * KIB;
/// First reads of new streams before the sweep has its turn: a flood of new clients does not starve those who are served.
pub const URGENT_IN_A_ROW_MAX: u32 = 4;
/// Reads in a row that go before one whose turn it is: it lacks memory and they do not, or a first read is in the device
/// and holds the sweep back. After that: it is held back no more, and nobody takes the memory that comes together for it. Fewer would let a
/// thousand clients that come at once wait for those who were there before.
pub const BYPASSES_MAX: u32 = 1_024;
/// A stream that runs dry this soon wakes its worker when its bytes are there; others are heard when it wakes anyway.
pub const WAKE_US: u64 = 200_000;
/// A stream whose rate nobody knows is believed to have bytes for this long once it has been given some.
pub const UNKNOWN_MARGIN_US: u64 = 300_000;
/// A stream whose rate nobody knows, and that has more than it takes, is believed to have enough for this long: it is read
/// for again when it takes some.
pub const UNTAKEN_US: u64 = 600 * US_PER_S;
/// A client whose window stays closed for this long pauses: what was fetched for it is given back.
pub const PAUSED_US: u64 = 20 * US_PER_S;
/// A connection that reads from a disk is asked how its path is when its socket was given bytes, if the last answer is older than
/// this: signs of congestion are then this old at most, and asking costs a thousandth of a core for a thousand of them.
pub const WATCH_US: u64 = 250_000;
/// The disk machine hears that a stream runs dry at another time if that is so much later or earlier.
pub const REDATE_US_MIN: u64 = 100_000;
/// Pieces fetched for one stream ahead of what is sent, each as long as reads of one kind follow each other. More: it wishes again later.
pub const FETCHED_MAX: usize = 8;
/// Two readers of the same bytes of a file within this time make it a popular one, which is read through the page cache, unless more was
/// read into that meanwhile than it holds. Of files that nobody reads now, the last [`OBJECTS_REMEMBERED_MAX`] are known.
pub const POPULAR_US: u64 = 3600 * US_PER_S;
/// So many more windows of a file that were gone from the page cache when their next reader came than windows that were there end its
/// being shared, readers at one place excepted. Fewer could be an accident, and what they cost is small.
pub const VAIN_WINDOWS_MAX: usize = 8;
/// For so long a file whose windows were gone shares nothing, and what the page cache was found to hold is taken for all it holds; then it
/// may be twice as much, up to what is expected. Trying again costs the reads of a few windows in this time.
pub const UNSHARED_US: u64 = 600 * US_PER_S;
/// The page cache holds this much at least of what is read into it: what is gone sooner says nothing, since wishes and answers
/// cross, and programs drop pages of single files.
pub const CACHED_BYTES_MIN: u64 = 8 * MIB;
/// Windows that a device has read into the page cache and knows of, one for each [`REMEMBERED_EACH_BYTES`] of its memory for
/// reading ahead. Full: the oldest is forgotten, and is no evidence any more.
pub const CACHED_WINDOWS_MAX: usize = OBJECTS_REMEMBERED_MAX;
/// But never fewer than this: half a gigabyte, more than the page cache of so small a server.
pub const CACHED_WINDOWS_MIN: usize = OBJECTS_REMEMBERED_MIN;
/// What a device remembers of a window.
pub const CACHED_EACH_BYTES: u64 = 160;
/// Who begins to read a file no further than this before the end of what another had of it goes on where that one ended:
/// sockets and the pool held so much for a client whose connection broke. The price: who begins in the middle of a file
/// that is shorter than this is never a second reader.
pub const RESUME_BYTES_MAX: u64 = 16 * MIB;
/// Places from which a file was read lately. More: the oldest is forgotten.
pub const HAD_SPANS_MAX: usize = 4;
/// Extents known of one file. More: the rest is taken to follow the last.
pub const EXTENTS_MAX: usize = 64;
/// How often in a row bytes of one place may be gone from the page cache when they are to be sent, although they were just
/// read into it. More: this file system may not tell what it holds, so they are copied by a read that never waits, whatever it
/// tells; only where that is refused, too, are they sent unconfirmed.
pub const MISSES_MAX: u32 = 16;
/// A stream that waits for the disk is looked at this often: somebody has to be at work for it.
pub const AWAITED_CHECK_US: u64 = US_PER_S;
/// Extents that are known of every file, whatever there is of them together.
pub const EXTENTS_SURE: usize = 4;
/// Files with more extents than these are known in all their pieces until their extents are so many for each file that a device
/// remembers. More: the oldest of them keep [`EXTENTS_SURE`], those that nobody reads none.
pub const EXTENTS_COMMON: usize = 4;
/// What a device remembers of a file at most, its sure and common extents with it.
pub const OBJECT_BYTES: u64 = 704;
/// A device remembers one file for so much of its memory for reading ahead, [`OBJECTS_REMEMBERED_MAX`] at most: what is
/// known stays small beside what is read.
pub const REMEMBERED_EACH_BYTES: u64 = 8 * KIB;
/// But never fewer than this. Full: the oldest that nobody reads is forgotten.
pub const OBJECTS_REMEMBERED_MIN: usize = 512;
/// The kernel's answer that bytes are in memory holds for so long within its turn, microseconds; most turns are shorter. Longer: it is
/// asked again.
pub const CONFIRMED_US: u64 = 1_000;
/// For so long after pages went missing that had just been there, what is sent from the page cache is copied, which never waits,
/// microseconds. Longer: one wait for the disk is risked again.
pub const DOUBT_US: u64 = 10 * US_PER_S;
/// Where the kernel does not tell of each page whether it is in memory, one in so many bytes is looked at: what a program that reads a
/// file from its start reads at once at least.
pub const SAMPLE_BYTES: u64 = 16 * KIB;
/// Windows whose residency is remembered by one worker. A collision costs one question.
pub const RESIDENCY_CACHED_MAX: usize = 4096;
/// How long "this window is in memory" is believed without asking again.
pub const RESIDENCY_TRUST_US: u64 = 250_000;

/// A file whose response is cached is not longer: what is saved would not count.
pub const CACHED_FILE_BYTES_MAX: u64 = 64 * KIB;
/// A file up to this length is cached as a copy, since copying 8 KiB costs what a second system call costs. A longer one
/// is kept open for sendfile.
pub const CACHED_COPY_BYTES_MAX: u64 = 8 * KIB;
/// The path of a cached response. Longer: the file is served as ever; what is asked for often has a short name.
pub const CACHED_PATH_BYTES_MAX: usize = 1 << 10;
/// A cached response is used for so long after its file was looked up, microseconds: nothing is staler than that.
pub const CACHED_FRESH_US: u64 = US_PER_S;
/// Files of cached responses that are looked up again in one turn, some 10 us each. More: later requests see to it.
pub const REVALIDATIONS_PER_TURN_MAX: usize = 16;
/// Files that one worker keeps open for cached responses. More: the one that was unused for longest is closed.
pub const CACHED_OPEN_MAX: usize = 512;
/// There is a place for a cached response for each so many bytes of memory: with the shortest of bodies one takes some 700. More
/// responses: the one that was unused for longest makes room, though bytes may be left.
pub const CACHED_RESPONSE_BYTES_MIN: usize = 1 << 10;
/// Cached responses of one worker, whatever its memory. More: as above.
pub const CACHED_RESPONSES_MAX: usize = 1 << 20;
/// The response cache takes its memory from the account in such steps, bytes.
pub const RESPONSE_CACHE_STEP_BYTES: usize = 256 << 10;
/// Cached responses that are looked at to find one which was not used lately. More: the last one makes room, used or not.
pub const CLOCK_STEPS_MAX: usize = 64;
/// Cached responses that make room for one new one; a dozen small ones hold as much as a long one. More: the new one is not
/// cached, since the evicted ones are still being sent.
pub const EVICTIONS_MAX: usize = 32;
/// Paths of which it is remembered that they were asked for once. A collision forgets the older one, which costs one
/// more look at the page cache.
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

/// So long a server that stops waits for the first byte on a new connection.
pub const DRAIN_SILENT_US: u64 = US_PER_S;

/// Time limits are measured in ticks of this length: one ends a connection at most so much late.
pub const SCAN_PERIOD_US: u64 = US_PER_S;
/// Ticks of [`SCAN_PERIOD_US`] in one round of the timer wheel. A time limit beyond it costs one more look in each round.
pub const WHEEL_TICKS: usize = 128;
/// Connections that a scan looks at before whoever has something to do has a step.
pub const SCAN_SLICE: u32 = 8;
/// A sending connection that took bytes this recently is not asked for its TCP state.
pub const SAMPLE_QUIET_US: u64 = 5 * US_PER_S;
/// Time over which `rate_min` is measured.
pub const RATE_MIN_WINDOW_US: u64 = 60 * US_PER_S;
/// Zero-window probes in the air without an answer up to which a paused peer counts as alive.
pub const PROBES_UNANSWERED_MAX: u32 = 2;
/// Responses of one connection whose arrival is still to be logged. More: the oldest is logged
/// with what is known.
pub const ARRIVALS_MAX: usize = 64;
/// What a worker keeps for the log of requests whose response is under way or not acknowledged yet: some 15,000 ordinary
/// ones, and less where memory is little. Full: the response that has waited longest is logged with what is known; if all
/// are under way, the fields of a new one are cut to [`RECORD_BRIEF_BYTES_MAX`].
pub const RECORDS_BYTES_MAX: u64 = 8 * MIB;
/// What the log keeps of a request at least, with all that belongs to it: each connection has this much for itself.
pub const RECORD_BRIEF_BYTES_MAX: u64 = KIB;
/// What a response that waits for its last ACK costs in the worker's table, which may be half empty.
pub const ARRIVAL_BYTES: u64 = 320;

/// Decisions of one worker that `ackpace why` can look back on. More: a new one takes the place of the oldest.
pub const DECISIONS_MAX: usize = 1024;
/// The same of one device, and as many about the ways of its streams. More: a new one takes the place of the oldest.
pub const DEVICE_DECISIONS_MAX: usize = 128;
/// The log tells of one device's decisions this often at most. More: the last ones are told together when it may again.
pub const NOTICE_EACH_US: u64 = 10 * US_PER_S;

/// Threads that do what may block: open, stat, getdents; one device has half of them at most. More work: it queues, one job a
/// connection.
pub const RESOLVERS_MAX: usize = 16;
/// A listing is made and sent in pieces of about this size.
pub const SLICE_BYTES: usize = 16 * KIB as usize;
/// Names held by all listings under way; less where memory is little. Full: those of the client that has waited longest are
/// dropped, and read again when it goes on.
pub const LISTING_BYTES_MAX: u64 = 64 * MIB;
/// Files whose identity is remembered after their last stream, so that what is known of their
/// residency survives between requests. Full: the oldest is forgotten.
pub const OBJECTS_REMEMBERED_MAX: usize = 4096;

/// What a connection holds of its own at worst, by what its shell knows.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Its places in all tables.
    pub state_bytes: u64,
    /// A request head lent from the pool.
    pub head_bytes: u64,
    /// The texts of a planned response.
    pub plan_bytes: u64,
    /// An open file with its path, or the directory of a listing.
    pub file_bytes: u64,
    /// One slice of a listing; 0: nothing is listed.
    pub slice_bytes: u64,
    /// A request that the log will tell of; 0: there is none.
    pub record_bytes: u64,
}

/// What one connection costs at its worst, kernel memory aside. Of a listing the planned texts are short, and the next slice is
/// made when one is sent and gone.
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
