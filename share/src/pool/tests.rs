use super::member::is_worth_telling;
use super::sampling::DIVIDE_EACH_US;
use super::*;
use crate::Control;
use crate::drain::{DRAIN_EACH_ROUNDS, DRAIN_US};
use crate::eatbt::Need;
use crate::reading::Counted;
use ackpace_core::addresses::Address;
use ackpace_core::congestion::Path;
use ackpace_core::conn::TcpSample;
use ackpace_core::rate::Flow;
use ackpace_core::units::US_PER_S;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

const POOL_BYTES: u64 = 1 << 20;

fn at(ms: u64) -> Instant {
    Instant { us: ms * 1_000 }
}

fn pool(workers: u16) -> Pool {
    let settings = Settings {
        policy: Policy::ByNeed(Need::Law),
        pool_bytes: POOL_BYTES,
        workers,
        secret: 3,
    };
    Pool::new(settings, at(0))
}

/// A connection at this rate, after so many segments.
fn reading(index: u32, rate_bytes_per_s: u64, sent_segments: u32) -> Reading {
    Reading {
        conn: ConnId {
            index,
            generation: 0,
        },
        address: Address(index.into()),
        is_sending: true,
        sample: TcpSample {
            unacked_bytes: 1_000,
            rtt_us: 20_000,
            path: Path {
                rtt_min_us: 20_000,
                ..Path::default()
            },
            flow: Some(Flow {
                acked_bytes: u64::from(sent_segments) / 1_000 * rate_bytes_per_s,
                busy_us: u64::from(sent_segments) / 1_000 * US_PER_S,
                window_bytes: 1 << 20,
                segment_bytes: 1_448,
                ..Flow::default()
            }),
            ..TcpSample::default()
        },
        counted: Counted {
            sent_segments,
            rto_us: 220_000,
        },
        control: Control::Cubic,
        is_own_pace: false,
        rate_bytes_per_s,
        share_limited_us: 0,
        share_bytes: 14_480,
        division: 0,
    }
}

fn orders(pool: &mut Pool, now: Instant) -> Vec<Out> {
    core::iter::from_fn(|| pool.poll(now)).collect()
}

fn shares(outs: &[Out]) -> Vec<(u32, Option<u64>)> {
    let share = |out: &Out| match out {
        Out::Share { conn, grant, .. } => Some((conn.index, grant.map(|grant| grant.share_bytes))),
        Out::Sample { .. } => None,
    };
    outs.iter().filter_map(share).collect()
}

fn sampled(pool: &mut Pool, readings: &[Reading], now: Instant) -> Vec<Out> {
    let event = In::Sampled {
        worker: 0,
        from: 0,
        readings: readings.to_vec(),
        next: None,
    };
    pool.on(event, now);
    orders(pool, now)
}

fn join(pool: &mut Pool, reading: Reading, now: Instant) {
    pool.on(In::Joined { worker: 0, reading }, now);
}

#[test]
fn each_second_all_workers_are_asked_piece_by_piece_and_then_it_is_divided() {
    let mut pool = pool(2);
    assert_eq!(pool.deadline(), Some(at(1_000)));
    assert!(orders(&mut pool, at(999)).is_empty());
    let sample = |worker, from| Out::Sample { worker, from };
    assert_eq!(orders(&mut pool, at(1_000)), [sample(0, 0), sample(1, 0)]);
    let piece = |worker, from, readings, next| In::Sampled {
        worker,
        from,
        readings,
        next,
    };
    pool.on(
        piece(0, 0, vec![reading(4, 1_000_000, 100)], Some(5)),
        at(1_001),
    );
    assert_eq!(orders(&mut pool, at(1_001)), [sample(0, 5)]);
    pool.on(
        piece(0, 5, vec![reading(9, 1_000_000, 100)], None),
        at(1_002),
    );
    assert!(orders(&mut pool, at(1_002)).is_empty(), "one is awaited");
    pool.on(piece(1, 0, vec![], None), at(1_003));
    let told = shares(&orders(&mut pool, at(1_003)));
    assert_eq!(told.len(), 2);
    assert_eq!(pool.totals().divisions, 1);
    assert_eq!(pool.deadline(), Some(at(2_003)));
}

#[test]
fn a_worker_that_hangs_delays_a_division_and_its_connections_keep_their_shares() {
    let mut pool = pool(2);
    for worker in 0..2 {
        let reading = reading(worker.into(), 1_000_000, 100);
        pool.on(In::Joined { worker, reading }, at(500));
    }
    assert_eq!(shares(&orders(&mut pool, at(600))).len(), 2);
    orders(&mut pool, at(1_000));
    sampled(&mut pool, &[], at(1_010)); // that of worker 0 has left
    assert_eq!(pool.totals().divisions, 1);
    let told = shares(&orders(&mut pool, at(1_300)));
    assert_eq!(pool.totals().divisions, 2);
    assert_eq!(pool.totals().connections, 1, "{told:?}");
}

#[test]
fn those_who_join_are_divided_for_together_and_not_at_once() {
    let mut pool = pool(1);
    for n in 0..50 {
        join(&mut pool, reading(n, 1_000_000, 10), at(300 + u64::from(n)));
        assert_eq!(pool.poll(at(300 + u64::from(n))).is_some(), n == 0);
        orders(&mut pool, at(300 + u64::from(n)));
    }
    assert_eq!(pool.deadline(), Some(at(400)));
    // The first one has all by now. It has to hear that it has less before others have that.
    let told = orders(&mut pool, at(400));
    let [
        Out::Share {
            conn,
            grant: Some(grant),
            ..
        },
    ] = told[..]
    else {
        panic!("{told:?}");
    };
    let holding = Holding {
        held_bytes: 1_000,
        share_bytes: grant.share_bytes,
        division: grant.division,
    };
    let lessened = In::Lessened {
        worker: 0,
        conn,
        holding,
    };
    pool.on(lessened, at(405));
    assert_eq!(pool.deadline(), Some(at(500)));
    assert_eq!(orders(&mut pool, at(500)).len(), 49);
    assert_eq!(pool.totals().divisions, 3);
    assert_eq!(pool.totals().connections, 50);
}

#[test]
fn the_fast_get_more_and_the_idle_nothing() {
    let mut pool = pool(1);
    let (mut slow, mut fast) = (Vec::new(), Vec::new());
    for second in 1..=5 {
        orders(&mut pool, at(second * 1_100));
        let sent = second as u32 * 1_000;
        let outs = sampled(
            &mut pool,
            &[reading(0, 200_000, sent), reading(1, 20_000_000, sent)],
            at(second * 1_100 + 10),
        );
        for (index, share) in shares(&outs) {
            if index == 0 { &mut slow } else { &mut fast }.push(share.expect("it sends"));
        }
    }
    assert!(
        fast.last() > slow.last().map(|share| share * 10).as_ref(),
        "{fast:?} {slow:?}"
    );
    assert!(pool.totals().shares_bytes <= POOL_BYTES);
    let idle = Reading {
        is_sending: false,
        sample: TcpSample::default(),
        ..reading(0, 200_000, 5_000)
    };
    orders(&mut pool, at(7_100));
    let outs = sampled(&mut pool, &[idle, reading(1, 20_000_000, 7_000)], at(7_101));
    assert_eq!(shares(&outs)[0], (0, None));
    assert_eq!(pool.totals().connections, 1);
    // What is believed of it is not lost: it joins as one that is known.
    join(&mut pool, reading(0, 200_000, 5_010), at(7_300));
    assert!(pool.members[&(0, 0)].known.is_known());
}

#[test]
fn the_next_client_of_an_address_starts_with_what_is_known_of_it() {
    let mut pool = pool(1);
    for second in 1..=5 {
        orders(&mut pool, at(second * 1_100));
        let reading = reading(0, 20_000_000, second as u32 * 1_000);
        sampled(&mut pool, &[reading], at(second * 1_100 + 10));
    }
    let mut next = reading(7, 0, 2);
    for (address, is_known) in [(99, false), (0, true)] {
        next.address = Address(address);
        next.conn.generation += 1;
        join(&mut pool, next, at(6_500));
        assert_eq!(pool.members[&(0, 7)].known.is_known(), is_known);
    }
}

#[test]
fn what_somebody_still_holds_is_granted_to_nobody_else() {
    let mut shares = [500, 300, 200];
    cut_to_fit(&mut shares, &[0, 0, 0], 1_000);
    assert_eq!(shares, [500, 300, 200]);
    cut_to_fit(&mut shares, &[0, 300, 600], 1_000);
    assert_eq!(
        shares,
        [100, 300, 200],
        "400 are held beyond the third's share"
    );
    let mut shares = [10, 10];
    cut_to_fit(&mut shares, &[5, 5_000], 100);
    assert_eq!(shares, [5, 10]);
}

#[test]
fn a_drain_takes_most_of_their_shares_from_all_who_are_held_up_and_gives_them_back() {
    let mut pool = pool(1);
    let each = (POOL_BYTES - POOL_BYTES / START_PART) / 2;
    let share_limited = |index, nth: u32| Reading {
        share_limited_us: US_PER_S,
        share_bytes: if nth == 1 { 14_480 } else { each },
        ..reading(index, 60_000_000, nth * 1_000)
    };
    let told = |outs: &[Out]| {
        let both = shares(outs).into_iter();
        both.map(|(_, share)| share.unwrap()).collect::<Vec<_>>()
    };
    let mut before = Vec::new();
    for nth in 1..DRAIN_EACH_ROUNDS / 2 {
        let now = at(nth * 1_000);
        orders(&mut pool, now);
        let outs = sampled(
            &mut pool,
            &[share_limited(0, nth as u32), share_limited(1, nth as u32)],
            now,
        );
        if !told(&outs).is_empty() {
            before = told(&outs);
        }
    }
    assert_eq!(before, [each; 2], "both claim more than there is");
    let (nth, now) = (DRAIN_EACH_ROUNDS as u32 / 2, at(DRAIN_EACH_ROUNDS * 500));
    orders(&mut pool, now);
    let outs = sampled(
        &mut pool,
        &[share_limited(0, nth), share_limited(1, nth)],
        now,
    );
    assert_eq!(told(&outs), [each / 4; 2]);
    let ends_at = now.plus_us(DRAIN_US);
    assert_eq!(pool.deadline(), Some(ends_at));
    assert!(orders(&mut pool, now.plus_us(DRAIN_US - 1)).is_empty());
    assert_eq!(told(&orders(&mut pool, ends_at)), before);
    assert_eq!(pool.deadline(), Some(now.plus_us(DIVIDE_EACH_US)));
}

#[test]
fn a_round_that_is_too_short_goes_on_in_the_next_one() {
    let mut pool = pool(1);
    let sample = |from| Out::Sample { worker: 0, from };
    for index in [3, 9] {
        join(&mut pool, reading(index, 1_000_000, 100), at(10));
    }
    assert_eq!(shares(&orders(&mut pool, at(100))).len(), 2);
    assert_eq!(orders(&mut pool, at(1_000)), [sample(0)]);
    let piece = |from, index, next| In::Sampled {
        worker: 0,
        from,
        readings: vec![reading(index, 1_000_000, 100)],
        next,
    };
    orders(&mut pool, at(1_300));
    pool.on(piece(0, 3, Some(4)), at(1_301));
    assert!(orders(&mut pool, at(1_301)).is_empty(), "the round is over");
    assert_eq!(orders(&mut pool, at(2_300)), [sample(4)]);
    // The one in the high slot has left; that of the low one was heard of in this pass.
    let last = In::Sampled {
        worker: 0,
        from: 4,
        readings: vec![],
        next: None,
    };
    pool.on(last, at(2_301));
    orders(&mut pool, at(2_301));
    assert_eq!(pool.totals().connections, 1);
    assert_eq!(orders(&mut pool, at(3_301)), [sample(0)]);
}

#[test]
fn a_share_that_was_lost_is_told_again_and_what_it_may_hold_is_taken() {
    let mut pool = pool(1);
    join(&mut pool, reading(0, 1_000_000, 10), at(10));
    let first = shares(&orders(&mut pool, at(100)));
    let [(0, Some(most_bytes))] = first[..] else {
        panic!("{first:?}");
    };
    assert!(most_bytes > POOL_BYTES * 9 / 10, "it is alone");
    join(&mut pool, reading(1, 1_000_000, 10), at(150));
    let told = shares(&orders(&mut pool, at(250)));
    assert!(told[0].1 < Some(most_bytes), "{told:?}");
    assert_eq!(told.len(), 1, "the second has nothing before that is heard");
    orders(&mut pool, at(1_000));
    // Neither of the two was heard: the reading has the start share.
    let all = [reading(0, 1_000_000, 20), reading(1, 1_000_000, 20)];
    let again = shares(&sampled(&mut pool, &all, at(1_010)));
    assert_eq!(again[0].0, 0, "{again:?}");
    assert!(pool.members[&(0, 0)].taken_bytes >= most_bytes);
}

#[test]
fn a_small_growth_is_not_told_and_each_loss_is() {
    assert!(!is_worth_telling(100_000, 100_000) && !is_worth_telling(100_000, 102_999));
    assert!(is_worth_telling(100_000, 103_000) && is_worth_telling(100_000, 99_999));
    assert!(is_worth_telling(0, 1));
}

proptest! {
    #[test]
    fn shares_and_what_is_held_beyond_them_stay_within_the_pool(
        both in prop::collection::vec((0..1u64 << 22, 0..1u64 << 22), 1..40),
        pool_bytes in 0..1u64 << 25,
    ) {
        let (wanted, held): (Vec<u64>, Vec<u64>) = both.into_iter().unzip();
        let mut shares = wanted.clone();
        cut_to_fit(&mut shares, &held, pool_bytes);
        let taken: u64 = shares.iter().zip(&held).map(|(share, held)| share.max(held)).sum();
        let held_alone: u64 = held.iter().sum();
        prop_assert!(taken <= pool_bytes.max(held_alone));
        for ((share, wanted), held) in shares.iter().zip(&wanted).zip(&held) {
            prop_assert!(share <= wanted && *share >= (*wanted).min(*held));
        }
    }

    #[test]
    fn whatever_is_said_the_told_shares_stay_within_the_pool(
        steps in prop::collection::vec((0..40u32, 0..3u32, any::<u32>(), 0..4u8, 1..900u64), 1..120),
    ) {
        let mut pool = pool(1);
        let (mut now, mut told) = (at(0), BTreeMap::new());
        for (index, generation, number, what, ms) in steps {
            now = now.plus_us(ms * 1_000);
            let mut reading = reading(index, number.into(), number);
            reading.conn.generation = generation;
            reading.sample.unacked_bytes = 0;
            reading.is_sending = what != 3;
            match what {
                0 => pool.on(In::Joined { worker: 0, reading }, now),
                _ => pool.on(In::Sampled { worker: 0, from: 0, readings: vec![reading], next: None }, now),
            }
            for out in core::iter::from_fn(|| pool.poll(now)) {
                if let Out::Share { conn, grant, .. } = out {
                    told.insert(conn.index, grant.map_or(0, |grant| grant.share_bytes));
                }
            }
            let totals = pool.totals();
            let floors = totals.connections * CAP_BYTES_MIN;
            prop_assert!(totals.shares_bytes <= POOL_BYTES.max(floors), "{totals:?}");
            prop_assert!(pool.deadline() >= Some(now) || pool.divides_again, "it would spin");
        }
    }
}
