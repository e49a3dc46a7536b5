use super::*;
use crate::packet::tests::Made;
use crate::topology::{LinkSpec, PathSpec, Topology};

const MS: u64 = 1_000_000;

/// A frame from the server (10.0.0.1, port 8080) to 10.1.2.3, with as many segments of 1,000 bytes as fit.
fn made(payload_len: usize, ecn: u8) -> Vec<u8> {
    let made = Made {
        v6: false,
        ip_options: 0,
        tcp_options: 3,
        payload: (0..payload_len).map(|n| (n / 7) as u8).collect(),
        segment: 1000,
        sequence: 42,
        id: 9,
        flags: 0x18,
        ecn,
    };
    made.frame()
}

fn engine(run_ns: Option<u64>, paths: &[PathSpec], shared: &[(&str, LinkSpec)]) -> Engine {
    let shared = shared
        .iter()
        .map(|(name, spec)| ((*name).to_owned(), spec.clone()));
    let topology = Topology {
        path: paths.to_vec(),
        link: shared.collect(),
        ..Topology::default()
    };
    Engine::new(Plan::of(&topology).unwrap(), run_ns)
}

fn give(engine: &mut Engine, now_ns: u64, direction: Direction, frame: &[u8]) {
    let mut buffer = engine.buffer();
    buffer[..frame.len()].copy_from_slice(frame);
    engine.receive(now_ns, direction, &mut buffer, frame.len());
}

/// Everything that arrives by a time, as (time, segments, length).
fn arrivals(engine: &mut Engine, until_ns: u64) -> Vec<(u64, usize, usize)> {
    let mut arrivals = Vec::new();
    while let Some(at_ns) = engine.deadline_ns().filter(|at_ns| *at_ns <= until_ns) {
        if let Some((_, frame)) = engine.arrived(at_ns) {
            let segments = packet::parse(&frame).unwrap().segments();
            arrivals.push((at_ns, segments, frame.len()));
            engine.recycle(frame);
        }
    }
    arrivals
}

fn path(rate_mbit_per_s: f64, delay_ms: f64) -> PathSpec {
    let mut path = PathSpec::new("home", "10.1.0.0/16");
    path.down.rate_mbit_per_s = Some(rate_mbit_per_s);
    path.down.delay_ms = Some(delay_ms);
    path
}

#[test]
fn a_run_arrives_whole_when_its_last_packet_would() {
    // 8 x 1052 bytes at 84.16 Mbit/s: .1 ms each.
    let frame = made(8000, 0);
    let mut whole = engine(Some(MS), &[path(84.16, 5.0)], &[]);
    give(&mut whole, 0, Direction::Down, &frame);
    assert_eq!(
        arrivals(&mut whole, 9 * MS),
        [(5 * MS + 8 * MS / 10, 8, frame.len())]
    );

    let mut short = engine(Some(MS / 4), &[path(84.16, 5.0)], &[]);
    give(&mut short, 0, Direction::Down, &frame);
    let got = arrivals(&mut short, 9 * MS);
    let times: Vec<_> = got
        .iter()
        .map(|(at_ns, segments, _)| (at_ns - 5 * MS, *segments))
        .collect();
    assert_eq!(
        times,
        [(MS * 3 / 10, 3), (MS * 6 / 10, 3), (MS * 8 / 10, 2)]
    );

    let mut single = engine(None, &[path(84.16, 5.0)], &[]);
    give(&mut single, 0, Direction::Down, &frame);
    let got = arrivals(&mut single, 9 * MS);
    assert_eq!(got.len(), 8);
    assert!(
        (1..)
            .zip(&got)
            .all(|(nth, got)| *got == (5 * MS + nth * MS / 10, 1, 1062))
    );
}

#[test]
fn both_modes_lose_the_same_packets() {
    let delivered = |run_ns| {
        let mut lossy = path(100.0, 1.0);
        lossy.down.loss = Some(0.1);
        let mut engine = engine(run_ns, &[lossy], &[]);
        for nth in 0..100 {
            give(
                &mut engine,
                nth * 10 * MS,
                Direction::Down,
                &made(20_000, 0),
            );
            arrivals(&mut engine, nth * 10 * MS);
        }
        arrivals(&mut engine, u64::MAX);
        let totals = engine.path_totals(0, Direction::Down);
        assert_eq!(totals.entered_packets, 2000);
        assert_eq!(totals.delivered_packets + totals.lost_packets, 2000);
        assert!((100..300).contains(&totals.lost_packets));
        assert_eq!(engine.under_way_bytes, 0);
        totals
    };
    assert_eq!(delivered(None), delivered(Some(10 * MS)));
}

#[test]
fn a_shared_link_is_shared_and_comes_first_on_the_way_down() {
    let mut one = PathSpec::new("one", "10.1.0.0/16");
    one.down.delay_ms = Some(3.0);
    one.down_through = vec!["isp".into()];
    let mut other = PathSpec::new("other", "10.2.0.0/16");
    other.down_through = vec!["isp".into()];
    let isp = LinkSpec {
        rate_mbit_per_s: Some(8.416), // 1 ms for 1,052 bytes
        ..LinkSpec::default()
    };
    let mut engine = engine(Some(MS), &[one, other], &[("isp", isp)]);
    let to_one = made(1000, 0);
    let mut to_other = to_one.clone();
    to_other[packet::OFFLOAD_LEN_BYTES + 17] = 2; // 10.2.2.3
    give(&mut engine, 0, Direction::Down, &to_one);
    give(&mut engine, 0, Direction::Down, &to_other);
    let got: Vec<u64> = arrivals(&mut engine, 9 * MS)
        .iter()
        .map(|got| got.0)
        .collect();
    assert_eq!(got, [2 * MS, 4 * MS]); // the second at once, the first after its own 3 ms
    assert_eq!(engine.link_state(LinkId(0), 9 * MS).busy_ns, 2 * MS);
}

#[test]
fn a_faster_link_sends_what_waits_faster() {
    let mut engine = engine(None, &[path(8.416, 5.0)], &[]);
    give(&mut engine, 0, Direction::Down, &made(10_000, 0)); // ten packets of 1 ms each
    assert_eq!(arrivals(&mut engine, 7 * MS).len(), 2);
    let mut faster = path(84.16, 5.0).down;
    faster.queue_ms = Some(100.0);
    engine.set(7 * MS, LinkId(0), crate::plan::profile(&faster).unwrap());
    let got: Vec<u64> = arrivals(&mut engine, 99 * MS)
        .iter()
        .map(|got| got.0)
        .collect();
    let on_the_wire = (3..=7).map(|nth| (5 + nth) * MS);
    let waited = (1..=3).map(|nth| 12 * MS + nth * MS / 10);
    assert_eq!(got, on_the_wire.chain(waited).collect::<Vec<_>>());
}

#[test]
fn marks_are_counted_and_part_a_run() {
    let mut marked = path(10.0, 0.0);
    marked.down.queue_bytes = Some(1_000_000);
    marked.down.red = Some(crate::topology::RedSpec {
        min_bytes: 2_000,
        max_bytes: 900_000,
        p_max: 0.5,
        weight: 1.0,
        ecn: true,
        gentle: false,
    });
    let mut engine = engine(Some(1000 * MS), &[marked], &[]);
    for _ in 0..20 {
        give(&mut engine, 0, Direction::Down, &made(20_000, 2));
    }
    let got = arrivals(&mut engine, u64::MAX);
    let totals = engine.path_totals(0, Direction::Down);
    assert_eq!(
        (totals.delivered_packets, totals.dropped_red_packets),
        (400, 0)
    );
    assert!(totals.marked_packets > 10 && got.len() > 20, "{totals:?}");
}

#[test]
fn strangers_are_counted_and_nothing_else() {
    let mut engine = engine(Some(MS), &[path(10.0, 1.0)], &[]);
    give(&mut engine, 0, Direction::Up, &made(1000, 0)); // its client would be 10.0.0.1
    give(&mut engine, 0, Direction::Down, &[0; 40]);
    assert_eq!(
        engine.strays(),
        Strays {
            no_path: 1,
            malformed: 1
        }
    );
    assert_eq!(engine.deadline_ns(), None);
}
