//! Lines as they are written, whatever a client sends.

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
    brief: false,
};

const OUTCOME: Outcome<'static> = Outcome {
    time_unix_ms: 971_211_336_042,
    remote: Remote::Ip(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1))),
    status: 206,
    bytes_sent: 4_096,
    bytes_acked: Some(2_048),
    waited_disk_us: 1_500,
    waited_net_us: 20,
    duration_us: 1_000_001,
    why: Some("reset by client"),
    cache: None,
    sender: None,
};

fn text(format: LineFormat, request: &RequestText<'_>, outcome: &Outcome<'_>) -> String {
    let mut out = Vec::new();
    line(format, request, outcome, &mut out);
    String::from_utf8(out).expect("UTF-8 for any input")
}

#[test]
fn each_format_writes_its_line() {
    assert_eq!(
        text(LineFormat::Common, &REQUEST, &OUTCOME),
        "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a%20b?x=1 HTTP/1.1\" 206 4096\n"
    );
    assert_eq!(
        text(LineFormat::Combined, &REQUEST, &OUTCOME),
        "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a%20b?x=1 HTTP/1.1\" 206 4096 \
         \"https://example.org/\" \"curl/8.14.1\"\n"
    );
    assert_eq!(
        text(LineFormat::Json, &REQUEST, &OUTCOME),
        "{\"time\":\"2000-10-10T20:55:36.042Z\",\"remote_addr\":\"192.0.2.1\",\"method\":\"GET\",\
         \"target\":\"/a%20b?x=1\",\"version\":\"HTTP/1.1\",\"status\":206,\"bytes_sent\":4096,\
         \"bytes_acked\":2048,\"complete\":false,\"why\":\"reset by client\",\"range\":\"bytes=5-\",\
         \"waited_disk_ms\":1.500,\"waited_net_ms\":0.020,\"duration_ms\":1000.001,\
         \"referer\":\"https://example.org/\",\"user_agent\":\"curl/8.14.1\"}\n"
    );
}

#[test]
fn only_json_says_what_the_cache_did() {
    let outcome = Outcome {
        cache: Some("fwd=stale; fwd-status=304"),
        ..OUTCOME
    };
    let json = text(LineFormat::Json, &REQUEST, &outcome);
    assert!(
        json.ends_with(",\"cache\":\"fwd=stale; fwd-status=304\"}\n"),
        "{json}"
    );
    let of = |outcome| text(LineFormat::Combined, &REQUEST, outcome);
    assert_eq!(of(&outcome), of(&OUTCOME));
}

#[test]
fn only_json_says_which_node_sent_it() {
    let sender = Sender {
        node: "b",
        by: "relayed",
        moves: 3,
    };
    let outcome = Outcome {
        sender: Some(sender),
        ..OUTCOME
    };
    let json = text(LineFormat::Json, &REQUEST, &outcome);
    assert!(
        json.ends_with(",\"node\":\"b\",\"by\":\"relayed\",\"moves\":3}\n"),
        "{json}"
    );
    let of = |outcome| text(LineFormat::Combined, &REQUEST, outcome);
    assert_eq!(of(&outcome), of(&OUTCOME));
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
        text(LineFormat::Combined, &empty, &outcome),
        "unix: - - [10/Oct/2000:20:55:36 +0000] \"-\" 206 4096 \"-\" \"-\"\n"
    );
    assert_eq!(
        text(LineFormat::Json, &empty, &outcome),
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
        text(LineFormat::Common, &request, &OUTCOME),
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
    let line = text(LineFormat::Combined, &request, &OUTCOME);
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
            text(LineFormat::Common, &REQUEST, &Outcome { remote, ..OUTCOME }).starts_with(written)
        );
    }
}

#[test]
fn overlong_fields_are_cut_and_say_so() {
    let agent = [b'a'; ACCESS_LOG_AGENT_BYTES_MAX + 1];
    let kept = "a".repeat(ACCESS_LOG_AGENT_BYTES_MAX);
    for format in [LineFormat::Combined, LineFormat::Json] {
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
fn a_request_of_which_little_was_kept_shows_the_beginning_of_each_field() {
    let long = [b'a'; 3 * ACCESS_LOG_BRIEF_BYTES_MAX];
    let request = RequestText {
        target: &long,
        referer: Some(&long),
        brief: true,
        ..REQUEST
    };
    let ([_, target, _], [_, referer, _]) = request.kept();
    assert_eq!(target.len(), ACCESS_LOG_BRIEF_BYTES_MAX + 1);
    let again = RequestText {
        target,
        referer,
        ..request
    };
    let shown = "a".repeat(ACCESS_LOG_BRIEF_BYTES_MAX);
    for format in [LineFormat::Combined, LineFormat::Json] {
        let line = text(format, &again, &OUTCOME);
        assert_eq!(line, text(format, &request, &OUTCOME));
        assert_eq!(line.matches(&format!("{shown}...")).count(), 2, "{line}");
        assert!(line.contains("curl/8.14.1\""), "{line}");
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
        brief: false,
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
    for format in [LineFormat::Common, LineFormat::Combined, LineFormat::Json] {
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
        time_unix_ms: i64, brief: bool,
    ) {
        let request = RequestText {
            method: &method, target: &target, version: &version, range: range.as_deref(), referer: agent.as_deref(),
            user_agent: agent.as_deref(), brief,
        };
        let outcome = Outcome { time_unix_ms, ..OUTCOME };
        for format in [LineFormat::Common, LineFormat::Combined, LineFormat::Json] {
            let line = text(format, &request, &outcome);
            let body = line.strip_suffix('\n').expect("a line feed at the end");
            prop_assert!(!body.bytes().any(|byte| byte < 0x20 || byte == 0x7F), "{body:?}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&text(LineFormat::Json, &request, &outcome)).expect("valid JSON");
        let expected = Some(String::from_utf8_lossy(&target)).filter(|target| !target.is_empty());
        prop_assume!(!brief); // then it may be cut
        prop_assert_eq!(json["target"].as_str(), expected.as_deref());
    }

    #[test]
    fn combined_gives_the_target_back_to_who_unescapes_it(target in proptest::collection::vec(any::<u8>(), 1..60)) {
        let request = RequestText { method: b"", version: b"", target: &target, ..RequestText::default() };
        let line = text(LineFormat::Common, &request, &OUTCOME);
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
