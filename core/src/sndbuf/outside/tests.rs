use super::*;
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
fn a_share_is_what_may_be_in_flight_and_unsent_together() {
    // Nothing known: half and half. A slow one: bytes for a fifth of a second, or the least. A fast one: half.
    for (rate_bytes_per_s, clamp, lowat) in [
        (0, 50, 50_000),
        (10_000, 83, 16_384),
        (200_000, 60, 40_000),
        (90_000_000, 50, 50_000),
    ] {
        let seen = Seen {
            rate_bytes_per_s,
            ..new()
        };
        let to = Step::Set(setting(clamp, lowat), Cause::Joined);
        assert_eq!(next(&seen, 100_000), to, "{rate_bytes_per_s}");
    }
    let most = step(&new(), Some(100_000), 9_000);
    assert_eq!(most, Step::Set(setting(50, 9_000), Cause::Joined));
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
    let unbound = Step::Set(setting(u32::MAX, 50_000), Cause::Joined);
    assert_eq!(next(&learnt, 100_000), unbound);
    // It binds soon: no further than half above the window.
    let bound = Step::Set(setting(30, 35_000), Cause::Joined);
    assert_eq!(next(&learnt, 70_000), bound);
    // One that never lost starts slowly anyway.
    let fresh = Step::Set(setting(50, 50_000), Cause::Joined);
    assert_eq!(next(&new(), 100_000), fresh);
}

#[test]
fn a_share_that_rises_is_given_where_it_is_used() {
    let full = ours(50, 50_000);
    let more = Step::Set(setting(200, 200_000), Cause::ShareRose);
    assert_eq!(next(&full, 400_000), more);
    let half_used = Seen {
        cwnd_segments: 30,
        ..full
    };
    let unsent = Step::Set(setting(50, 200_000), Cause::Rate);
    assert_eq!(next(&half_used, 400_000), unsent);
    let lost = Seen {
        lost_lately: true,
        ..full
    };
    let careful = Step::Set(setting(75, 200_000), Cause::ShareRose);
    assert_eq!(next(&lost, 400_000), careful);
    let drained = Seen {
        lately_segments: 180,
        ..lost
    };
    let back = Step::Set(setting(180, 200_000), Cause::ShareRose);
    assert_eq!(next(&drained, 400_000), back);
}

#[test]
fn a_share_that_falls_is_taken_at_once_but_for_an_eighth() {
    let full = ours(50, 50_000);
    let less = Step::Set(setting(10, 10_000), Cause::ShareFell);
    assert_eq!(next(&full, 20_000), less);
    assert_eq!(next(&full, 94_000), Step::Keep);
    assert_eq!(next(&full, 104_000), Step::Keep);
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
    let Step::Set(to, _) = next(&bbr, 20_000) else {
        panic!("it is bounded");
    };
    assert_eq!(to.clamp_segments, 127);
    let unknown = Seen {
        rate_bytes_per_s: 0,
        ..bbr
    };
    let least = Step::Set(setting(8, 2_000), Cause::Joined);
    assert_eq!(next(&unknown, 4_000), least);
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

proptest! {
    #[test]
    fn a_setting_lasts_and_holds_no_more_than_the_share(seen in some_seen(), share_bytes in 0..1u64 << 32) {
        let Step::Set(to, _) = next(&seen, share_bytes) else {
            return Ok(());
        };
        prop_assert!(to.lowat_bytes > 0);
        prop_assert!(u64::from(to.clamp_segments) >= SHARE_SEGMENTS_MIN);
        if to.clamp_segments < seen.now.clamp_segments && seen.control != Control::Model {
            let floor_bytes = (SHARE_SEGMENTS_MIN + 1) * seen.segment_bytes;
            let clamp_bytes = u64::from(to.clamp_segments) * seen.segment_bytes;
            let lowat_bytes = u64::from(to.lowat_bytes).min(share_bytes / 2);
            prop_assert!(clamp_bytes + lowat_bytes <= share_bytes.max(floor_bytes));
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
}
