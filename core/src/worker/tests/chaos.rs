//! Random clients against Worker and Disk together; [`super::shell`] checks each step.

use crate::addresses::Address;
use proptest::prelude::*;

use super::shell::{Dice, Request, Shell};
use super::*;

#[derive(Clone, Debug)]
enum Act {
    Connect(u64),
    Request { who: u8, count: u8 },
    Acknowledge { who: u8, share: u64 },
    Fin(u8),
    Reset(u8),
    Resolve,
    Read { fails: bool },
    Evict,
    Wait(u64),
    Drain,
    Export(u8),
    Adopt,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u64..3).prop_map(Act::Connect),
        10 => (any::<u8>(), 1u8..5).prop_map(|(who, count)| Act::Request { who, count }),
        12 => (any::<u8>(), 1u64..4).prop_map(|(who, share)| Act::Acknowledge { who, share }),
        1 => any::<u8>().prop_map(Act::Fin),
        2 => any::<u8>().prop_map(Act::Reset),
        5 => Just(Act::Resolve),
        12 => (0u8..25).prop_map(|n| Act::Read { fails: n == 0 }),
        3 => Just(Act::Evict),
        6 => (0u64..400_000).prop_map(Act::Wait),
        1 => (0u64..90_000_000).prop_map(Act::Wait),
        4 => any::<u8>().prop_map(Act::Export),
        4 => Just(Act::Adopt),
    ]
}

/// A file of its own residency: 0 lives in memory, 1 and 2 can be asked about, 3 and 4 not.
fn random_body(dice: &mut Dice) -> Part {
    let index = dice.below(5) as u32;
    let residency = match index {
        0 => ResidencySource::Always,
        1 | 2 => ResidencySource::Ask,
        _ => ResidencySource::Remember,
    };
    let span = Span {
        offset_bytes: dice.below(2 * WINDOW),
        len_bytes: [0, 1, 5_000, WINDOW, 3 * WINDOW][dice.below(5) as usize],
    };
    let version = Version {
        len_bytes: span.end_bytes(),
        ..Version::default()
    };
    let object = ObjectId { index, ..OBJECT };
    Part::Body {
        object,
        version,
        promise: Promise::OneVersion,
        residency,
        span,
    }
}

fn random_request(dice: &mut Dice) -> Request {
    let slices = (0..dice.below(4)).map(|_| dice.below(3) * 7_000);
    let slices = slices.collect::<Vec<_>>();
    let parts = (0..dice.below(4)).map(|_| match dice.below(4) {
        0 => bytes(dice.below(2) * 60),
        _ => random_body(dice),
    });
    let mut parts = parts.collect::<Vec<_>>();
    if dice.below(4) == 0 {
        parts = vec![Part::Slices];
    }
    let long = [0, 0, 0, 300, 3 * WINDOW][dice.below(5) as usize];
    Request {
        plan: plan(parts, dice.below(5) > 0),
        slices,
        body_bytes: long,
    }
}

fn someone(shell: &Shell, who: u8) -> Option<ConnId> {
    let count = shell.clients.len().max(1);
    shell.clients.keys().nth(usize::from(who) % count).copied()
}

fn perform(shell: &mut Shell, act: Act) {
    match act {
        Act::Connect(address) => shell
            .backlog
            .push_back((address > 0).then_some(Address(address))),
        Act::Request { who, count } => {
            let Some(conn) = someone(shell, who) else {
                return;
            };
            for _ in 0..count {
                let request = random_request(&mut shell.dice);
                let client = shell.clients.get_mut(&conn).expect("someone");
                if !client.fin && client.input.len() < 8 {
                    client.input.push_back(request);
                }
            }
            shell.tcp(conn, TcpEvent::Readable);
        }
        Act::Acknowledge { who, share } => {
            if let Some(conn) = someone(shell, who) {
                shell.acknowledge(conn, share);
            }
        }
        Act::Fin(who) => {
            if let Some(conn) = someone(shell, who) {
                shell.clients.get_mut(&conn).expect("someone").fin = true;
                shell.tcp(conn, TcpEvent::Fin);
            }
        }
        Act::Reset(who) => {
            if let Some(conn) = someone(shell, who) {
                shell.tcp(conn, TcpEvent::Reset);
                shell.tcp(conn, TcpEvent::Readable); // often reported with it
            }
        }
        Act::Resolve => {
            if let Some(stream) = shell.resolving.keys().next().copied() {
                shell.resolve(stream);
            }
        }
        Act::Read { fails } => shell.read_done(fails),
        Act::Evict => shell.evict(),
        Act::Wait(us) => shell.wait_us(us),
        Act::Drain => shell.on(In::Drain),
        Act::Export(who) => {
            if let Some(conn) = someone(shell, who) {
                shell.export(conn);
            }
        }
        Act::Adopt => shell.adopt(),
    }
    shell.turn();
}

/// What is under way comes to its end when resolver, disk and clients do their part.
fn finish(shell: &mut Shell) {
    for _ in 0..5_000 {
        let busy = shell.clients.keys().copied().collect::<Vec<_>>();
        for conn in busy {
            if shell.clients.contains_key(&conn) {
                shell.acknowledge(conn, 1);
                shell.turn();
            }
        }
        perform(shell, Act::Resolve);
        perform(shell, Act::Adopt);
        shell.read_done(false);
        shell.turn();
        shell.wait_us(100_000);
        if shell.worker.finished() && shell.reading.is_empty() && shell.away.is_empty() {
            return;
        }
    }
    panic!("never finished: {} clients", shell.clients.len());
}

/// Both ways of sending, by the seed.
fn send_by(seed: u64) -> SendPolicy {
    let budget_bytes = seed >> 32;
    if seed % 2 == 0 {
        SendPolicy::Margin { budget_bytes }
    } else {
        SendPolicy::Eager
    }
}

fn run(seed: u64, arrivals: bool, acts: Vec<Act>) -> Shell {
    let mut shell = Shell::new(
        Settings {
            arrivals,
            send: send_by(seed),
            pacing: seed % 3 == 0,
            connections_max: 6,
            connections_per_address: 2,
            ..settings()
        },
        seed,
    );
    for act in acts {
        perform(&mut shell, act);
    }
    shell.backlog.clear();
    perform(&mut shell, Act::Drain);
    let drained_at = shell.now;
    finish(&mut shell);
    let took_us = shell.now.since_us(drained_at);
    assert!(took_us <= 33 * US_PER_S, "the drain took {took_us} us");
    shell.check_empty();
    shell
}

/// As [`run`], with a clock that does not move except for leaps of an hour, ahead or (as a monotonic clock never does)
/// back.
fn run_with_leaps(seed: u64, acts: Vec<(Act, u8)>) {
    const HOUR_US: u64 = 3_600_000_000;
    let settings = Settings {
        arrivals: true,
        send: send_by(seed),
        connections_max: 6,
        ..settings()
    };
    let mut shell = Shell::new(settings, seed);
    let mut latest = shell.now;
    for (act, leap) in acts {
        let back_us = shell.dice.below(HOUR_US);
        shell.now = match leap {
            0 => shell.now.plus_us(HOUR_US),
            1 => Instant {
                us: shell.now.us.saturating_sub(back_us),
            },
            _ => shell.now,
        };
        latest = latest.max(shell.now);
        shell.turn();
        perform(&mut shell, act);
        latest = latest.max(shell.now);
    }
    shell.now = latest;
    shell.backlog.clear();
    perform(&mut shell, Act::Drain);
    finish(&mut shell);
    shell.check_empty();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_no_byte_no_place_and_no_log_line_is_lost(
        seed in any::<u64>(),
        arrivals in any::<bool>(),
        acts in prop::collection::vec(act(), 1..150),
    ) {
        run(seed, arrivals, acts);
    }

    #[test]
    fn whatever_the_clock_does_all_come_to_their_end(
        seed in any::<u64>(),
        acts in prop::collection::vec((act(), 0u8..10), 1..150),
    ) {
        run_with_leaps(seed, acts);
    }

    /// When nothing fails and disk and clients go on, all that was asked for is sent soon: no stream is forgotten, and
    /// none waits for the next timer scan to be noticed.
    #[test]
    fn whoever_waits_is_served(seed in any::<u64>(), counts in prop::collection::vec(1u8..5, 1..6)) {
        let send = send_by(seed);
        let mut shell = Shell::new(Settings { send, ..settings() }, seed);
        shell.mishaps = false;
        let mut asked = 0;
        for count in counts {
            perform(&mut shell, Act::Connect(0));
            let conn = *shell.clients.keys().next_back().expect("accepted");
            for _ in 0..count {
                let mut request = random_request(&mut shell.dice);
                request.plan.keep_alive = true;
                request.body_bytes = request.body_bytes.min(300);
                asked += 1;
                shell.clients.get_mut(&conn).expect("new").input.push_back(request);
            }
            shell.tcp(conn, TcpEvent::Readable);
            shell.turn();
        }
        for _ in 0..300 {
            for conn in shell.clients.keys().copied().collect::<Vec<_>>() {
                shell.acknowledge(conn, 1);
            }
            shell.turn();
            perform(&mut shell, Act::Read { fails: false });
            shell.now = shell.now.plus_us(3_000);
        }
        prop_assert_eq!(shell.wholes, asked);
    }
}

#[test]
fn two_runs_of_one_seed_are_the_same() {
    let outcome = |seed| {
        let acts = (0..200u64).map(|n| match n % 6 {
            0 => Act::Connect(n % 3),
            1 => Act::Request {
                who: (n / 6) as u8,
                count: 3,
            },
            2 => Act::Read { fails: false },
            3 => Act::Acknowledge {
                who: (n / 6) as u8,
                share: 1,
            },
            4 => Act::Resolve,
            _ => Act::Wait(5_000 * n),
        });
        let shell = run(seed, true, acts.collect());
        (shell.now, shell.wholes)
    };
    assert_eq!(outcome(7), outcome(7), "seed 7");
    assert!(outcome(7).1 > 10, "only {} responses", outcome(7).1);
}
