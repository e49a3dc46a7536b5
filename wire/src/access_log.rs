//! One line of the access log, in the formats common, combined and JSON.
//!
//! Combined is written byte for byte as nginx does: a quote, a backslash, control bytes and bytes above 0x7E are `\xHH`
//! (Apache escapes some of them otherwise; parsers accept both), what is missing is `-`, times are UTC. The meaning of
//! each field stands in docs/access-log.md. A line never holds a raw control byte, so no client can forge a second one.

use std::net::IpAddr;

use crate::civil::{Civil, push_decimal, push_padded};
use crate::limits::{
    ACCESS_LOG_AGENT_BYTES_MAX, ACCESS_LOG_REFERER_BYTES_MAX, METHOD_BYTES_MAX, TARGET_BYTES_MAX,
};
use crate::text::push_json_string;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The common log format of NCSA httpd: no Referer, no User-Agent.
    Common,
    /// Common with Referer and User-Agent, as nginx's and Apache's `combined`.
    Combined,
    /// One JSON object a line, with all fields.
    Json,
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// An address; IPv4 in IPv6 (`::ffff:192.0.2.1`) is written as IPv4.
    Ip(IpAddr),
    /// A client of a unix socket, written `unix:` as nginx does.
    Unix,
}

/// What the client sent, as it sent it. Overlong fields are cut when the line is written.
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
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the response ended, in Unix milliseconds.
    pub time_unix_ms: i64,
    /// Who asked.
    pub remote: Remote,
    /// Status code of the answer.
    pub status: u16,
    /// Bytes of the body that the kernel took (nginx `$body_bytes_sent`, Apache `%b`).
    pub bytes_sent: u64,
    /// Bytes of the body that the client's TCP acknowledged: what arrived. Left out where the kernel cannot say, as on
    /// a unix socket.
    pub bytes_acked: Option<u64>,
    /// Time for which the response could not go on since its data was not in memory.
    pub waited_disk_us: u64,
    /// Time for which the response could not go on since the client or its path took no more.
    pub waited_net_us: u64,
    /// From the last byte of the request head to the end of the response.
    pub duration_us: u64,
    /// Why the response ended early; left out when it is complete.
    pub why: Option<&'static str>,
}

/// Appends one line with its line feed: at most [`crate::limits::ACCESS_LOG_LINE_BYTES_MAX`] bytes.
pub fn line(format: Format, request: &RequestText<'_>, outcome: &Outcome, out: &mut Vec<u8>) {
    let request = cut(request);
    match format {
        Format::Common => push_common(&request, outcome, out),
        Format::Combined => {
            push_common(&request, outcome, out);
            for field in [request.referer, request.user_agent] {
                out.extend_from_slice(b" \"");
                match field {
                    Some(field) => push_escaped(&field, out),
                    None => out.push(b'-'),
                }
                out.push(b'"');
            }
        }
        Format::Json => push_json(&request, outcome, out),
    }
    out.push(b'\n');
}

/// A field and whether its end was cut off.
#[derive(Clone, Copy)]
struct Field<'a> {
    bytes: &'a [u8],
    cut: bool,
}

struct Fields<'a> {
    method: Field<'a>,
    target: Field<'a>,
    version: Field<'a>,
    range: Option<Field<'a>>,
    referer: Option<Field<'a>>,
    user_agent: Option<Field<'a>>,
}

fn cut<'a>(request: &RequestText<'a>) -> Fields<'a> {
    let field = |bytes: &'a [u8], bytes_max: usize| Field {
        bytes: &bytes[..bytes.len().min(bytes_max)],
        cut: bytes.len() > bytes_max,
    };
    Fields {
        method: field(request.method, METHOD_BYTES_MAX),
        target: field(request.target, TARGET_BYTES_MAX),
        version: field(request.version, METHOD_BYTES_MAX),
        range: request
            .range
            .map(|bytes| field(bytes, ACCESS_LOG_REFERER_BYTES_MAX)),
        referer: request
            .referer
            .map(|bytes| field(bytes, ACCESS_LOG_REFERER_BYTES_MAX)),
        user_agent: request
            .user_agent
            .map(|bytes| field(bytes, ACCESS_LOG_AGENT_BYTES_MAX)),
    }
}

const CUT: &[u8] = b"...";

fn push_common(request: &Fields<'_>, outcome: &Outcome, out: &mut Vec<u8>) {
    push_remote(outcome.remote, out);
    out.extend_from_slice(b" - - [");
    Civil::from_unix_s(outcome.time_unix_ms.div_euclid(1_000)).push_common_log(out);
    out.extend_from_slice(b"] \"");
    let mut any = false;
    for part in [request.method, request.target, request.version] {
        if part.bytes.is_empty() {
            continue;
        }
        if any {
            out.push(b' ');
        }
        push_escaped(&part, out);
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

fn push_json(request: &Fields<'_>, outcome: &Outcome, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    Civil::from_unix_s(outcome.time_unix_ms.div_euclid(1_000)).push_rfc3339(out);
    out.push(b'.');
    push_padded(outcome.time_unix_ms.rem_euclid(1_000) as u64, 3, out);
    out.extend_from_slice(b"Z\",\"remote_addr\":\"");
    push_remote(outcome.remote, out);
    out.push(b'"');
    push_json_field(
        "method",
        Some(request.method).filter(|field| !field.bytes.is_empty()),
        out,
    );
    push_json_field(
        "target",
        Some(request.target).filter(|field| !field.bytes.is_empty()),
        out,
    );
    push_json_field(
        "version",
        Some(request.version).filter(|field| !field.bytes.is_empty()),
        out,
    );
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
    let why = outcome.why.map(|why| Field {
        bytes: why.as_bytes(),
        cut: false,
    });
    push_json_field("why", why, out);
    push_json_field("range", request.range, out);
    push_json_ms("waited_disk_ms", outcome.waited_disk_us, out);
    push_json_ms("waited_net_ms", outcome.waited_net_us, out);
    push_json_ms("duration_ms", outcome.duration_us, out);
    push_json_field("referer", request.referer, out);
    push_json_field("user_agent", request.user_agent, out);
    out.push(b'}');
}

fn push_remote(remote: Remote, out: &mut Vec<u8>) {
    use std::io::Write;
    match remote {
        // A Vec takes all that is written to it.
        Remote::Ip(address) => write!(out, "{}", address.to_canonical()).expect("write to memory"),
        Remote::Unix => out.extend_from_slice(b"unix:"),
    }
}

/// As nginx's `log_format ... escape=default`.
fn push_escaped(field: &Field<'_>, out: &mut Vec<u8>) {
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

fn push_json_field(key: &str, field: Option<Field<'_>>, out: &mut Vec<u8>) {
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
mod tests {
    use super::*;
    use crate::limits::ACCESS_LOG_LINE_BYTES_MAX;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const REQUEST: RequestText<'static> = RequestText {
        method: b"GET",
        target: b"/a%20b?x=1",
        version: b"HTTP/1.1",
        range: Some(b"bytes=5-"),
        referer: Some(b"https://example.org/"),
        user_agent: Some(b"curl/8.14.1"),
    };

    const OUTCOME: Outcome = Outcome {
        time_unix_ms: 971_211_336_042,
        remote: Remote::Ip(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))),
        status: 206,
        bytes_sent: 4_096,
        bytes_acked: Some(2_048),
        waited_disk_us: 1_500,
        waited_net_us: 20,
        duration_us: 1_000_001,
        why: Some("reset by client"),
    };

    fn text(format: Format, request: &RequestText<'_>, outcome: &Outcome) -> String {
        let mut out = Vec::new();
        line(format, request, outcome, &mut out);
        String::from_utf8(out).expect("UTF-8 for any input")
    }

    #[test]
    fn each_format_writes_its_line() {
        assert_eq!(
            text(Format::Common, &REQUEST, &OUTCOME),
            "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a%20b?x=1 HTTP/1.1\" 206 4096\n"
        );
        assert_eq!(
            text(Format::Combined, &REQUEST, &OUTCOME),
            "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a%20b?x=1 HTTP/1.1\" 206 4096 \
             \"https://example.org/\" \"curl/8.14.1\"\n"
        );
        assert_eq!(
            text(Format::Json, &REQUEST, &OUTCOME),
            "{\"time\":\"2000-10-10T20:55:36.042Z\",\"remote_addr\":\"192.0.2.1\",\"method\":\"GET\",\
             \"target\":\"/a%20b?x=1\",\"version\":\"HTTP/1.1\",\"status\":206,\"bytes_sent\":4096,\
             \"bytes_acked\":2048,\"complete\":false,\"why\":\"reset by client\",\"range\":\"bytes=5-\",\
             \"waited_disk_ms\":1.500,\"waited_net_ms\":0.020,\"duration_ms\":1000.001,\
             \"referer\":\"https://example.org/\",\"user_agent\":\"curl/8.14.1\"}\n"
        );
    }

    #[test]
    fn what_is_missing_is_a_dash_or_null() {
        let outcome = Outcome {
            bytes_acked: None,
            why: None,
            remote: Remote::Unix,
            ..OUTCOME
        };
        let empty = RequestText::default();
        assert_eq!(
            text(Format::Combined, &empty, &outcome),
            "unix: - - [10/Oct/2000:20:55:36 +0000] \"-\" 206 4096 \"-\" \"-\"\n"
        );
        assert_eq!(
            text(Format::Json, &empty, &outcome),
            "{\"time\":\"2000-10-10T20:55:36.042Z\",\"remote_addr\":\"unix:\",\"method\":null,\"target\":null,\
             \"version\":null,\"status\":206,\"bytes_sent\":4096,\"bytes_acked\":null,\"complete\":true,\"why\":null,\
             \"range\":null,\"waited_disk_ms\":1.500,\"waited_net_ms\":0.020,\"duration_ms\":1000.001,\
             \"referer\":null,\"user_agent\":null}\n"
        );
    }

    #[test]
    fn a_request_line_that_is_none_is_written_whole_and_escaped() {
        let request = RequestText {
            target: b"\x16\x03\x01 \"x\\\xFF\x7F",
            ..RequestText::default()
        };
        assert_eq!(
            text(Format::Common, &request, &OUTCOME),
            "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"\\x16\\x03\\x01 \\x22x\\x5C\\xFF\\x7F\" 206 4096\n"
        );
    }

    #[test]
    fn strange_fields_are_written_as_nginx_1_22_wrote_them() {
        let request = RequestText {
            referer: Some(b""),
            user_agent: Some(b"a\"b\\c\tz\xE9~"),
            ..REQUEST
        };
        let line = text(Format::Combined, &request, &OUTCOME);
        assert!(
            line.ends_with(" \"\" \"a\\x22b\\x5Cc\\x09z\\xE9~\"\n"),
            "{line}"
        );
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_listener_is_written_as_ipv4() {
        for (address, written) in [
            ("::ffff:192.0.2.7", "192.0.2.7 "),
            ("2001:db8::1", "2001:db8::1 "),
            ("::1", "::1 "),
        ] {
            let remote = Remote::Ip(address.parse().expect("an address"));
            assert!(
                text(Format::Common, &REQUEST, &Outcome { remote, ..OUTCOME }).starts_with(written)
            );
        }
    }

    #[test]
    fn overlong_fields_are_cut_and_say_so() {
        let agent = [b'a'; ACCESS_LOG_AGENT_BYTES_MAX + 1];
        let kept = "a".repeat(ACCESS_LOG_AGENT_BYTES_MAX);
        for format in [Format::Combined, Format::Json] {
            let at = RequestText {
                user_agent: Some(&agent[1..]),
                ..REQUEST
            };
            assert!(text(format, &at, &OUTCOME).contains(&format!("\"{kept}\"")));
            let above = RequestText {
                user_agent: Some(&agent),
                ..REQUEST
            };
            assert!(text(format, &above, &OUTCOME).contains(&format!("\"{kept}...\"")));
        }
    }

    #[test]
    fn the_longest_line_keeps_to_its_bound() {
        let worst = [0x01; TARGET_BYTES_MAX + 1];
        let request = RequestText {
            method: &worst,
            target: &worst,
            version: &worst,
            range: Some(&worst),
            referer: Some(&worst),
            user_agent: Some(&worst),
        };
        let outcome = Outcome {
            remote: Remote::Ip(
                "1111:2222:3333:4444:5555:6666:7777:8888"
                    .parse()
                    .expect("an address"),
            ),
            status: u16::MAX,
            bytes_sent: u64::MAX,
            bytes_acked: Some(u64::MAX),
            waited_disk_us: u64::MAX,
            waited_net_us: u64::MAX,
            duration_us: u64::MAX,
            ..OUTCOME
        };
        for format in [Format::Common, Format::Combined, Format::Json] {
            let len_bytes = text(format, &request, &outcome).len();
            assert!(
                len_bytes <= ACCESS_LOG_LINE_BYTES_MAX,
                "{format:?}: {len_bytes} bytes"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn any_request_is_one_line_without_control_bytes(
            method: Vec<u8>, target: Vec<u8>, version: Vec<u8>, range: Option<Vec<u8>>, agent: Option<Vec<u8>>,
            time_unix_ms: i64,
        ) {
            let request = RequestText {
                method: &method, target: &target, version: &version, range: range.as_deref(), referer: agent.as_deref(),
                user_agent: agent.as_deref(),
            };
            let outcome = Outcome { time_unix_ms, ..OUTCOME };
            for format in [Format::Common, Format::Combined, Format::Json] {
                let line = text(format, &request, &outcome);
                let body = line.strip_suffix('\n').expect("a line feed at the end");
                prop_assert!(!body.bytes().any(|byte| byte < 0x20 || byte == 0x7F), "{body:?}");
            }
            let json: serde_json::Value =
                serde_json::from_str(&text(Format::Json, &request, &outcome)).expect("valid JSON");
            let expected = Some(String::from_utf8_lossy(&target)).filter(|target| !target.is_empty());
            prop_assert_eq!(json["target"].as_str(), expected.as_deref());
        }

        #[test]
        fn combined_gives_the_target_back_to_who_unescapes_it(target in proptest::collection::vec(any::<u8>(), 1..60)) {
            let request = RequestText { method: b"", version: b"", target: &target, ..RequestText::default() };
            let line = text(Format::Common, &request, &OUTCOME);
            let quoted = line.split('"').nth(1).expect("a quoted request");
            let mut read = Vec::new();
            let mut bytes = quoted.bytes();
            while let Some(byte) = bytes.next() {
                if byte == b'\\' {
                    let hex: String = bytes.by_ref().take(3).skip(1).map(char::from).collect();
                    read.push(u8::from_str_radix(&hex, 16).expect("two hex digits"));
                } else {
                    read.push(byte);
                }
            }
            prop_assert_eq!(read, target);
        }
    }
}
