//! Every bound of the parsers: its reason, and what happens above it.

/// Bytes of one request head, from its first byte to the empty line, including leading empty lines. Browsers
/// with full cookie jars stay below 8 KB; the buffers of a pool have this size. Above: 431.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of the request target. RFC 9112 section 3 asks for at least 8,000 octets of request line. Above: 414.
pub const TARGET_BYTES_MAX: usize = 8 << 10;
/// Bytes of the method token; the longest registered one has 17 (`UPDATEREDIRECTREF`). Above: 501 (RFC 9112
/// section 3).
pub const METHOD_BYTES_MAX: usize = 32;
/// Field lines in one head. A browser sends about 20. Above: 431.
pub const FIELDS_MAX: usize = 100;
/// Empty lines skipped before a request line: RFC 9112 section 2.2 asks for at least one. Above: 400.
pub const LEADING_EMPTY_LINES_MAX: usize = 4;
/// Ranges of one Range field in any order, two of which may overlap; each connection has memory for an answer with so many.
/// Above: they have to ascend and may not overlap, as those of zsync (20) and zchunk (255), and the answer needs more
/// memory. Otherwise the field is ignored (RFC 9110 section 14.2) and the whole file is sent, which costs no more than a
/// plain GET.
pub const RANGES_COMMON: usize = 16;
/// Ranges of one Range field: what fits into a head, four bytes each. Above: the field is ignored.
pub const RANGES_MAX: usize = HEAD_BYTES_MAX / "0-0,".len();
/// Bytes before each range in a multipart answer: 141 and the media type.
pub const PART_HEAD_BYTES_MAX: usize = 141 + MEDIA_TYPE_BYTES_MAX;

/// Bytes of text in one response. The longest is a redirect to a target of full length, or an origin's with all its
/// fields; the part heads of
/// [`RANGES_COMMON`] ranges are shorter, and those of more are charged when they are made. The bounds on its inputs keep a response below this.
pub const PLAN_BYTES_MAX: usize = TARGET_BYTES_MAX + (4 << 10);

/// Bytes of the head of an origin's response; content security policies and cookies make some longer than 16 KiB. Above:
/// the response is refused.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 32 << 10;
/// Field lines in the head of an origin's response. Object stores send about 30 and one for each item of a user's
/// metadata. Above: the response is refused.
pub const RESPONSE_FIELDS_MAX: usize = 200;

/// Bytes of what an origin has at a target: the longest file that any system can have. Above: the response is refused.
pub const OBJECT_BYTES_MAX: u64 = i64::MAX as u64;

/// Bytes of the lines of an origin's response that are passed through. Nginx has 4 or 8 KiB for a whole head. Above: the
/// response is refused.
pub const PASSED_FIELDS_BYTES_MAX: usize = 8 << 10;
/// Bytes of the lines that are stored with an object, and repeated in its responses. Above: the response is not stored
/// but passed through.
pub const STORED_FIELDS_BYTES_MAX: usize = 4 << 10;
/// A plan has room for them: in place of a target, or beside the heads of parts and 1 KiB of other lines.
const _: () = assert!(PASSED_FIELDS_BYTES_MAX <= TARGET_BYTES_MAX);
const _: () = assert!(
    STORED_FIELDS_BYTES_MAX + RANGES_COMMON * PART_HEAD_BYTES_MAX + (1 << 10) <= PLAN_BYTES_MAX
);

/// Offsets inside a head are kept in 16 bits.
const _: () = assert!(HEAD_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(RESPONSE_HEAD_BYTES_MAX <= u16::MAX as usize);
/// A target of full length must leave room for a usable head.
const _: () = assert!(TARGET_BYTES_MAX * 2 <= HEAD_BYTES_MAX);

/// Bytes of one entry of a listing: a name of 255 bytes, each of which takes up to 6 bytes as text and 3 in its
/// link, and 300 bytes around it. A slice can exceed the server's target size by at most this much.
pub const LISTING_ENTRY_BYTES_MAX: usize = 255 * (6 + 3) + 300;
/// Parent directories that get a link in the heading of a listing, nearest first. Above: text without a link.
pub const LISTING_CRUMBS_MAX: usize = 32;
/// Bytes of README text shown below a listing. Above: cut, and the page links to the whole file.
pub const README_BYTES_MAX: usize = 64 << 10;

/// Bytes of the Referer, and of the Range, in an access log line, before escaping. Above: cut, with `...` at
/// the end.
pub const ACCESS_LOG_REFERER_BYTES_MAX: usize = 2 << 10;
/// Bytes of the User-Agent in an access log line, before escaping; browsers send about 150. Above: cut, with
/// `...` at the end.
pub const ACCESS_LOG_AGENT_BYTES_MAX: usize = 1 << 10;
/// Bytes of the target, Range, Referer and User-Agent each, where the server lacks the memory to keep more of a
/// request until its response is acknowledged. Above: cut, as above.
pub const ACCESS_LOG_BRIEF_BYTES_MAX: usize = 96;
/// Bytes of one access log line. The target is the largest part ([`TARGET_BYTES_MAX`]); a byte takes up to 4
/// bytes in the combined format and 6 in JSON.
pub const ACCESS_LOG_LINE_BYTES_MAX: usize = 6
    * (METHOD_BYTES_MAX
        + TARGET_BYTES_MAX
        + 2 * ACCESS_LOG_REFERER_BYTES_MAX
        + ACCESS_LOG_AGENT_BYTES_MAX)
    + (1 << 10);

/// Bytes of a media type in the `types` table; RFC 6838 4.2 allows 127 characters for each half. Above: refused
/// at start.
pub const MEDIA_TYPE_BYTES_MAX: usize = 255;

/// Bytes of a node's name between nodes, as long as a label of DNS. Above: the stream is closed.
pub const CLUSTER_NAME_BYTES_MAX: usize = 63;
/// Bytes of an object's name between nodes: PATH_MAX. Above: the stream is closed; such a request is served at home.
pub const CLUSTER_OBJECT_BYTES_MAX: usize = 4 << 10;
/// Bytes of a name of congestion control: TCP_CA_NAME_MAX. Above: the stream is closed.
pub const CLUSTER_CC_BYTES_MAX: usize = 16;
/// Bytes of the head of a response that moves; those of files have some 300. Longer: the response does not move.
pub const CLUSTER_HEAD_BYTES_MAX: usize = 1 << 10;
/// Bytes of the client that travel with its connection, in the socket and unparsed together: one head. More: the
/// connection does not move.
pub const CLUSTER_QUEUE_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// Bytes of a request that travel for the access log. More: the stream is closed; what the log keeps is less.
pub const CLUSTER_ASKED_BYTES_MAX: usize = 32 << 10;
/// Keys in one message on what came into a cache or left it. More: the next second tells them.
pub const CLUSTER_KEYS_MAX: usize = 2 << 10;
/// Bytes of the body of one message between nodes: an object, a head, a request for the log, the client's bytes and 512 for the rest. Above: the
/// stream is closed, before memory is taken.
pub const CLUSTER_BODY_BYTES_MAX: usize = CLUSTER_OBJECT_BYTES_MAX
    + CLUSTER_HEAD_BYTES_MAX
    + CLUSTER_ASKED_BYTES_MAX
    + CLUSTER_QUEUE_BYTES_MAX
    + 512;
const _: () = assert!(CLUSTER_KEYS_MAX * 8 <= CLUSTER_BODY_BYTES_MAX);
/// Bytes of an answer of etcd: all entries of a cluster have some 50 KB. Above: it is refused.
pub const ETCD_ANSWER_BYTES_MAX: usize = 256 << 10;
/// Entries below the prefix of a cluster: four times as many as a cluster has nodes. More: the list is refused, and the last one stays.
pub const ETCD_ENTRIES_MAX: usize = 256;
/// Bytes of the value of one entry: an address, a key, a version, and what later versions add. Above: it tells nothing.
pub const ETCD_VALUE_BYTES_MAX: usize = 512;
/// Addresses, ports and peers of a broker, each. More: it does not start.
pub const BROKER_LIST_MAX: usize = 64;
/// Leases that a server renews by one datagram to its broker. More: the next datagram has them.
pub const BROKER_LEASES_MAX: usize = 512;
/// Bytes of the text by which a broker tells a failure. Longer: cut.
pub const BROKER_TEXT_BYTES_MAX: usize = 400;
/// Bytes of a datagram between a server and its broker: the client's bytes, leases or lists, and 1 KiB for the rest. Longer:
/// refused; half of what a Unix socket takes by default.
pub const BROKER_DATAGRAM_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(CLUSTER_QUEUE_BYTES_MAX + (1 << 10) <= BROKER_DATAGRAM_BYTES_MAX);
const _: () = assert!(BROKER_LEASES_MAX * 49 + (1 << 10) <= BROKER_DATAGRAM_BYTES_MAX);
const _: () = assert!(BROKER_LIST_MAX * (CLUSTER_NAME_BYTES_MAX + 64) <= BROKER_DATAGRAM_BYTES_MAX);
/// A window of TCP (RFC 7323 section 2.2). More in flight is impossible and refused.
pub const TCP_WINDOW_BYTES_MAX: u32 = 1 << 30;

/// Bytes of a READ's or WRITE's payload: what Linux' client asks for at most, and what FSINFO tells. Above: a READ returns less, a
/// WRITE gets GARBAGE_ARGS.
pub const RPC_PAYLOAD_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a record before its payload. The longest is a SYMLINK with 5,500: credentials and verifier of 400 each, a handle, a
/// name, a path of 4 KiB. What lies above is dropped unread.
pub const RPC_HEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes of a record. Above: the connection is closed.
pub const RPC_RECORD_BYTES_MAX: u32 = RPC_PAYLOAD_BYTES_MAX + RPC_HEAD_BYTES_MAX as u32;
/// Fragments of a record, empty ones included: libraries send one for each of their buffers, and those have 4,000 bytes at
/// least. Above: the connection is closed.
pub const RPC_FRAGMENTS_MAX: u32 = 512;
/// Bytes of credentials and of a verifier (RFC 5531 section 8.2). Above: AUTH_BADCRED, AUTH_BADVERF.
pub const RPC_AUTH_BYTES_MAX: usize = 400;
/// Bytes of a client's name for itself (RFC 5531 appendix A). Above: AUTH_BADCRED.
pub const RPC_MACHINE_BYTES_MAX: usize = 255;
/// Groups of a user, besides the first (RFC 5531 appendix A). Above: AUTH_BADCRED; clients send the first ones.
pub const RPC_GROUPS_MAX: usize = 16;

/// Bytes of a datagram between a server and its broker of files: two paths, two names and groups. Longer: refused.
pub const FILES_DATAGRAM_BYTES_MAX: usize = 16 << 10;
const _: () =
    assert!(2 * (NFS_PATH_BYTES_MAX + NFS_NAME_BYTES_MAX) + 1024 <= FILES_DATAGRAM_BYTES_MAX);

/// Bytes of a file handle (NFS3_FHSIZE, RFC 1813 section 2.4). Above: GARBAGE_ARGS.
pub const NFS_HANDLE_BYTES_MAX: usize = 64;
/// Bytes in a file handle that tell the file: those of name_to_handle_at(2) for the file systems of Linux that are served, or
/// a hash. Longer ones can't be made.
pub const NFS_HANDLE_BODY_BYTES_MAX: usize = 40;
/// Bytes of a file's name: NAME_MAX. Above: NFS3ERR_NAMETOOLONG.
pub const NFS_NAME_BYTES_MAX: usize = 255;
/// Bytes of a symbolic link: PATH_MAX. Above: NFS3ERR_NAMETOOLONG.
pub const NFS_PATH_BYTES_MAX: usize = 4 << 10;
/// Bytes of a path to mount (MNTPATHLEN, RFC 1813 appendix I). Above: GARBAGE_ARGS.
pub const NFS_MOUNT_PATH_BYTES_MAX: usize = 1 << 10;
/// Bytes of names and attributes in one READDIR or READDIRPLUS, whatever the client has room for: some 400 names, which one
/// turn reads. More: the client asks again.
pub const NFS_LISTING_BYTES_MAX: u32 = 64 << 10;
const _: () = assert!(2 * RPC_AUTH_BYTES_MAX + NFS_PATH_BYTES_MAX + 1024 <= RPC_HEAD_BYTES_MAX);

/// Bytes of a tag or an object in a listing of another server, which is kept until it is whole. Longer: the tag is text, and an object
/// ends the listing.
pub const LISTING_PIECE_BYTES_MAX: usize = 16 << 10;

/// Bytes of the serial number of a unit, as `ackpace-host gateway` tells it: INQUIRY brings fewer. Longer: it is cut.
pub const GATEWAY_SERIAL_BYTES_MAX: usize = 256;
/// Bytes of the path of a mount of `ackpace-host gateway`. Longer: it is refused.
pub const GATEWAY_PATH_BYTES_MAX: usize = 1024;
/// Bytes of the address of a unit: a host has 253, a target 223. Longer: it is refused.
pub const GATEWAY_URL_BYTES_MAX: usize = 512;

/// Bytes of an iSCSI name (RFC 7143 section 4.2.7.1). Longer: it is refused.
pub const ISCSI_NAME_BYTES_MAX: usize = 223;
/// Bytes of the keys of one exchange of a login, over all its PDUs: the longest key of CHAP has 2 KiB, all others together
/// less. Above: the login fails.
pub const ISCSI_TEXT_BYTES_MAX: usize = 16 << 10;
/// Keys of one exchange of a login; targets send about 20. Above: the login fails.
pub const ISCSI_KEYS_MAX: usize = 64;
/// PDUs of a target in one login, in which a careful one sends six. Above: the login fails.
pub const ISCSI_LOGIN_PDUS_MAX: u32 = 32;
/// Bytes of a data segment during a login: the default of MaxRecvDataSegmentLength (RFC 7143 section 13.12). Above: the login
/// fails.
pub const ISCSI_LOGIN_SEGMENT_BYTES_MAX: u32 = 8 << 10;
/// Bytes of a challenge of CHAP (RFC 7143 section 12.1.3). Above: the login fails.
pub const ISCSI_CHALLENGE_BYTES_MAX: usize = 1024;
/// Bytes of a name or a secret of CHAP: what others accept. Above: they are refused before the login.
pub const ISCSI_CHAP_BYTES_MAX: usize = 255;
/// Bytes of the data segment of a PDU that brings no payload: sense data has 252, a rejected header 48. Above: the connection
/// ends.
pub const ISCSI_CONTROL_BYTES_MAX: u32 = 4 << 10;
/// Bytes of payload of one PDU that are accepted: with digests, a PDU is useful only as a whole. More is never agreed on.
pub const ISCSI_SEGMENT_BYTES_MAX: u32 = 1 << 20;
/// Tasks of a session, waiting ones included: tgtd's queue is that long. Full: the caller holds others back.
pub const ISCSI_TASKS_MAX: usize = 128;
/// Bytes of one read or write. More is refused; the caller divides it.
pub const ISCSI_IO_BYTES_MAX: u32 = 16 << 20;
/// R2Ts of one task that are open at a time. More is never agreed on.
pub const ISCSI_R2TS_MAX: u32 = 8;
/// Pings of the target that wait for their answer. More: it sends without reading, and the connection ends.
pub const ISCSI_PINGS_MAX: usize = 16;
/// How often a task is repeated because of unit attentions; after a reset there are two or three. More: the task fails.
pub const ISCSI_ATTENTIONS_MAX: u8 = 8;
/// The highest number of a logical unit in flat addressing, which has 14 bits (SAM-5 section 4.7.7.3). Above: it is refused.
pub const ISCSI_LUN_MAX: u16 = (1 << 14) - 1;
/// Logical units in one list; an answer with so many has 2 KiB. More: the rest is not seen.
pub const ISCSI_LUNS_MAX: usize = 256;
/// The length of a data segment has 24 bits.
const _: () =
    assert!(ISCSI_SEGMENT_BYTES_MAX < 1 << 24 && ISCSI_IO_BYTES_MAX >= ISCSI_SEGMENT_BYTES_MAX);
