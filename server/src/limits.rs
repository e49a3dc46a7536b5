//! Bounds of the shells, each with its reason and its consequence; those of the data path are in `core/src/limits.rs`.

use std::time::Duration;

/// Bytes of a configuration file. More: it is refused; a file of one server has a few KiB.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a configuration file up to which all syntax errors are reported. More: only the first one is, since each
/// error costs memory and a file made of errors holds one a byte.
pub const CONFIG_RECOVER_BYTES_MAX: usize = 64 << 10;
/// Errors of a configuration that are reported at once. More: they are shown after these are mended.
pub const CONFIG_ERRORS_MAX: usize = 20;
/// Values of one list in the configuration. More: the list is refused.
pub const LIST_LEN_MAX: usize = 256;

/// Parts of an extension without quotes (`types.tar.gz`) that an error puts together again. More: it shows another example.
pub const EXTENSION_PARTS_MAX: usize = 8;

/// Devices (sets of disks) that get a slot of their own. More: the later ones share the last slot and its disk thread.
pub const DEVICES_MAX: usize = 16;
/// One device slot for so much of `memory_max`, bytes, since each costs threads and tables. Less memory: fewer slots,
/// two at least.
pub const DEVICE_EACH_BYTES: u64 = 16 << 20;
/// Mounted file systems whose device is remembered, 40 bytes each. More: all are forgotten, and met again when they are used.
pub const FILE_SYSTEMS_MAX: usize = 1024;
/// Disks below one file system that are told apart. More: its device counts as unknown.
pub const LEAVES_MAX: usize = 64;
/// Layers of dm and md between a file system and its disks. More: as above.
pub const LAYERS_MAX: usize = 8;
/// Pieces of memory in one system call (UIO_MAXIOV). More: a further call reads or sends the rest.
pub const IOVECS_MAX: usize = 1024;
/// Retries of a read that was interrupted, or for which the kernel has no memory now. More: the read failed.
pub const READ_RETRIES_MAX: u32 = 64;
/// Files of a file system that wait to be closed, or an eighth of the descriptors. More: its disk hangs, and requests
/// for further ones get 503.
pub const CLOSING_MAX: usize = 1024;
/// If none of these was closed for so long, milliseconds, requests wait; otherwise there are only many.
pub const CLOSING_STANDS_MS: u64 = 200;
/// If none of these was closed for so long, the disk hangs: requests get 503.
pub const CLOSING_HANGS_MS: u64 = 1200;
/// Threads that close files, each for some file systems.
pub const CLOSING_LANES: usize = 16;
/// How long these threads collect files after they have closed some, so that closing does not wake one for each file. Longer:
/// a deleted file keeps its space. Shorter: a file that is asked for each second, and looked up each time, wakes one.
pub const CLOSING_REST: Duration = Duration::from_secs(3);
/// How often a request looks again that finds no descriptor left, or a lease on its file.
pub const CLOSING_EACH: Duration = Duration::from_millis(5);
/// Waits, of [`CLOSING_EACH`] each, of a request that finds no descriptor left, or too many files waiting, while files
/// may be closed soon: a second. More: it gets 503.
pub const CLOSING_WAITS_MAX: usize = 200;
/// Waits, of [`CLOSING_EACH`] each, for a program that has a lease on a file and was asked for it: a tenth of a second. More:
/// requests for files of one that keeps it take the threads of the others.
pub const LEASE_WAITS_MAX: usize = 20;
/// A directory with more names, `.` and `..` among them, is read in a long job: it takes a thread for more than some
/// milliseconds. More: look-ups wait that long for each listing before them. Fewer: more listings have to share a
/// quarter of the threads.
pub const SHORT_LISTING_NAMES_MAX: usize = 2_000;
/// How often a thread looks whether the root is there. Longer: clients are told for so long that single files are not there,
/// or can't be read.
pub const ROOT_LOOK_EACH: Duration = Duration::from_secs(1);
/// Bytes of a file that are copied at once where the file system refuses sendfile(2), on the stack. More: in further pieces.
pub const COPY_BYTES: usize = 16 << 10;
/// Bytes of the page cache that are copied at once: a piece that fits in the processor's cache.
pub const COPIED_BYTES_MAX: usize = 64 << 10;
/// Calls that ask for the extents of one file, 64 extents each. More: the extents behind them are unknown.
pub const FIEMAP_CALLS_MAX: u32 = 16;
/// How long a piece of the first lines waits for room in the pipe that is standard output. Longer: nobody reads it, and the rest
/// is left out.
pub const GREETING_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a worker may take to end once the drain is over: it cuts off all connections in one turn. Longer: it hangs, and
/// the process ends with an error.
pub const WORKERS_LATE_MAX: Duration = Duration::from_secs(5);
/// How long the last reads may take when the process ends. Longer: the log says what the kernel waits for.
pub const LAST_READS_QUIET: Duration = Duration::from_secs(1);
/// How long the process waits for them. Longer: it ends with an error, and the kernel waits on.
pub const LAST_READS_WAIT: Duration = Duration::from_secs(30);
/// Interval at which they are checked.
pub const LAST_READS_LOOK_EACH: Duration = Duration::from_millis(10);
/// Pause before a retry of reads that the kernel had no memory to start.
pub const RING_RETRY: Duration = Duration::from_millis(10);
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
/// How long a thread of the pool rests before it tries again to add to a worker's full queue of results.
pub const RESULTS_FULL_EACH: Duration = Duration::from_millis(1);
/// Memory of the requests that wait for resolvers, less where memory is little; an ordinary one holds 300 bytes. More:
/// the request is answered 503.
pub const QUERIES_BYTES_MAX: u64 = 8 << 20;
/// Memory for the ranges of all responses beyond those that are common, less where memory is little: some 550 bytes each, 1 MB where they
/// fill a request head. More, or more than half of what is left of it for one: the whole file is sent.
pub const RANGES_BYTES_MAX: u64 = 16 << 20;
/// A path that can be opened (PATH_MAX). The kernel refuses longer ones.
pub const PATH_BYTES_MAX: usize = 4096;
/// Memory of a thread: the part of its stack that it uses, and what the allocator keeps for it.
pub const THREAD_BYTES: u64 = 32 << 10;
/// Memory of the program itself: its tables, the options, and small pieces that the allocator can't give back.
pub const PROGRAM_BYTES: u64 = 4 << 20;
/// Directories above an uncached name that are looked up in the kernel's caches: a search will wait for the device of
/// the first one found. More: it counts as that of the root.
pub const SEARCH_UP_MAX: usize = 8;
/// Memory for names that each listing gets at once, in bytes, however little memory there is: enough for a slice. More:
/// the directory is read again for the names that follow.
pub const PIECE_BYTES_MIN: usize = 8 << 10;
/// Retries of a name that changes while it is opened. More: at no one time is it there, so 404.
pub const RACES_MAX: u32 = 3;
/// Retries of a search for a name that races with renames elsewhere. More: 503, since it may be there.
pub const SEARCH_RETRIES_MAX: u32 = 1000;
/// Cached responses that are evicted at once when the process is out of descriptors or memory. More: the next failure
/// evicts more.
pub const RESPONSES_SHED_MAX: usize = 1024;
/// Evicted responses that are checked for being sent when a new one is cached: more than come in, so that none counts for
/// long after its last byte has left.
pub const LENT_CHECKED_MAX: usize = 2;
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
/// Buffers for request heads that a worker keeps for reuse. More: returned buffers are freed.
pub const HEAD_BUFFERS_KEPT_MAX: usize = 256;
/// Connections that may wait to be accepted. The kernel takes the smaller of this and net.core.somaxconn; a client
/// beyond it tries again after a second.
pub const BACKLOG: i32 = 4096;

/// How long a start waits for a port that is in use: a server that is told to stop closes its listeners within
/// [`DRAIN_SILENT_US`](ackpace_core::limits::DRAIN_SILENT_US) and a little. Longer: the start fails.
pub const BIND_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often it tries.
pub const BIND_EACH: Duration = Duration::from_millis(20);
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

/// Descriptors for which the kernel makes room at the start: 2 MiB of its memory. More: a worker may have to wait while
/// the kernel makes more.
pub const DESCRIPTORS_READY_MAX: u64 = 1 << 18;

/// Characters of a path in a line of the log. More: it ends in `…`, since the line has more to tell and a bound of its own.
pub const LOGGED_PATH_MAX: usize = 200;

/// How long a start waits for room in the service manager's queue. More: the log says so, and a thread tries as often.
pub const NOTIFY_MAX: Duration = Duration::from_secs(1);
/// How long that thread tries. More: the manager is not told, and the log says so.
pub const NOTIFY_LATE_MAX: Duration = Duration::from_secs(90);

/// Clients at once of the port for metrics, and as many of the admin socket. More: the oldest one makes room.
pub const CONTROL_CLIENTS_MAX: usize = 32;
/// `ackpace top` and `why` wait so long for a server whose admin socket takes nobody.
pub const ADMIN_CONNECT_MAX: Duration = Duration::from_secs(2);
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
/// How long `ackpace top` and `ackpace why` wait for an answer: far more than a server with hanging workers needs.
/// More: they say that it does not answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time between two censuses of all connections for the metrics; one of 16,000 takes a worker a fraction of a
/// millisecond. More scrapes: they see the same one.
pub const CENSUS_INTERVAL: Duration = Duration::from_millis(500);
/// Decisions in one answer to `ackpace why`: enough to understand, little enough to read. More: the last ones.
pub const DECISIONS_SHOWN_MAX: usize = 64;
/// The fastest connections in one answer to `ackpace top N`, and system calls to describe them. More: they are only
/// counted.
pub const TOP_CONNECTIONS_MAX: usize = 256;
/// Connections in one piece of an answer with all connections, some 2 us each of their worker's time. More: a further
/// piece, when the client has taken this one.
pub const TOP_PIECE_CONNECTIONS_MAX: usize = 32;
/// Bytes of such a piece, before its last connection. More: a further piece.
pub const TOP_PIECE_BYTES: usize = 64 << 10;
/// Bytes of an answer that `ackpace top` and `ackpace why` take, in their own memory: a million connections. More: it
/// is refused.
pub const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// Lines of a terminal that `ackpace top` uses, and characters of each. More: the rest stays empty.
pub const TERMINAL_LINES_MAX: usize = 1000;
/// Pause before the control thread accepts again when the process is out of descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of answers that clients of the control thread have not taken yet. More: the oldest such client is dropped.
pub const CONTROL_HELD_BYTES_MAX: usize = 2 << 20;
/// Bytes of one metrics page or one answer of the admin socket while it is made, roughly and at most: 64 workers, the
/// 256 fastest connections of all and those of one worker, or a piece of connections with long paths. Not enforced: the
/// content bounds it.
pub const CONTROL_ANSWER_BYTES: u64 = 1 << 20;
/// Folders of users below /tmp in which root's `ackpace top` looks for servers. More: name the socket by --admin.
pub const USER_FOLDERS_MAX: usize = 256;
/// Abandoned sockets of earlier servers that one start removes. More: the next start goes on.
pub const STALE_SOCKETS_MAX: usize = 256;

/// Lines that wait for the thread of a log. The thread rests 20 ms at most, so this carries 400,000 lines a second.
/// More: they are dropped, counted and reported.
pub const LOG_QUEUE_LINES_MAX: usize = 8 << 10;
/// Bytes that these lines may hold, less where memory is little. A line of the access log holds some 300 bytes, and up
/// to 14 KB if a client wants it. More: lines are dropped, counted and reported.
pub const LOG_QUEUE_BYTES_MAX: u64 = 8 << 20;
/// Bytes of lines after which a batch is written: so many that the cost of the system call does not matter.
pub const LOG_BATCH_BYTES: usize = 64 << 10;
/// Bytes of one line of the diagnostics. More: the line is cut. (The bound of the access log is in wire.)
pub const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// How long the thread of a log rests after a batch, and so the delay of a line.
pub const LOG_REST: Duration = Duration::from_millis(20);
/// A log whose reader takes nothing is looked at so often.
pub const LOG_STUCK_LOOK_EACH: Duration = Duration::from_millis(500);
/// Time between two reports of dropped lines, and of what many clients cause at once: often enough to act, too seldom to flood the log.
pub const LOG_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Kinds of such lines, and files, of which the last line is remembered, so that each has one in [`LOG_REPORT_INTERVAL`].
/// More: the others share one line of each kind.
pub const LOG_SELDOM_MAX: usize = 64;
/// How long a stop waits for a log to be written. More: the rest is lost, since a stuck pipe must not keep the server
/// from stopping.
pub const LOG_STOP_MAX: Duration = Duration::from_secs(2);

/// How long a file with a new time and its old length may be about to grow, microseconds; a writer needs a few. Until
/// then it is checked again. Longer: it was changed in place, and the response ends.
pub const UNSETTLED_US: u64 = 1000;
