//! Every bound of this crate: why it is, and what happens at it. Those that the programs for the kernel share stand in
//! `host/src/bpf/` (its headers) with the same numbers.

/// Sockets that are tuned at once. Each takes some 1.6 KB here. More: the rest are left as they are, and counted.
pub const SOCKETS_MAX: usize = 131_072;
/// Orders of one pass, 64 bytes of memory each from the start. More: the rest are carried out in the next passes.
pub const ORDERS_MAX: usize = 65_536;
/// Slots of the table of orders (`ORDER_SLOTS`), half of which are empty.
pub const ORDER_SLOTS: usize = 2 * ORDERS_MAX;
/// Bits that tell where no order is (`ORDER_MARKS`), 64 KB. At most an eighth of them is set; the table tells the rest.
pub const ORDER_MARKS: usize = 8 * ORDERS_MAX;
/// Slots in which an order may be (`ORDER_PROBES`). All taken, in the whole table: it is carried out in one of the next passes.
pub const ORDER_PROBES: u32 = 16;
/// Sockets of one pass that the next one reads ahead of (`WALK_MAX`), 16 bytes of memory each from the start. More: of the rest
/// nothing is read ahead, and their part of a pass takes longer.
pub const WALK_MAX: usize = SOCKETS_MAX;
/// Sockets whose orders are carried out at once, by a pass of their own: it takes some 4 ms. More: orders wait for the next
/// look, a second later, which carries them out in the same visit.
pub const AT_ONCE_SOCKETS_MAX: u64 = 8_192;
/// Local ports of `--port`. More: refused.
pub const PORTS_MAX: usize = 64;
/// Prefixes of `--address` (`PREFIXES_MAX`). More: refused.
pub const PREFIXES_MAX: usize = 64;
/// A cgroup and those below it (`CGROUPS_MAX`). More: the sockets of the rest do not match, and a line says so.
pub const CGROUPS_MAX: usize = 4_096;
/// Scans in a row, one a second, that have to find all cgroups within the bounds before a line says that they fit again: at
/// most two lines a minute.
pub const CGROUP_FITS_SCANS: u32 = 60;
/// How deep cgroups are looked for. Deeper ones: as above.
pub const CGROUP_DEPTH_MAX: usize = 32;
/// Lines of the log for changes in a second. More: counted, and one line tells how many.
pub const CHANGE_LINES_PER_S_MAX: u64 = 20;
/// A question on the status socket. Longer: the connection ends.
pub const QUESTION_BYTES_MAX: usize = 64;
/// Those who are asking for the status at once; few do. More: they wait in the backlog until one has its answer, or its time is over.
pub const ASKERS_MAX: usize = 64;
/// How long one who asks for the status may take, for its question and to read the answer, in milliseconds. Longer: its connection ends.
pub const QUESTION_MS_MAX: u64 = 1_000;
/// How long one who asks for the status waits for the answer, in milliseconds: until others have taken their time. Longer: an
/// error that says so.
pub const ANSWER_MS_MAX: u64 = 5 * QUESTION_MS_MAX;
/// An answer on the status socket, as its reader takes it. Longer: cut off.
pub const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// How long a socket counts as one that lost, and is raised carefully, after it sent something again.
pub const LOST_LATELY_US: u64 = 10_000_000;
/// A socket that has sent nothing for so long, and has nothing to send, takes no part: longer than from one look to the
/// next, so that all of what it sent has been seen.
pub const QUIET_US: u64 = 3_000_000;
/// For how long a socket may have its former clamp back at once: longer than a drain.
pub const LATELY_US: u64 = 3_000_000;
/// What one read takes of the snapshots of sockets: a page table's worth of memory. Not a bound of what is
/// read in all.
pub const READ_BYTES: usize = 256 << 10;
/// Processes and ports that `receive watch` tells apart (`ROWS_MAX`). More: their segments are not told of, and counted.
pub const ROWS_MAX: usize = 1_024;
/// Connections that `receive watch` follows at once (`WATCHED_MAX`), 16 KB of kernel memory each. More: counted.
pub const WATCHED_MAX: usize = 2_048;
/// Segments of a connection that wait at once (`ARRIVALS_MAX`): a receive buffer of 6 MB takes some 100 as a network card
/// merges them, and 4,000 where none are merged. More: not measured, and counted.
pub const ARRIVALS_MAX: usize = 1_024;
/// Ports of `receive watch --port`. More: refused.
pub const WATCH_PORTS_MAX: usize = 64;
/// How long `receive watch --for` may watch, in seconds. More: refused, since a page is told each second without it.
pub const WATCH_S_MAX: u64 = 86_400;
/// Threads that `receive guard` knows at once: those in a turn, or in debt. More: no turn for them, and counted.
pub const GUARDED_MAX: usize = 1_024;
/// From this debt on, microseconds, a thread pays: a turn takes some tens of microseconds, and how much a thread has run is
/// told by the kernel to a tick.
pub const PAID_FROM_US: u64 = 4_000;
/// How often those who pay are looked at, in milliseconds: one who has paid may pay so long in excess.
pub const PAID_LOOK_MS_MAX: u64 = 20;
/// Bytes of the ring of events (`EVENTS_BYTES_MAX`), 40 and 8 each. Full: the event is lost, and counted; a turn whose end
/// is lost is cut.
pub const EVENTS_BYTES_MAX: usize = 65_536;
/// Events that are taken from that ring at once: more than it holds. More: lost; a turn whose end is lost is cut.
pub const EVENTS_MAX: usize = EVENTS_BYTES_MAX / 8;
/// Cores of a machine on which `receive guard --exact` runs (`CORES_MAX`), a queue each. More: refused.
pub const CORES_MAX: usize = 256;
