//! Every bound of the parsers: why it is, and what happens when it is hit.

/// One request head, from its first byte to the empty line, leading empty lines included. Browsers
/// with full cookie jars stay below 8 KB; the buffer is lent from a pool of this size. Above: 431.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The request target. RFC 9112 section 3 asks for at least 8,000 octets of request line. Above: 414.
pub const TARGET_BYTES_MAX: usize = 8 << 10;
/// The method token; the longest registered one has 17 bytes (`UPDATEREDIRECTREF`). Above: 501 (RFC 9112 section 3).
pub const METHOD_BYTES_MAX: usize = 32;
/// Field lines in one head. A browser sends about 20. Above: 431.
pub const FIELDS_MAX: usize = 100;
/// Empty lines skipped before a request line: RFC 9112 section 2.2 asks for at least one. Above: 400.
pub const LEADING_EMPTY_LINES_MAX: usize = 4;
/// Range specs in one Range field. A client with more is broken or hostile (RFC 9110 section 14.2).
/// Above: the field is ignored and the whole file is sent, which costs no more than a plain GET.
pub const RANGES_MAX: usize = 16;
/// One chunk-size line of a request body with its extensions, CRLF excluded. Nobody sends
/// extensions to a file server. Above: 400.
pub const CHUNK_LINE_BYTES_MAX: usize = 1 << 10;
/// The trailer section of a request body; we read none of it. Above: 400.
pub const TRAILER_BYTES_MAX: usize = 8 << 10;

/// The texts of one response: the longest is a redirect to a target of full length; the parts of [`RANGES_MAX`] ranges are
/// shorter. It bounds itself by what it is made of.
pub const PLAN_BYTES_MAX: usize = TARGET_BYTES_MAX + (4 << 10);

/// Offsets inside a head are kept in 16 bits.
const _: () = assert!(HEAD_BYTES_MAX <= u16::MAX as usize);
/// A target of full length must leave room for a usable head.
const _: () = assert!(TARGET_BYTES_MAX * 2 <= HEAD_BYTES_MAX);

/// A `hide` pattern. A name has 255 bytes at most; longer patterns than that can only be mistakes. Above: refused at start.
pub const HIDE_PATTERN_BYTES_MAX: usize = 255;
/// `hide` patterns: each is tried on each segment of each request. Above: refused at start.
pub const HIDE_PATTERNS_MAX: usize = 256;

/// One entry of a listing: a name of 255 bytes, each of which takes up to 6 bytes as text and 3 in its link, and 300 bytes
/// around. It is the step by which a slice can exceed the size that the server aims at.
pub const LISTING_ENTRY_BYTES_MAX: usize = 255 * (6 + 3) + 300;
/// Directories above the listed one that get a link in its heading, the nearest ones. Above: text without a link.
pub const LISTING_CRUMBS_MAX: usize = 32;
/// README text shown below a listing. Above: cut, and the page links to the whole file.
pub const README_BYTES_MAX: usize = 64 << 10;

/// The Referer and the Range in an access log line, before escaping. Above: cut, with `...` at the end.
pub const ACCESS_LOG_REFERER_BYTES_MAX: usize = 2 << 10;
/// The User-Agent in an access log line, before escaping; browsers send about 150 bytes. Above: cut, with `...` at the end.
pub const ACCESS_LOG_AGENT_BYTES_MAX: usize = 1 << 10;
/// Target, Range, Referer and User-Agent each, where the server has no memory left to keep more of a request until its
/// response is acknowledged. Above: cut, as above.
pub const ACCESS_LOG_BRIEF_BYTES_MAX: usize = 96;
/// One access log line. The target is the largest part ([`TARGET_BYTES_MAX`]); a byte takes up to 4 bytes in the
/// combined format and 6 in JSON.
pub const ACCESS_LOG_LINE_BYTES_MAX: usize = 6
    * (METHOD_BYTES_MAX
        + TARGET_BYTES_MAX
        + 2 * ACCESS_LOG_REFERER_BYTES_MAX
        + ACCESS_LOG_AGENT_BYTES_MAX)
    + (1 << 10);

/// A media type in the `types` table; RFC 6838 4.2 allows 127 characters for each half. Above: refused at start.
pub const MEDIA_TYPE_BYTES_MAX: usize = 255;
/// An extension in the `types` table: it must fit in a name. Above: refused at start.
pub const EXTENSION_BYTES_MAX: usize = 64;
/// Entries of the `types` table. Above: refused at start.
pub const TYPES_MAX: usize = 4096;
