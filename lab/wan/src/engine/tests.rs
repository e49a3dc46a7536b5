use super::*;
use crate::packet::tests::Made;
use crate::topology::{LinkSpec, PathSpec, RedSpec, Topology};

const MS: u64 = 1_000_000;

/// A frame from the server (10.0.0.1, port 8080) to 10.1.2.3, with as many segments of 1,000 bytes as fit.
fn made(payload_len: usize, ecn: u8) -> Vec<u8> {
    let made = Made {
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

fn engine(run_ns: u64, paths: &[PathSpec], shared: &[(&'static str, LinkSpec)]) -> Engine {
    let topology = Topology {
        path: paths.to_vec(),
        link: shared.to_vec(),
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
    let mut path = PathSpec::new("home", "10.1.0.1-10.1.255.254");
    path.down = LinkSpec::limited(rate_mbit_per_s, 100.0, delay_ms);
    path
}

#[test]
fn a_run_arrives_whole_when_its_last_packet_would() {
    // 8 x 1052 bytes at 84.16 Mbit/s: .1 ms each.
    let frame = made(8000, 0);
    let mut whole = engine(MS, &[path(84.16, 5.0)], &[]);
    give(&mut whole, 0, Direction::Down, &frame);
    assert_eq!(
        arrivals(&mut whole, 9 * MS),
        [(5 * MS + 8 * MS / 10, 8, frame.len())]
    );

    let mut short = engine(MS / 4, &[path(84.16, 5.0)], &[]);
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

    let mut single = engine(0, &[path(84.16, 5.0)], &[]);
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
fn runs_and_packets_lose_the_same_packets() {
    let delivered = |run_ns| {
        let mut lossy = path(100.0, 1.0);
        lossy.down.loss = 0.1;
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
        let totals = engine.counters(u64::MAX / 2)[0].totals;
        assert_eq!(totals.delivered_packets + totals.lost_packets, 2000);
        assert!((100..300).contains(&totals.lost_packets));
        assert_eq!(engine.under_way_bytes, 0);
        (totals.delivered_packets, totals.delivered_bytes)
    };
    assert_eq!(delivered(0), delivered(10 * MS));
}

#[test]
fn a_shared_link_is_shared_and_comes_first_on_the_way_down() {
    let mut one = PathSpec::new("one", "10.1.0.1-10.1.255.254");
    one.down.delay_ms = 3.0;
    one.down_through = Some("isp");
    let mut other = PathSpec::new("other", "10.2.0.1-10.2.255.254");
    other.down_through = Some("isp");
    let isp = LinkSpec {
        rate_mbit_per_s: Some(8.416), // 1 ms for 1,052 bytes
        ..LinkSpec::default()
    };
    let mut engine = engine(MS, &[one, other], &[("isp", isp)]);
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
    assert_eq!(engine.counters(9 * MS)[0].busy_us, 2000);
}

#[test]
fn marks_part_a_run_and_red_drops() {
    let mut marked = engine(1000 * MS, &[path(10.0, 0.0)], &[]);
    marked.set_mark(0, LinkId(0), 0.5);
    give(&mut marked, 0, Direction::Down, &made(20_000, 2));
    assert!(arrivals(&mut marked, u64::MAX).len() > 4);
    let totals = marked.counters(u64::MAX / 2)[0].totals;
    assert!((4..=16).contains(&totals.marked_packets), "{totals:?}");
    let mut early = path(10.0, 0.0);
    early.down.queue_bytes = Some(1_000_000);
    early.down.red = Some(RedSpec {
        min_bytes: 2_000,
        max_bytes: 4_000,
    });
    let mut early = engine(MS, &[early], &[]);
    for _ in 0..40 {
        give(&mut early, 0, Direction::Down, &made(20_000, 0));
    }
    assert!(early.counters(0)[0].totals.dropped_red_packets > 100);
}
