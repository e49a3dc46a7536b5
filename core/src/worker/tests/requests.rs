//! From one request to the next.

use super::*;

#[test]
fn a_response_is_sent_part_by_part_and_the_connection_waits_for_the_next() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let parts = [bytes(0), body(ResidencySource::Always, 7, 50), bytes(9)];
    let outs = bench.resolved(stream, plan(parts, true));
    let send = |part, offset_bytes, len_bytes, more| {
        Out::Send(SendOrder {
            stream,
            part,
            span: Span {
                offset_bytes,
                len_bytes,
            },
            held: Held::PageCache,
            more,
            refill: None,
        })
    };
    assert_eq!(outs, [send(0, 0, 100, true)]);
    assert_eq!(bench.sent(stream, 60, false), [send(0, 60, 40, true)]);
    assert_eq!(bench.sent(stream, 40, false), [send(2, 0, 50, true)]);
    assert_eq!(bench.sent(stream, 50, false), [send(3, 0, 9, false)]);
    assert_eq!(
        bench.sent(stream, 9, false),
        [],
        "input was read to its end"
    );
    assert_eq!(bench.ended, [stream]);
    assert_eq!(bench.request(conn), stream_id(conn, 1));
}

#[test]
fn an_empty_part_at_the_end_holds_nothing_back() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let parts = [body(ResidencySource::Ask, 0, 0), bytes(0)];
    let outs = bench.resolved(stream, plan(parts, true));
    assert!(
        matches!(outs[..], [Out::Send(SendOrder { more: false, .. })]),
        "{outs:?}"
    );
}

#[test]
fn a_full_socket_is_left_alone_until_it_takes_more() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([], true));
    assert_eq!(bench.sent(stream, 30, true), []);
    assert_eq!(
        bench.tcp(conn, TcpEvent::Readable),
        [],
        "it asks for nothing"
    );
    let outs = bench.tcp(conn, TcpEvent::Writable);
    assert_eq!(send_of(&outs), Some((0, 30, 70)));
    assert_eq!(bench.sent(stream, 0, true), [], "a false alarm");
    let outs = bench.tcp(conn, TcpEvent::Writable);
    assert_eq!(send_of(&outs), Some((0, 30, 70)));
}

#[test]
fn a_socket_that_was_called_full_but_holds_nothing_is_tried_again() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([], true));
    bench.sent(stream, 30, true);
    let sample = |unacked_bytes| {
        TcpEvent::Sample(TcpSample {
            unacked_bytes,
            ..TcpSample::default()
        })
    };
    assert_eq!(bench.tcp(conn, sample(1)), []);
    let outs = bench.tcp(conn, sample(0));
    assert_eq!(send_of(&outs), Some((0, 30, 70)));
}

#[test]
fn a_socket_that_is_full_after_the_last_byte_does_not_hold_the_end_up() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([], false));
    assert_eq!(bench.sent(stream, HEAD_BYTES, true), [Out::Shutdown(conn)]);
}

/// A client that sends request after request in one go; how many are answered before `other`'s.
fn answered_before_another(busy: u32) -> u32 {
    let mut bench = Bench::new(settings());
    let (conn, other) = (bench.client(0), bench.client(1));
    let event = TcpEvent::Readable;
    bench.worker.on(In::Tcp { conn, event }, bench.now);
    let mut answered = 0;
    for _ in 0..10 * busy {
        let out = bench.worker.poll(bench.now).expect("always something");
        let event = match out {
            Out::Receive { conn: c, .. } if c == other => return answered,
            Out::Receive { conn, .. } => {
                let (body, more) = (false, true);
                let received = Received::Request { body, more };
                In::Received { conn, received }
            }
            Out::Resolve { stream, .. } => {
                let plan = plan([], true);
                In::Resolved { stream, plan }
            }
            Out::Send(order) => {
                answered += 1;
                if answered == 3 {
                    let (conn, event) = (other, TcpEvent::Readable);
                    bench.worker.on(In::Tcp { conn, event }, bench.now);
                }
                let (stream, taken_bytes, full) = (order.stream, order.span.len_bytes, false);
                In::Sent {
                    stream,
                    taken_bytes,
                    full,
                    unsent_bytes: None,
                }
            }
            Out::Ended(_) => continue,
            other => panic!("{other:?}"),
        };
        bench.worker.on(event, bench.now);
    }
    panic!("the other client never had its turn");
}

#[test]
fn after_so_many_pipelined_requests_the_others_have_their_turn() {
    assert_eq!(answered_before_another(PIPELINED_MAX), PIPELINED_MAX);
}

#[test]
fn a_large_body_lets_others_in_between_its_pieces() {
    let mut bench = Bench::new(settings());
    let (large, small) = (bench.client(0), bench.client(1));
    let stream = bench.request(large);
    let outs = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 9 * WINDOW)], true),
    );
    assert!(send_of(&outs).is_some());
    let (conn, event) = (small, TcpEvent::Readable);
    bench.worker.on(In::Tcp { conn, event }, bench.now);
    let outs = bench.sent(stream, HEAD_BYTES, false);
    let piece = Some((1, 0, SEND_BYTES_MAX));
    assert_eq!(send_of(&outs), piece, "the head goes on");
    let event = TcpEvent::Readable;
    bench.worker.on(In::Tcp { conn, event }, bench.now);
    let outs = bench.sent(stream, SEND_BYTES_MAX, false);
    assert!(matches!(outs[0], Out::Receive { conn, .. } if conn == small));
    assert_eq!(send_of(&outs), Some((1, SEND_BYTES_MAX, SEND_BYTES_MAX)));
}

#[test]
fn a_half_closed_client_gets_its_response_and_then_the_end() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    assert_eq!(bench.tcp(conn, TcpEvent::Fin), [], "this is not departure");
    let outs = bench.resolved(stream, plan([body(ResidencySource::Always, 0, 5)], true));
    let outs = bench.deliver(outs);
    let expect = Expect::Head;
    assert_eq!(outs, [Out::Receive { conn, expect }]);
    let outs = bench.received(conn, Received::End);
    assert_eq!(bench.closed_in(&outs), closed(0, false, Why::PeerClosed));
}

/// epoll(7) reports data and the FIN behind it once, in one event, when both came before the wake-up.
#[test]
fn a_fin_that_came_with_the_request_is_read_after_the_answer() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    bench.tcp(conn, TcpEvent::Readable);
    bench.tcp(conn, TcpEvent::Fin);
    let (body, more) = (false, false);
    let outs = bench.received(conn, Received::Request { body, more });
    let outs = bench.resolved(resolve_of(&outs), plan([], true));
    let expect = Expect::Head;
    assert_eq!(bench.deliver(outs), [Out::Receive { conn, expect }]);
    let outs = bench.received(conn, Received::End);
    assert_eq!(bench.closed_in(&outs), closed(0, false, Why::PeerClosed));
}

#[test]
fn a_fin_that_came_with_a_torn_head_ends_the_connection() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    bench.tcp(conn, TcpEvent::Readable);
    bench.tcp(conn, TcpEvent::Fin);
    let expect = Expect::Head;
    let outs = bench.received(conn, Received::HeadPart);
    assert_eq!(outs, [Out::Receive { conn, expect }]);
    let outs = bench.received(conn, Received::End);
    assert_eq!(bench.closed_in(&outs), closed(0, false, Why::PeerClosed));
}

/// A request with a body, answered; what follows on its pieces.
fn skipping(bench: &mut Bench, keep_alive: bool) -> ConnId {
    let conn = bench.client(0);
    bench.tcp(conn, TcpEvent::Readable);
    let (body, more) = (true, true);
    let outs = bench.received(conn, Received::Request { body, more });
    let outs = bench.resolved(resolve_of(&outs), plan([], keep_alive));
    let expect = Expect::Body;
    assert_eq!(bench.deliver(outs), [Out::Receive { conn, expect }]);
    conn
}

#[test]
fn a_body_up_to_its_bound_is_skipped_and_a_longer_one_ends_the_connection() {
    for (bytes, ends) in [
        (BODY_SKIP_BYTES_MAX - 1, false),
        (BODY_SKIP_BYTES_MAX, false),
        (BODY_SKIP_BYTES_MAX + 1, true),
    ] {
        let mut bench = Bench::new(settings());
        let conn = skipping(&mut bench, true);
        let done = false;
        let outs = bench.received(conn, Received::Skipped { bytes, done });
        let expect = [Expect::Body, Expect::Rest][usize::from(ends)];
        assert_eq!(outs.contains(&Out::Shutdown(conn)), ends, "{bytes}");
        assert_eq!(outs.last(), Some(&Out::Receive { conn, expect }), "{bytes}");
    }
}

#[test]
fn behind_a_body_the_next_request_is_read() {
    let mut bench = Bench::new(settings());
    let conn = skipping(&mut bench, true);
    let (bytes, done) = (10, true);
    let outs = bench.received(conn, Received::Skipped { bytes, done });
    let expect = Expect::Head;
    assert_eq!(outs, [Out::Receive { conn, expect }]);
}

#[test]
fn behind_a_last_or_broken_body_nothing_is_read() {
    let (bytes, done) = (10, true);
    for (keep_alive, received) in [
        (false, Received::Skipped { bytes, done }),
        (true, Received::Broken),
    ] {
        let mut bench = Bench::new(settings());
        let conn = skipping(&mut bench, keep_alive);
        let expect = Expect::Rest;
        assert_eq!(
            bench.received(conn, received),
            [Out::Shutdown(conn), Out::Receive { conn, expect }]
        );
    }
}

#[test]
fn a_drain_while_a_body_is_skipped_ends_the_connection_behind_it() {
    let mut bench = Bench::new(settings());
    let conn = skipping(&mut bench, true);
    bench.tell(In::Drain);
    let (bytes, done) = (10, true);
    bench.sample = unacked(1);
    let outs = bench.received(conn, Received::Skipped { bytes, done });
    let expect = Expect::Head;
    assert_eq!(outs, [Out::Receive { conn, expect }]);
    let outs = bench.received(conn, Received::Nothing);
    assert!(outs.contains(&Out::Shutdown(conn)), "{outs:?}");
}

#[test]
fn a_listing_is_made_and_sent_slice_by_slice() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let outs = bench.resolved(stream, plan([Part::Slices], true));
    // Nobody knows how long the next slice takes.
    assert!(matches!(
        outs[..],
        [Out::Send(SendOrder { more: false, .. })]
    ));
    assert_eq!(bench.sent(stream, 100, false), [Out::Slice(stream)]);
    let sliced = |bench: &mut Bench, len_bytes, last| {
        bench.tell(In::Sliced {
            stream,
            len_bytes,
            last,
        })
    };
    let outs = sliced(&mut bench, 20, false);
    assert!(matches!(
        outs[..],
        [Out::Send(SendOrder { more: false, .. })]
    ));
    assert_eq!(send_of(&outs), Some((1, 0, 20)));
    let outs = bench.sent(stream, 5, false);
    assert_eq!(send_of(&outs), Some((1, 5, 15)));
    assert_eq!(bench.sent(stream, 15, false), [Out::Slice(stream)]);
    assert_eq!(sliced(&mut bench, 0, false), [Out::Slice(stream)]);
    let outs = sliced(&mut bench, 3, true);
    assert!(matches!(
        outs[..],
        [Out::Send(SendOrder { more: false, .. })]
    ));
    assert_eq!(bench.sent(stream, 3, false), [], "done, nothing to forget");
}

#[test]
fn a_listing_that_breaks_off_is_reset_so_that_it_does_not_look_whole() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([Part::Slices], true));
    bench.sent(stream, 100, false);
    let why = Why::ListingFailed;
    let outs = bench.tell(In::Failed { stream, why });
    let abort = true;
    assert_eq!(outs, [Out::Forget(stream), Out::Close { conn, abort, why }]);
}

#[test]
fn news_of_earlier_streams_and_clients_change_nothing() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let old = bench.request(conn);
    let outs = bench.resolved(old, plan([], true));
    bench.deliver(outs);
    let new = bench.request(conn);
    bench.resolved(new, plan([Part::Slices], true));
    bench.sent(new, 40, true);
    let gone = ConnId {
        index: 0,
        generation: 9,
    };
    let span = Span {
        offset_bytes: 0,
        len_bytes: 1,
    };
    for stream in [old, stream_id(gone, 1), stream_id(conn_id(77), 1)] {
        let plan = plan([], false);
        assert_eq!(bench.resolved(stream, plan), []);
        assert_eq!(bench.probed(stream, false), []);
        let is_resident = false;
        let probed = In::Probed {
            stream,
            is_resident,
        };
        bench.worker.on(probed, bench.now);
        let wakes = !bench.worker.turns.is_empty();
        assert!(!wakes, "the connection at that place has nothing to do");
        assert_eq!(bench.sent(stream, 60, false), []);
        let (len_bytes, last) = (1, true);
        let sliced = In::Sliced {
            stream,
            len_bytes,
            last,
        };
        assert_eq!(bench.tell(sliced), []);
        assert_eq!(bench.fetched(stream, span), []);
        let why = Why::ReadFailed;
        assert_eq!(bench.tell(In::Failed { stream, why }), []);
        assert!(bench.worker.plan(stream).is_none());
    }
    for conn in [gone, conn_id(77)] {
        assert_eq!(bench.tcp(conn, TcpEvent::Reset), []);
        assert_eq!(bench.tcp(conn, TcpEvent::Sample(unacked(0))), []);
        assert_eq!(bench.received(conn, Received::Broken), []);
    }
    let outs = bench.tcp(conn, TcpEvent::Writable);
    assert_eq!(send_of(&outs), Some((0, 40, 60)));
    assert!(bench.worker.plan(new).is_some());
}
