//! Broken streams, which the oracle must reject, and sound ones, which it must accept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{End, Oracle, Rules};
use crate::hunter::content::State;
use crate::hunter::history::{Change, History, Life, STALE_FOR, Stage};
use crate::hunter::plan::{Ask, Span, Subject};
use crate::hunter::wrong::Kind;

const LEN: u64 = 40_000;
const STRONG: &str = "\"1-9c40\"";
const RULES: Rules = Rules {
    disk_fails: false,
    busy: false,
    in_buffers_bytes: u64::MAX,
};

/// A file, a clock, and the oracle of one connection.
struct Bench {
    oracle: Oracle,
    history: History,
    start: Instant,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Some(State::new(0, 1, LEN)))
    }

    fn with(state: Option<Arc<State>>) -> Bench {
        let start = Instant::now();
        let long_ago = start.checked_sub(STALE_FOR).unwrap_or(start);
        let history = History::new(vec![Life::new("/a", state, long_ago)]);
        let oracle = Oracle::new(RULES);
        Bench {
            oracle,
            history,
            start,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn ask(&mut self, spans: &[Span]) -> &mut Bench {
        self.ask_with(|ask| ask.spans = spans.to_vec())
    }

    fn ask_with(&mut self, set: impl FnOnce(&mut Ask)) -> &mut Bench {
        let mut ask = Ask::get(Subject::File(0), "/a");
        set(&mut ask);
        self.oracle.asked(ask, self.start);
        self
    }

    fn changes(&mut self, change: Change, state: Option<Arc<State>>, ms: u64) {
        let (begun, ended) = (self.at(ms), Some(self.at(ms + 1)));
        let stage = Stage {
            state,
            change,
            begun,
            ended,
            modified_ns: i128::from(ms),
        };
        self.history.lives()[0].stages.push(stage);
    }

    fn feed_at(&mut self, ms: u64, bytes: &[u8]) -> Option<Kind> {
        let now = self.at(ms);
        let fed = self.oracle.feed(bytes, now, &self.history);
        fed.err().map(|wrong| wrong.kind)
    }

    fn feed(&mut self, bytes: impl AsRef<[u8]>) -> Option<Kind> {
        self.feed_at(1, bytes.as_ref())
    }

    fn ended(&mut self) -> Option<Kind> {
        self.ended_at(2)
    }

    fn ended_at(&mut self, ms: u64) -> Option<Kind> {
        let now = self.at(ms);
        self.oracle
            .ended(End::Closed, now, &self.history)
            .err()
            .map(|wrong| wrong.kind)
    }
}

fn content(state: &State, start: u64, end: u64) -> Vec<u8> {
    let mut bytes = vec![0; (end - start) as usize];
    state.fill(start, &mut bytes);
    bytes
}

fn head(status: u16, len: u64, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} x\r\nETag: {STRONG}\r\nContent-Length: {len}\r\n{fields}\r\n")
        .into_bytes()
}

fn whole(state: &State) -> Vec<u8> {
    let len = state.len_bytes();
    [head(200, len, ""), content(state, 0, len)].concat()
}

/// A multipart response whose parts are this long, whatever they promise.
fn multipart(parts: &[(u64, u64, u64)]) -> Vec<u8> {
    let state = State::new(0, 1, LEN);
    let mut body = Vec::new();
    let mut promised = 0;
    for &(start, end, sent_to) in parts {
        let head = format!(
            "\r\n--b\r\nContent-Type: x\r\nContent-Range: bytes {start}-{}/{LEN}\r\n\r\n",
            end - 1
        );
        promised += head.len() as u64 + end - start;
        body.extend(head.into_bytes());
        body.extend(content(&state, start, sent_to));
    }
    body.extend(b"\r\n--b--\r\n");
    let kind = "Content-Type: multipart/byteranges; boundary=b\r\n";
    [head(206, promised + 9, kind), body].concat()
}

const TWO: [Span; 2] = [Span::Between(20_000, 29_999), Span::Between(500, 509)];

#[test]
fn sound_answers_pass_in_one_piece_and_byte_by_byte() {
    let mut sound = whole(&State::new(0, 1, LEN));
    sound.extend(multipart(&[(20_000, 30_000, 30_000), (500, 510, 510)]));
    sound.extend(head(416, 3, &format!("Content-Range: bytes */{LEN}\r\n")));
    sound.extend(b"no\n");
    for size in [1, 7, 4096, usize::MAX] {
        let mut bench = Bench::new();
        bench.ask(&[]).ask(&TWO).ask(&[Span::From(LEN)]);
        for piece in sound.chunks(size) {
            assert_eq!(bench.feed(piece), None, "{size}");
        }
        assert!(bench.oracle.is_answered());
        assert_eq!((bench.oracle.sums.complete, bench.ended()), (3, None));
    }
}

#[test]
fn broken_answers_are_found() {
    let state = State::new(0, 1, LEN);
    let body = |bytes: Vec<u8>| [head(200, LEN, ""), bytes].concat();
    let flipped = |at: usize| {
        let mut bytes = content(&state, 0, LEN);
        bytes[at] ^= 1;
        body(bytes)
    };
    let elsewhere = body(content(&State::new(0, 1, 2 * LEN), 16, LEN + 16));
    let behind = [whole(&state), b"0".to_vec()].concat();
    let one = multipart(&[(20_000, 30_000, 30_000)]);
    let swapped = multipart(&[(500, 510, 510), (20_000, 30_000, 30_000)]);
    let longer = multipart(&[(20_000, 30_000, 30_000), (500, 510, 900)]);
    let range = head(206, 10, &format!("Content-Range: bytes 501-510/{LEN}\r\n"));
    let (all, two, part) = (&[][..], &TWO[..], &TWO[1..]);
    let mut cases = vec![
        ("another place", vec![all], elsewhere, Kind::WrongBytes),
        (
            "another file",
            vec![all],
            whole(&State::new(1, 1, LEN)),
            Kind::WrongBytes,
        ),
        ("a byte behind it", vec![all], behind.clone(), Kind::Beyond),
        ("and a next one", vec![all, all], behind, Kind::Beyond),
        ("a part goes on", vec![two], longer, Kind::Beyond),
        ("parts swapped", vec![two], swapped, Kind::Frame),
        ("a part is missing", vec![two], one, Kind::Frame),
        ("another range", vec![part], range, Kind::Frame),
        ("all of it", vec![part], head(200, LEN, ""), Kind::Status),
    ];
    for at in [0, 1, 4095, 4096, 20_000, LEN as usize - 1] {
        cases.push(("a wrong byte", vec![all], flipped(at), Kind::WrongBytes));
    }
    for (what, asks, answer, kind) in cases {
        let mut bench = Bench::new();
        for spans in asks {
            bench.ask(spans);
        }
        assert_eq!(bench.feed(answer), Some(kind), "{what}");
    }
}

#[test]
fn a_head_that_took_long_may_be_given_up_and_no_other_one() {
    // Times at which the last byte left and the server closed.
    let given_up = |sent_ms: Option<u64>, ended_ms| {
        let mut bench = Bench::new();
        bench.ask(&[]);
        if let Some(ms) = sent_ms {
            let now = bench.at(ms);
            bench.oracle.all_sent(now);
        }
        bench.ended_at(ended_ms)
    };
    assert_eq!(given_up(None, 9_000), None);
    assert_eq!(given_up(Some(9_000), 9_001), None);
    assert_eq!(given_up(None, 1_000), Some(Kind::Cut));
    assert_eq!(given_up(Some(1_000), 30_000), Some(Kind::Cut));
    // A response that has begun is owed, however long its request took.
    let state = State::new(0, 1, LEN);
    let mut bench = Bench::new();
    bench.ask(&[]);
    let now = bench.at(9_000);
    bench.oracle.all_sent(now);
    assert_eq!(bench.feed_at(9_001, &whole(&state)[..500]), None);
    assert_eq!(bench.ended_at(9_002), Some(Kind::Cut));
}

#[test]
fn an_answer_that_ends_early_is_excused_by_a_change_of_its_file_alone() {
    let answer = whole(&State::new(0, 1, LEN));
    let mut bench = Bench::new();
    assert_eq!(bench.ask(&[]).feed(&answer[..20_000]), None);
    assert_eq!(bench.ended(), Some(Kind::Cut));
    let mut bench = Bench::new();
    assert_eq!(bench.ask(&[]).feed(&answer[..20_000]), None);
    bench.changes(Change::InPlace, Some(State::new(0, 2, LEN)), 2);
    assert_eq!((bench.ended(), bench.oracle.sums.cut), (None, 1));
    // Also before its head.
    assert_eq!(Bench::new().ask(&[]).ended(), Some(Kind::Cut));
    assert_eq!(Bench::new().ended(), None);
}

/// A download during which the file was overwritten. The socket was empty from `empty_at_ms` on, for `empty_ms`; then
/// the rest came, of the new version.
fn written_over(tag: &str, new_len: u64, (empty_at_ms, empty_ms): (u64, u64)) -> Option<Kind> {
    let (old, new) = (State::new(0, 1, LEN), State::new(0, 2, new_len));
    let mut bench = Bench::new();
    let answer = String::from_utf8(whole(&old))
        .expect("ASCII")
        .replace(STRONG, tag);
    let split = answer.len() - LEN as usize + 10_000;
    assert_eq!(bench.ask(&[]).feed(&answer[..split]), None);
    bench.changes(Change::InPlace, Some(Arc::clone(&new)), 10);
    for empty_ms in [0, empty_ms] {
        let now = bench.at(empty_at_ms + empty_ms);
        bench.oracle.drained(now);
    }
    bench.feed_at(empty_at_ms + empty_ms, &content(&new, 10_000, LEN))
}

#[test]
fn two_versions_in_a_complete_answer_are_found_if_the_server_could_know() {
    for (tag, new_len) in [(STRONG, LEN), (STRONG, LEN + 4096), ("W/\"1-9c40\"", LEN)] {
        let found = written_over(tag, new_len, (1500, 200));
        assert_eq!(found, Some(Kind::Mixed), "{tag}");
        // What the server had sent by then refers to the pages of the file, and may come late on a busy machine.
        assert_eq!(written_over(tag, new_len, (500, 200)), None, "{tag}");
        assert_eq!(written_over(tag, new_len, (1500, 1)), None, "{tag}");
    }
    let growing = written_over("W/\"1-9c40\"", LEN + 4096, (1500, 200));
    assert_eq!(growing, None, "a weak tag promises a prefix of what grows");
}

#[test]
fn more_to_come_than_buffers_hold_shows_that_the_server_went_on() {
    let (old, new) = (State::new(0, 1, LEN), State::new(0, 2, LEN));
    for (in_buffers_bytes, found) in [(20_000, Some(Kind::Mixed)), (35_000, None)] {
        let mut bench = Bench::new();
        bench.oracle = Oracle::new(Rules {
            in_buffers_bytes,
            ..RULES
        });
        let answer = whole(&old);
        let split = answer.len() - LEN as usize + 10_000;
        assert_eq!(bench.ask(&[]).feed(&answer[..split]), None);
        bench.changes(Change::InPlace, Some(Arc::clone(&new)), 10);
        assert_eq!(bench.feed_at(1500, &content(&new, 10_000, LEN)), found);
    }
}

#[test]
fn a_file_that_grows_may_be_sent_as_it_was() {
    let old = State::new(0, 1, LEN);
    let mut bench = Bench::new();
    let answer = whole(&old);
    assert_eq!(bench.ask(&[]).feed(&answer[..20_000]), None);
    bench.changes(Change::Grow, Some(old.grown(2, 5_000)), 10);
    for ms in [3000, 3150] {
        let now = bench.at(ms);
        bench.oracle.drained(now);
    }
    assert_eq!(bench.feed_at(3200, &answer[20_000..]), None);
    assert_eq!((bench.oracle.sums.complete, bench.oracle.sums.torn), (1, 0));
}

#[test]
fn one_strong_tag_for_two_contents_is_found() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(&[]).feed(whole(&State::new(0, 1, LEN))), None);
    let new = State::new(0, 2, LEN);
    bench.changes(Change::Replace, Some(Arc::clone(&new)), 10);
    bench.ask(&[]);
    assert_eq!(bench.feed_at(20, &whole(&new)), Some(Kind::Tag));
}

#[test]
fn a_response_that_is_written_over_while_it_lies_in_the_socket_is_torn() {
    // Begun, the change, and when the bytes come; the response has one strong tag for both versions.
    for (begun, came, expected) in [
        (10, 20, None),              // the pages of the file were in the socket
        (10, 5000, Some(Kind::Tag)), // asked long after the change
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.ask(&[]).feed(whole(&State::new(0, 1, LEN))), None);
        let new = State::new(0, 2, LEN);
        if expected.is_none() {
            bench.ask(&[]);
        }
        bench.changes(Change::InPlace, Some(Arc::clone(&new)), begun);
        if expected.is_some() {
            let asked = bench.at(came - 10);
            bench.oracle.asked(Ask::get(Subject::File(0), "/a"), asked);
        }
        assert_eq!(bench.feed_at(came, &whole(&new)), expected, "{came} ms");
        assert_eq!(bench.oracle.sums.torn, usize::from(expected.is_none()));
    }
}

#[test]
fn a_version_that_has_long_been_gone_is_not_served() {
    let mut bench = Bench::new();
    bench.changes(Change::Replace, Some(State::new(0, 2, LEN)), 0);
    bench.start += STALE_FOR + Duration::from_secs(1);
    assert_eq!(
        bench.ask(&[]).feed(whole(&State::new(0, 1, LEN))),
        Some(Kind::WrongBytes)
    );
    let mut bench = Bench::with(None);
    assert_eq!(
        bench.ask(&[]).feed(whole(&State::new(0, 1, LEN))),
        Some(Kind::Status)
    );
}

#[test]
fn answers_that_the_request_cannot_have_are_found() {
    let status = |status, ask: &dyn Fn(&mut Ask)| {
        let mut bench = Bench::new();
        bench.ask_with(ask);
        bench.feed(head(status, 0, ""))
    };
    for code in [304, 404, 412, 416, 500, 503] {
        assert_eq!(status(code, &|_| {}), Some(Kind::Status), "{code}");
    }
    let of_tag = |tag: &str| status(304, &|ask| ask.if_none_match = Some(tag.to_owned()));
    assert_eq!(of_tag(&format!("W/{STRONG}")), None);
    assert_eq!(of_tag("\"2\""), Some(Kind::Status));
    assert_eq!(status(206, &|ask| ask.head_only = true), Some(Kind::Status));
    let another = |ask: &mut Ask| {
        ask.spans = vec![Span::From(5)];
        ask.if_range = Some("\"2\"".to_owned());
    };
    assert_eq!(status(206, &another), Some(Kind::Status));
}

#[test]
fn a_body_where_none_may_be_is_found() {
    let mut bench = Bench::new();
    bench.ask_with(|ask| ask.head_only = true);
    assert_eq!(bench.feed(head(200, LEN, "")), None);
    assert!(bench.oracle.is_answered());
    assert_eq!(
        bench.feed(content(&State::new(0, 1, LEN), 0, 1)),
        Some(Kind::Beyond)
    );
}

#[test]
fn chunks_are_checked_to_their_last_line() {
    let listing = |body: &str| {
        let mut bench = Bench::new();
        bench
            .oracle
            .asked(Ask::get(Subject::Listing, "/"), bench.start);
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        for byte in answer.as_bytes() {
            if let Some(kind) = bench.feed([*byte]) {
                return (Some(kind), false);
            }
        }
        (None, bench.oracle.is_answered())
    };
    assert_eq!(listing("3\r\nabc\r\n0\r\n\r\n"), (None, true));
    assert_eq!(listing("3\r\nabc\r\n0\r\n"), (None, false));
    for broken in ["3\r\nabcd\r\n", "x\r\n", "0\r\nx\r\n", "3\r\nabc\r\n\r\n"] {
        assert_eq!(listing(broken), (Some(Kind::Frame), false), "{broken:?}");
    }
    assert_eq!(listing("0\r\n\r\nHTTP"), (Some(Kind::Beyond), false));
}

#[test]
fn nothing_follows_an_answer_that_closes() {
    let mut bench = Bench::new();
    bench.ask_with(|ask| ask.close = true);
    let kept = head(200, 0, "");
    assert_eq!(bench.feed(kept), Some(Kind::Frame));
    let mut bench = Bench::new();
    bench.ask(&[Span::From(LEN)]).ask(&[]);
    let closes = format!("Content-Range: bytes */{LEN}\r\nConnection: close\r\n");
    assert_eq!(bench.feed(head(416, 0, &closes)), None);
    assert!(bench.oracle.is_answered());
    assert_eq!(bench.feed("H"), Some(Kind::Beyond));
}
