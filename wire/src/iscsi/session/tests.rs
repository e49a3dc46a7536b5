//! The session's times, without a target: `wire/tests/iscsi/kept.rs` has one with a target.

use super::*;
use crate::iscsi::login::{Chap, Mutual, Settings};

const S: u64 = 1_000_000;
const READ: Command = Command::Read {
    lba: 0,
    blocks: 8,
    block_bytes: 512,
};

fn session(patience_us: u64) -> Session {
    let address = "iscsi://target.example/iqn.2026-01.org.example:disk/1";
    let settings = Settings {
        initiator: "iqn.2026-01.org.example:test".to_owned(),
        target: "iqn.2026-01.org.example:disk".to_owned(),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: None,
        header_digests: false,
        data_digests: false,
        segment_bytes: 256 << 10,
    };
    let address = address.parse().expect("an address");
    Session::new(&address, settings, patience_us).expect("settings")
}

fn connects(order: Option<Order>) -> bool {
    matches!(order, Some(Order::Connect { .. }))
}

/// All attempts of this time are refused: when they are made.
fn attempts_us(session: &mut Session, end_us: u64) -> Vec<u64> {
    let mut at_us = 0;
    let mut attempts = Vec::new();
    while at_us < end_us {
        if connects(session.poll(at_us)) {
            attempts.push(at_us);
            session.lost("connection refused", at_us);
        }
        at_us = session.deadline_us().expect("an attempt").max(at_us);
    }
    attempts
}

#[test]
fn attempts_that_fail_are_made_seldom_and_told_once() {
    let mut session = session(120 * S);
    let attempts = attempts_us(&mut session, 20 * S);
    let expected = [0, 250, 750, 1750, 3750, 7750, 11750, 15750, 19750];
    assert_eq!(attempts, expected.map(|ms| ms * 1000));
    assert_eq!(
        session.told(),
        Some(Told::Trouble("connection refused".to_owned()))
    );
    assert_eq!(session.told(), None);
}

#[test]
fn an_attempt_that_hangs_is_closed() {
    let mut session = session(120 * S);
    assert!(connects(session.poll(0)));
    assert_eq!(session.poll(BRING_UP_US - 1), None);
    assert_eq!(session.deadline_us(), Some(BRING_UP_US));
    assert_eq!(session.poll(BRING_UP_US), Some(Order::Close));
    let again_us = session.deadline_us().expect("another attempt");
    assert!(connects(session.poll(again_us)));
    // It is open, but nobody answers the login.
    session.connected(again_us);
    assert!(matches!(session.to_send(), Some(Output::Bytes(_))));
    assert_eq!(session.to_send(), None);
    assert_eq!(session.poll(again_us + BRING_UP_US), Some(Order::Close));
}

#[test]
fn tasks_end_when_patience_does_and_those_asked_later_at_once() {
    let mut session = session(10 * S);
    session.ask(TaskId(1), READ).expect("room");
    attempts_us(&mut session, 12 * S);
    let done = |task| Told::Done {
        task: TaskId(task),
        end: End::Unreachable,
    };
    let told: Vec<Told> = std::iter::from_fn(|| session.told()).collect();
    assert!(told.contains(&done(1)), "{told:?}");
    session.ask(TaskId(2), READ).expect("room");
    assert!(session.deadline_us().is_some_and(|at_us| at_us <= 12 * S));
    session.poll(12 * S);
    assert_eq!(session.told(), Some(done(2)));
    assert_eq!(session.load(), 0);
}

#[test]
fn tasks_are_bounded() {
    let mut session = session(10 * S);
    for id in 0..SESSION_TASKS_MAX as u64 {
        session.ask(TaskId(id), READ).expect("room");
    }
    let refused = session.ask(TaskId(1000), READ);
    assert_eq!(refused, Err(Refused::Full));
    session.abort(TaskId(7));
    let aborted = Told::Done {
        task: TaskId(7),
        end: End::Aborted,
    };
    assert_eq!(session.told(), Some(aborted));
    session.ask(TaskId(1000), READ).expect("room");
}

#[test]
fn it_ends_when_nothing_is_under_way() {
    let mut session = session(10 * S);
    assert!(connects(session.poll(0)));
    session.ask(TaskId(1), READ).expect("room");
    session.log_out();
    assert_eq!(session.ask(TaskId(2), READ), Err(Refused::Over));
    assert_eq!(session.poll(1), None);
    session.abort(TaskId(1));
    assert_eq!(session.poll(2), Some(Order::Close));
    assert_eq!(session.poll(3), None);
    let told: Vec<Told> = std::iter::from_fn(|| session.told()).collect();
    assert_eq!(told.last(), Some(&Told::LoggedOut));
    assert_eq!(session.deadline_us(), None);
}

#[test]
fn the_target_is_asked_something_else_at_each_login() {
    let mut session = session(10 * S);
    session.settings.chap = Some(Chap {
        name: "me".to_owned(),
        secret: b"a secret of mine".to_vec(),
        mutual: Some(Mutual {
            name: "target".to_owned(),
            secret: b"another of the target".to_vec(),
            challenge: [7; 16],
            id: 7,
        }),
    });
    let mut asked = std::collections::BTreeSet::new();
    let mut at_us = 0;
    for _ in 0..5 {
        assert!(connects(session.poll(at_us)));
        session.connected(at_us);
        let mutual = session
            .settings
            .chap
            .as_ref()
            .and_then(|chap| chap.mutual.clone());
        asked.insert(mutual.expect("a question").challenge);
        session.lost("closed", at_us);
        at_us = session.deadline_us().expect("an attempt");
    }
    assert_eq!(asked.len(), 5);
}
