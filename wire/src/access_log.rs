//! One line of the access log, in the formats common, combined and JSON.
//!
//! Combined is byte for byte what nginx writes: a quote, a backslash, control bytes and bytes above 0x7E become
//! `\xHH`, a missing value becomes `-`, and times are UTC. Apache escapes some of these bytes differently;
//! parsers accept both. docs/access-log.md defines each field. A line never holds a raw control byte, so no
//! client can forge a second line.

use std::fmt;
use std::net::IpAddr;

use crate::civil::{Civil, push_decimal, push_padded};
use crate::limits::{
    ACCESS_LOG_AGENT_BYTES_MAX, ACCESS_LOG_BRIEF_BYTES_MAX, ACCESS_LOG_REFERER_BYTES_MAX,
    METHOD_BYTES_MAX, TARGET_BYTES_MAX,
};
use crate::text::push_json_string;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// The common log format of NCSA httpd: no Referer, no User-Agent.
    Common,
    /// Common with Referer and User-Agent, as nginx's and Apache's `combined`.
    Combined,
    /// One JSON object a line, with all fields.
    Json,
}

/// The address of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// An address; IPv4 in IPv6 (`::ffff:192.0.2.1`) is written as IPv4.
    Ip(IpAddr),
    /// A client of a unix socket, written `unix:` as nginx does.
    Unix,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Ip(address) => address.to_canonical().fmt(f),
            Remote::Unix => f.write_str("unix:"),
        }
    }
}

/// The request as the client sent it. Overlong fields are cut when the line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestText<'a> {
    /// `GET`; empty when the request line could not be parsed.
    pub method: &'a [u8],
    /// The raw target; when the request line could not be parsed, the whole line, or empty.
    pub target: &'a [u8],
    /// `HTTP/1.1`; empty when the request line could not be parsed.
    pub version: &'a [u8],
    /// The Range field.
    pub range: Option<&'a [u8]>,
    /// The Referer field.
    pub referer: Option<&'a [u8]>,
    /// The User-Agent field.
    pub user_agent: Option<&'a [u8]>,
    /// True if only the first [`ACCESS_LOG_BRIEF_BYTES_MAX`] bytes of each field were kept.
    pub brief: bool,
}

impl<'a> RequestText<'a> {
    /// The three parts of the request line, and Range, Referer and User-Agent. Each is cut to the length that
    /// the line needs to show it, or to show that it is cut.
    pub fn kept(&self) -> ([&'a [u8]; 3], [Option<&'a [u8]>; 3]) {
        let kept = |bytes: &'a [u8], bytes_max: usize| &bytes[..bytes.len().min(bytes_max + 1)];
        self.each(kept)
    }

    /// The same by `of`, which gets each field with its bound.
    fn each<T>(&self, of: impl Fn(&'a [u8], usize) -> T) -> ([T; 3], [Option<T>; 3]) {
        let of = |bytes: &'a [u8], bytes_max: usize| match self.brief {
            true => of(bytes, bytes_max.min(ACCESS_LOG_BRIEF_BYTES_MAX)),
            false => of(bytes, bytes_max),
        };
        let line = [
            of(self.method, METHOD_BYTES_MAX),
            of(self.target, TARGET_BYTES_MAX),
            of(self.version, METHOD_BYTES_MAX),
        ];
        let fields = [
            (self.range, ACCESS_LOG_REFERER_BYTES_MAX),
            (self.referer, ACCESS_LOG_REFERER_BYTES_MAX),
            (self.user_agent, ACCESS_LOG_AGENT_BYTES_MAX),
        ];
        let fields = fields.map(|(field, bytes_max)| field.map(|bytes| of(bytes, bytes_max)));
        (line, fields)
    }
}

/// Where a response came from, in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender<'a> {
    /// The node that sent its last byte.
    pub node: &'a str,
    /// How that node came by its bytes.
    pub by: &'a str,
    /// How often the connection had moved between nodes by then.
    pub moves: u32,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// When the response ended, in Unix milliseconds.
    pub time_unix_ms: i64,
    /// The client.
    pub remote: Remote,
    /// Status code of the answer.
    pub status: u16,
    /// Bytes of the body that the kernel took (nginx `$body_bytes_sent`, Apache `%b`).
    pub bytes_sent: u64,
    /// Bytes of the body that the client's TCP acknowledged. `None` where the kernel cannot tell, as on a unix
    /// socket.
    pub bytes_acked: Option<u64>,
    /// Time in which the response stalled because its data was not in memory.
    pub waited_disk_us: u64,
    /// Time in which the response stalled because the client or its path took no more.
    pub waited_net_us: u64,
    /// From the last byte of the request head to the end of the response.
    pub duration_us: u64,
    /// Why the response ended early; `None` if it is complete.
    pub why: Option<&'static str>,
    /// What Cache-Status says after the name of the cache; `None` if no cache is asked.
    pub cache: Option<&'static str>,
    /// Which node sent it; `None` if the server is no node of a cluster.
    pub sender: Option<Sender<'a>>,
}

/// Appends one line with its line feed: at most [`crate::limits::ACCESS_LOG_LINE_BYTES_MAX`] bytes.
pub fn line(
    format: LineFormat,
    request: &RequestText<'_>,
    outcome: &Outcome<'_>,
    out: &mut Vec<u8>,
) {
    let (line, fields) = cut(request);
    match format {
        LineFormat::Common => push_common(&line, outcome, out),
        LineFormat::Combined => {
            push_common(&line, outcome, out);
            for field in &fields[1..] {
                out.extend_from_slice(b" \"");
                match field {
                    Some(field) => push_escaped(field, out),
                    None => out.push(b'-'),
                }
                out.push(b'"');
            }
        }
        LineFormat::Json => push_json(&(line, fields), outcome, out),
    }
    out.push(b'\n');
}

/// A field and whether its end was cut off.
#[derive(Clone, Copy)]
struct LogField<'a> {
    bytes: &'a [u8],
    cut: bool,
}

type LogFields<'a> = ([LogField<'a>; 3], [Option<LogField<'a>>; 3]);

fn cut<'a>(request: &RequestText<'a>) -> LogFields<'a> {
    request.each(|bytes, bytes_max| LogField {
        bytes: &bytes[..bytes.len().min(bytes_max)],
        cut: bytes.len() > bytes_max,
    })
}

fn whole(text: &str) -> LogField<'_> {
    LogField {
        bytes: text.as_bytes(),
        cut: false,
    }
}

const CUT: &[u8] = b"...";

fn push_common(line: &[LogField<'_>; 3], outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    push_remote(outcome.remote, out);
    out.extend_from_slice(b" - - [");
    Civil::from_unix_s(outcome.time_unix_ms.div_euclid(1_000)).push_common_log(out);
    out.extend_from_slice(b"] \"");
    let mut any = false;
    for part in line {
        if part.bytes.is_empty() {
            continue;
        }
        if any {
            out.push(b' ');
        }
        push_escaped(part, out);
        any = true;
    }
    if !any {
        out.push(b'-');
    }
    out.extend_from_slice(b"\" ");
    push_padded(outcome.status.into(), 3, out);
    out.push(b' ');
    push_decimal(outcome.bytes_sent, out);
}

fn push_json((line, fields): &LogFields<'_>, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    Civil::from_unix_s(outcome.time_unix_ms.div_euclid(1_000)).push_rfc3339(out);
    out.push(b'.');
    push_padded(outcome.time_unix_ms.rem_euclid(1_000) as u64, 3, out);
    out.extend_from_slice(b"Z\",\"remote_addr\":\"");
    push_remote(outcome.remote, out);
    out.push(b'"');
    for (key, part) in ["method", "target", "version"].into_iter().zip(line) {
        push_json_field(key, Some(*part).filter(|part| !part.bytes.is_empty()), out);
    }
    let [range, referer, user_agent] = *fields;
    push_json_number("status", outcome.status.into(), out);
    push_json_number("bytes_sent", outcome.bytes_sent, out);
    match outcome.bytes_acked {
        Some(bytes_acked) => push_json_number("bytes_acked", bytes_acked, out),
        None => out.extend_from_slice(b",\"bytes_acked\":null"),
    }
    out.extend_from_slice(b",\"complete\":");
    out.extend_from_slice(if outcome.why.is_none() {
        b"true"
    } else {
        b"false"
    });
    push_json_field("why", outcome.why.map(whole), out);
    push_json_field("range", range, out);
    push_json_ms("waited_disk_ms", outcome.waited_disk_us, out);
    push_json_ms("waited_net_ms", outcome.waited_net_us, out);
    push_json_ms("duration_ms", outcome.duration_us, out);
    push_json_field("referer", referer, out);
    push_json_field("user_agent", user_agent, out);
    if let Some(cache) = outcome.cache {
        push_json_field("cache", Some(whole(cache)), out);
    }
    if let Some(Sender { node, by, moves }) = outcome.sender {
        push_json_field("node", Some(whole(node)), out);
        push_json_field("by", Some(whole(by)), out);
        push_json_number("moves", moves.into(), out);
    }
    out.push(b'}');
}

fn push_remote(remote: Remote, out: &mut Vec<u8>) {
    use std::io::Write;
    write!(out, "{remote}").expect("write to memory"); // writing to a Vec cannot fail
}

/// As nginx's `log_format ... escape=default`.
fn push_escaped(field: &LogField<'_>, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in field.bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1F | 0x7F.. => {
                out.extend_from_slice(&[
                    b'\\',
                    b'x',
                    HEX[usize::from(byte >> 4)],
                    HEX[usize::from(byte & 15)],
                ]);
            }
            _ => out.push(byte),
        }
    }
    if field.cut {
        out.extend_from_slice(CUT);
    }
}

fn push_json_key(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_json_field(key: &str, field: Option<LogField<'_>>, out: &mut Vec<u8>) {
    push_json_key(key, out);
    let Some(field) = field else {
        out.extend_from_slice(b"null");
        return;
    };
    push_json_string(field.bytes, out);
    if field.cut {
        out.pop(); // the closing quote
        out.extend_from_slice(CUT);
        out.push(b'"');
    }
}

fn push_json_number(key: &str, value: u64, out: &mut Vec<u8>) {
    push_json_key(key, out);
    push_decimal(value, out);
}

/// Microseconds as milliseconds with three decimals.
fn push_json_ms(key: &str, time_us: u64, out: &mut Vec<u8>) {
    push_json_number(key, time_us / 1_000, out);
    out.push(b'.');
    push_padded(time_us % 1_000, 3, out);
}

#[cfg(test)]
mod tests;
