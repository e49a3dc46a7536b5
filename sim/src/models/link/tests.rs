use super::*;
use proptest::prelude::*;
use std::fmt::Write;

const SEED: u64 = 20_040_717;
const MS: u64 = 1_000_000;

fn plain() -> LinkProfile {
    LinkProfile {
        rate_bits_per_s: Some(10_000_000),
        delay_us: 5_000,
        jitter_us: 0,
        may_reorder: false,
        queue: QueueDiscipline::DropTail {
            limit_bytes: 30_000,
        },
        loss: Loss::None,
        mark: 0.0,
    }
}

fn red() -> Red {
    Red {
        min_bytes: 15_000,
        max_bytes: 45_000,
        p_max: 0.1,
        weight: 0.002,
        limit_bytes: 200_000,
        ecn: true,
        gentle: false,
    }
}

/// Offers packets at a multiple of the link's rate, with seeded random gaps, and calls `with` for each fate.
fn flood(link: &mut Link, packets: u64, load: f64, mut with: impl FnMut(u64, &Link, Verdict)) {
    let rate = link.profile().rate_bits_per_s.unwrap() as f64;
    let mean_gap_ns = 1500.0 * 8e9 / rate / load;
    let mut rng = Pcg64Mcg::seed_from_u64(SEED);
    let mut now_ns = 0.0;
    for _ in 0..packets {
        now_ns += unit(&mut rng) * 2.0 * mean_gap_ns; // no logarithm: the same on every machine
        let verdict = link.offer(now_ns as u64, 1500, true);
        with(now_ns as u64, link, verdict);
    }
}

fn conserved(totals: &Totals) -> bool {
    let drops = totals.dropped_full_packets + totals.dropped_red_packets + totals.lost_packets;
    totals.offered_packets == totals.delivered_packets + drops
}

prop_compose! {
    fn any_queue()(limit_bytes in 1_500u64..200_000, is_red: bool, part in 0.05f64..0.6) -> QueueDiscipline {
        let max_bytes = (limit_bytes as f64 * (part + 0.3)) as u64;
        let min_bytes = (limit_bytes as f64 * part) as u64;
        match is_red {
            false => QueueDiscipline::DropTail { limit_bytes },
            true => QueueDiscipline::Red(Red { min_bytes, max_bytes, limit_bytes, ..red() }),
        }
    }
}

prop_compose! {
    fn any_profile()(
        rate in prop::option::of(1_000u64..20_000_000_000), delay_us in 0u64..300_000,
        jitter_us in 0u64..20_000, queue in any_queue(), p in 0.0f64..0.3, bursty: bool,
    ) -> LinkProfile {
        let loss = match bursty {
            false => Loss::Bernoulli { p },
            true => Loss::GilbertElliott { to_bad: p, to_good: 0.3, loss_good: 0.0, loss_bad: 1.0 },
        };
        LinkProfile { rate_bits_per_s: rate, delay_us, jitter_us, may_reorder: false, queue, loss, mark: p }
    }
}

proptest! {
    #[test]
    fn whatever_comes_order_bounds_and_sums_hold(
        profile in any_profile(), later in any_profile(), seed: u64,
        packets in prop::collection::vec((0u64..3_000_000, 40u32..65_000, any::<bool>()), 1..300),
    ) {
        let mut link = Link::new(profile.clone(), seed);
        let (mut now_ns, mut last_ns) = (0, 0);
        let change_at = packets.len() / 2;
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        for (nth, (gap_ns, len_bytes, ecn)) in packets.iter().enumerate() {
            now_ns += gap_ns;
            if nth == change_at {
                let mut retime = link.set(now_ns, later.clone());
                waiting.retain(|(_, at_ns)| *at_ns > now_ns);
                last_ns = 0;
                for (departs_ns, at_ns) in &waiting {
                    let (departs_ns, at_ns) = retime.apply(*departs_ns, *at_ns);
                    prop_assert!(departs_ns <= at_ns && at_ns >= last_ns);
                    last_ns = at_ns;
                }
            }
            let found_bytes = link.queue_bytes(now_ns);
            if let Verdict::Deliver { departs_ns, at_ns, .. } = link.offer(now_ns, *len_bytes, *ecn) {
                prop_assert!(now_ns <= departs_ns && departs_ns <= at_ns);
                prop_assert!(at_ns >= last_ns, "overtaken: {at_ns} before {last_ns}");
                last_ns = at_ns;
                waiting.push((departs_ns, at_ns));
            }
            let (QueueDiscipline::DropTail { limit_bytes } | QueueDiscipline::Red(Red { limit_bytes, .. })) =
                link.profile().queue;
            let most_bytes = limit_bytes.max(found_bytes).max(u64::from(*len_bytes));
            prop_assert!(link.queue_bytes(now_ns) <= most_bytes + 1);
            prop_assert!(link.busy_ns(now_ns) <= now_ns);
        }
        prop_assert!(conserved(&link.totals()));
    }

    #[test]
    fn a_saturated_transmitter_sends_at_its_rate_to_the_nanosecond(
        rate in 1_000u64..100_000_000_000, lens in prop::collection::vec(40u32..65_000, 1..500),
    ) {
        let queue = QueueDiscipline::DropTail { limit_bytes: u64::MAX };
        let mut link = Link::new(LinkProfile { rate_bits_per_s: Some(rate), queue, ..plain() }, SEED);
        let (mut sum_bytes, mut last_ns) = (0u128, 0);
        for len_bytes in lens {
            sum_bytes += u128::from(len_bytes);
            let Verdict::Deliver { departs_ns, .. } = link.offer(0, len_bytes, false) else {
                return Err(TestCaseError::fail("nothing may be dropped"));
            };
            last_ns = departs_ns;
        }
        prop_assert_eq!(u128::from(last_ns), sum_bytes * 8_000_000_000 / u128::from(rate));
        prop_assert_eq!(link.busy_ns(last_ns), last_ns);
    }

    #[test]
    fn equal_seeds_give_equal_fates(profile in any_profile(), seed: u64) {
        let fates = || {
            let mut link = Link::new(profile.clone(), seed);
            (0..200u64).map(|n| link.offer(n * 50_000, 1500, true)).collect::<Vec<_>>()
        };
        prop_assert_eq!(fates(), fates());
    }
}

#[test]
fn marks_meet_their_share_of_the_packets_that_allow_it_and_nothing_is_dropped_for_them() {
    let profile = LinkProfile {
        mark: 0.2,
        ..plain()
    };
    let mut link = Link::new(profile, SEED);
    flood(&mut link, 20_000, 0.5, |_, _, _| ());
    let totals = link.totals();
    let share = totals.marked_packets as f64 / totals.delivered_packets as f64;
    assert!((share - 0.2).abs() < 0.01, "seed {SEED}: {share}");
    assert_eq!(totals.offered_packets, totals.delivered_packets);
    let Verdict::Deliver { mark_ce, .. } = Link::new(
        LinkProfile {
            mark: 1.0,
            ..plain()
        },
        SEED,
    )
    .offer(0, 1500, false) else {
        panic!("an idle link drops nothing");
    };
    assert!(!mark_ce, "it did not allow it");
}

#[test]
fn red_forgets_its_average_while_idle() {
    let queue = QueueDiscipline::Red(red());
    let mut link = Link::new(LinkProfile { queue, ..plain() }, SEED);
    for _ in 0..20_000 {
        link.offer(0, 1500, true);
    }
    let before = link.red_average_bytes();
    link.offer(60_000 * MS, 1500, true);
    assert!(before > 40_000.0 && link.red_average_bytes() < 1.0);
}

#[test]
fn a_change_of_rate_moves_what_waits_and_nothing_else() {
    let queue = QueueDiscipline::DropTail {
        limit_bytes: 1_000_000,
    };
    let mut link = Link::new(LinkProfile { queue, ..plain() }, SEED);
    let times: Vec<(u64, u64)> = (0..10)
        .map(|_| match link.offer(0, 1250, false) {
            Verdict::Deliver {
                departs_ns, at_ns, ..
            } => (departs_ns, at_ns),
            Verdict::Drop(why) => panic!("{why:?}"),
        })
        .collect();
    assert_eq!(times[9], (10 * MS, 15 * MS)); // 1 ms each, then 5 ms of wire
    let faster = LinkProfile {
        rate_bits_per_s: Some(100_000_000),
        ..link.profile().clone()
    };
    let mut retime = link.set(4 * MS + MS / 2, faster);
    let moved: Vec<(u64, u64)> = times.iter().map(|t| retime.apply(t.0, t.1)).collect();
    assert_eq!(moved[3], (4 * MS, 9 * MS)); // already on the wire
    assert_eq!(moved[4], (4 * MS + MS * 55 / 100, 9 * MS + MS * 55 / 100)); // half of it had been sent
    assert_eq!(moved[9], (5 * MS + MS / 20, 10 * MS + MS / 20));
    assert_eq!(link.queue_bytes(4 * MS + MS / 2), 6875);
    assert_eq!(link.busy_ns(20 * MS), 5 * MS + MS / 20);
    let Verdict::Deliver {
        departs_ns, at_ns, ..
    } = link.offer(5 * MS, 1250, false)
    else {
        panic!("dropped");
    };
    assert_eq!(
        (departs_ns, at_ns),
        (5 * MS + 15 * MS / 100, 10 * MS + 15 * MS / 100)
    );
}

#[test]
fn without_a_rate_nothing_waits_and_a_lone_packet_passes_any_queue() {
    let endless = LinkProfile {
        rate_bits_per_s: None,
        ..plain()
    };
    let mut link = Link::new(endless, SEED);
    let arrives = Verdict::Deliver {
        departs_ns: 7,
        at_ns: 5 * MS + 7,
        mark_ce: false,
    };
    assert!((0..1000).all(|_| link.offer(7, 65_000, true) == arrives));
    assert_eq!((link.busy_ns(7), link.queue_bytes(7)), (0, 0));
    let queue = QueueDiscipline::DropTail { limit_bytes: 100 };
    let mut link = Link::new(LinkProfile { queue, ..plain() }, SEED);
    assert!(matches!(link.offer(0, 1500, true), Verdict::Deliver { .. }));
    assert_eq!(link.offer(0, 40, true), Verdict::Drop(DropCause::QueueFull));
}

#[test]
fn jitter_overtakes_only_where_it_may() {
    for may_reorder in [false, true] {
        let profile = LinkProfile {
            jitter_us: 10_000,
            may_reorder,
            ..plain()
        };
        let mut link = Link::new(profile, SEED);
        let (mut last_ns, mut overtaken) = (0, 0);
        flood(&mut link, 1000, 0.5, |_, _, verdict| {
            if let Verdict::Deliver { at_ns, .. } = verdict {
                overtaken += u32::from(at_ns < last_ns);
                last_ns = at_ns;
            }
        });
        assert_eq!(overtaken > 0, may_reorder, "{overtaken} overtaken");
    }
}

/// The fates of 20,000 packets of 1500 bytes at 10 Mbit/s, by kind of link and load. A change of the model shows here.
#[test]
fn the_table_of_fates() {
    let loss = Loss::GilbertElliott {
        to_bad: 0.005,
        to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let kinds = [
        ("drop-tail", plain()),
        (
            "bernoulli",
            LinkProfile {
                loss: Loss::Bernoulli { p: 0.01 },
                ..plain()
            },
        ),
        ("gilbert-elliott", LinkProfile { loss, ..plain() }),
        (
            "red",
            LinkProfile {
                queue: QueueDiscipline::Red(Red {
                    ecn: false,
                    ..red()
                }),
                ..plain()
            },
        ),
        (
            "red, ecn",
            LinkProfile {
                queue: QueueDiscipline::Red(red()),
                ..plain()
            },
        ),
    ];
    let mut table = String::from("link load delivered full red lost marked busy_ms\n");
    for (name, profile) in kinds {
        for load in [0.8, 1.2] {
            let mut link = Link::new(profile.clone(), SEED);
            let mut end_ns = 0;
            flood(&mut link, 20_000, load, |now_ns, _, _| end_ns = now_ns);
            let t = link.totals();
            assert!(conserved(&t));
            let (full, red) = (t.dropped_full_packets, t.dropped_red_packets);
            let busy_ms = link.busy_ns(end_ns) / MS;
            let (got, lost, marked) = (t.delivered_packets, t.lost_packets, t.marked_packets);
            let _ = writeln!(
                table,
                "{name} {load} {got} {full} {red} {lost} {marked} {busy_ms}"
            );
        }
    }
    assert_eq!(
        table,
        include_str!("fates.txt"),
        "seed {SEED}; got:\n{table}"
    );
}
