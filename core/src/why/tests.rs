use alloc::string::ToString;

use super::decisions::*;
use super::*;
use crate::congestion::{Delay, Signal};
use crate::prefetch::{DepthBound, LengthBound};
use crate::units::Instant;

#[test]
fn every_reason_stands_at_its_number_and_has_a_name_of_its_own() {
    for (at, why) in Why::ALL.into_iter().enumerate() {
        assert_eq!(why as usize, at);
    }
    for (at, wait) in Wait::ALL.into_iter().enumerate() {
        assert_eq!(wait as usize, at);
    }
    for (at, top_up) in TopUp::ALL.into_iter().enumerate() {
        assert_eq!(top_up as usize, at);
    }
    let mut names: Vec<&str> = Why::ALL.into_iter().map(Why::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Why::ALL.len());
}

#[test]
fn a_full_socket_is_the_windows_doing_when_no_segment_fits_in_it() {
    let tcp = WindowFacts {
        window_bytes: 65_536,
        in_flight_bytes: 10_000,
        unsent_bytes: 500_000,
        segment_bytes: 1448,
    };
    let full = WindowFacts {
        in_flight_bytes: 65_000,
        ..tcp
    };
    let shut = WindowFacts {
        window_bytes: 0,
        ..tcp
    };
    for (wait, facts, seen) in [
        (Wait::Margin, tcp, Wait::Margin),
        (Wait::Margin, full, Wait::Window),
        (Wait::Socket, shut, Wait::Window),
        (Wait::Disk, shut, Wait::Disk),
        (Wait::Turn, full, Wait::Turn),
    ] {
        assert_eq!(wait.seen_with(&facts), seen, "{wait:?} {facts:?}");
    }
}

#[test]
fn a_decision_is_a_plain_sentence_with_its_numbers() {
    let topped_up = |unsent_bytes| What::ToppedUp {
        top_up: TopUp::Near,
        wait: Wait::Margin,
        given_bytes: 123_456,
        unsent_bytes: Some(unsent_bytes),
        fill_bytes: 507_904,
        rate_bytes_per_s: 2_500_000,
    };
    assert_eq!(
        topped_up(507_904).to_string(),
        "given 123 KB because the socket would have become writable before the next round; the socket holds 507 KB unsent, 203 \
         ms at the 2.5 MB/s that it takes, and is filled up to 507 KB; now it waits for its client: the socket holds its \
         margin, as it should"
    );
    let more = topped_up(540_000).to_string();
    let part = "; the socket holds 540 KB unsent, 216 ms at the 2.5 MB/s that it takes, more than the 507 KB up to which it is filled \
                now; now ";
    assert!(more.contains(part), "{more}");
    let waits = |socket_bytes| What::Waits {
        wait: Wait::Disk,
        left_bytes: 999,
        socket_bytes,
    };
    assert_eq!(
        waits(300).to_string(),
        "waits for the disk: its next bytes are not in memory yet; 999 B are left"
    );
    assert_eq!(
        waits(2_000_000).to_string(),
        "its next bytes are not in memory yet, and its socket should hold 2.0 MB until then; 999 B are left"
    );
    let target = What::Target {
        from_us: 400_000,
        to_us: 209_000,
        rates_bytes_per_s: 240_000_000,
    };
    assert_eq!(
        target.to_string(),
        "the margin of all connections goes from 400 ms to 209 ms, since together they take 240 MB/s"
    );
    let paced = What::Paced {
        window_bytes: 400_000,
        rate_bytes_per_s: 25_000_000,
        for_us: 20_000,
    };
    assert_eq!(
        paced.to_string(),
        "paced at 25 MB/s for 20 ms, a round trip, since nothing was in flight: its window of 400 KB would leave at \
         once, and overflow a queue on the way"
    );
    let congested = |delay, to_bytes_per_s| What::Congested {
        signal: Signal::Ecn,
        delay,
        from_bytes_per_s: 1_000_000,
        to_bytes_per_s,
    };
    assert_eq!(
        congested(Delay::Rate, 750_000).to_string(),
        "its path is congested: packets are marked (ECN); taken for 750 KB/s instead of 1.0 MB/s, so its next bytes are \
         read later"
    );
    assert_eq!(
        congested(Delay::Rate, 1_000_000).to_string(),
        "its path is congested: packets are marked (ECN); whether it is slower than 1.0 MB/s is measured now"
    );
    let ended = What::Ended {
        why: Why::PauseTimeout,
        sent_bytes: 4_150_000,
        took_us: 604_000_000,
    };
    assert_eq!(
        ended.to_string(),
        "the response ended (pause_timeout) after 4.1 MB in 604 s"
    );
}

#[test]
fn a_decision_about_a_device_is_a_plain_sentence_with_its_numbers() {
    for (what, text) in [
        (
            What::Depth {
                from: 8,
                to: 4,
                bound: DepthBound::FirstRead,
            },
            "the depth goes from 8 to 4 reads at once: more would make a new client wait too long for its first bytes",
        ),
        (
            What::Memory {
                from_bytes: 64_000_000,
                to_bytes: 26_000_000,
            },
            "memory for reading ahead goes from 64 MB to 26 MB, since others want the rest",
        ),
    ] {
        assert_eq!(what.to_string(), text);
    }
}

#[test]
fn the_last_decisions_are_kept_in_their_order_in_memory_that_never_grows() {
    const MOST: u64 = 50;
    let mut decisions = Decisions::new(MOST as usize);
    let capacity = decisions.ring.capacity();
    assert_eq!(decisions.iter().count(), 0);
    for us in 0..3 * MOST + 7 {
        let why = Why::Done;
        decisions.record(Instant { us }, None, What::Closed { why });
        let first = (us + 1).saturating_sub(MOST);
        let kept = decisions.iter().map(|decision| decision.at.us);
        assert!(kept.eq(first..=us), "after {us}");
    }
    assert_eq!(decisions.ring.capacity(), capacity);
}

#[test]
fn a_read_explains_itself() {
    let chosen = Chosen {
        reason: Reason::Due,
        bound: LengthBound::Rate,
        len_bytes: 1_400_000,
        margin_us: 1_200_000,
        target_us: 4_000_000,
        rate_bytes_per_s: 500_000,
        took_us: 31_000,
    };
    assert_eq!(
        chosen.to_string(),
        "read 1.4 MB in 31 ms, since it was due and the sweep came by: it had enough for 1.2 s, less than half of the target, \
         4.0 s; so long that it has enough for 4.0 s at the 500 KB/s that it takes"
    );
    let unknown = Chosen {
        bound: LengthBound::Unknown,
        margin_us: 0,
        rate_bytes_per_s: 0,
        ..chosen
    };
    assert_eq!(
        unknown.to_string(),
        "read 1.4 MB in 31 ms, since it was due and the sweep came by; this long because its rate is not known yet, and a \
         short read finds it out"
    );
    let first = Chosen {
        reason: Reason::First,
        bound: LengthBound::First,
        len_bytes: 131_072,
        ..chosen
    };
    assert_eq!(
        first.to_string(),
        "read 131 KB in 31 ms, before all who have something, since it had nothing yet; this long because its rate is not \
         known yet, and a short read finds it out"
    );
}
