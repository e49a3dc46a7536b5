use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use ackpace_share::outside::Setting;

use super::*;
use crate::snapshot::{Outcome, Record};
use ackpace_core::conn::TcpSample;
use ackpace_share::Control;
use ackpace_share::reading::Counted;
use proptest::prelude::*;

const BUDGET_BYTES: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant { us: ms * 1_000 }
}

fn tuner(dry_run: bool) -> Tuner {
    use ackpace_share::eatbt::Need;
    let chosen = TunerSettings {
        policy: Policy::ByNeed(Need::Law),
        budget_bytes: BUDGET_BYTES,
        secret: 5,
        lowat_bytes_most: u32::MAX,
        dry_run,
    };
    Tuner::new(chosen, at(0))
}

fn end(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// What is seen of a socket that sends, untouched.
pub(super) fn snapshot(cookie: u64) -> SocketSnapshot {
    SocketSnapshot {
        cookie,
        local: end("10.0.0.1:80"),
        peer: end(&format!("10.0.1.{}:9", cookie % 250)),
        control: Control::Reno,
        now: Setting {
            clamp_segments: u32::MAX,
            lowat_bytes: 0,
        },
        cwnd_segments: 10,
        threshold_segments: NONE_SEGMENTS,
        sample: TcpSample {
            unacked_bytes: 500_000,
            unsent_bytes: Some(480_000),
            rtt_us: 20_000,
            flow: Some(Flow {
                segment_bytes: 1_448,
                window_bytes: 1 << 20,
                ..Flow::default()
            }),
            ..TcpSample::default()
        },
        counted: Counted::default(),
        queued_bytes: 700_000,
        send_buffer_bytes: 900_000,
        buffer_is_fixed: false,
        is_matched: true,
        is_open: true,
    }
}

/// A socket of a kernel, with the record in it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Socket {
    snapshot: SocketSnapshot,
    ours: Option<Record>,
}

impl Deref for Socket {
    type Target = SocketSnapshot;

    fn deref(&self) -> &SocketSnapshot {
        &self.snapshot
    }
}

impl DerefMut for Socket {
    fn deref_mut(&mut self) -> &mut SocketSnapshot {
        &mut self.snapshot
    }
}

/// One that sends, untouched.
fn socket(cookie: u64) -> Socket {
    let snapshot = snapshot(cookie);
    Socket {
        snapshot,
        ours: None,
    }
}

/// What a kernel does with the order for a socket (`obey` in `host/src/bpf/tune.bpf.c`).
fn obey(socket: &mut Socket, order: &Order) -> Outcome {
    let now = socket.now;
    match order.to {
        Some(to) if to == now && socket.ours.is_some() => {}
        Some(_) if now != order.from => return Outcome::Changed,
        Some(to) => {
            let record = socket.ours.get_or_insert(Record {
                was: now,
                set: Setting::default(),
            });
            if to.clamp_segments != now.clamp_segments {
                record.set.clamp_segments = to.clamp_segments;
            }
            if to.lowat_bytes != now.lowat_bytes {
                record.set.lowat_bytes = to.lowat_bytes;
            }
            socket.now = to;
            socket.cwnd_segments = socket.cwnd_segments.min(to.clamp_segments);
            socket.threshold_segments = to.clamp_segments.min(NONE_SEGMENTS);
        }
        None => {
            let record = socket.ours.take().expect("only what is ours is given back");
            if socket.now.clamp_segments == record.set.clamp_segments {
                socket.now.clamp_segments = record.was.clamp_segments;
            }
            if socket.now.lowat_bytes == record.set.lowat_bytes {
                socket.now.lowat_bytes = record.was.lowat_bytes;
            }
        }
    }
    Outcome::Done
}

/// What the kernel tells of a socket: in short, if it holds nothing.
fn view(socket: &Socket) -> View {
    let mut view = View::default();
    let snapshot = socket.snapshot;
    match snapshot.is_matched && snapshot.sample.unacked_bytes == 0 {
        true => view.quiet.push(Quiet {
            cookie: snapshot.cookie,
            now: snapshot.now,
        }),
        false => view.snapshots.push(snapshot),
    }
    view
}

/// A look, which shows one socket at a time.
fn look(tuner: &mut Tuner, sockets: &[Socket], now: Instant) {
    tuner.begin_look(now);
    for socket in sockets {
        tuner.looked(&view(socket), now);
    }
    tuner.end_look(now);
}

/// Lets the machine run until `until`, with sockets that obey. All changes.
fn run(tuner: &mut Tuner, sockets: &mut [Socket], from: Instant, until: Instant) -> Vec<Change> {
    let (mut now, mut all) = (from, Vec::new());
    while now < until {
        for _ in 0..10 {
            match tuner.poll(now) {
                Some(Action::Snapshot) => look(tuner, sockets, now),
                Some(Action::Orders(changes)) => {
                    for change in changes.iter().filter(|_| !tuner.tally.dry_run) {
                        let socket = with_cookie(sockets, change.order.cookie);
                        let socket = socket.expect("it is there");
                        assert_eq!(socket.now, change.order.from, "read before write");
                        assert_eq!(obey(socket, &change.order), Outcome::Done);
                    }
                    tuner.carried_out(&changes, |_| Some(Outcome::Done), now);
                    all.extend(changes);
                }
                None => break,
            }
        }
        now = tuner.deadline().unwrap_or(until).max(now.plus_us(1_000));
    }
    all
}

fn with_cookie(sockets: &mut [Socket], cookie: u64) -> Option<&mut Socket> {
    sockets.iter_mut().find(|socket| socket.cookie == cookie)
}

#[test]
fn each_socket_that_sends_is_held_to_a_share_and_then_left_in_peace() {
    let (mut tuner, mut sockets) = (tuner(false), vec![socket(1), socket(2), socket(3)]);
    let changes = run(&mut tuner, &mut sockets, at(0), at(1_500));
    assert!(changes.len() >= 3);
    for socket in &sockets {
        assert!(
            socket.now.clamp_segments < 700 && socket.now.lowat_bytes > 0,
            "{:?}",
            socket.now
        );
    }
    let held = |socket: &Socket| {
        u64::from(socket.now.clamp_segments) * 1_448 + u64::from(socket.now.lowat_bytes)
    };
    let all: u64 = sockets.iter().map(held).sum();
    assert!(all <= BUDGET_BYTES, "{all}");
    assert_eq!(
        (tuner.tally.sockets, tuner.tally.tuned, tuner.tally.clamped),
        (3, 3, 3)
    );
    assert_eq!(tuner.tally.changes["joined"], 3);
}

#[test]
fn whatever_others_set_is_left_alone_for_good() {
    let mut own_lowat = socket(1);
    own_lowat.now.lowat_bytes = 16_384;
    let mut own_buffer = socket(2);
    own_buffer.buffer_is_fixed = true;
    let (mut tuner, mut sockets) = (tuner(false), vec![own_lowat, own_buffer, socket(3)]);
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    assert_eq!((sockets[0], sockets[1]), (own_lowat, own_buffer));
    assert_eq!(tuner.tally.left_alone["program_set_lowat"], 1);
    assert_eq!(tuner.tally.left_alone["program_set_sndbuf"], 1);
    // The third one's program sets its own, and takes it back later.
    sockets[2].now.lowat_bytes = 5;
    let changes = run(&mut tuner, &mut sockets, at(1_500), at(2_600));
    assert_eq!(changes.len(), 1);
    assert_eq!(
        sockets[2].now,
        Setting {
            clamp_segments: u32::MAX,
            lowat_bytes: 5
        }
    );
    sockets[2].now.lowat_bytes = 0;
    assert_eq!(run(&mut tuner, &mut sockets, at(2_600), at(6_000)), []);
    assert_eq!(tuner.tally.tuned, 0);
}

#[test]
fn one_that_matches_no_more_has_back_what_it_had() {
    let (mut tuner, mut sockets) = (tuner(false), vec![socket(1)]);
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    assert!(sockets[0].ours.is_some());
    sockets[0].is_matched = false;
    run(&mut tuner, &mut sockets, at(1_500), at(3_000));
    assert_eq!(sockets[0].now, socket(1).now);
    assert_eq!(tuner.tally.given_back["unmatched"], 1);
    sockets[0].is_matched = true;
    run(&mut tuner, &mut sockets, at(3_000), at(5_000));
    assert!(sockets[0].ours.is_some(), "it matches again");
}

#[test]
fn nobody_is_held_up_while_all_hold_little_and_all_are_let_go_when_they_do_again() {
    let mut small = socket(1);
    small.sample.unacked_bytes = BUDGET_BYTES / 32;
    let mut other = socket(2);
    other.sample.unacked_bytes = BUDGET_BYTES / 40;
    let (mut tuner, mut sockets) = (tuner(false), vec![small, other]);
    assert_eq!(run(&mut tuner, &mut sockets, at(0), at(2_500)), []);
    assert_eq!(
        tuner.tally.held_bytes,
        BUDGET_BYTES / 32 + BUDGET_BYTES / 40
    );
    // Together they hold a sixteenth of it, and then less, as sockets with shares do.
    sockets[1].sample.unacked_bytes = BUDGET_BYTES / 32;
    run(&mut tuner, &mut sockets, at(2_500), at(3_600));
    assert_eq!(tuner.tally.tuned, 2);
    sockets[1].sample.unacked_bytes = 0;
    run(&mut tuner, &mut sockets, at(3_600), at(5_600));
    assert_eq!(tuner.tally.tuned, 2, "half of that is held");
    sockets[0].sample.unacked_bytes = BUDGET_BYTES / 70;
    run(&mut tuner, &mut sockets, at(5_600), at(34_000));
    assert_eq!(tuner.tally.tuned, 2, "it may be for a moment");
    run(&mut tuner, &mut sockets, at(34_000), at(37_000));
    assert_eq!((tuner.tally.tuned, tuner.tally.given_back["ample"]), (0, 2));
    assert!(tuner.tally.left_alone.is_empty());
    sockets[0].sample.unacked_bytes = BUDGET_BYTES;
    run(&mut tuner, &mut sockets, at(37_000), at(38_500));
    assert!(sockets[0].ours.is_some(), "again");
}

#[test]
fn one_that_joins_keeps_what_it_has_where_that_is_free() {
    let (mut tuner, mut sockets) = (tuner(false), vec![socket(1)]);
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    let mut fast = socket(2);
    (fast.cwnd_segments, fast.sample.unacked_bytes) = (60, 80_000);
    sockets.push(fast);
    let changes = run(&mut tuner, &mut sockets, at(1_500), at(2_200));
    let joined = changes.iter().find(|change| change.order.cookie == 2);
    let share_bytes = joined.and_then(|change| change.share_bytes);
    assert!(
        share_bytes.is_some_and(|bytes| bytes >= 60 * 1_448),
        "{share_bytes:?}"
    );
}

#[test]
fn one_that_rests_keeps_its_setting_and_is_watched() {
    let mut stranger = socket(2);
    stranger.sample.unacked_bytes = 0;
    let busy = socket(3);
    let (mut tuner, mut sockets) = (tuner(false), vec![socket(1), stranger, busy]);
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    let held = sockets[0].now;
    assert!(held.lowat_bytes > 0);
    assert_eq!(sockets[1], stranger, "it never sent");
    assert_eq!((tuner.tally.sockets, tuner.tally.sharing), (3, 2));

    sockets[0].sample.unacked_bytes = 0;
    sockets[0].queued_bytes = 0;
    run(&mut tuner, &mut sockets, at(1_500), at(4_000));
    assert_eq!(sockets[0].now.lowat_bytes, held.lowat_bytes);
    let tally = &tuner.tally;
    let counts = (tally.sockets, tally.sharing, tally.tuned);
    assert_eq!(counts, (3, 1, 2), "no share, and still ours");
    assert_eq!(tally.queued_bytes, u64::from(busy.queued_bytes));

    // Its program sets its own meanwhile: the clamp is undone at once.
    sockets[0].now.lowat_bytes = 5;
    run(&mut tuner, &mut sockets, at(4_000), at(5_200));
    let own = Setting {
        clamp_segments: u32::MAX,
        lowat_bytes: 5,
    };
    assert_eq!((sockets[0].now, sockets[0].ours), (own, None));
    assert_eq!(tuner.tally.left_alone["program_set_lowat"], 1);
    // And the stranger begins to send.
    sockets[1].sample.unacked_bytes = 500_000;
    run(&mut tuner, &mut sockets, at(5_200), at(6_500));
    assert!(sockets[1].ours.is_some());
}

#[test]
fn what_the_kernel_refuses_is_not_ours() {
    let mut tuner = tuner(false);
    while tuner.tally.refused == 0 {
        let now = tuner.deadline().expect("the next snapshot");
        match tuner.poll(now) {
            Some(Action::Snapshot) => look(&mut tuner, &[socket(1)], now),
            Some(Action::Orders(changes)) => {
                tuner.carried_out(&changes, |_| Some(Outcome::Refused), now);
            }
            None => {}
        }
    }
    let tally = &tuner.tally;
    assert_eq!((tally.refused, tally.tuned, tally.sockets), (1, 0, 1));
}

#[test]
fn sockets_that_close_and_ports_that_are_used_again_mix_nothing_up() {
    let (mut tuner, mut sockets) = (tuner(false), vec![socket(1), socket(2)]);
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    // Another connection of the same addresses and ports is another socket.
    let peer = sockets[0].peer;
    sockets[0] = socket(9);
    sockets[0].peer = peer;
    let changes = run(&mut tuner, &mut sockets, at(1_500), at(2_500));
    assert!(
        changes
            .iter()
            .any(|change| change.order.cookie == 9 && change.why == Why::Set(Cause::Joined))
    );
    assert_eq!(tuner.tally.sockets, 2);
    // It closes between the snapshot and the order.
    let orders = changes.len() as u64;
    tuner.carried_out(&changes, |_| None, at(2_600));
    assert_eq!(tuner.tally.void, orders);
}

#[test]
fn what_sockets_held_before_is_let_go_and_not_made_up_for_by_others() {
    let mut full = socket(1);
    full.sample.unacked_bytes = 9 * BUDGET_BYTES;
    let (mut tuner, mut sockets) = (tuner(false), vec![full, socket(2)]);
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    assert_eq!(tuner.tally.before_bytes, 9 * BUDGET_BYTES + 500_000);
    let held = |socket: &Socket| {
        u64::from(socket.now.clamp_segments) * 1_448 + u64::from(socket.now.lowat_bytes)
    };
    assert!(held(&sockets[1]) > BUDGET_BYTES / 3, "{:?}", sockets[1].now);
}

#[test]
fn a_dry_run_tells_each_change_once() {
    let (mut tuner, mut sockets) = (tuner(true), vec![socket(1), socket(2)]);
    let changes = run(&mut tuner, &mut sockets, at(0), at(1_500));
    assert!(!changes.is_empty());
    assert_eq!(sockets, [socket(1), socket(2)]);
    let more = run(&mut tuner, &mut sockets, at(1_500), at(3_500));
    assert!(
        more.iter()
            .all(|change| change.why != Why::Set(Cause::Joined)),
        "{more:?}"
    );
}

#[test]
fn a_budget_below_the_floor_is_told() {
    let mut tuner = tuner(false);
    let mut sockets: Vec<Socket> = (1..=400).map(socket).collect();
    run(&mut tuner, &mut sockets, at(0), at(1_500));
    assert!(tuner.tally.is_short);
    assert!(sockets.iter().all(|socket| socket.now.clamp_segments >= 2));
}

proptest! {
    /// Any sockets in any order of events: what is ours is always what the record says, and all of it can be undone.
    #[test]
    fn nothing_is_written_that_was_not_read(steps in prop::collection::vec((0..7u8, 1..6u64, 0..400u32), 1..40)) {
        let (mut tuner, mut sockets) = (tuner(false), Vec::<Socket>::new());
        let mut now = at(0);
        for (step, cookie, value) in steps {
            let there = sockets.iter_mut().find(|socket| socket.cookie % 6 == cookie);
            match (step, there) {
                (0, None) => sockets.push(socket(cookie + 6 * u64::from(value))),
                (1, Some(socket)) => socket.now.lowat_bytes = value,
                (2, Some(socket)) => socket.is_matched = !socket.is_matched,
                (3, Some(socket)) => socket.sample.path.resent_segments += value,
                (4, Some(socket)) => socket.cwnd_segments = value.min(socket.now.clamp_segments),
                (5, Some(socket)) => {
                    let gone = socket.cookie;
                    sockets.retain(|socket| socket.cookie != gone);
                }
                (6, Some(socket)) => socket.sample.unacked_bytes = u64::from(value / 200) * 9_000,
                _ => {}
            }
            let until = now.plus_us(1_100_000);
            run(&mut tuner, &mut sockets, now, until);
            now = until;
            for socket in &sockets {
                let set = socket.ours.map(|record| record.set).unwrap_or_default();
                prop_assert!(set.clamp_segments == 0 || socket.now.clamp_segments == set.clamp_segments);
            }
        }
    }
}
