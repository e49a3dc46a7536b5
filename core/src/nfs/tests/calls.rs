//! Calls and replies, one event after the other.

use proptest::prelude::*;

use super::*;

/// An event, and the orders that it causes.
type Row = (In, Vec<Out>);

fn check(nfs: &mut Nfs, rows: Vec<Row>) {
    for (nth, (event, expected)) in rows.into_iter().enumerate() {
        nfs.on(event, NOW);
        assert_eq!(orders(nfs, NOW), expected, "row {nth}: {event:?}");
    }
}

fn resolved(call: CallId, answer: Answer) -> In {
    In::Resolved { call, answer }
}

fn reply(len_bytes: u32) -> Answer {
    Answer::Reply { len_bytes }
}

fn sent(taken_bytes: u64, full: bool) -> In {
    In::Sent { taken_bytes, full }
}

fn send(call: CallId, from_bytes: u64, more: bool) -> Out {
    Out::Send {
        call,
        from_bytes,
        more,
    }
}

fn probe(call: CallId, offset_bytes: u64, len_bytes: u64) -> Out {
    let span = Span {
        offset_bytes,
        len_bytes,
    };
    Out::Probe {
        call,
        object: FILE,
        span,
    }
}

fn probed(call: CallId, is_resident: bool) -> In {
    In::Probed { call, is_resident }
}

/// The want of a call's reader.
fn want(call: CallId, nth: u16, offset_bytes: u64, len_bytes: u64, seq: u32) -> Want {
    Want {
        stream: reader(&SETTINGS, call.0.into(), nth),
        object: FILE,
        span: Span {
            offset_bytes,
            len_bytes,
        },
        underrun_at: NOW,
        rate_bytes_per_s: 0,
        seq: WantSeq(seq),
        answers: seq - 1,
        signals: 0,
        through_cache: true,
    }
}

fn fetched(want: &Want, len_bytes: u64) -> In {
    In::Fetched {
        stream: want.stream,
        seq: want.seq,
        span: Span {
            len_bytes,
            ..want.span
        },
    }
}

#[test]
fn replies_leave_in_the_order_in_which_they_are_ready() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let [a, b, c] = [(); 3].map(|()| call(&mut nfs, NOW));
    let rows = vec![
        (resolved(c, reply(40)), vec![send(c, 0, false)]),
        (
            sent(10, true),
            vec![], // the socket is full
        ),
        (resolved(a, reply(100)), vec![]),
        (In::Tcp(TcpEvent::Writable), vec![send(c, 10, true)]),
        (sent(30, false), vec![Out::Left(c), send(a, 0, false)]),
        (sent(100, false), vec![Out::Left(a)]),
        (resolved(b, reply(20)), vec![send(b, 0, false)]),
        (sent(20, false), vec![Out::Left(b)]),
    ];
    check(&mut nfs, rows);
    assert_eq!((nfs.calls(), nfs.replies_bytes), (0, 0));
    assert_eq!(call(&mut nfs, NOW), a, "its place is free again");
}

#[test]
fn a_read_waits_for_its_bytes_and_holds_up_nobody() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let [a, b] = [(); 2].map(|()| call(&mut nfs, NOW));
    let (len_bytes, half) = (64 * KIB, 32 * KIB);
    let first = want(a, 0, 0, len_bytes, 1);
    let second = want(a, 0, half, half, 2);
    let read = || read_of(FILE, 0, len_bytes);
    let rows = vec![
        (resolved(a, read()), vec![probe(a, 0, len_bytes)]),
        (probed(a, false), vec![Out::Want(first)]),
        (resolved(b, reply(20)), vec![send(b, 0, false)]),
        (sent(20, false), vec![Out::Left(b)]),
        // Half of it comes, and the rest is wanted; the first answer again says nothing.
        (fetched(&first, half), vec![Out::Want(second)]),
        (fetched(&first, len_bytes), vec![]),
        (
            fetched(&second, half),
            vec![Out::Forget(first.stream), send(a, 0, false)],
        ),
        (sent(128 + len_bytes, false), vec![Out::Left(a)]),
    ];
    check(&mut nfs, rows);
}

#[test]
fn bytes_that_were_evicted_are_wanted_again_and_a_begun_reply_goes_first() {
    let len_bytes = 64 * KIB;
    for sent_bytes in [0, 128 + KIB] {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        let [a, b] = [(); 2].map(|()| call(&mut nfs, NOW));
        let has_begun = sent_bytes > 0;
        let from_bytes = if has_begun { KIB } else { 0 };
        let again = want(a, 0, from_bytes, len_bytes - from_bytes, 1);
        let read = || read_of(FILE, 0, len_bytes);
        check(
            &mut nfs,
            vec![
                (resolved(a, read()), vec![probe(a, 0, len_bytes)]),
                (probed(a, true), vec![send(a, 0, false)]),
            ],
        );
        if has_begun {
            let rest = send(a, sent_bytes, false);
            check(&mut nfs, vec![(sent(sent_bytes, false), vec![rest])]);
        }
        let other = if has_begun {
            vec![]
        } else {
            vec![send(b, 0, false)]
        };
        check(
            &mut nfs,
            vec![
                (In::Missing, vec![Out::Want(again)]),
                (resolved(b, reply(20)), other),
            ],
        );
        if has_begun {
            let forget = Out::Forget(again.stream);
            let rest = send(a, sent_bytes, true);
            let came = fetched(&again, len_bytes - from_bytes);
            check(&mut nfs, vec![(came, vec![forget, rest])]);
        }
    }
}

#[test]
fn bytes_that_cannot_be_sent_are_refused_unless_the_head_is_out() {
    let unreadable = || In::Unreadable(Why::FileChanged);
    let why = Why::FileChanged;
    let begun = || {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        let a = call(&mut nfs, NOW);
        let rows = vec![
            (resolved(a, read_of(FILE, 0, KIB)), vec![probe(a, 0, KIB)]),
            (probed(a, true), vec![send(a, 0, false)]),
        ];
        check(&mut nfs, rows);
        (nfs, a)
    };
    let (mut nfs, a) = begun();
    let refuse = Out::Refuse { call: a, why };
    let rows = vec![
        (unreadable(), vec![refuse]),
        (resolved(a, reply(120)), vec![send(a, 0, false)]),
        (sent(120, false), vec![Out::Left(a)]),
    ];
    check(&mut nfs, rows);
    let (mut nfs, a) = begun();
    let close = Out::Close { abort: true, why };
    let rows = vec![
        (sent(128, false), vec![send(a, 128, false)]),
        (unreadable(), vec![close]),
    ];
    check(&mut nfs, rows);
}

#[test]
fn a_read_that_fails_is_refused_unless_its_head_is_out() {
    let len_bytes = 64 * KIB;
    let failed = |want: &Want| In::FetchFailed {
        stream: want.stream,
        seq: want.seq,
        why: Why::ReadFailed,
    };
    let read = || read_of(FILE, 0, len_bytes);
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let a = call(&mut nfs, NOW);
    let first = want(a, 0, 0, len_bytes, 1);
    let forget = Out::Forget(first.stream);
    let refuse = Out::Refuse {
        call: a,
        why: Why::ReadFailed,
    };
    let rows = vec![
        (resolved(a, read()), vec![probe(a, 0, len_bytes)]),
        (probed(a, false), vec![Out::Want(first)]),
        (failed(&first), vec![forget, refuse]),
        (resolved(a, reply(120)), vec![send(a, 0, false)]),
        (sent(120, false), vec![Out::Left(a)]),
    ];
    check(&mut nfs, rows);

    let mut nfs = Nfs::new(SETTINGS, NOW);
    let a = call(&mut nfs, NOW);
    let rest = want(a, 0, 0, len_bytes, 1);
    let close = Out::Close {
        abort: true,
        why: Why::ReadFailed,
    };
    let rows = vec![
        (resolved(a, read()), vec![probe(a, 0, len_bytes)]),
        (probed(a, true), vec![send(a, 0, false)]),
        (sent(128, false), vec![send(a, 128, false)]),
        (In::Missing, vec![Out::Want(rest)]),
        (failed(&rest), vec![Out::Forget(rest.stream), close]),
    ];
    check(&mut nfs, rows);
    assert_eq!(nfs.poll(NOW), None);
}

#[test]
fn a_reset_is_heard_by_all_stages_in_this_turn() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let [a, b] = [(); 2].map(|()| call(&mut nfs, NOW));
    let [of_a, of_b] = [(a, 0), (b, 64 * KIB)].map(|(id, offset)| want(id, 0, offset, KIB, 1));
    for want in [of_a, of_b] {
        let id = if want == of_a { a } else { b };
        let Span {
            offset_bytes,
            len_bytes,
        } = want.span;
        let rows = vec![
            (
                resolved(id, read_of(FILE, offset_bytes, len_bytes)),
                vec![probe(id, offset_bytes, len_bytes)],
            ),
            (probed(id, false), vec![Out::Want(want)]),
        ];
        check(&mut nfs, rows);
    }
    let close = Out::Close {
        abort: true,
        why: Why::PeerReset,
    };
    let all = [of_a, of_b].map(|want| Out::Forget(want.stream));
    let rows = vec![
        (In::Tcp(TcpEvent::Reset), vec![all[0], all[1], close]),
        (fetched(&of_a, KIB), vec![]),
        (resolved(a, reply(20)), vec![]),
    ];
    check(&mut nfs, rows);
    assert_eq!(nfs.deadline(), None);
}

#[test]
fn ends_come_after_the_last_reply() {
    for (event, why) in [
        (In::Received(Received::End), Why::PeerClosed),
        (In::Drain, Why::Draining),
    ] {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        let a = call(&mut nfs, NOW);
        let close = Out::Close { abort: false, why };
        let rows = vec![
            (event, vec![]),
            (resolved(a, reply(20)), vec![send(a, 0, false)]),
            (sent(20, false), vec![Out::Left(a), close]),
        ];
        check(&mut nfs, rows);
    }
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let close = Out::Close {
        abort: true,
        why: Why::Misframed,
    };
    check(
        &mut nfs,
        vec![(In::Received(Received::Broken), vec![close])],
    );
}

#[test]
fn a_client_that_takes_nothing_is_closed_in_the_end() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let a = call(&mut nfs, NOW);
    let rows = vec![
        (resolved(a, reply(20)), vec![send(a, 0, false)]),
        (sent(7, true), vec![]),
    ];
    check(&mut nfs, rows);
    let at = NOW.plus_us(SETTINGS.send_timeout_us);
    assert_eq!(nfs.deadline(), Some(at));
    assert_eq!(nfs.poll(at.minus_us(1)), None);
    let close = Out::Close {
        abort: true,
        why: Why::SendTimeout,
    };
    assert_eq!(orders(&mut nfs, at), [close]);
}

#[test]
fn input_waits_while_there_are_many_calls_or_long_replies() {
    for (reply_bytes_max, calls_max) in [
        (512, NFS_CALLS_MAX),
        (64 << 10, NFS_REPLIES_BYTES_MAX as usize / (64 << 10)),
    ] {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        let mut calls = Vec::new();
        while let Some(out) = nfs.poll(NOW) {
            match out {
                Out::Receive => nfs.on(In::Received(Received::Call { reply_bytes_max }), NOW),
                Out::Resolve(id) => calls.push(id),
                out => panic!("{out:?}"),
            }
            assert!(calls.len() <= calls_max);
        }
        assert_eq!(calls.len(), calls_max);
        assert_eq!(nfs.deadline(), None);
        nfs.on(resolved(calls[2], reply(1)), NOW);
        if calls_max == NFS_CALLS_MAX {
            assert_eq!(nfs.poll(NOW), Some(send(calls[2], 0, false)));
            nfs.on(sent(1, false), NOW);
            assert_eq!(nfs.poll(NOW), Some(Out::Left(calls[2])));
        }
        assert_eq!(nfs.poll(NOW), Some(Out::Receive)); // a shorter reply than it might have been
    }
}

/// Any event, about any call and any reader.
fn any_event() -> impl Strategy<Value = In> {
    let id = || (0..4u8).prop_map(CallId);
    let stream = || {
        let readers = SETTINGS.readers.index - 1..SETTINGS.readers.index + READERS as u32 + 1;
        (readers, 0..3u16).prop_map(|(index, nth)| StreamId {
            worker: SETTINGS.worker,
            conn: ConnId {
                index,
                ..SETTINGS.readers
            },
            nth,
        })
    };
    let seq = || (0..4u32).prop_map(WantSeq);
    let span = || {
        (0..9u64, 1..40u64).prop_map(|(at, len)| Span {
            offset_bytes: at * 16 * KIB,
            len_bytes: len * 8 * KIB,
        })
    };
    let answer = prop_oneof![
        (1..200u32).prop_map(reply),
        span().prop_map(|span| read_of(FILE, span.offset_bytes, span.len_bytes)),
    ];
    prop_oneof![
        1 => Just(In::Tcp(TcpEvent::Readable)),
        1 => Just(In::Tcp(TcpEvent::Writable)),
        4 => Just(In::Received(Received::Call { reply_bytes_max: 300 })),
        1 => Just(In::Received(Received::Nothing)),
        8 => (id(), answer).prop_map(|(call, answer)| resolved(call, answer)),
        8 => (id(), any::<bool>()).prop_map(|(call, is_resident)| probed(call, is_resident)),
        4 => (stream(), seq(), span())
            .prop_map(|(stream, seq, span)| In::Fetched { stream, seq, span }),
        1 => (stream(), seq()).prop_map(|(stream, seq)| In::FetchFailed {
            stream,
            seq,
            why: Why::ReadFailed
        }),
        8 => (any::<u32>(), any::<bool>())
            .prop_map(|(taken_bytes, full)| sent(taken_bytes.into(), full)),
        1 => Just(In::Missing),
    ]
}

proptest! {
    #[test]
    fn no_events_in_any_order_exceed_its_bounds(events in prop::collection::vec(any_event(), 0..200)) {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        for event in events {
            if let In::Received(Received::Call { .. }) = event {
                if nfs.calls() == NFS_CALLS_MAX {
                    continue; // not asked for
                }
            }
            nfs.on(event, NOW);
            let outs = orders(&mut nfs, NOW);
            prop_assert!(outs.len() <= 4 + NFS_CALLS_MAX + READERS, "{event:?}: {outs:?}");
            let held: u64 = nfs.places.iter().filter_map(|place| place.call).map(|call| call.reply_bytes).sum();
            prop_assert_eq!(nfs.replies_bytes, held);
            let open = nfs.places.iter().filter(|place| place.call.is_some()).count();
            prop_assert_eq!(nfs.calls(), open);
        }
        nfs.on(In::Tcp(TcpEvent::Reset), NOW);
        let outs = orders(&mut nfs, NOW);
        let is_over = matches!(outs.last(), Some(Out::Close { .. }) | None);
        prop_assert!(is_over);
    }
}
