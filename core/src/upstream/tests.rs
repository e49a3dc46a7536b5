use alloc::vec::Vec;

use proptest::prelude::*;

use super::origins::{DOWN_US_MIN, PATIENT_FAULTS};
use super::*;

const SETTINGS: Settings = Settings {
    origins: 2,
    links_max: [3, 3, 1],
    connect_us: 1_000,
    answer_us: 10_000,
    silence_us: 20_000,
    idle_us: 50_000,
    patient: true,
};

fn at(us: u64) -> Instant {
    Instant { us }
}

fn outs(links: &mut Links, now: Instant) -> Vec<Out> {
    core::iter::from_fn(|| links.poll(now)).take(100).collect()
}

fn task(links: &mut Links, id: u64, kind: Kind, now: Instant) -> Vec<Out> {
    links.on(In::Task(TaskId(id), kind), now);
    outs(links, now)
}

/// A link that carries this task.
fn asked(links: &mut Links, id: u64, now: Instant) -> LinkId {
    let connect = task(links, id, Kind::Read, now);
    let [Out::Connect { link, .. }] = connect[..] else {
        panic!("{connect:?}");
    };
    links.on(In::Connected(link), now);
    let ask = Out::Ask {
        link,
        task: TaskId(id),
    };
    assert_eq!(outs(links, now), [ask]);
    link
}

#[test]
fn a_task_gets_a_link_and_the_next_one_gets_the_same() {
    let mut links = Links::new(SETTINGS);
    let link = asked(&mut links, 1, at(0));
    links.on(In::Head(link), at(1));
    links.on(In::Done { link, keep: true }, at(2));
    let next = task(&mut links, 2, Kind::Open, at(3));
    let task = TaskId(2);
    assert_eq!(next, [Out::Ask { link, task }]);
    links.on(In::Head(link), at(4));
    links.on(In::Done { link, keep: false }, at(5));
    assert_eq!(outs(&mut links, at(5)), [Out::Close(link)]);
}

#[test]
fn bytes_wait_for_an_origin_that_restarts_and_not_for_one_that_is_gone() {
    let mut links = Links::new(Settings {
        origins: 1,
        ..SETTINGS
    });
    let link = asked(&mut links, 1, at(0));
    links.on(In::Head(link), at(1));
    links.on(In::Moved(link), at(1));
    links.on(In::Broken(link, Fault::Closed), at(1));
    let again = outs(&mut links, at(1));
    let [Out::Close(_), Out::Connect { link, .. }] = again[..] else {
        panic!("{again:?}");
    };
    links.on(In::Broken(link, Fault::Unreachable), at(1));
    let mut now = at(1);
    for faults in 1..=PATIENT_FAULTS {
        let connects = |out: &Out| matches!(out, Out::Connect { .. });
        assert!(!outs(&mut links, now).iter().any(connects), "it waits");
        // A client that waits for a head is not kept waiting.
        let open = 10 + u64::from(faults);
        let connect = task(&mut links, open, Kind::Open, now);
        let [Out::Connect { link, .. }] = connect[..] else {
            panic!("{connect:?}");
        };
        links.on(In::Broken(link, Fault::Unreachable), now);
        links.on(In::Drop(TaskId(open)), now);
        outs(&mut links, now);
        now = links.deadline().expect("it is tried again");
        let again = outs(&mut links, now);
        let [Out::Connect { link, .. }] = again[..] else {
            panic!("{again:?}");
        };
        links.on(In::Broken(link, Fault::Unreachable), now);
    }
    let failed = Out::Failed(TaskId(1), Fault::Unreachable);
    assert!(outs(&mut links, now).contains(&failed));
}

#[test]
fn more_tasks_than_links_wait_and_no_kind_waits_for_another() {
    let mut links = Links::new(SETTINGS);
    let all: Vec<LinkId> = (0..3).map(|id| asked(&mut links, id, at(0))).collect();
    assert_eq!(task(&mut links, 10, Kind::Read, at(1)), []);
    assert_eq!(task(&mut links, 11, Kind::Read, at(1)), []);
    let own = task(&mut links, 12, Kind::Open, at(1));
    assert!(matches!(own[..], [Out::Connect { .. }]), "{own:?}");
    let link = all[0];
    for id in [12, 10, 11] {
        links.on(In::Done { link, keep: true }, at(2));
        let first = outs(&mut links, at(2));
        let task = TaskId(id);
        assert!(first.contains(&Out::Ask { link, task }), "{first:?}");
    }
}

#[test]
fn a_question_waits_for_a_link_no_longer_than_for_its_answer() {
    let mut links = Links::new(SETTINGS);
    for id in 0..4 {
        links.on(In::Task(TaskId(id), Kind::Open), at(0));
    }
    for out in outs(&mut links, at(0)) {
        if let Out::Connect { link, .. } = out {
            links.on(In::Connected(link), at(1));
        }
    }
    let asked = outs(&mut links, at(1));
    assert_eq!(asked.len(), 3, "{asked:?}");
    let failed = Out::Failed(TaskId(3), Fault::Silent);
    assert!(outs(&mut links, at(SETTINGS.answer_us)).contains(&failed));
}

#[test]
fn slow_clients_leave_the_links_to_others() {
    let mut links = Links::new(SETTINGS);
    let connect = task(&mut links, 1, Kind::Pass, at(0));
    let [Out::Connect { link, .. }] = connect[..] else {
        panic!("{connect:?}");
    };
    links.on(In::Connected(link), at(0));
    assert_eq!(outs(&mut links, at(0)).len(), 1);
    assert_eq!(task(&mut links, 2, Kind::Pass, at(0)), [], "one at a time");
    assert_eq!(task(&mut links, 3, Kind::Read, at(0)).len(), 1);
}

#[test]
fn a_link_that_its_origin_closed_meanwhile_costs_a_try_and_no_blame() {
    let mut links = Links::new(SETTINGS);
    let link = asked(&mut links, 1, at(0));
    links.on(In::Head(link), at(1));
    links.on(In::Done { link, keep: true }, at(2));
    assert_eq!(task(&mut links, 2, Kind::Read, at(3)).len(), 1);
    links.on(In::Broken(link, Fault::Closed), at(4));
    let anew = outs(&mut links, at(4));
    assert!(
        matches!(anew[..], [Out::Close(_), Out::Connect { origin: 0, .. }]),
        "{anew:?}"
    );
    assert!(!links.is_down(0, at(4)));
}

#[test]
fn an_origin_that_fails_is_left_alone_for_longer_and_longer() {
    let mut links = Links::new(SETTINGS);
    let mut now = at(0);
    for nth in 0..3 {
        links.on(In::Task(TaskId(nth), Kind::Read), now);
        let connect = outs(&mut links, now);
        let [Out::Connect { link, origin: 0 }] = connect[..] else {
            panic!("{connect:?}");
        };
        links.on(In::Broken(link, Fault::Unreachable), now);
        let connect = outs(&mut links, now);
        let [Out::Close(_), Out::Connect { link, origin: 1 }] = connect[..] else {
            panic!("the next one is tried: {connect:?}");
        };
        links.on(In::Connected(link), now);
        outs(&mut links, now);
        links.on(In::Head(link), now);
        links.on(In::Done { link, keep: false }, now);
        outs(&mut links, now);
        let down_us = DOWN_US_MIN << nth;
        assert!(links.is_down(0, now.plus_us(down_us - 1)));
        now = now.plus_us(down_us);
        assert!(!links.is_down(0, now));
    }
}

#[test]
fn a_task_that_no_origin_answers_fails_in_the_end() {
    let mut links = Links::new(Settings {
        answer_us: 10_000_000,
        ..SETTINGS
    });
    let mut now = at(0);
    links.on(In::Task(TaskId(7), Kind::Open), now);
    for _ in 0..100 {
        for out in outs(&mut links, now) {
            match out {
                Out::Connect { link, .. } => {
                    links.on(In::Broken(link, Fault::Unreachable), now);
                }
                Out::Failed(task, fault) => {
                    assert_eq!((task, fault), (TaskId(7), Fault::Unreachable));
                    return;
                }
                _ => {}
            }
        }
        now = now.plus_us(100_000);
    }
    panic!("it is tried for ever");
}

#[test]
fn a_task_fails_in_the_end_if_no_connection_comes_about() {
    let mut links = Links::new(SETTINGS);
    let mut told = task(&mut links, 1, Kind::Open, at(0));
    for _ in 0..20 {
        match links.deadline() {
            Some(next) => told.extend(outs(&mut links, next)),
            None => break,
        }
    }
    assert!(told.contains(&Out::Failed(TaskId(1), Fault::Unreachable)));
}

#[test]
fn whoever_says_nothing_for_too_long_is_given_up_but_not_one_whose_client_is_slow() {
    let mut links = Links::new(SETTINGS);
    let link = asked(&mut links, 1, at(0));
    assert_eq!(links.deadline(), Some(at(SETTINGS.answer_us)));
    links.on(In::Head(link), at(100));
    assert_eq!(links.deadline(), Some(at(100 + SETTINGS.silence_us)));
    links.on(In::Paused(link, true), at(200));
    assert_eq!(links.deadline(), None);
    links.on(In::Paused(link, false), at(300));
    let late = at(300 + SETTINGS.silence_us);
    let anew = outs(&mut links, late);
    assert!(
        matches!(anew[..], [Out::Close(_), Out::Connect { origin: 1, .. }]),
        "{anew:?}"
    );
}

proptest! {
    /// Whatever happens in whatever order: no task is lost, links are bounded, and each order is about something that is there.
    #[test]
    fn tasks_end_and_links_are_bounded(steps in prop::collection::vec((0u8..9, 0u64..12, 1u64..5_000), 1..300)) {
        let mut links = Links::new(SETTINGS);
        let (mut now, mut next) = (at(1), 0);
        let mut open: BTreeMap<LinkId, Option<TaskId>> = BTreeMap::new();
        let mut tasks: Vec<TaskId> = Vec::new();
        for (what, which, later_us) in steps {
            now = now.plus_us(later_us);
            let link = open.keys().nth(which as usize % open.len().max(1)).copied();
            let carried = link.and_then(|link| open[&link]);
            match (what, link) {
                (0 | 1, _) => {
                    next += 1;
                    tasks.push(TaskId(next));
                    let kind = [Kind::Open, Kind::Read, Kind::Pass][next as usize % 3];
                    links.on(In::Task(TaskId(next), kind), now);
                }
                (2, _) => if let Some(task) = tasks.pop() {
                    links.on(In::Drop(task), now);
                    for link in open.values_mut().filter(|of| **of == Some(task)) {
                        *link = None;
                    }
                },
                (3, Some(link)) if carried.is_none() => links.on(In::Connected(link), now),
                (4, Some(link)) if carried.is_some() => links.on(In::Head(link), now),
                (5, Some(link)) if carried.is_some() => links.on(In::Moved(link), now),
                (6, Some(link)) if carried.is_some() => {
                    let keep = which % 2 == 0;
                    links.on(In::Done { link, keep }, now);
                    tasks.retain(|task| Some(*task) != carried);
                    open.insert(link, None);
                }
                (7, Some(link)) => links.on(In::Broken(link, Fault::Closed), now),
                (8, Some(link)) => links.on(In::Broken(link, Fault::Unreachable), now),
                _ => {}
            }
            for out in outs(&mut links, now) {
                match out {
                    Out::Connect { link, .. } => prop_assert!(open.insert(link, None).is_none()),
                    Out::Ask { link, task } => {
                        prop_assert!(tasks.contains(&task), "{task:?} is over");
                        prop_assert!(!open.values().any(|of| *of == Some(task)), "{task:?} twice");
                        prop_assert_eq!(open.insert(link, Some(task)), Some(None));
                    }
                    Out::Close(link) => prop_assert!(open.remove(&link).is_some()),
                    Out::Failed(task, _) => {
                        prop_assert!(tasks.contains(&task));
                        tasks.retain(|other| *other != task);
                    }
                }
            }
            for origin in 0..SETTINGS.origins {
                let most: u32 = SETTINGS.links_max.iter().sum();
                prop_assert!(links.count(origin).0 <= most as usize);
            }
        }
    }
}
