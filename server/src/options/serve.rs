//! The options of `ackpace serve`, one by one: what `--help` and the manual page say of each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ackpace_core::limits::CONNECTIONS_MAX;
use clap::ValueHint;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::{
    AdminAt, ClusterOptions, Compare, CongestionControl, FollowSymlinks, IscsiOptions, Listen,
    LogFormat, LogLevel, LogTarget, MetricsAt, NfsOptions, SendMemory, Sibling, Size, TypeOverride,
    UnixMode, Workers, duration, names, size, value,
};

const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// All options of `ackpace serve`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "What to serve")]
pub struct ServeOptions {
    /// Directory or file to serve, or the URL of an origin
    ///
    /// With a URL the server is a gateway, a cache in front of that origin: docs/gateway.md. The origin is another HTTP server
    /// (`http://mirror.example/pub`), or a bucket of Amazon S3 or of a store like it (`s3://bucket/prefix`).
    ///
    /// A directory is served as it is: `GET /a/b` sends the file `a/b` in it. A single file is served under the name that
    /// is given here, also where that is a link, and `/` leads to it. The directory is opened once at the start;
    /// replacing it later needs a restart, but a file or a link in it may be replaced. Its file system can't be unmounted
    /// while it is served. A relative path starts at the current directory, also when it is given in a configuration
    /// file.
    ///
    /// Default: the current directory, so that `ackpace` alone shares what you are looking at with this machine.
    /// Range: a directory or regular file that can be read, or an http, https or s3 URL. A directory whose name looks like a URL
    /// is `./NAME`.
    #[arg(value_name = "DIR|FILE|URL", default_value = ".", value_hint = ValueHint::AnyPath,
          value_parser = OsStringValueParser::new().try_map(names::root))]
    pub root: PathBuf,

    /// File to send for a directory
    ///
    /// The first of these names that exists in a requested directory is sent in place of a listing. Repeat the option
    /// for several names; they are tried in order. An empty list (`--index=`) turns this off. A gateway to a bucket does the
    /// same for a path that ends with a slash; other origins choose index files themselves.
    ///
    /// Default: what web servers agree on. Range: at most 256 names of files, without `/`.
    #[arg(long, value_name = "NAME", default_values = ["index.html"], value_parser = names::file_name)]
    pub index: Vec<String>,

    /// List directories that have no index file
    ///
    /// With `--listing=false`, a request for such a directory gets 403, so that only clients who know a name get the file. A
    /// listing is sent in slices, so a directory of any size costs little memory.
    ///
    /// Default: on, since people who start a server by hand want to look through it. Range: true or false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true",
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = value::boolean)]
    pub listing: bool,

    /// Which symbolic links to follow
    ///
    /// `inside` follows a link whose target lies inside the root or in one of `allow_roots`, absolute links too; `all`
    /// follows every link, wherever it leads; `none` follows no link. A link that is not followed gets 404. Links
    /// in /proc that lead to open files of a process are never followed.
    ///
    /// Default: `inside`, since links within a tree are part of it, and a link that leaves it is more often a mistake
    /// than intended. Range: inside, all or none.
    #[arg(long, value_name = "WHICH", default_value = "inside")]
    pub follow_symlinks: FollowSymlinks,

    /// Outer directory that links may lead to
    ///
    /// With `follow_symlinks = "inside"`, links that end in one of these directories are followed too. The directories
    /// themselves are not listed or reachable in any other way. Repeat the option for several.
    ///
    /// Default: none. Range: at most 256 directories.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub allow_roots: Vec<PathBuf>,

    /// Names to answer with 404 and not to list
    ///
    /// A pattern is matched with every name of a path: `.git` hides `/.git/config` and `/a/.git/config`. `*` stands
    /// for any characters, `?` for one; upper and lower case differ. The real name of a link's target is matched too,
    /// and so are index files, precompressed siblings and entries of listings. Giving this option replaces the default
    /// list: repeat what you want to keep. An empty list (`--hide=`) hides nothing.
    ///
    /// Default: what is in a served directory by accident and holds secrets: version control, environment files,
    /// Apache's own files, passwords, keys and histories of a home directory, what Emacs and Vim leave behind, and the
    /// half files that rsync keeps with `--delay-updates` (`.~tmp~`) or `--partial-dir=.rsync-partial`. Other dot files,
    /// such as `.well-known`, are served. So are rsync's temporary names (`.film.mkv.Xa3b9Q`), as honest ones may look
    /// the same (`.index.sha256`): add `.*.??????` where you have none of these. The list is no fence: a home directory
    /// has more secrets than it names. Serve a directory that is for others. A gateway hides nothing that its origin serves.
    /// Range: at most 256 patterns of 1 to 255 bytes, without `/`.
    #[arg(long, value_name = "PATTERN", value_parser = names::pattern,
          default_values = [".git", ".hg", ".svn", ".env*", ".ht*", ".git-credentials", ".netrc", ".*_history", ".ssh", ".gnupg", ".aws",
                            ".docker", ".kube", "*~", ".*.sw?", ".#*", "#*#", ".rsync-partial"])]
    pub hide: Vec<String>,

    /// Compressed siblings to send if accepted
    ///
    /// With `.zst`, a request for `page.html` by a client that accepts zstd is answered with `page.html.zst`, if that
    /// file exists. The response says so in Content-Encoding and Vary and has an ETag of its own. Nothing is compressed
    /// while it is served. Repeat the option for several.
    ///
    /// Default: none, since each entry costs a look-up of the sibling at every request, and a sibling that is older
    /// than its file would be wrong. Range: .zst, .br and .gz.
    #[arg(long, value_name = "SUFFIX")]
    pub precompressed: Vec<Sibling>,

    /// Media type for an extension, as EXT=TYPE
    ///
    /// Overrides the built-in table. In the configuration file this is a table: `types = { md = "text/markdown" }`.
    /// An extension may have dots inside (`tar.gz`; quote it in the file) and matches in upper and lower case.
    /// Repeat the option for several.
    ///
    /// Default: none; the built-in table knows about 1,000 extensions, and what is unknown is
    /// `application/octet-stream`. Range: at most 256 extensions of 1 to 64 bytes; media types of at most 255 bytes.
    #[arg(long, value_name = "EXT=TYPE", value_parser = TypeOverride::parse)]
    pub types: Vec<TypeOverride>,

    /// One more origin with the same content
    ///
    /// The first origin that works is asked. When it fails, the next one is, also in the middle of a response, if it has the
    /// same version (ETag, or Last-Modified and length). Repeat the option for several. The first one may stand in place of
    /// the directory.
    ///
    /// Default: none. Range: at most 16 http and https URLs without user, query and fragment, or s3 URLs.
    #[arg(long, value_name = "URL", help_heading = "Gateway")]
    pub origin: Vec<String>,

    /// Where the buckets of `s3://` are
    ///
    /// The URL of an object store with the interface of Amazon S3, such as MinIO (`http://127.0.0.1:9000`) or Google's
    /// (`https://storage.googleapis.com`); the name of the bucket stands in its paths. The region is that of AWS_REGION or
    /// AWS_DEFAULT_REGION, or else us-east-1.
    ///
    /// Default: `auto`, which is Amazon: `https://BUCKET.s3.REGION.amazonaws.com`. Range: an http or https URL without user,
    /// query and fragment. Or auto.
    #[arg(long, value_name = "URL", default_value = "auto", help_heading = "Gateway")]
    pub s3_endpoint: String,

    /// File with the credentials for `s3://`
    ///
    /// Lines `aws_access_key_id = ...`, `aws_secret_access_key = ...` and, for temporary credentials,
    /// `aws_session_token = ...`, as in `~/.aws/credentials`; of several sections, `[default]`. It is read at the start.
    ///
    /// Default: `auto`, the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without these, requests
    /// are not signed, as public buckets allow. Range: a file of at most 64 KiB that can be read. Or auto.
    #[arg(long, value_name = "FILE", default_value = "auto", value_hint = ValueHint::FilePath, help_heading = "Gateway",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub s3_credentials_file: PathBuf,

    /// Memory for payload of origins, targets and other nodes
    ///
    /// Bytes that several clients want are kept here in the form in which they leave, and are sent without a copy. This memory is
    /// part of `memory_max`. Without an origin, `iscsi` or a cluster none is taken.
    ///
    /// Default: `auto`, half of `memory_max`, or an eighth in a cluster. Range: 16MiB or more, or 1% to 90%. Or auto. Memory: this much.
    #[arg(long, value_name = "SIZE", default_value = "auto", help_heading = "Gateway",
          value_parser = |text: &str| size::auto_or_within(text, 16 << 20, 90))]
    pub cache_memory: Size,

    /// Directory of a tmpfs for payload of origins
    ///
    /// Mount it with huge pages (`mount -t tmpfs -o huge=always`), or payload is copied when it is sent. No file is left behind
    /// there.
    ///
    /// Default: `auto`, a tmpfs of the server's own. Root can make one, and other users where the kernel lets them make user
    /// namespaces; a systemd unit with RestrictNamespaces= does not. Range: a directory of a tmpfs in which this user may create files. Or auto.
    #[arg(long, value_name = "DIR", default_value = "auto", value_hint = ValueHint::DirPath, help_heading = "Gateway",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub slab_dir: PathBuf,

    /// Directory in which payload of origins is kept
    ///
    /// What several clients want is written here, too, and read from here when it has left memory, also after a restart. The
    /// directory is made if it is missing; one that is there must be the server's alone (`chmod 700`), on ext4, XFS or btrfs. One
    /// server uses it at a time. Its files are copies: remove them as you like while the server is stopped. Other files in it are
    /// left alone.
    ///
    /// Default: `off`, so that a restart begins with nothing. Range: a directory of this user, to which no other may write. Or off.
    #[arg(long, value_name = "DIR", default_value = "off", value_hint = ValueHint::DirPath, help_heading = "Gateway",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub cache_dir: PathBuf,

    /// How much of its disk `cache_dir` may take
    ///
    /// What was kept first leaves first, unless it was read lately. A percentage is of the file system's size. Remembering the
    /// files takes 160 bytes of `memory_max` for each MiB, and at most a 32nd of it.
    ///
    /// Default: `auto`, a tenth of the file system's size, so that a disk with other users stays usable. Range: 16MiB or
    /// more, or 1% to 90%. Or auto.
    #[arg(long, value_name = "SIZE", default_value = "auto", help_heading = "Gateway",
          value_parser = |text: &str| size::auto_or_within(text, 16 << 20, 90))]
    pub cache_size: Size,

    /// Where to listen; repeat it for several
    ///
    /// `8080` or `127.0.0.1:8080`: this machine only. `:8080`: every address of the machine, IPv4 and IPv6.
    /// `192.0.2.1:80`, `[2001:db8::1]:80`, `0.0.0.0:80` and `[::]:80`: just that address (`[::]` without IPv4).
    /// `[fe80::1%eth0]:80`: a link-local address needs its interface, by name or number.
    /// `localhost:8080` means 127.0.0.1; other names are not looked up. `unix:PATH`: a unix socket. `fd:3`: a listening
    /// socket that was inherited, as from systemd. Port 0 lets the kernel choose; the choice is printed.
    ///
    /// Default: this machine only, so that a server started by hand shares nothing with strangers. Range: 1 to 256
    /// places, all different.
    #[arg(short, long, value_name = "ADDR", default_values = ["127.0.0.1:8080"], help_heading = "Listening",
          value_parser = OsStringValueParser::new().try_map(|text| Listen::parse(&text)))]
    pub listen: Vec<Listen>,

    /// Mode of unix sockets in octal, or umask
    ///
    /// Connecting to a unix socket needs the right to write it. With `umask`, that is what the umask of the process
    /// leaves: with 022, the usual one, only the server's own user may connect. `666` lets every user of the machine
    /// connect, as nginx and systemd make their sockets; `660` the user and the group of the server. An inherited
    /// socket (`fd:3`) keeps its mode, and the folder of the socket can be closed to others all the same.
    ///
    /// Default: `umask`, so that nobody is let in whom nobody named. Range: umask, or 000 to 777.
    #[arg(long, value_name = "MODE", default_value = "umask", help_heading = "Listening", value_parser = UnixMode::parse)]
    pub unix_mode: UnixMode,

    /// Memory of all sockets: kernel, a size or %
    ///
    /// With `kernel`, the kernel tunes each socket, and gives it what it asks for until memory is gone. A size bounds the
    /// payload in all sockets together, unsent and in flight. Each second the server divides it anew by need: a connection
    /// gets what it can use by its losses, its shortest round trip and its client's pace. So a fast client beside slow ones
    /// gets several times its equal share. That is for where memory is short; where it is not, clients are faster with
    /// `kernel`. A path whose round trips vary by half gets little of a short pool. A connection that joins has
    /// 14 KiB or less beyond that size, for a tenth of a second at most, until the memory is divided anew. There is room for as
    /// many connections as have two segments (2.8 KiB) each; more wait in the listen backlog. Unix sockets are not bounded. The kernel grants a share above twice `net.core.wmem_max` only to a server with CAP_NET_ADMIN.
    ///
    /// Default: `kernel`, since memory is seldom short. Range: 16KiB or more, or 1% to 90%, or kernel.
    /// Memory: this much of the kernel's.
    #[arg(long, value_name = "SIZE", default_value = "kernel", help_heading = "Sending", value_parser = SendMemory::parse)]
    pub send_memory: SendMemory,

    /// Congestion control, of all listeners or one
    ///
    /// `NAME` sets it for the connections of all listeners, `ADDR=NAME` for those of the listener at that address,
    /// written as with `listen`. Repeat the option for several. The server does not start with a congestion control
    /// that the kernel lacks or does not allow it: root, and who has CAP_NET_ADMIN, may use all that are there, others
    /// those in `net.ipv4.tcp_allowed_congestion_control`. `ackpace doctor` lists them.
    ///
    /// Default: none, so that the system's (`net.ipv4.tcp_congestion_control`) is used. Range: at most 256 names of
    /// congestion controls.
    #[arg(long, value_name = "NAME", help_heading = "Sending",
          value_parser = OsStringValueParser::new().try_map(|text| CongestionControl::parse(&text)))]
    pub congestion_control: Vec<CongestionControl>,

    /// Access log: off, - (stdout) or a file
    ///
    /// `-`, or `/dev/stdout`, is standard output, where the lines of the start are, too. A missing file is created with mode 640; lines are
    /// appended. A log that cannot keep up loses lines, and the server's messages say so; it never delays a response. `./off`
    /// and `./-` name files called `off` and `-`. A relative path starts at the current directory, also when it is given in a
    /// configuration file; `ackpace check` prints what it became.
    ///
    /// Default: off, since a log that nobody rotates fills a disk. Range: off, - or a path.
    #[arg(long, value_name = "FILE", default_value = "off", value_hint = ValueHint::FilePath, help_heading = "Logging",
          value_parser = OsStringValueParser::new().try_map(LogTarget::parse))]
    pub access_log: LogTarget,

    /// Lines of the access log
    ///
    /// Every tool for the logs of Apache and nginx reads `combined` and `common`. `json` adds what arrived at the
    /// client and what the response waited for; docs/access-log.md explains the fields.
    ///
    /// Default: `combined`, as most tools expect it. Range: combined, common or json.
    #[arg(long, value_name = "FORMAT", default_value = "combined", help_heading = "Logging")]
    pub access_log_format: LogFormat,

    /// Messages on standard error
    ///
    /// Each level includes those before it: `error`, `warn`, `info`, `debug`.
    ///
    /// At `info` are start and stop, whatever goes wrong, and how disks are read: a line when a disk is first read, and one
    /// when its target, the time that reads are to last, has halved or doubled. What many clients cause at once is
    /// told once in 10 s, with a count (`times=39`). `debug` has a line for each connection.
    ///
    /// Default: `info`, which has no line for a request. Range: error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Logging")]
    pub log_level: LogLevel,

    #[command(flatten)]
    pub nfs_options: NfsOptions,

    #[command(flatten)]
    pub iscsi: IscsiOptions,

    #[command(flatten)]
    pub cluster: ClusterOptions,

    /// Where metrics are served: off or ADDR
    ///
    /// `/metrics` is OpenMetrics (or Prometheus' text format), `/healthz` says that the process lives, `/readyz` that
    /// it takes new clients: 503 while it is stopping, or if the directory that it serves is not there. The origins of a
    /// gateway are not asked. An address is written as with `--listen`; there is no TLS and no password, so keep it to this machine or a network that you
    /// trust. A scrape wakes each worker once. docs/operating/metrics.md lists the metrics.
    ///
    /// Default: off, as a port that nobody asked for is one too many. Range: off, or a TCP address.
    #[arg(long, value_name = "ADDR", default_value = "off", help_heading = "Watching",
          value_parser = OsStringValueParser::new().try_map(MetricsAt::parse))]
    pub metrics: MetricsAt,

    /// For `ackpace top`: auto, off or PATH
    ///
    /// A unix socket by which `ackpace top`, `why`, `cache status` and `cluster status` look inside. All that it can change is what a
    /// gateway keeps (`ackpace cache purge`) and which nodes take requests (`ackpace cluster drain`). Its mode is 600: only the user
    /// of the server, and root, may use it. `auto` names the socket after the process and puts it where these commands look: in the folder that systemd gives (RuntimeDirectory), in $XDG_RUNTIME_DIR/ackpace,
    /// for root in /run/ackpace, else in a folder of the user in $TMPDIR or /tmp. `./off` names a file called `off`.
    ///
    /// Default: `auto`, so that a server can be asked when it is needed. Range: auto, off, or a path of at most 107
    /// bytes.
    #[arg(long, value_name = "PATH", default_value = "auto", value_hint = ValueHint::FilePath, help_heading = "Watching",
          value_parser = OsStringValueParser::new().try_map(AdminAt::parse))]
    pub admin: AdminAt,

    /// Time to send the head of a request
    ///
    /// Counted from the first byte of the head, or from the start of the connection; then the server closes it. This
    /// bounds how long a client that sends one byte at a time can hold a connection. The rest of a request's body has
    /// as much time after the response.
    ///
    /// Default: a head fits in a packet or two, and 10 s survives several lost ones. Range: 100ms to 10min.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Time limits",
          value_parser = |text: &str| duration::within(text, 100..=10 * MINUTE_MS))]
    pub header_timeout: Duration,

    /// Time to keep an idle connection
    ///
    /// Counted from the end of a response to the first byte of the next request. A new connection has the header timeout.
    /// An idle connection holds no buffer, and ends earlier where its place is needed (connections, memory, descriptors).
    ///
    /// Default: as nginx has it; browsers close after one to five minutes themselves. Range: 100ms to 24h.
    #[arg(long, value_name = "TIME", default_value = "75s", help_heading = "Time limits",
          value_parser = |text: &str| duration::within(text, 100..=24 * HOUR_MS))]
    pub idle_timeout: Duration,

    /// Time until a silent client is given up
    ///
    /// Counted while bytes are on the way and the client acknowledges nothing, not even the kernel's probes: it is
    /// gone, or its network is. A client that acknowledges but reads nothing falls under `pause_timeout`.
    ///
    /// Default: outlives a change of network or a short tunnel. Range: 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Time limits",
          value_parser = |text: &str| duration::within(text, SECOND_MS..=HOUR_MS))]
    pub send_timeout: Duration,

    /// Time a client may pause a download
    ///
    /// Counted while the client's window is closed but it answers the kernel's probes, as a player does that has
    /// buffered enough. Longer pauses end the connection; clients then resume with a range.
    ///
    /// Default: a paused player is not dead, and most people are back in ten minutes. Range: 1s to 24h.
    /// Memory: a paused connection holds its unsent send buffer for so long.
    #[arg(long, value_name = "TIME", default_value = "10min", help_heading = "Time limits",
          value_parser = |text: &str| duration::within(text, SECOND_MS..=24 * HOUR_MS))]
    pub pause_timeout: Duration,

    /// Time to finish responses when stopping
    ///
    /// After SIGTERM or SIGINT the server answers the requests that have arrived, on connections that still wait to be
    /// accepted, too. Then it accepts no more, and closes idle ones at once. Responses under way go on for this time;
    /// then the server cuts off what is left. A second signal cuts off at once. With `0s` it waits for nothing.
    ///
    /// Default: under the 90 s after which systemd kills a service. Range: 0s to 24h.
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "Time limits",
          value_parser = |text: &str| duration::within(text, 0..=24 * HOUR_MS))]
    pub drain_timeout: Duration,

    /// Slowest client, in bytes a second; 0: any
    ///
    /// Measured over 60 s in which there was something to send and the client's window was open. It keeps clients that
    /// acknowledge a byte now and then from holding connections for ever.
    ///
    /// Default: far below the worst real link (a modem of 1985 did 120), far above an attack that costs nothing.
    /// Range: 0 to 1000000.
    #[arg(long = "rate-min", value_name = "BYTES", default_value = "100", help_heading = "Time limits",
          value_parser = |text: &str| value::whole(text, 0..=1_000_000))]
    pub rate_min_bytes_per_s: u64,

    /// Threads that serve connections, or auto
    ///
    /// Each worker has its own listening socket and its own connections. `auto` is one for each core that the affinity
    /// mask and the cgroup's quota leave.
    ///
    /// Default: `auto`; more workers than cores gain nothing, since a worker never waits for a disk. Range: 1 to 64, or
    /// "auto".
    #[arg(long, value_name = "N", default_value = "auto", value_parser = Workers::parse, help_heading = "Resources")]
    pub workers: Workers,

    /// Connections of one worker at most
    ///
    /// A worker at this number gives new clients to one that has room. When all are full, the connection that has been idle
    /// for longest, a second at least, makes room. If all are busy, the listen backlogs hold new clients until one ends, and
    /// the log says so. The process needs as many descriptors, and one or two more a file.
    ///
    /// Default: what the memory bound of a worker is calculated for. Range: 1 to 16384. Memory: a few KiB for each
    /// open connection, and 16 KiB more while it sends the head of a request; `ackpace limits` adds it up.
    #[arg(long, value_name = "N", default_value = "16384", help_heading = "Resources",
          value_parser = |text: &str| value::whole(text, 1..=u64::from(CONNECTIONS_MAX)))]
    pub connections_max: u64,

    /// Connections of one address; 0: no limit
    ///
    /// Requests on further connections of the same address are answered 503, and these close. IPv6 addresses are
    /// counted by /64, since one customer usually has all of it; unix sockets are not counted. The limit holds for all
    /// workers together.
    ///
    /// Default: no limit, since thousands of people can share one address behind a carrier's NAT. Range: 0 to 16384.
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Resources",
          value_parser = |text: &str| value::whole(text, 0..=16_384))]
    pub connections_per_address: u64,

    /// Memory at most, as a size or %
    ///
    /// A size in B, KiB, MiB, GiB or TiB (K, M, G and T mean the same, in powers of 1024), or a percentage of the
    /// smaller of RAM and the cgroup's limit. `ackpace limits` shows how it is divided. The page cache is the kernel's
    /// and not counted. With `auto`, it is 75 % of a cgroup's limit where there is one, and a quarter of the machine's
    /// RAM otherwise. Too little: short reads and a slower disk. Too much: nothing gained, and less cache for files.
    ///
    /// Default: a cgroup's limit is this server's own, and what is left of it is enough for sockets and the page
    /// cache. Of a whole machine, most is left to the page cache, which serves files without any of the server's
    /// memory. The start needs some 24 MiB and 1.6 MiB for each worker: 27 MiB with two workers, 50 MiB with sixteen,
    /// and 5 to 9 MiB more with an access log.
    /// Range: 16MiB or more, or 1% to 90%. Or auto. Memory: this much, in the worst case.
    #[arg(long, value_name = "SIZE", default_value = "auto", help_heading = "Resources",
          value_parser = |text: &str| size::auto_or_within(text, 16 << 20, 90))]
    pub memory_max: Size,

    /// Memory for the response cache, 0 for none
    ///
    /// Hot files of up to 64 KiB are cached as complete responses, so that a response costs one or two system calls:
    /// short ones as copies, longer ones as open files. The server notices a changed file within a second. All workers
    /// share this memory in equal parts. It is never more than an eighth of `memory_max`, and a sixteenth where that is
    /// below 128 MiB.
    ///
    /// Default: enough for thousands of small files. Range: 0B or more, or 1% to 90%. Memory: this much.
    #[arg(long, value_name = "SIZE", default_value = "32MiB", help_heading = "Resources",
          value_parser = |text: &str| size::within(text, 0, 90))]
    pub object_cache: Size,

    /// Memory for what is read ahead of clients
    ///
    /// What one client alone downloads from a disk waits here until its socket takes it, and displaces nothing from
    /// the page cache. All of the disk's clients share it, each by its rate; several disks have equal parts. It is
    /// part of `memory_max`. With `auto` it is all of that which connections, heads, logs and caches do not use now,
    /// and they get it back when they want it. A size or a percentage bounds it, so that the rest stays unused.
    ///
    /// Default: memory that nobody else uses makes reads longer, and a slow disk faster; what is not needed is not
    /// taken. Range: 1MiB or more, or 1% to 90%. Or auto. Memory: this much at most.
    #[arg(long, value_name = "SIZE", default_value = "auto", help_heading = "Resources",
          value_parser = |text: &str| size::auto_or_within(text, 1 << 20, 90))]
    pub prefetch_memory: Size,

    /// Other designs, to measure against the server's own
    ///
    /// Each WHAT=HOW replaces a design of the server by that of a paper or of other servers. With `prefetch=paper,cancel=off`,
    /// for instance, the equations of the paper set the lengths of reads, and those for departed clients are made all the same.
    /// The table in docs/papers.md has all words, docs/lab.md says how to measure with them.
    ///
    /// Default: `none`, the server as it is meant. Range: none, or the words of that table, each WHAT once at most.
    #[arg(long, value_name = "WHAT=HOW[,WHAT=HOW..]", default_value = "none", help_heading = "Comparison",
          value_parser = Compare::parse)]
    pub compare: Compare,
}

impl ServeOptions {
    /// Whether origins are served, and not a directory.
    pub fn has_origin(&self) -> bool {
        self.origins().next().is_some()
    }

    /// Whether buckets are among the origins.
    pub fn has_bucket(&self) -> bool {
        let mut origins = self.origins();
        origins.any(|(_, url)| names::is_bucket(url))
    }

    /// The URLs of the origins, each with the key of its option.
    pub fn origins(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let root = self.root.to_str().filter(|root| names::is_url(root));
        let others = self.origin.iter().map(|url| ("origin", url.as_str()));
        root.map(|url| ("root", url)).into_iter().chain(others)
    }

    /// The cache folder, if origins are served and there is one. A folder of that name is `./off`.
    pub fn tier_dir(&self) -> Option<&Path> {
        let is_used = self.has_origin() && self.cache_dir.as_os_str() != "off";
        is_used.then_some(&*self.cache_dir)
    }
}
