//! Residency: whose answer to "is it in the page cache?" is believed, and for how long.
//!
//! sendfile(2) waits for a page that is missing, and a worker must not wait for long. So the shell asks the kernel, by the
//! [`Question`] that suits the file and the [`Occasion`]; an answer holds for the turn in which it was given ([`Confirmation`]). A
//! page may be dropped between answer and send. Where that costs a long wait ([`latency`]), bytes are copied, which
//! never waits, except for pages that can't be dropped ([`means`], [`Doubt`]). Where it costs a short one, what
//! [`cache`](crate::cache) believes is sent without a question. That belief decides which window to read, too.
//! The reasons and the measurements are in docs/decisions/0002-residency.md.

pub mod latency;
pub mod limits;

use crate::conn::{ResidencySource, Span};
use crate::limits::{PROBE_BYTES_MIN, SEND_BYTES_MAX};
use crate::units::Instant;
use latency::PageWait;
use limits::{
    CONFIRMED_US, DOUBT_US_MAX, DOUBT_US_MIN, SAMPLE_BYTES, SCANS_HOLD_US_MAX, SCANS_HOLD_US_MIN,
    SCANS_SHARE, SEND_BYTES_LONG_WAIT_MAX, SEND_BYTES_SHORT_WAIT_MAX, SEND_WAITED_LONG_US,
    SEND_WAITED_US,
};

/// How the kernel is asked which bytes of a span are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Not at all: the file lives in memory, or what was found when its window was chosen is believed.
    None,
    /// About each page, by mincore(2). Where that can't answer, pages are counted by cachestat(2), and a sample is read if all
    /// are there: reading a page that is not there would start a small read of it.
    EachPage,
    /// All pages are counted by cachestat(2), and if some are missing the kernel is asked about each. A count takes pages for
    /// there that are still being read, so a coarse sample looks for what another program reads ahead in that moment.
    CountAndSample,
    /// A sample is read without waiting, only of spans that are believed to be in memory.
    Sample,
}

/// What the answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// To choose between sending a window and reading it. The choice is believed for a while.
    Choice,
    /// To send bytes of a window that was chosen.
    Send,
    /// The same while pages go missing that had just been there.
    SendInDoubt,
}

/// The question for a file whose device has this `wait`.
pub fn question(residency: ResidencySource, wait: PageWait, occasion: Occasion) -> Question {
    match (residency, wait, occasion) {
        (ResidencySource::Always, ..) => Question::None,
        (ResidencySource::Ask, PageWait::Short, Occasion::Send) => Question::None,
        (ResidencySource::Ask, PageWait::Short, _) => Question::CountAndSample,
        (ResidencySource::Ask, PageWait::Long, _) => Question::EachPage,
        (ResidencySource::Remember, ..) => Question::Sample,
    }
}

/// The offsets at which a sample of the span is read: one in `each_bytes`, and the last.
pub fn sample(span: Span, each_bytes: u64) -> impl Iterator<Item = u64> {
    let last_bytes = span.end_bytes().saturating_sub(1);
    let places = (span.offset_bytes..last_bytes).step_by(each_bytes as usize);
    places.chain([last_bytes])
}

/// How many bytes of the span count as resident, from its start, if of a sample of one in [`SAMPLE_BYTES`] the one at offset
/// `missing_at` is the first that is missing.
pub fn resident_before(span: Span, missing_at: u64) -> u64 {
    let before_bytes = missing_at.saturating_sub(span.offset_bytes);
    before_bytes / SAMPLE_BYTES * SAMPLE_BYTES
}

/// When the kernel answered about bytes that the caller keeps. That holds for the rest of its turn, if that is short: a worker that
/// was off its processor meanwhile knows nothing any more.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation {
    turn: Instant,
    given_at: Instant,
}

impl Confirmation {
    /// An answer that was given now, in the turn that began at `turn`.
    pub fn new(turn: Instant, now: Instant) -> Confirmation {
        let given_at = now;
        Confirmation { turn, given_at }
    }

    /// Whether it still holds now, in this turn.
    pub fn is_valid(&self, turn: Instant, now: Instant) -> bool {
        self.turn == turn && now.since_us(self.given_at) < CONFIRMED_US
    }
}

/// How long the number of pages that the kernel has scanned may be relied on, microseconds, if reading it took `cost_us`: as
/// long as keeps the reader's share of a processor at one in [`SCANS_SHARE`], within bounds.
pub fn scans_hold_us(cost_us: u64) -> u64 {
    cost_us
        .saturating_mul(SCANS_SHARE)
        .clamp(SCANS_HOLD_US_MIN, SCANS_HOLD_US_MAX)
}

/// How many bytes of the span need no further question, from its start. `confirmed`: what was confirmed in this turn.
/// `is_absent`: the kernel says again and again that these bytes are missing, so it is not asked.
pub fn trusted_bytes(span: Span, confirmed: Option<Span>, is_absent: bool) -> u64 {
    match confirmed.filter(|confirmed| confirmed.contains(span.offset_bytes)) {
        _ if is_absent => span.len_bytes,
        Some(confirmed) => (confirmed.end_bytes() - span.offset_bytes).min(span.len_bytes),
        None => 0,
    }
}

/// How many bytes the page cache is asked about before the next send. Asking costs by the page, and a socket mostly takes less
/// than a long offer. So the limit is half as long again as what the socket took when it last refused the rest. It doubles
/// while the socket takes all.
#[derive(Clone, Copy, Debug)]
pub struct ProbeLimit {
    bytes: u64,
}

impl Default for ProbeLimit {
    fn default() -> ProbeLimit {
        let bytes = SEND_BYTES_MAX;
        ProbeLimit { bytes }
    }
}

impl ProbeLimit {
    /// The beginning of the span, as far as the socket probably takes it.
    pub fn of(&self, span: Span) -> Span {
        let len_bytes = span.len_bytes.min(self.bytes);
        Span { len_bytes, ..span }
    }

    /// The socket took so many bytes of an offer, and `blocked`: refused the others.
    pub fn took(&mut self, taken_bytes: u64, blocked: bool) {
        let bytes = match blocked {
            true => taken_bytes + taken_bytes / 2,
            false => 2 * self.bytes,
        };
        self.bytes = bytes.clamp(PROBE_BYTES_MIN, SEND_BYTES_MAX);
    }
}

/// What one sendfile(2) sends of the span. Where a wait is short, all of a short span; where it is long, all of one whose pages are
/// `proven` to stay. Otherwise what ends at the next multiple of a piece's size in the file: the kernel sends sixteen pages at a
/// time, and a piece that begins within one would have a page too many. A page that is dropped between the question and the call
/// is waited for, and so is each one behind it.
pub fn piece(span: Span, wait: PageWait, proven: bool) -> Span {
    let up_to = |piece_bytes| piece_bytes - span.offset_bytes % piece_bytes;
    let most_bytes = match wait {
        PageWait::Short if span.len_bytes <= SEND_BYTES_SHORT_WAIT_MAX => span.len_bytes,
        PageWait::Short => up_to(SEND_BYTES_SHORT_WAIT_MAX),
        PageWait::Long if proven => span.len_bytes,
        PageWait::Long => up_to(SEND_BYTES_LONG_WAIT_MAX),
    };
    let len_bytes = span.len_bytes.min(most_bytes);
    Span { len_bytes, ..span }
}

/// Pages that had just been there went missing: what was entered in page tables needs a fresh proof, and what is believed of a
/// fast disk's pages is asked for before each send. Whoever drops pages for an hour goes on doing so after a pause, so doubt
/// lasts as long again as pages were missed, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// When the first one of this spell was missed.
    pub first: Instant,
    /// When the last one was missed.
    pub last: Instant,
}

impl Doubt {
    /// A first page is missing now.
    pub fn new(now: Instant) -> Doubt {
        let (first, last) = (now, now);
        Doubt { first, last }
    }

    /// Whether answers are in doubt.
    pub fn holds(&self, now: Instant) -> bool {
        let missed_us = self.last.since_us(self.first);
        now.since_us(self.last) < missed_us.clamp(DOUBT_US_MIN, DOUBT_US_MAX)
    }

    /// A page is missing now: the spell goes on, or a new one begins.
    #[must_use]
    pub fn missed(&self, now: Instant) -> Doubt {
        match self.holds(now) {
            true => Doubt { last: now, ..*self },
            false => Doubt::new(now),
        }
    }
}

/// How bytes of the page cache reach the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// By sendfile(2), which waits for a page that is dropped in this moment.
    Sendfile,
    /// By preadv2(RWF_NOWAIT) into our own memory, which never waits.
    Copy,
}

/// Whether a sendfile(2) that took `took_us` has probably waited for a page, which was dropped after the question before it.
/// `slept`: its thread gave up its processor itself. If it was preempted, it did not wait for a page.
pub fn has_waited(took_us: u64, slept: impl FnOnce() -> bool) -> bool {
    took_us >= SEND_WAITED_US && slept()
}

/// Whether it took so long that its device is none of the fast ones. A worker that only lost its processor is back sooner.
pub fn has_waited_long(took_us: u64) -> bool {
    took_us >= SEND_WAITED_LONG_US
}

/// Bytes that are said to be missing again and again (`is_absent`) are copied. Others are sent by sendfile(2) if a `wait` for them
/// is short, or if they `stay`: nobody can drop them. Else they are copied, too.
pub fn means(is_absent: bool, wait: PageWait, stay: impl FnOnce() -> bool) -> Means {
    match (is_absent, wait) {
        (true, _) => Means::Copy,
        (false, PageWait::Short) => Means::Sendfile,
        (false, PageWait::Long) if stay() => Means::Sendfile,
        (false, PageWait::Long) => Means::Copy,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::units::US_PER_S;

    const TURN: Instant = Instant { us: 7 };

    fn span(offset_bytes: u64, len_bytes: u64) -> Span {
        Span {
            offset_bytes,
            len_bytes,
        }
    }

    #[test]
    fn a_copy_into_a_socket_is_never_taken_for_a_wait() {
        // Half a megabyte at 300 MB/s, a very slow machine.
        assert!(!has_waited(US_PER_S / 600, || true));
        let read_us = 16 * limits::SHORT_READ_US;
        assert!(has_waited(read_us, || true), "all pages of a piece");
        assert!(!has_waited(read_us, || false), "the processor was taken");
    }

    #[test]
    fn a_file_is_asked_about_by_the_best_that_its_kernel_answers() {
        use ResidencySource::{Always, Ask, Remember};
        for (residency, choice, send, long) in [
            (Always, Question::None, Question::None, Question::None),
            (
                Ask,
                Question::CountAndSample,
                Question::None,
                Question::EachPage,
            ),
            (
                Remember,
                Question::Sample,
                Question::Sample,
                Question::Sample,
            ),
        ] {
            let asked = |wait, occasion| question(residency, wait, occasion);
            assert_eq!(asked(PageWait::Short, Occasion::Choice), choice);
            assert_eq!(asked(PageWait::Short, Occasion::Send), send);
            let doubted = match residency {
                Ask => choice,
                Always | Remember => send,
            };
            assert_eq!(asked(PageWait::Short, Occasion::SendInDoubt), doubted);
            assert_eq!(asked(PageWait::Long, Occasion::Choice), long);
            assert_eq!(asked(PageWait::Long, Occasion::Send), long);
            assert_eq!(asked(PageWait::Long, Occasion::SendInDoubt), long);
        }
    }

    #[test]
    fn a_confirmation_holds_in_its_turn_and_not_for_long() {
        let given_at = TURN.plus_us(100);
        let confirmation = Confirmation::new(TURN, given_at);
        assert!(confirmation.is_valid(TURN, given_at.plus_us(CONFIRMED_US - 1)));
        let late = given_at.plus_us(CONFIRMED_US);
        assert!(!confirmation.is_valid(TURN, late), "off its processor");
        let next = TURN.plus_us(1);
        assert!(!confirmation.is_valid(next, given_at), "another turn");
    }

    #[test]
    fn a_reading_that_costs_more_is_relied_on_longer() {
        for (cost_us, hold_us) in [
            (0, SCANS_HOLD_US_MIN),
            (40, SCANS_HOLD_US_MIN),
            (200, 200 * SCANS_SHARE),
            (100_000, SCANS_HOLD_US_MAX),
            (u64::MAX, SCANS_HOLD_US_MAX),
        ] {
            assert_eq!(scans_hold_us(cost_us), hold_us, "{cost_us}");
        }
    }

    #[test]
    fn only_what_was_confirmed_in_this_turn_is_trusted() {
        let confirmed = Some(span(100, 50));
        assert_eq!(trusted_bytes(span(120, 100), confirmed, false), 30);
        assert_eq!(trusted_bytes(span(120, 10), confirmed, false), 10);
        assert_eq!(trusted_bytes(span(90, 20), confirmed, false), 0);
        assert_eq!(trusted_bytes(span(150, 20), confirmed, false), 0);
        assert_eq!(trusted_bytes(span(120, 10), None, false), 0);
        assert_eq!(trusted_bytes(span(0, 20), None, true), 20, "not asked");
    }

    #[test]
    fn the_kernel_is_asked_as_far_as_the_socket_takes() {
        let mut probe_limit = ProbeLimit::default();
        let asked_bytes =
            |probe_limit: ProbeLimit| probe_limit.of(span(7, SEND_BYTES_MAX)).len_bytes;
        assert_eq!(asked_bytes(probe_limit), SEND_BYTES_MAX, "nothing is known");
        probe_limit.took(1 << 20, true);
        assert_eq!(asked_bytes(probe_limit), 3 << 19);
        probe_limit.took(0, true);
        assert_eq!(asked_bytes(probe_limit), PROBE_BYTES_MIN);
        assert_eq!(
            probe_limit.of(span(0, 9)),
            span(0, 9),
            "never more than is offered"
        );
        for _ in 0..64 {
            probe_limit.took(asked_bytes(probe_limit), false);
        }
        assert_eq!(asked_bytes(probe_limit), SEND_BYTES_MAX);
    }

    #[test]
    fn only_pages_that_stay_are_sent_at_once() {
        for (wait, most_bytes) in [
            (PageWait::Short, SEND_BYTES_SHORT_WAIT_MAX),
            (PageWait::Long, SEND_BYTES_LONG_WAIT_MAX),
        ] {
            let long = span(7, 2 * most_bytes + 1);
            let all = piece(long, wait, true) == long;
            assert_eq!(all, wait == PageWait::Long, "a short wait needs no proof");
            let first = piece(long, wait, false);
            assert_eq!(first, span(7, most_bytes - 7));
            let second = piece(long.behind(first.len_bytes), wait, false);
            assert_eq!(second, span(most_bytes, most_bytes));
            let unaligned = piece(span(7, most_bytes), wait, false);
            let whole = unaligned == span(7, most_bytes);
            assert_eq!(whole, wait == PageWait::Short, "one call, not two");
            assert_eq!(piece(span(7, 9), wait, false), span(7, 9));
        }
    }

    #[test]
    fn what_may_be_dropped_is_copied_where_a_lost_race_costs_a_long_wait() {
        for (wait, stay, expected) in [
            (PageWait::Short, false, Means::Sendfile),
            (PageWait::Short, true, Means::Sendfile),
            (PageWait::Long, true, Means::Sendfile),
            (PageWait::Long, false, Means::Copy),
        ] {
            assert_eq!(means(false, wait, || stay), expected);
            let absent = means(true, wait, || stay);
            assert_eq!(absent, Means::Copy, "it is not there");
        }
    }

    #[test]
    fn doubt_lasts_as_long_again_as_pages_were_missed() {
        let at = |s: u64| Instant { us: s * US_PER_S };
        let once = Doubt::new(at(20));
        assert!(once.holds(at(29)) && !once.holds(at(30)));
        // Until when it lasts if a page is missed every five seconds, for so long.
        for (until_s, ends_s) in [(20, 30), (25, 35), (40, 60), (120, 220), (1_000, 1_600)] {
            let missed = |doubt: Doubt, s: u64| doubt.missed(at(s));
            let doubt = (25..=until_s).step_by(5).fold(once, missed);
            assert!(doubt.holds(at(ends_s - 1)), "{until_s}: {doubt:?}");
            assert!(!doubt.holds(at(ends_s)), "{until_s}: {doubt:?}");
        }
        let spell = once.missed(at(25));
        assert_eq!(spell.missed(at(34)).first, at(20), "the same spell");
        assert_eq!(spell.missed(at(35)), Doubt::new(at(35)), "another spell");
    }

    proptest! {
        #[test]
        fn a_sample_leaves_no_gap_and_what_lies_before_a_missing_place_was_looked_at(
            offset_bytes in 0u64..1 << 30, len_bytes in 1u64..4 << 20, missing in any::<prop::sample::Index>(),
        ) {
            let span = span(offset_bytes, len_bytes);
            let places: Vec<u64> = sample(span, SAMPLE_BYTES).collect();
            prop_assert_eq!(places[0], offset_bytes);
            prop_assert_eq!(places.last(), Some(&(span.end_bytes() - 1)));
            for pair in places.windows(2) {
                prop_assert!(pair[0] < pair[1] && pair[1] - pair[0] <= SAMPLE_BYTES);
            }
            let missing_bytes = *missing.get(&places);
            let resident_bytes = resident_before(span, missing_bytes);
            prop_assert!(resident_bytes <= missing_bytes - offset_bytes);
            prop_assert!(missing_bytes - offset_bytes < resident_bytes + SAMPLE_BYTES);
        }

        #[test]
        fn nothing_is_trusted_beyond_the_confirmed_span(
            from in 0u64..1000, len in 1u64..1000, at in 0u64..1000, asked in 1u64..1000,
        ) {
            let (confirmed, span) = (span(from, len), span(at, asked));
            let trusted_bytes = trusted_bytes(span, Some(confirmed), false);
            prop_assert!(trusted_bytes <= span.len_bytes);
            let trusted = Span { len_bytes: trusted_bytes, ..span };
            prop_assert!(trusted_bytes == 0 || confirmed.covers(trusted));
        }
    }
}
