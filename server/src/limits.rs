//! Bounds of the shells, each with its reason and its consequence; those of the data path are in `core/src/limits.rs`.

use std::time::Duration;

/// Bytes of a configuration file. More: it is refused; a file of one server has a few KiB.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Errors of a configuration that are reported at once. More: they are shown after these are mended.
pub const CONFIG_ERRORS_MAX: usize = 20;
/// Values of one list in the configuration. More: the list is refused.
pub const LIST_LEN_MAX: usize = 256;

/// Devices (sets of disks) that get a slot of their own. More: the later ones share the last slot and its disk thread.
pub const DEVICES_MAX: usize = 16;
/// Other nodes of a cluster: the bytes that each sends are a device, and files need slots as well. More: the start is refused, or a
/// node that etcd lists is left out.
pub const PEERS_MAX: usize = DEVICES_MAX * 3 / 4;
/// A directory with more names, `.` and `..` among them, is read in a long job: it takes a thread for more than some
/// milliseconds. More: look-ups wait that long for each listing before them. Fewer: more listings have to share a
/// quarter of the threads.
pub const SHORT_LISTING_NAMES_MAX: usize = 2_000;
/// Bytes of the page cache that are copied at once: a piece that fits in the processor's cache.
pub const COPIED_BYTES_MAX: usize = 64 << 10;
/// How long a worker may take to end once the drain is over: it cuts off all connections in one turn. Longer: it hangs, and
/// the process ends with an error.
pub const WORKERS_LATE_MAX: Duration = Duration::from_secs(5);
/// How long the process waits for them. Longer: it ends with an error, and the kernel waits on.
pub const LAST_READS_WAIT: Duration = Duration::from_secs(30);
/// Completions of disks that a worker takes in one turn, each a fraction of a microsecond. More: the next turn takes
/// them.
pub const COMPLETIONS_PER_TURN_MAX: usize = 1024;
/// Connections that a worker looks at in one turn for the division of send memory, some 2 us each. More: its next turn
/// goes on.
pub const READINGS_PER_TURN_MAX: usize = 128;
/// Shares that a worker takes in one turn, a system call each, of a microsecond. More: the next turn takes them.
pub const GRANTS_PER_TURN_MAX: usize = 256;
/// What workers have told the divider and it has not heard yet. More: a connection that joins keeps its start share until
/// the next second, and so do those of a piece that was lost.
pub const REPORTS_MAX: usize = 4096;
/// Questions of operators that are answered in one turn: a census of all connections takes a fraction of a millisecond.
/// More: the next turn takes them.
pub const QUESTIONS_PER_TURN_MAX: usize = 4;
/// Results of resolvers that are turned into responses in one turn, some 10 us each. More: the next turn takes them.
pub const RESULTS_PER_TURN_MAX: usize = 16;
/// Cached responses that are evicted at once when the process is out of descriptors or memory. More: the next failure
/// evicts more.
pub const RESPONSES_SHED_MAX: usize = 1024;
/// How long a cached response is used after its file was found, microseconds. Then the next request finds the file anew, and
/// with it what a look at the file does not show: a new precompressed sibling or index file, a link to a hidden name, a write
/// through mmap. The Date of the head is no older than that, either. The kernel hardly forgets a name so soon, and a look at one that it
/// has forgotten waits for the disk.
pub const CACHED_FRESH_US: u64 = 1_000_000;
/// Memory of one worker, whatever its memory for responses, to remember which paths were requested once.
pub const RESPONSE_CACHE_TABLES_BYTES: u64 = 33 << 10;
/// Texts of a response that are sent in one call: a head and a body, or the last boundary of several ranges. More: a
/// further call.
pub const TEXTS_MAX: usize = 4;
/// Connections that may wait to be accepted. The kernel takes the smaller of this and net.core.somaxconn; a client
/// beyond it tries again after a second.
pub const BACKLOG: i32 = 4096;

/// How long a start waits for a port that is in use: a server that is told to stop closes its listeners within
/// [`DRAIN_SILENT_US`](ackpace_core::limits::DRAIN_SILENT_US) and a little. Longer: the start fails.
pub const BIND_WAIT_MAX: Duration = Duration::from_secs(2);
/// Connections in a worker's hand-over queue, more than there are workers. If there is no room for one of each worker, the
/// others keep theirs.
pub const HANDED_MAX: usize = 256;
/// Threads of one device for reads through the page cache, and for all where io_uring is refused. More reads: they
/// wait.
pub const READERS_MAX: usize = 8;
/// Slices of the pool in one send. More: a further call.
pub const SLICES_MAX: usize = 64;
/// Files that are read for departed clients (`cancel` off). More: the oldest is closed.
pub const UNCANCELLED_FILES_MAX: usize = 4096;
/// Workers that `auto` starts: one for each core, and not more than this.
pub const WORKERS_MAX: u16 = 64;
/// Connections for which a worker is expected to have memory and descriptors. Less of either: the server starts, and says so.
pub const CONNECTIONS_COMMON: u64 = 1024;
/// `memory_max` below this is little: caches and listings have a sixteenth of it each, otherwise an eighth.
pub const MEMORY_LITTLE_BYTES: u64 = 128 << 20;
/// Hundredths of a cgroup's limit that `memory_max` is by default. The rest is for sockets, for the page cache, and for
/// the kernel's memory of files: with a tenth of 128 MB left to these, shared files are read twice.
pub const CGROUP_PERCENT: u8 = 75;
/// The same of a whole machine: others use it too, and the page cache serves files without any of the server's memory.
pub const MACHINE_PERCENT: u8 = 25;
/// Connections below which a worker is not worth starting. Less memory: the start is refused.
pub const CONNECTIONS_MIN: u32 = 16;
/// Open descriptors that are not connections or files of responses: listeners, wakers, logs, disk threads.
pub const DESCRIPTORS_OWN: u64 = 64 + (DEVICES_MAX * (2 + READERS_MAX)) as u64;

/// Descriptors that a start opens besides those of workers and places to listen at: standard ones, root, signals, logs, admin
/// socket, metrics, the service manager's socket, a disk, and what is open for a moment. Fewer: the start is refused.
pub const DESCRIPTORS_START: u64 = 24;
/// The same of one worker: epoll, waker.
pub const DESCRIPTORS_PER_WORKER: u64 = 2;

/// Characters of a path in a line of the log. More: it ends in `…`, since the line has more to tell and a bound of its own.
pub const LOGGED_PATH_MAX: usize = 200;

/// Clients at once of the port for metrics, and as many of the admin socket. More: the oldest one makes room.
pub const CONTROL_CLIENTS_MAX: usize = 32;
/// Bytes of the head of a request for metrics. More: 431.
pub const SCRAPE_HEAD_BYTES_MAX: usize = 4 << 10;
/// How long a request for metrics and its answer may take. More: the connection closes.
pub const SCRAPE_MAX: Duration = Duration::from_secs(10);
/// Bytes of one line of the admin socket. More: it is refused and the connection closes.
pub const QUESTION_BYTES_MAX: usize = 512;
/// Time between two lines of the admin socket. More: the connection closes.
pub const QUESTION_IDLE_MAX: Duration = Duration::from_secs(60);
/// How long the control thread waits for the answers of all workers. More: it answers without those that hang.
pub const WORKER_ANSWER_MAX: Duration = Duration::from_millis(500);
/// Decisions in one answer to `ackpace why`: enough to understand, little enough to read. More: the last ones.
pub const DECISIONS_SHOWN_MAX: usize = 64;
/// The fastest connections in one answer to `ackpace top N`, and system calls to describe them. More: they are only
/// counted.
pub const TOP_CONNECTIONS_MAX: usize = 256;
/// Bytes of answers that clients of the control thread have not taken yet. More: the oldest such client is dropped.
pub const CONTROL_HELD_BYTES_MAX: usize = 2 << 20;

/// How long a file with a new time and its old length may be about to grow, microseconds; a writer needs a few. Until
/// then it is checked again. Longer: it was changed in place, and the response ends.
pub const UNSETTLED_US: u64 = 1000;

/// Connections of an NFS thread, if memory has room for them: more than clients open (`nconnect`). More: the one that has been idle
/// for longest makes room, or the client waits.
pub const NFS_CONNECTIONS_MAX: u32 = 256;
/// The same at least, whatever else memory is for. Less memory: the start is refused.
pub const NFS_CONNECTIONS_MIN: u32 = 8;
/// Input of a connection that was received and not taken. More: it waits in the socket.
pub const NFS_INPUT_BYTES_MAX: usize = 16 << 10;
/// Payload of WRITEs of one connection in memory: four of the longest, while the disk takes some and more come. More: it waits in its
/// socket.
pub const NFS_PAYLOAD_BYTES_MAX: u64 = 4 << 20;
/// The same of all connections of an NFS thread. More: it waits in their sockets.
pub const NFS_PAYLOADS_BYTES_MAX: u64 = 12 << 20;
/// A connection that brings less than [`NFS_STALL_BYTES`] of a WRITE's payload in so long, while memory is held for it, is closed,
/// microseconds. Shorter: clients behind a bad link are cut; longer: one that is gone keeps the others from writing.
pub const NFS_STALL_US: u64 = 30_000_000;
/// The same: 70 kbit/s, or the rest of a payload. Less: a few dozen connections that drip keep all others from writing.
pub const NFS_STALL_BYTES: u64 = 256 << 10;
/// The longest reply of most procedures, without names: those with attributes of two folders. More would still be sent; fewer calls
/// are taken at once.
pub const NFS_REPLY_BYTES: u32 = 512;
/// Orders of one connection in one turn, some microseconds each. More: the others have their turn first.
pub const NFS_ORDERS_PER_TURN_MAX: usize = 256;
/// Bytes that one connection is sent in one turn. More: the others have their turn first.
pub const NFS_SENT_PER_TURN_MAX_BYTES: u64 = 4 << 20;
/// Clients of NFS that are accepted in one turn at each listener. More: the next turn takes them.
pub const NFS_ACCEPTS_PER_TURN_MAX: usize = 64;
/// How often connections are looked at that nothing else wakes, microseconds. Longer: timeouts are that late.
pub const NFS_LOOK_EACH_US: u64 = 1_000_000;
