use super::*;
use crate::eatbt::Need;
use crate::{Claim, Demand, Policy, divide};
use alloc::vec::Vec;
use proptest::prelude::*;

const UNBOUNDED: Setting = Setting {
    clamp_segments: u32::MAX,
    lowat_bytes: 0,
};

fn setting(clamp_segments: u32, lowat_bytes: u32) -> Setting {
    Setting {
        clamp_segments,
        lowat_bytes,
    }
}

/// A new socket that nobody touched.
fn new() -> Seen {
    Seen {
        now: UNBOUNDED,
        ours: None,
        buffer_is_fixed: false,
        cwnd_segments: 10,
        threshold_segments: NONE_SEGMENTS,
        segment_bytes: 1_000,
        rate_bytes_per_s: 0,
        rtt_min_us: 20_000,
        window_bytes: 1 << 40,
        control: Control::Cubic,
        lost_lately: false,
        lately_segments: 0,
    }
}

/// One that we hold.
fn ours(clamp_segments: u32, lowat_bytes: u32) -> Seen {
    let now = setting(clamp_segments, lowat_bytes);
    Seen {
        now,
        ours: Some(now),
        cwnd_segments: clamp_segments,
        threshold_segments: clamp_segments,
        ..new()
    }
}

fn next(seen: &Seen, share_bytes: u64) -> Step {
    step(seen, Some(share_bytes), u32::MAX)
}

#[test]
fn a_share_but_for_a_sixteenth_is_what_may_be_in_flight_and_unsent_together() {
    // Nothing known: half and half. A slow one: bytes for a fifth of a second, or the least. A fast one: half.
    for (rate_bytes_per_s, clamp, lowat) in [
        (0, 46, 46_875),
        (10_000, 77, 16_384),
        (200_000, 53, 40_000),
        (90_000_000, 46, 46_875),
    ] {
        let seen = Seen {
            rate_bytes_per_s,
            ..new()
        };
        let to = Step::Set(setting(clamp, lowat), Cause::Joined);
        assert_eq!(next(&seen, 100_000), to, "{rate_bytes_per_s}");
    }
    let most = step(&new(), Some(100_000), 9_000);
    assert_eq!(most, Step::Set(setting(46, 9_000), Cause::Joined));
    // The least: two segments in flight, and one unsent.
    let least = Step::Set(setting(2, 1_000), Cause::Joined);
    assert_eq!(next(&new(), 3_000), least);
}

#[test]
fn what_others_have_set_stays_before_and_after_us() {
    let fixed = Seen {
        buffer_is_fixed: true,
        ..new()
    };
    assert_eq!(next(&fixed, 100_000), Step::Leave(HandsOff::SendBuffer));
    for (now, why) in [
        (setting(u32::MAX, 16_384), HandsOff::Lowat),
        (setting(40, 0), HandsOff::Clamp),
    ] {
        let seen = Seen { now, ..new() };
        assert_eq!(next(&seen, 100_000), Step::Leave(why));
    }
    for (now, why) in [
        (setting(50, 0), HandsOff::Lowat),
        (setting(50, 70_000), HandsOff::Lowat),
        (setting(49, 50_000), HandsOff::Clamp),
        (setting(u32::MAX, 50_000), HandsOff::Clamp),
    ] {
        let seen = Seen {
            now,
            ..ours(50, 50_000)
        };
        assert_eq!(next(&seen, 10_000), Step::GiveBack(why), "{now:?}");
    }
}

#[test]
fn a_threshold_that_a_loss_has_set_is_not_lost_for_nothing() {
    let learnt = Seen {
        cwnd_segments: 20,
        threshold_segments: 15,
        ..new()
    };
    // It would not bind: only the unsent bytes are bounded.
    let unbound = Step::Set(setting(u32::MAX, 48_000), Cause::Joined);
    assert_eq!(next(&learnt, 102_400), unbound);
    // It binds soon: no further than half above the window.
    let bound = Step::Set(setting(30, 36_000), Cause::Joined);
    assert_eq!(next(&learnt, 76_800), bound);
    // One that never lost starts slowly anyway.
    let fresh = Step::Set(setting(48, 48_000), Cause::Joined);
    assert_eq!(next(&new(), 102_400), fresh);
}

#[test]
fn a_share_that_rises_is_given_where_it_is_used() {
    let full = ours(50, 50_000);
    let more = Step::Set(setting(192, 192_000), Cause::ShareRose);
    assert_eq!(next(&full, 409_600), more);
    let half_used = Seen {
        cwnd_segments: 30,
        ..full
    };
    let unsent = Step::Set(setting(50, 192_000), Cause::Rate);
    assert_eq!(next(&half_used, 409_600), unsent);
    let behind_a_window = Seen {
        window_bytes: 50_000,
        ..full
    };
    assert_eq!(next(&behind_a_window, 409_600), unsent);
    let lost = Seen {
        lost_lately: true,
        ..full
    };
    let careful = Step::Set(setting(75, 192_000), Cause::ShareRose);
    assert_eq!(next(&lost, 409_600), careful);
    let drained = Seen {
        lately_segments: 180,
        ..lost
    };
    let back = Step::Set(setting(180, 192_000), Cause::ShareRose);
    assert_eq!(next(&drained, 409_600), back);
}

#[test]
fn a_share_that_falls_below_what_is_set_is_taken_at_once() {
    let full = ours(50, 50_000);
    let less = Step::Set(setting(10, 10_000), Cause::ShareFell);
    assert_eq!(next(&full, 21_334), less);
    assert_eq!(next(&full, 100_000), Step::Keep);
    let a_little = Step::Set(setting(46, 46_875), Cause::ShareFell);
    assert_eq!(next(&full, 99_999), a_little);
}

#[test]
fn a_share_that_goes_up_and_down_by_a_tenth_takes_one_order() {
    let mut seen = ours(50, 50_000);
    let mut orders = 0;
    for share_bytes in [90_000, 100_000, 110_000, 100_000].repeat(9) {
        if let Step::Set(to, _) = next(&seen, share_bytes) {
            seen = ours(to.clamp_segments, to.lowat_bytes);
            orders += 1;
        }
    }
    assert_eq!(orders, 1);
}

#[test]
fn bytes_unsent_follow_the_rate_by_half_more_or_less() {
    let seen = ours(50, 50_000);
    for (rate_bytes_per_s, lowat_bytes) in [
        (126_000, None),
        (250_000, None),
        (125_000, Some(25_000)),
        (60_000, Some(16_384)),
    ] {
        let seen = Seen {
            rate_bytes_per_s,
            cwnd_segments: 10,
            ..seen
        };
        let step = next(&seen, 100_000);
        let expected = lowat_bytes.map_or(Step::Keep, |bytes| {
            Step::Set(setting(50, bytes), Cause::Rate)
        });
        assert_eq!(step, expected, "{rate_bytes_per_s}");
    }
    let more = Step::Set(setting(40, 44_000), Cause::Rate);
    let seen = Seen {
        rate_bytes_per_s: 220_000,
        ..ours(40, 29_000)
    };
    assert_eq!(next(&seen, 100_000), more);
}

#[test]
fn one_that_rests_keeps_its_setting_but_may_start_anew() {
    assert_eq!(step(&ours(50, 50_000), None, u32::MAX), Step::Keep);
    let small = Step::Set(setting(10, 2_000), Cause::Idle);
    assert_eq!(step(&ours(3, 2_000), None, u32::MAX), small);
    assert_eq!(step(&new(), None, u32::MAX), Step::Keep);
}

#[test]
fn a_control_that_models_its_path_keeps_the_product() {
    let bbr = Seen {
        control: Control::Model,
        rate_bytes_per_s: 5_000_000, // 100 segments in its shortest round trip
        ..new()
    };
    let Step::Set(mut to, _) = next(&bbr, 20_000) else {
        panic!("it is bounded");
    };
    assert_eq!(to.clamp_segments, 127);
    let unknown = Seen {
        rate_bytes_per_s: 0,
        ..bbr
    };
    let least = Step::Set(setting(8, 1_000), Cause::Joined);
    assert_eq!(next(&unknown, 4_000), least);
    // Its product goes up and down a little, far above its share.
    for (rate_bytes_per_s, clamp_segments) in [
        (5_000_000, 127),
        (4_500_000, 127),
        (5_500_000, 127),
        (4_000_000, 102),
        (4_500_000, 102),
        (5_000_000, 127),
    ] {
        let seen = Seen {
            rate_bytes_per_s,
            ..ours(to.clamp_segments, 1_000)
        };
        let seen = Seen {
            control: Control::Model,
            ..seen
        };
        match next(&seen, 20_000) {
            Step::Keep => assert_eq!(to.clamp_segments, clamp_segments, "{rate_bytes_per_s}"),
            Step::Set(next, _) => {
                assert_eq!(next.clamp_segments, clamp_segments, "{rate_bytes_per_s}");
                to = next;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn some_seen() -> impl Strategy<Value = Seen> {
    let window = (1..5_000u32, prop_oneof![Just(NONE_SEGMENTS), 2..5_000u32]);
    let path = (1..70_000u64, 0..1u64 << 34, 0..3_000_000u64);
    let held = prop::option::of((2..5_000u32, 1..9_000_000u32));
    let flags = (any::<bool>(), any::<bool>(), 0..5_000u32);
    (window, path, held, flags).prop_map(|(window, path, held, flags)| {
        let held = held.map(|(clamp, lowat)| setting(clamp, lowat));
        Seen {
            now: held.unwrap_or(UNBOUNDED),
            ours: held,
            cwnd_segments: window.0,
            threshold_segments: window.1,
            segment_bytes: path.0,
            rate_bytes_per_s: path.1,
            rtt_min_us: path.2,
            control: if flags.0 {
                Control::Model
            } else {
                Control::Reno
            },
            lost_lately: flags.1,
            lately_segments: flags.2,
            ..new()
        }
    })
}

/// What a setting lets a socket hold, if it is clamped.
fn allowed(seen: &Seen, setting: Setting) -> Option<u64> {
    let clamp = Some(setting.clamp_segments).filter(|clamp| *clamp < NONE_SEGMENTS)?;
    Some(u64::from(clamp) * seen.segment_bytes + u64::from(setting.lowat_bytes))
}

fn least_bytes(seen: &Seen) -> u64 {
    (SHARE_SEGMENTS_MIN + 1) * seen.segment_bytes
}

proptest! {
    #[test]
    fn a_setting_lasts_and_allows_no_more_than_the_share(seen in some_seen(), share_bytes in 0..1u64 << 32) {
        let to = match next(&seen, share_bytes) {
            Step::Set(to, _) => to,
            Step::Keep => seen.now,
            _ => return Ok(()),
        };
        prop_assert!(to.lowat_bytes > 0);
        prop_assert!(u64::from(to.clamp_segments) >= SHARE_SEGMENTS_MIN);
        if let (Some(allowed), true) = (allowed(&seen, to), seen.control != Control::Model) {
            let most = share_bytes.max(least_bytes(&seen));
            // Where the least is above the share, an eighth of that is not worth an order.
            let slack = if share_bytes < least_bytes(&seen) { most / 8 } else { 0 };
            prop_assert!(allowed <= most + slack, "{allowed} of {share_bytes}");
        }
        // Nothing else happens: it is not changed again and again.
        let mut after = Seen { now: to, ours: Some(to), ..seen };
        after.cwnd_segments = after.cwnd_segments.min(to.clamp_segments);
        after.lately_segments = after.lately_segments.max(to.clamp_segments.min(NONE_SEGMENTS - 1));
        if to.clamp_segments >= NONE_SEGMENTS {
            after.ours = Some(Setting { clamp_segments: 0, ..to });
        }
        for _ in 0..40 {
            match next(&after, share_bytes) {
                Step::Keep => return Ok(()),
                Step::Set(to, _) => (after.now, after.ours) = (to, Some(to)),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert!(false, "it is changed for ever: {after:?}");
    }

    /// The band of a socket that uses what it has: never above its share, and how far below.
    #[test]
    fn who_uses_its_setting_has_two_thirds_of_its_share(moves in prop::collection::vec((20..2_000u64, 0..4_000u64), 1..20)) {
        let mut seen = Seen { rate_bytes_per_s: 50_000_000, ..new() };
        for (share_kb, more_kb) in moves {
            for share_bytes in [share_kb * 1_000, (share_kb + more_kb) * 1_000] {
                if let Step::Set(to, _) = next(&seen, share_bytes) {
                    seen = Seen { rate_bytes_per_s: 50_000_000, ..ours(to.clamp_segments, to.lowat_bytes) };
                }
                let allowed = allowed(&seen, seen.now).expect("it never lost");
                prop_assert!(allowed <= share_bytes);
                // 15/16 is aimed at: two thirds of its half unsent at least, and four fifths of its half in flight, in whole segments.
                let least = share_bytes * 15 / 16 / 2 * 2 / 3 + share_bytes * 15 / 16 / 2 * 4 / 5 - 2 * seen.segment_bytes;
                prop_assert!(allowed >= least, "{allowed} of {share_bytes}, not {least}");
            }
        }
    }

    /// What is divided, in any order of divisions and whatever rates, windows and losses are seen.
    #[test]
    fn all_that_is_set_never_exceeds_what_is_divided(
        rounds in prop::collection::vec(prop::collection::vec((0..400_000u64, 0..2_000_000u64, 1..200u32, any::<bool>(), 0..600_000u64), 12), 1..12),
        budget_bytes in 12 * 3_000..3_000_000u64,
    ) {
        let policy = Policy::ByNeed(Need::Law);
        let mut sockets = [new(); 12];
        for round in rounds {
            let claims: Vec<Claim> = round.iter().map(|(rate, ..)| Claim::of(&demand(*rate), policy)).collect();
            let shares = divide(&claims, policy, budget_bytes);
            let (mut all, mut beside) = (0, 0);
            for ((seen, share_bytes), (_, rate, cwnd, lost_lately, window_bytes)) in sockets.iter_mut().zip(&shares).zip(&round) {
                let cwnd_segments = (*cwnd).min(seen.now.clamp_segments);
                *seen = Seen { rate_bytes_per_s: *rate, cwnd_segments, lost_lately: *lost_lately, window_bytes: *window_bytes, ..*seen };
                if let Step::Set(to, _) = next(seen, *share_bytes) {
                    seen.now = to;
                    seen.ours = Some(Setting { clamp_segments: if to.clamp_segments < NONE_SEGMENTS { to.clamp_segments } else { 0 }, ..to });
                }
                // Whom a loss has taught is not clamped before its window comes near to the share.
                all += allowed(seen, seen.now).unwrap_or(u64::from(seen.cwnd_segments) * seen.segment_bytes + u64::from(seen.now.lowat_bytes));
                // Three segments at least, even if the share is less; an eighth of them is not worth an order.
                if *share_bytes < least_bytes(seen) {
                    beside += least_bytes(seen) * 9 / 8 - share_bytes;
                }
            }
            prop_assert!(all <= budget_bytes + beside, "{all} B are set of {budget_bytes} B, {beside} B beside");
        }
    }
}

/// Of a connection with this rate, over 40 ms.
fn demand(rate_bytes_per_s: u64) -> Demand {
    Demand {
        rate_bytes_per_s,
        delivered_max_bytes_per_s: rate_bytes_per_s,
        ..super::super::tests::share_limited(1)
    }
}
