use super::*;
use proptest::prelude::*;

const MSS_BYTES: u64 = 1_000;

/// A path with segments of 1,000 bytes, so that bytes read as thousandths of a segment.
fn path(rtt_us: u64, p: f64, acks: Acks) -> Conditions {
    Conditions {
        mss_bytes: MSS_BYTES,
        rtt_us,
        loss: Loss::new(p),
        acks,
    }
}

/// Each law, named; a timeout of a second, no bound by the receiver.
fn laws(of: &Conditions) -> [(&'static str, Window); 4] {
    [
        ("square root", of.square_root()),
        ("mathis", of.mathis(0.87)),
        ("pftk", of.pftk(US_PER_S, u64::MAX)),
        ("cubic", of.cubic()),
    ]
}

/// What the RFCs' 1.2 lacks of sqrt(1.5) = 1.2247, and with it all that they print of reno: 2.1 %.
const RENO_LEEWAY: f64 = 0.021;
/// What the RFC's 1.054 has more than (.4 * 3.7 / 1.2)^(1/4) = 1.05385.
const CUBIC_LEEWAY: f64 = 0.0002;

/// Whether `got` is what was published, within this part of it and `rounding` more.
fn is_near(got: f64, published: f64, leeway: f64, rounding: f64) -> bool {
    (got - published).abs() <= published * leeway + rounding
}

#[test]
fn reno_and_cubic_have_the_windows_of_the_rfcs() {
    // RFC 9438, 5.1, tables 1 and 2: loss, reno, cubic (C = .4) at 100 ms, cubic at 10 ms, in segments. RFC 3649 has the
    // same numbers for reno. Tables and `bytes` are cut to whole numbers, a segment and a thousandth of one.
    for (p, reno, far, near) in [
        (1e-2, 12.0, 12.0, 12.0),
        (1e-3, 38.0, 38.0, 38.0),
        (1e-4, 120.0, 187.0, 120.0),
        (1e-5, 379.0, 1_054.0, 379.0),
        (1e-6, 1_200.0, 5_926.0, 1_200.0),
        (1e-7, 3_795.0, 33_325.0, 5_926.0),
        (1e-8, 12_000.0, 187_400.0, 33_325.0),
    ] {
        let (at_100, at_10) = (path(100_000, p, Acks::Each), path(10_000, p, Acks::Each));
        for (window, published) in [
            (at_100.square_root(), reno),
            (at_10.square_root(), reno),
            (at_100.cubic(), far),
            (at_10.cubic(), near),
        ] {
            let segments = window.bytes() as f64 / MSS_BYTES as f64;
            // Where cubic grows as reno, it has reno's number, and its constant.
            let is_reno = published == reno;
            let leeway = if is_reno { RENO_LEEWAY } else { CUBIC_LEEWAY };
            assert!(
                is_near(segments, published, leeway, 1.001),
                "p = {p}: {segments}, not {published}"
            );
        }
    }
}

#[test]
fn mathis_by_hand() {
    // 1,460 / .1 * .87 / sqrt(.0004) = 14,600 * 43.5 = 635,100.
    let of = Conditions {
        mss_bytes: 1_460,
        ..path(100_000, 0.0004, Acks::Each)
    };
    assert!(of.mathis(0.87).bytes_per_s().abs_diff(635_100) <= 1);
    assert_eq!(of.mathis(f64::NAN).bytes(), 0);
    assert_eq!(of.mathis(-1.0).bytes(), 0);
}

#[test]
fn pftk_by_hand() {
    // Segments a second = 1 / (RTT sqrt(2bp/3) + T0 min(1, 3 sqrt(3bp/8)) p (1 + 32 p^2)), with thousandths of segments.
    for (rtt_us, rto_us, p, acks, per_s) in [
        // sqrt(.04 / 3) = .1154701, * .1 = .01154701; 3 sqrt(.0075) = .2598076, * .01 * 1.0032 = .002606390
        (100_000, 1_000_000, 0.01, Acks::Delayed, 70_654), // 1 / .014153400
        // sqrt(.02 / 3) = .08164966, * .1 = .008164966; 3 sqrt(.00375) = .1837117, * .0018429958 -> .2 * .001842996
        (100_000, 200_000, 0.01, Acks::Each, 117_183), // 1 / (.008164966 + .000368599)
        // sqrt(.4 / 3) = .3651484, * .05; min(1, 3 sqrt(.075) = .8215838) * .1 * 1.32 = .1084491, * 2
        (50_000, 2_000_000, 0.1, Acks::Delayed, 4_252), // 1 / (.01825742 + .2168981)
        // sqrt(4 / 3) = 1.154701, * .05; min(1, 3 sqrt(.75) = 2.6) * 1 * 33, * 2
        (50_000, 2_000_000, 1.0, Acks::Delayed, 15), // 1 / (.05773503 + 66)
    ] {
        let rate = path(rtt_us, p, acks).pftk(rto_us, u64::MAX).bytes_per_s();
        let leeway = per_s / 5_000 + 1;
        assert!(
            rate.abs_diff(per_s) <= leeway,
            "p = {p}: {rate}, not {per_s}"
        );
    }
}

#[test]
fn without_loss_only_the_largest_window_counts() {
    let of = path(100_000, 0.0, Acks::Delayed);
    for (law, window) in laws(&of) {
        assert_eq!(window.bytes(), WINDOW_BYTES_MAX, "{law}");
    }
    assert_eq!(of.pftk(0, 64_000).bytes(), 64_000);
    assert_eq!(of.pftk(0, 64_000).bytes_per_s(), 640_000);
    assert_eq!(of.pftk(u64::MAX, 0).bytes(), 0);
}

#[test]
fn a_loss_is_a_probability() {
    for (given, taken) in [
        (f64::NAN, 0.0),
        (-1.0, 0.0),
        (0.5, 0.5),
        (7.0, 1.0),
        (f64::INFINITY, 1.0),
    ] {
        assert_eq!(Loss::new(given).probability(), taken);
    }
}

fn any_acks() -> impl Strategy<Value = Acks> {
    prop_oneof![Just(Acks::Each), Just(Acks::Delayed)]
}

/// Losses of all magnitudes, the ends included.
fn any_loss() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(5e-324),
        (0.0..12.0f64).prop_map(|x| 10f64.powf(-x))
    ]
}

prop_compose! {
    fn any_path()(mss_bytes in prop_oneof![0..3u64, 500..10_000u64, Just(u64::MAX)], rtt_us in prop_oneof![0..3u64, 1..3_000_000u64, Just(u64::MAX)], p in any_loss(), acks in any_acks()) -> Conditions {
        Conditions { mss_bytes, rtt_us, loss: Loss::new(p), acks }
    }
}

proptest! {
    #[test]
    fn every_law_is_defined_everywhere(of in any_path(), rto_us: u64, peer_window_bytes: u64) {
        let pftk = of.pftk(rto_us, peer_window_bytes);
        prop_assert!(pftk.bytes() <= peer_window_bytes, "above W_max");
        for (law, window) in laws(&of).into_iter().chain([("pftk", pftk)]) {
            prop_assert!(!window.segments.is_nan(), "{law}");
            prop_assert!(window.bytes() <= WINDOW_BYTES_MAX, "{law}");
            prop_assert!((1..=RATE_BYTES_PER_S_MAX).contains(&window.bytes_per_s()), "{law}");
        }
    }

    #[test]
    fn more_loss_is_never_faster(of in any_path(), p in any_loss()) {
        let worse = Conditions { loss: Loss::new(of.loss.0.max(p)), ..of };
        for ((law, before), (_, after)) in laws(&of).into_iter().zip(laws(&worse)) {
            prop_assert!(after.bytes() <= before.bytes(), "{law}: {} < {}", before.bytes(), after.bytes());
            prop_assert!(after.bytes_per_s() <= before.bytes_per_s(), "{law}");
        }
    }

    #[test]
    fn a_longer_round_trip_is_never_faster_and_holds_no_less(of in any_path(), more_us in 0..3_000_000u64) {
        let longer = Conditions { rtt_us: of.rtt_us.saturating_add(more_us), ..of };
        for ((law, before), (_, after)) in laws(&of).into_iter().zip(laws(&longer)) {
            // One byte, and one part in 10^12, for the rounding of floats.
            let leeway = |n: u64| 1 + n / 1_000_000_000_000;
            let (rate, window) = (before.bytes_per_s(), before.bytes());
            prop_assert!(after.bytes_per_s() <= rate + leeway(rate), "{law}: {rate} < {}", after.bytes_per_s());
            prop_assert!(after.bytes() + leeway(window) >= window, "{law}: {window} > {}", after.bytes());
        }
    }
}
