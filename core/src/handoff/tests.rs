use alloc::vec::Vec;

use super::{
    Facts, Guest, Home, In, LOST_US, MARGIN_US, Message, Out, RESTORES_MAX, Refusal, Step, Tracked,
    answer_unknown,
};
use super::{LEASE_US, RENEW_US};
use crate::machine::Machine;
use crate::units::Instant;

const GOOD: Facts = Facts {
    established: true,
    prepared: true,
    frozen: 0,
    rtt_us: 20_000,
    acked: true,
    retransmits: 0,
    ca_state: 0,
    repairing: 0,
    timestamps: true,
};

/// A machine and its time; its orders without reasons.
struct Test<M> {
    machine: M,
    now: Instant,
}

impl<M: Machine<In = In, Out = Out>> Test<M> {
    fn on(&mut self, event: In) -> Vec<Out> {
        self.machine.on(event, self.now);
        self.outs()
    }

    fn outs(&mut self) -> Vec<Out> {
        let outs = core::iter::from_fn(|| self.machine.poll(self.now));
        let outs = outs.take(100).filter(|out| !matches!(out, Out::Tell(_)));
        outs.collect()
    }

    fn hears(&mut self, epoch: u32, message: Message) -> Vec<Out> {
        self.on(In::Heard { epoch, message })
    }

    fn after(&mut self, us: u64) -> Vec<Out> {
        self.now = self.now.plus_us(us);
        self.outs()
    }
}

const READY: Message = Message::Ready;

fn to(node: u16, epoch: u32, message: Message) -> Out {
    Out::Send {
        to: node,
        epoch,
        message,
    }
}

fn moving(to: u16) -> In {
    In::Move {
        to,
        draining: false,
        reachable: true,
    }
}

fn own() -> Test<Home> {
    Test {
        machine: Home::new(1, 1),
        now: Instant { us: 1_000_000 },
    }
}

/// Home has sent the connection to node 2, in epoch 2.
fn offered() -> Test<Home> {
    let mut home = own();
    assert_eq!(home.on(moving(2)), [to(2, 2, Message::Prepare)]);
    let prepared = Message::Prepared { stamp_us: 77 };
    assert_eq!(home.hears(2, prepared), [Out::Look]);
    assert_eq!(home.on(In::Facts(GOOD)), [Out::Freeze]);
    let handoff = Message::Handoff { stamp_us: 77 };
    assert_eq!(home.on(In::Froze(true)), [to(2, 2, handoff)]);
    home
}

fn away() -> Test<Home> {
    let mut home = offered();
    assert_eq!(home.hears(2, READY), [Out::Redirect { to: 2 }]);
    home
}

/// The guest of epoch 2, whose lease runs from its stamp.
fn guest() -> Test<Guest> {
    let mut guest = preparing();
    let now = guest.now;
    let handoff = Message::Handoff { stamp_us: now.us };
    assert_eq!(guest.hears(2, handoff), [Out::Restore]);
    let until = now.plus_us(LEASE_US);
    assert_eq!(
        guest.on(In::Restored(true)),
        [
            Out::Lease { until },
            Out::Claim { epoch: 2 },
            to(1, 2, READY),
            to(1, 2, Message::Renew { stamp_us: now.us }),
        ]
    );
    guest
}

fn preparing() -> Test<Guest> {
    let now = Instant { us: 5_000_000 };
    let mut guest = Test {
        machine: Guest::new(1, 2, false, now),
        now,
    };
    assert_eq!(guest.outs(), [Out::Prepare]);
    let prepared = Message::Prepared { stamp_us: now.us };
    assert_eq!(guest.on(In::Prepared(Ok(()))), [to(1, 2, prepared)]);
    guest
}

#[test]
fn a_move_that_makes_no_sense_is_refused_with_a_reason() {
    let ask = |home: &mut Test<Home>, draining, reachable, to| {
        let event = In::Move {
            to,
            draining,
            reachable,
        };
        home.machine.on(event, home.now);
        match home.machine.poll(home.now) {
            Some(Out::Tell(Step::Refused(why))) => Some(why),
            _ => None,
        }
    };
    assert_eq!(ask(&mut own(), false, true, 1), Some(Refusal::Itself));
    assert_eq!(ask(&mut own(), true, true, 2), Some(Refusal::Draining));
    assert_eq!(ask(&mut own(), false, false, 2), Some(Refusal::Silent));
    assert_eq!(ask(&mut own(), false, true, 2), None);
    for mut home in [offered(), away()] {
        assert_eq!(ask(&mut home, false, true, 2), Some(Refusal::Moving));
        assert_eq!(ask(&mut home, false, true, 3), Some(Refusal::Moving));
    }
    let mut twice = own();
    twice.on(moving(2));
    assert_eq!(ask(&mut twice, false, true, 3), Some(Refusal::Moving));
}

#[test]
fn a_node_that_is_being_emptied_takes_nothing() {
    let now = Instant::default();
    let machine = Guest::new(1, 2, true, now);
    let mut guest = Test { machine, now };
    let nak = Message::Nak {
        reason: Refusal::Draining,
        turn: 0,
    };
    assert_eq!(guest.outs(), [to(1, 2, nak), Out::Close]);
    assert!(guest.machine.is_over());
    let mut home = own();
    home.on(moving(2));
    assert_eq!(home.hears(2, nak), []);
    assert!(home.machine.owns());
}

#[test]
fn in_an_unsuitable_moment_a_connection_stays() {
    let facts = Facts {
        ca_state: 3,
        ..GOOD
    };
    let mut home = own();
    home.on(moving(2));
    home.hears(2, Message::Prepared { stamp_us: 77 });
    let outs = home.on(In::Facts(facts));
    assert_eq!(outs, [to(2, 2, Message::Abort)]);
    assert!(home.machine.owns());
    let mut guest = guest();
    guest.on(In::Return);
    guest.hears(2, Message::Prepared { stamp_us: 0 });
    assert_eq!(guest.on(In::Facts(facts)), []);
    assert!(guest.machine.owns(guest.now));
    assert_eq!(guest.on(In::Return), [to(1, 2, Message::Prepare)], "again");
}

#[test]
fn home_thaws_where_the_guest_has_never_sent() {
    let nak = |reason| Message::Nak { reason, turn: 0 };
    for message in [
        nak(Refusal::Restore),
        nak(Refusal::Late),
        Message::Aborted { sent: false },
    ] {
        let mut home = offered();
        assert_eq!(home.hears(2, message), [Out::Thaw], "{message:?}");
        assert!(home.machine.owns());
        assert_eq!(home.hears(2, message), [], "doubled");
    }
    let mut late = offered();
    assert_eq!(late.hears(2, nak(Refusal::Draining)), [], "of PREPARE");
    let mut unsaved = own();
    unsaved.on(moving(2));
    unsaved.hears(2, Message::Prepared { stamp_us: 77 });
    unsaved.on(In::Facts(GOOD));
    let outs = unsaved.on(In::Froze(false));
    assert_eq!(outs, [Out::Thaw, to(2, 2, Message::Abort)]);
}

const TRACKED: Tracked = Tracked {
    ack: 500,
    hole: false,
    beyond: false,
};

/// After the fence: a restore, and a look at what the client says then.
fn restores(home: &mut Test<Home>) {
    assert_eq!(home.on(In::Tracked(TRACKED)), [Out::TakeOver { ack: 500 }]);
    assert_eq!(home.on(In::Restored(true)), [Out::Claim { epoch: 3 }]);
    assert_eq!(home.after(44_999), []);
    assert_eq!(home.after(1), [Out::Track]);
}

fn takes_over(home: &mut Test<Home>) {
    restores(home);
    assert_eq!(home.on(In::Tracked(TRACKED)), []);
    assert!(home.machine.owns() && home.machine.epoch() == 3);
}

#[test]
fn without_ready_home_waits_for_the_lease() {
    let mut home = offered();
    assert_eq!(home.after(LEASE_US + MARGIN_US - 1), []);
    let outs = home.after(1);
    assert_eq!(outs, [to(2, 2, Message::Abort), Out::Fence, Out::Track]);
    takes_over(&mut home);
    // The guest wakes up.
    assert_eq!(home.hears(2, READY), [to(2, 2, Message::BackOk)]);
}

#[test]
fn home_takes_over_after_the_lease_or_with_proof_and_not_before() {
    let mut home = away();
    home.after(400_000);
    let renew = Message::Renew { stamp_us: 5 };
    let granted = Message::Renewed { stamp_us: 5 };
    assert_eq!(home.hears(2, renew), [to(2, 2, granted)]);
    assert_eq!(home.on(In::Unreachable(2)), []);
    assert_eq!(home.after(LEASE_US + MARGIN_US - 1), []);
    assert!(home.after(1).contains(&Out::Fence));
    takes_over(&mut home);
    let mut told = away();
    assert_eq!(told.on(In::Died(3)), [], "another node");
    assert_eq!(told.on(In::Died(2)), [Out::Fence, Out::Track]);
    takes_over(&mut told);
}

#[test]
fn a_client_that_has_more_than_was_restored_is_followed_up_to_a_bound() {
    let beyond = Tracked {
        ack: 600,
        beyond: true,
        ..TRACKED
    };
    let mut home = away();
    home.on(In::Died(2));
    restores(&mut home);
    for _ in 2..RESTORES_MAX {
        let outs = home.on(In::Tracked(beyond));
        assert_eq!(outs, [Out::Fence, Out::TakeOver { ack: 600 }]);
        assert_eq!(home.on(In::Restored(true)), [Out::Claim { epoch: 3 }]);
        assert_eq!(home.after(45_000), [Out::Track]);
    }
    assert_eq!(home.on(In::Tracked(beyond)).len(), 2);
    home.on(In::Restored(true));
    assert_eq!(home.after(45_000), [Out::Fence, Out::Reset]);
    assert!(home.machine.is_over());
}

#[test]
fn a_client_that_a_guest_has_answered_to_is_reset() {
    let hole = Tracked {
        hole: true,
        ..TRACKED
    };
    let mut home = away();
    home.on(In::Died(2));
    assert_eq!(home.on(In::Tracked(hole)), [Out::Reset]);
    let mut asks = away();
    asks.on(In::Died(2));
    restores(&mut asks);
    assert_eq!(asks.on(In::Tracked(hole)), [], "the own socket has it");
    assert!(asks.machine.owns());
}

#[test]
fn a_return_that_fails_leaves_the_guest_the_owner() {
    let mut guest = guest();
    assert_eq!(guest.on(In::Return), [to(1, 2, Message::Prepare)]);
    let prepared = Message::Prepared { stamp_us: 0 };
    assert_eq!(guest.hears(2, prepared), [Out::Look]);
    assert_eq!(guest.on(In::Facts(GOOD)), [Out::Freeze]);
    let back = Message::Back { turn: 1 };
    assert!(guest.on(In::Froze(true)).contains(&to(1, 2, back)));
    let mut home = away();
    assert_eq!(home.hears(2, Message::Prepare), [Out::Prepare]);
    assert_eq!(home.on(In::Prepared(Ok(()))), [to(2, 2, prepared)]);
    assert_eq!(home.hears(2, back), [Out::Restore]);
    let nak = Message::Nak {
        reason: Refusal::Restore,
        turn: 1,
    };
    assert_eq!(home.on(In::Restored(false)), [to(2, 2, nak)]);
    assert_eq!(guest.hears(2, nak), [Out::Thaw]);
    assert!(guest.machine.owns(guest.now));
    assert_eq!(guest.hears(2, nak), [], "doubled");
    assert_eq!(home.hears(2, back), [to(2, 2, nak)], "late");
    // The next attempt works, and its answer is lost.
    let again = Message::Back { turn: 2 };
    assert_eq!(home.hears(2, again), [Out::Restore]);
    let ok = to(2, 2, Message::BackOk);
    let outs = home.on(In::Restored(true));
    assert_eq!(outs, [ok, Out::Claim { epoch: 3 }]);
    assert_eq!(home.hears(2, again), [ok]);
}

#[test]
fn a_guest_is_silent_after_its_lease_until_home_grants_another() {
    let mut guest = guest();
    let stamp_us = guest.now.us;
    let outs = guest.after(RENEW_US);
    let renew = |stamp_us| to(1, 2, Message::Renew { stamp_us });
    assert_eq!(outs, [renew(stamp_us + RENEW_US)]);
    guest.hears(2, Message::Renewed { stamp_us: 1 });
    let lied = Message::Renewed { stamp_us: u64::MAX };
    assert_eq!(guest.hears(2, lied), [], "a stamp that it never gave");
    guest.after(LEASE_US - RENEW_US);
    assert!(!guest.machine.owns(guest.now));
    let stamp_us = guest.now.us;
    let outs = guest.hears(2, Message::Renewed { stamp_us });
    let until = guest.now.plus_us(LEASE_US);
    assert_eq!(outs, [Out::Lease { until }]);
    assert!(guest.machine.owns(guest.now));
    guest.after(LEASE_US);
    assert!(guest.after(LOST_US).contains(&Out::Close));
    assert!(guest.machine.is_over());
}

#[test]
fn a_guest_whose_home_dies_becomes_home_unless_home_may_have_had_the_connection() {
    let home = [Out::Claim { epoch: 3 }, Out::BecomeHome { epoch: 3 }];
    assert_eq!(guest().on(In::Died(1)), home);
    let mut leaving = guest();
    leaving.on(In::Return);
    assert_eq!(leaving.on(In::Died(1)), home);
    leaving = guest();
    leaving.on(In::Return);
    leaving.hears(2, Message::Prepared { stamp_us: 0 });
    leaving.on(In::Facts(GOOD));
    let outs = leaving.on(In::Died(1));
    assert_eq!((outs[0], &outs[1..]), (Out::Thaw, &home[..]));
    let mut returned = guest();
    returned.on(In::Return);
    returned.hears(2, Message::Prepared { stamp_us: 0 });
    returned.on(In::Facts(GOOD));
    returned.on(In::Froze(true));
    assert_eq!(returned.on(In::Died(1)), [Out::Close]);
    let mut late = guest();
    late.after(LEASE_US);
    assert_eq!(late.on(In::Died(1)), [Out::Close]);
    assert!(late.machine.is_over());
}

#[test]
fn a_hand_off_that_is_late_or_of_another_stamp_is_refused() {
    let nak = Message::Nak {
        reason: Refusal::Late,
        turn: 0,
    };
    let want = [to(1, 2, nak), Out::Close];
    let mut other = preparing();
    let stamp_us = other.now.us;
    let handoff = |stamp_us| Message::Handoff { stamp_us };
    assert_eq!(other.hears(2, handoff(stamp_us + 1)), want);
    let mut late = preparing();
    assert_eq!(late.after(400_001), []);
    assert_eq!(late.hears(2, handoff(stamp_us)), want);
    let mut slow = preparing();
    slow.hears(2, handoff(stamp_us));
    slow.now = slow.now.plus_us(LEASE_US);
    assert_eq!(slow.on(In::Restored(true)), want);
}

#[test]
fn a_client_that_leaves_its_guest_ends_both() {
    let mut guest = guest();
    let gone = to(1, 2, Message::Gone);
    assert_eq!(guest.on(In::ClientGone), [Out::Close, gone]);
    assert_eq!(guest.after(100_000), [gone], "again");
    let mut home = away();
    let ok = to(2, 2, Message::BackOk);
    assert_eq!(home.hears(2, Message::Gone), [ok, Out::Close]);
    assert_eq!(guest.hears(2, Message::BackOk), []);
    assert!(guest.machine.is_over() && home.machine.is_over());
    let answer = answer_unknown(Message::Gone, true);
    assert_eq!(answer, Some(Message::BackOk));
    let sent = Some(Message::Aborted { sent: true });
    assert_eq!(answer_unknown(Message::Abort, false), sent);
    assert_eq!(answer_unknown(Message::BackOk, true), None);
}
