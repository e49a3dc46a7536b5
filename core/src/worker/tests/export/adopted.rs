//! What goes along with a connection, what keeps it here, and an export that contradicts itself.

use super::super::*;
use crate::rate::{BelievedRate, RateSource};

/// The answer to an order to export.
fn answer(bench: &mut Bench, conn: ConnId) -> Out {
    let outs = bench.tell(In::Export {
        conn,
        unacked_bytes: None,
    });
    let answer = |out: &Out| matches!(out, Out::Export { .. } | Out::Keep { .. });
    let mut answers = outs.into_iter().filter(answer);
    let (first, more) = (answers.next(), answers.next());
    assert_eq!(more, None, "one answer");
    first.expect("an answer")
}

fn exported(bench: &mut Bench, conn: ConnId) -> Box<Exported<LocalFile>> {
    match answer(bench, conn) {
        Out::Export { exported, .. } => exported,
        other => panic!("{other:?}"),
    }
}

fn adopted(bench: &mut Bench, conn: ConnId, exported: Box<Exported<LocalFile>>) -> Vec<Out> {
    bench.tell(In::Adopt {
        conn,
        address: None,
        exported,
    })
}

#[test]
fn what_no_other_machine_could_finish_stays_and_goes_on() {
    let keeps = |why| move |out: &Out| matches!(out, Out::Keep { why: is, .. } if *is == why);
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    assert!(keeps(Kept::Resolving)(&answer(&mut bench, conn)));
    let listing = Plan {
        body_len_bytes: None,
        ..plan([Part::Slices], false)
    };
    bench.resolved(stream, listing);
    assert!(keeps(Kept::Listing)(&answer(&mut bench, conn)));
    let outs = bench.sent(stream, HEAD_BYTES, false);
    assert!(outs.contains(&Out::Slice(stream)), "it goes on: {outs:?}");

    let conn = bench.client(1);
    bench.tcp(conn, TcpEvent::Readable);
    let (body, more) = (true, false);
    let outs = bench.received(conn, Received::Request { body, more });
    let outs = bench.resolved(resolve_of(&outs), plan([], true));
    bench.deliver(outs);
    assert!(keeps(Kept::RequestBody)(&answer(&mut bench, conn)));

    let conn = bench.client(2);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([], true));
    bench.tcp(conn, TcpEvent::Fin);
    assert!(keeps(Kept::HalfClosed)(&answer(&mut bench, conn)));

    let (conn, _) = bench.served(3, false);
    assert!(keeps(Kept::Ending)(&answer(&mut bench, conn)));
    bench.tell(In::Export {
        conn: conn_id(99),
        unacked_bytes: None,
    });
    assert_eq!(bench.worker.connections(), 4);
}

#[test]
fn a_send_that_was_not_executed_yet_is_the_next_machines() {
    let (mut bench, stream) = framing::overtaken();
    let sent = In::Sent {
        stream,
        taken_bytes: WINDOW,
        full: false,
        unsent_bytes: None,
    };
    bench.worker.on(sent, bench.now);
    // A cancellation goes first; the send waits behind it.
    let polled = std::iter::from_fn(|| bench.worker.poll(bench.now));
    let forgets = polled.take(5).any(|out| out == Out::Forget(stream));
    assert!(forgets, "no cancellation");
    assert!(matches!(
        bench.worker.outs.front(),
        Some(Out::Send(SendOrder { part: 2, .. }))
    ));
    let outs = bench.tell(In::Export {
        conn: stream.conn,
        unacked_bytes: None,
    });
    assert_eq!(send_of(&outs), None, "{outs:?}");
    let Some(Out::Export { exported, .. }) = outs.last() else {
        panic!("{outs:?}")
    };
    let Stage::Response(response) = &exported.stage else {
        panic!("{exported:?}")
    };
    assert_eq!(response.sent_bytes, HEAD_BYTES + 4 * WINDOW);
    let exported = exported.clone();
    let mut other = Bench::new(settings());
    let outs = adopted(&mut other, conn_id(5), exported);
    assert_eq!(send_of(&outs), Some((2, 0, 50)), "{outs:?}");
}

#[test]
fn an_export_whose_numbers_do_not_agree_is_cut_off() {
    type Spoil = fn(&mut Exported<LocalFile>, &mut ExportedResponse<LocalFile>);
    let spoils: [(Spoil, bool); 6] = [
        (|_, _| {}, true),
        (|_, response| response.sent_bytes = 151, false),
        (|_, response| response.body_len_bytes += 1, false),
        (|whole, _| whole.given_bytes = 59, false),
        (|whole, _| whole.acked_bytes = 61, false),
        (|_, response| response.waited_net_us = u64::MAX, false),
    ];
    for (nth, (spoil, goes_on)) in spoils.into_iter().enumerate() {
        let mut bench = Bench::new(settings());
        let conn = bench.client(0);
        let stream = bench.request(conn);
        bench.resolved(stream, plan([bytes(50)], true));
        bench.sent(stream, 60, false);
        let mut whole = exported(&mut bench, conn);
        let Stage::Response(mut response) = whole.stage.clone() else {
            panic!("{whole:?}")
        };
        spoil(&mut whole, &mut response);
        whole.stage = Stage::Response(response);
        let conn = conn_id(1);
        let outs = adopted(&mut bench, conn, whole);
        let close = Out::Close {
            conn,
            abort: true,
            why: Why::Misframed,
        };
        assert_eq!(outs.contains(&close), !goes_on, "spoil {nth}: {outs:?}");
        assert_eq!(send_of(&outs).is_some(), goes_on, "spoil {nth}: {outs:?}");
        assert_eq!(bench.worker.connections(), u32::from(goes_on));
    }
}

#[test]
fn what_is_believed_of_a_client_goes_along_and_stays_below_the_fastest_path() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let mut idle = exported(&mut bench, conn);
    assert_eq!(idle.rate, BelievedRate::default());
    idle.rate = BelievedRate {
        bytes_per_s: u64::MAX,
        source: RateSource::Itself,
    };
    adopted(&mut bench, conn_id(1), idle.clone());
    let again = exported(&mut bench, conn_id(1));
    let most = crate::limits::RATE_BYTES_PER_S_MAX;
    assert_eq!(again.rate.bytes_per_s, most);
    assert_eq!(again.rate.source, RateSource::Itself);
}

#[test]
fn a_client_gains_no_time_by_being_given_away() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    bench.wait_s(4);
    let silent = exported(&mut bench, conn);
    assert_eq!(
        silent.stage,
        Stage::New {
            for_us: 4 * US_PER_S
        }
    );
    adopted(&mut bench, conn_id(1), silent);
    bench.received(conn_id(1), Received::HeadPart);
    bench.wait_s(3);
    let head = exported(&mut bench, conn_id(1));
    assert_eq!(
        head.stage,
        Stage::Head {
            for_us: 7 * US_PER_S
        }
    );
    adopted(&mut bench, conn_id(2), head);
    let end = bench.closed_within_s(5).expect("it ends");
    assert_eq!(end.why, Why::HeaderTimeout);
    assert!((10..12).contains(&end.at_s), "{end:?}");
}

#[test]
fn between_two_requests_it_goes_on_with_the_next_number() {
    let mut bench = Bench::new(settings());
    let (conn, _) = bench.served(0, true);
    bench.wait_s(5);
    let idle = exported(&mut bench, conn);
    assert_eq!(
        idle.stage,
        Stage::Idle {
            for_us: 5 * US_PER_S
        }
    );
    adopted(&mut bench, conn_id(1), idle.clone());
    assert_eq!(bench.request(conn_id(1)).nth, 1);
    // A worker that stops answers no more requests than have arrived.
    bench.tell(In::Drain);
    let conn = conn_id(2);
    let outs = adopted(&mut bench, conn, idle);
    assert_eq!(bench.closed_in(&outs), None);
    let outs = bench.received(conn, Received::Nothing);
    assert!(
        outs.contains(&Out::Shutdown(conn)) || bench.closed_in(&outs).is_some(),
        "{outs:?}"
    );
}
