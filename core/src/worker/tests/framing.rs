//! What is sent is what was promised: no want outlives its part, and no response another's length.

use super::*;
use crate::conn::Want;

/// Where the second part lies: inside the window that the first one ends with.
const PART_2: u64 = 3 * WINDOW + WINDOW / 2;

/// A stream of two parts with a pending want for the end of the first, while another stream had these bytes read.
pub(super) fn overtaken() -> (Bench, StreamId) {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let parts = [
        body(ResidencySource::Ask, 0, 4 * WINDOW),
        bytes(50),
        body(ResidencySource::Ask, PART_2, 100),
        bytes(50),
    ];
    bench.resolved(stream, plan(parts, true));
    bench.sent(stream, HEAD_BYTES, false);
    for _ in 0..3 {
        bench.probed(stream, true);
        bench.sent(stream, WINDOW, false);
    }
    let outs = bench.probed(stream, false);
    assert!(matches!(wants_of(&outs)[..], [(3, _)]), "{outs:?}");
    let other = bench.client(1);
    let other = bench.request(other);
    bench.resolved(
        other,
        plan([body(ResidencySource::Ask, 3 * WINDOW, WINDOW)], true),
    );
    bench.sent(other, HEAD_BYTES, false);
    bench.probed(other, true);
    let outs = bench.tcp(conn, TcpEvent::Readable);
    assert_eq!(send_of(&outs), Some((1, 3 * WINDOW, WINDOW)), "{outs:?}");
    (bench, stream)
}

#[test]
fn a_want_ends_with_its_part_and_its_late_answer_is_void() {
    for held in [Held::PageCache, Held::Slots] {
        let (mut bench, stream) = overtaken();
        let outs = bench.sent(stream, WINDOW, false);
        assert!(outs.contains(&Out::Forget(stream)), "{outs:?}");
        assert_eq!(send_of(&outs), Some((2, 0, 50)));
        bench.sent(stream, 50, false);
        let span = Span {
            offset_bytes: 3 * WINDOW,
            len_bytes: WINDOW,
        };
        let late = In::Fetched {
            stream,
            seq: WantSeq(1),
            span,
            held,
            chosen: CHOSEN,
        };
        assert!(
            !bench.worker.awaits(stream, WantSeq(1)),
            "its slots are free"
        );
        let outs = bench.tell(late);
        assert_eq!(send_of(&outs), None, "{outs:?}");
        let outs = bench.probed(stream, true);
        assert_eq!(send_of(&outs), Some((3, 0, 100)));
        let outs = bench.sent(stream, 100, false);
        let outs = [outs, bench.sent(stream, 50, false)].concat();
        assert!(!outs.contains(&Out::Shutdown(stream.conn)), "{outs:?}");
        assert_eq!(bench.request(stream.conn).nth, 1, "the connection lives on");
    }
}

#[test]
fn an_answer_that_crosses_a_newer_want_leaves_that_one_standing() {
    let mut disk = crate::disk::Disk::new(crate::disk::Settings {
        memory_bytes: 16 * WINDOW,
        page_cache_bytes: 16 * WINDOW,
        ..crate::disk::Settings::ONE_DISK
    });
    let (mut bench, now) = (Bench::new(settings()), Instant { us: 0 });
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Ask, 0, 8 * WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    let want_of = |outs: &[Out]| {
        let want = outs.iter().find_map(|out| match out {
            Out::Want(want) => Some(*want),
            _ => None,
        });
        want.expect("a want")
    };
    let early = want_of(&bench.probed(stream, false));
    disk.on(crate::disk::In::Want(early), now);
    let mut reads = Vec::new();
    while let Some(out) = disk.poll(now) {
        match out {
            crate::disk::Out::Map(object) => {
                let layout = crate::disk::Layout::default();
                disk.on(
                    crate::disk::In::Mapped {
                        object,
                        layout,
                        direct: true,
                    },
                    now,
                );
            }
            crate::disk::Out::Read { read, span, .. } => reads.push((read, span)),
            other => panic!("{other:?}"),
        }
    }
    let &[(read, span)] = &reads[..] else {
        panic!("one read: {reads:?}")
    };
    // The answer is under way when the stream comes to want something else.
    let result = Ok(span.len_bytes);
    disk.on(crate::disk::In::Done { read, result }, now);
    let answer = disk.poll(now);
    let late = Want {
        seq: early.seq.next(),
        span: Span {
            offset_bytes: 5 * WINDOW,
            len_bytes: 3 * WINDOW,
        },
        ..early
    };
    disk.on(crate::disk::In::Want(late), now);
    assert!(matches!(answer, Some(crate::disk::Out::Fetched { seq, .. }) if seq == early.seq));
    assert_eq!(disk.forgotten(), []);
    let next = disk.poll(now);
    assert!(
        matches!(next, Some(crate::disk::Out::Read { span, .. }) if span.offset_bytes == 5 * WINDOW),
        "the newer want is read: {next:?}"
    );
}

#[test]
fn a_response_that_is_not_what_its_head_promises_ends_its_connection() {
    for (body_len_bytes, sends_head) in [(Some(9), false), (Some(11), false), (None, false)] {
        let mut bench = Bench::new(settings());
        let conn = bench.client(0);
        let stream = bench.request(conn);
        let unsound = Plan {
            body_len_bytes,
            ..plan([body(ResidencySource::Always, 0, 10)], true)
        };
        let outs = bench.resolved(stream, unsound);
        assert_eq!(send_of(&outs).is_some(), sends_head, "{outs:?}");
        assert!(outs.contains(&Out::Shutdown(conn)), "{outs:?}");
    }
}

#[test]
fn bytes_that_are_gone_when_they_are_to_be_sent_are_read_first() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([body(ResidencySource::Ask, 0, WINDOW)], true));
    bench.sent(stream, HEAD_BYTES, false);
    let outs = bench.probed(stream, true);
    assert_eq!(send_of(&outs), Some((1, 0, WINDOW)));
    let outs = bench.tell(In::Missing { stream });
    assert!(matches!(wants_of(&outs)[..], [(0, _)]), "{outs:?}");
    assert_eq!(bench.worker.counts().missed, 1);
}

#[test]
fn after_a_send_that_took_long_the_page_cache_is_asked_again() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([body(ResidencySource::Ask, 0, WINDOW)], true));
    bench.sent(stream, HEAD_BYTES, false);
    bench.probed(stream, true);
    assert_eq!(bench.tell(In::Waited { stream }), []);
    let outs = bench.sent(stream, 1_000, false);
    let rest = Span {
        offset_bytes: 1_000,
        len_bytes: WINDOW - 1_000,
    };
    assert!(
        matches!(outs[..], [Out::Probe { span, .. }] if span == rest),
        "{outs:?}"
    );
    let outs = bench.probed(stream, true);
    assert_eq!(send_of(&outs), Some((1, 1_000, WINDOW - 1_000)));
}

#[test]
fn what_is_dropped_again_and_again_is_read_again_and_tried_each_time() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, WINDOW)], true),
    );
    let mut outs = bench.sent(stream, HEAD_BYTES, false);
    let whole = Span {
        offset_bytes: 0,
        len_bytes: WINDOW,
    };
    for _ in 0..20 {
        assert!(matches!(wants_of(&outs)[..], [(0, _)]), "{outs:?}");
        outs = bench.fetched(stream, whole);
        assert_eq!(send_of(&outs), Some((1, 0, WINDOW)), "it is tried");
        outs = bench.tell(In::Missing { stream });
    }
}

/// Files of sysfs say 4,096 bytes and have less, and no page of theirs is ever in memory.
#[test]
fn a_file_that_is_shorter_than_it_says_is_not_read_for_ever() {
    const SHORT: u64 = 9;
    for residency in [ResidencySource::Remember, ResidencySource::Ask] {
        let mut bench = Bench::new(settings());
        let conn = bench.client(0);
        let stream = bench.request(conn);
        bench.resolved(stream, plan([body(residency, 0, 4096)], true));
        let mut outs = bench.sent(stream, HEAD_BYTES, false);
        let (mut reads, mut sent_bytes) = (0, 0);
        while !outs.contains(&Out::Shutdown(conn)) {
            let wanted_bytes = outs.iter().find_map(|out| match out {
                Out::Want(want) => Some(want.span.offset_bytes),
                _ => None,
            });
            let begin = Span {
                offset_bytes: 0,
                len_bytes: SHORT,
            };
            reads += u32::from(wanted_bytes.is_some());
            assert!(reads < 4, "{residency:?}: {outs:?}");
            outs = match (send_of(&outs), wanted_bytes) {
                (Some((_, _, len_bytes)), _) => {
                    sent_bytes += len_bytes;
                    bench.sent(stream, len_bytes, false)
                }
                (None, Some(0)) => bench.fetched(stream, begin),
                (None, Some(_)) => bench.tell(In::FetchFailed {
                    stream,
                    seq: PENDING,
                    why: Why::FileChanged,
                }),
                (None, None) => bench.probed(stream, false),
            };
        }
        assert_eq!(sent_bytes, SHORT, "{residency:?}");
    }
}

#[test]
fn a_socket_that_says_it_took_more_than_it_was_offered_is_not_believed() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([body(ResidencySource::Always, 0, 10)], true));
    bench.sent(stream, HEAD_BYTES, false);
    let doubled = [bench.sent(stream, 10, false), bench.sent(stream, 10, false)].concat();
    assert!(!doubled.contains(&Out::Shutdown(conn)), "{doubled:?}");
    assert_eq!(bench.request(conn).nth, 1);
}

#[test]
fn what_is_wanted_behind_bytes_that_are_gone_is_void_with_them() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Ask, 0, 4 * WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    bench.probed(stream, false);
    let span = |nth| Span {
        offset_bytes: nth * WINDOW,
        len_bytes: WINDOW,
    };
    bench.fetched(stream, span(0)); // what follows is asked about
    let outs = bench.probed(stream, false);
    assert!(matches!(wants_of(&outs)[..], [(1, _)]), "{outs:?}");
    let outs = bench.tell(In::Missing { stream });
    assert!(
        !bench.worker.awaits(stream, WantSeq(2)),
        "slots behind a gap"
    );
    assert!(matches!(wants_of(&outs)[..], [(0, _)]), "{outs:?}");
}
