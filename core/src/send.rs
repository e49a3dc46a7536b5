//! Who is given bytes to send, and when: TPF's IDSR, for which the kernel's ACK path is the clock.
//!
//! A socket is filled up to the margin that its connection takes in T ([`TopUps::target_us`]), by
//! TCP_NOTSENT_LOWAT (tcp(7)): the kernel calls when half of it is left, without a timer and whatever the
//! rate has become. One call tops up *everybody* for whom it would come soon, too, so
//! that a worker wakes a few times in T, however many connections it has.

use crate::conn::TcpSample;
use crate::limits::{
    FIRST_SAMPLE_BYTES_MIN, LOWAT_BYTES_MAX, LOWAT_BYTES_MIN, LOWAT_BYTES_START, OWN_BYTES_MAX,
    PACED_RTT_US_MIN, PACED_WINDOW_BYTES_MIN, STRETCH_US_MIN, TARGET_US_MAX, TARGET_US_MIN,
    UNKNOWN_MARGIN_US,
};
use crate::prefetch::us_for;
use crate::rate::Rate;
use crate::units::{Instant, KIB, US_PER_S};

/// The next round may be this part of T after the last, in tenths. With steady clients it comes behind five of them, when the first
/// who had its share is down to its half; clients that losses make unsteady call earlier, and then all have their turn
/// rather than that each calls for itself (`sim/tests/sending.txt`).
const ROUND_AFTER_TENTHS: u64 = 2;
/// A round serves whoever would call within this part of T, in tenths: by then the next has come.
const ROUND_REACHES_TENTHS: u64 = 6;
/// A socket that is empty says something of its client only if more than this should be left in it.
const UNBELIEVED_BYTES_MIN: u64 = 4 * KIB;
/// Values of TCP_NOTSENT_LOWAT are multiples of this, so that small changes of the rate cost no system call.
const LOWAT_STEP_BYTES: u64 = 16 * KIB;

/// The send margin of one connection: D1, what its socket holds unsent, and B_n.
#[derive(Clone, Copy, Debug)]
pub struct Margin {
    rate: Rate,
    /// D1 at the last look.
    level_bytes: u64,
    looked_at: Instant,
    /// Given to the socket since then.
    given_bytes: u64,
    /// The rate is measured from here, over several looks if they follow each other too fast.
    measured_from: Instant,
    /// What was in the socket then, and what was given since.
    measured_bytes: u64,
    /// The same over a longer time: since when, what was taken, and whether there was nothing to take at some time.
    stretch_from: Instant,
    stretch_bytes: u64,
    stretch_dry: bool,
    lowat_bytes: u32,
}

/// What a connection has in its socket, and how fast it takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// D1: held unsent, as predicted.
    pub socket_bytes: u64,
    /// B_n for prefetch; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// The socket took less than it was offered.
    pub full: bool,
}

impl Supply {
    /// When the connection runs dry, if `memory_bytes` (D2) wait for it besides.
    pub fn dry_at(&self, memory_bytes: u64, now: Instant) -> Instant {
        let bytes = self.socket_bytes.saturating_add(memory_bytes);
        match self.rate_bytes_per_s {
            // It took all, as fast as it came.
            0 if memory_bytes == 0 && !self.full => now,
            0 => now.plus_us(UNKNOWN_MARGIN_US),
            rate => now.plus_us(us_for(bytes, rate)),
        }
    }
}

impl Margin {
    /// A connection that holds nothing.
    pub fn new(now: Instant) -> Margin {
        Margin {
            rate: Rate::default(),
            level_bytes: 0,
            looked_at: now,
            given_bytes: 0,
            measured_from: now,
            measured_bytes: 0,
            stretch_from: now,
            stretch_bytes: 0,
            stretch_dry: false,
            lowat_bytes: LOWAT_BYTES_START,
        }
    }

    /// B_n, bytes per second; 0: not known yet.
    pub fn rate_bytes_per_s(&self) -> u64 {
        self.rate.send_bytes_per_s()
    }

    /// What the connection has and takes, for who fetches its bytes. `full`: its socket took less than it was offered.
    pub fn supply(&self, full: bool, now: Instant) -> Supply {
        let rate_bytes_per_s = self.rate.prefetch_bytes_per_s();
        Supply {
            socket_bytes: self.level_at(rate_bytes_per_s, now),
            rate_bytes_per_s,
            full,
        }
    }

    /// The socket took all of `taken_bytes` that it was offered, and holds `unsent_bytes` now. If it was
    /// empty although half of what it held should have been left, its client is twice as fast as was believed, or more: how
    /// much is not seen, since it had nothing to take. (Less than that may be the client's own buffer, which takes some at once.)
    pub fn taken(&mut self, taken_bytes: u64, unsent_bytes: u64, now: Instant) {
        let half_bytes = (self.level_bytes + self.given_bytes) / 2;
        let unbelieved = self.level_bytes(now) >= half_bytes.max(UNBELIEVED_BYTES_MIN);
        self.given(taken_bytes);
        let dry = unsent_bytes <= taken_bytes;
        self.look(unsent_bytes, dry, now);
        if dry && unbelieved {
            self.rate.raise();
        }
    }

    /// The socket holds `unsent_bytes` now, and nothing happened to it: the rate is measured, and the margin follows it.
    pub fn seen(&mut self, unsent_bytes: u64, target_us: u64, now: Instant) {
        self.look(unsent_bytes, unsent_bytes == 0, now);
        self.aim(target_us);
    }

    /// When a socket that does not call is to be looked at, lest what it holds be guessed by a rate of long ago.
    pub fn look_at(&self) -> Option<Instant> {
        let holds = self.level_bytes + self.given_bytes > 0;
        holds.then(|| self.looked_at.plus_us(STRETCH_US_MIN))
    }

    /// The socket holds `unsent_bytes` now. `dry`: it held nothing at some time since the last look.
    fn look(&mut self, unsent_bytes: u64, dry: bool, now: Instant) {
        let had_bytes = self.level_bytes + self.given_bytes;
        self.stretch_bytes += had_bytes.saturating_sub(unsent_bytes);
        self.stretch_dry |= dry;
        let unknown = self.rate.prefetch_bytes_per_s() == 0;
        if dry && unknown && self.stretch_bytes < FIRST_SAMPLE_BYTES_MIN {
            // A first rate is measured from where there is something to take.
            (self.stretch_from, self.stretch_bytes, self.stretch_dry) = (now, 0, false);
        }
        let us = now.since_us(self.stretch_from);
        if self.rate.stretch(self.stretch_bytes, us, self.stretch_dry) {
            (self.stretch_from, self.stretch_bytes, self.stretch_dry) = (now, 0, false);
        }
        let us = now.since_us(self.measured_from);
        let taken_bytes = self.measured_bytes.saturating_sub(unsent_bytes);
        if self.rate.sample(taken_bytes, us, dry) {
            (self.measured_from, self.measured_bytes) = (now, unsent_bytes);
        }
        (self.level_bytes, self.given_bytes, self.looked_at) = (unsent_bytes, 0, now);
    }

    /// The path is congested: for prefetch the rate is measured anew from the last look on, and is no more than
    /// `most_bytes_per_s` if that is known.
    pub fn congest(&mut self, most_bytes_per_s: Option<u64>) {
        if self.rate.congest(most_bytes_per_s) {
            (self.stretch_from, self.stretch_bytes, self.stretch_dry) = (self.looked_at, 0, false);
        }
    }

    /// TCP_NOTSENT_LOWAT that the socket shall have.
    pub fn lowat_bytes(&self) -> u32 {
        self.lowat_bytes
    }

    /// D1 as it should be now.
    pub fn level_bytes(&self, now: Instant) -> u64 {
        self.level_at(self.rate.send_bytes_per_s(), now)
    }

    fn level_at(&self, rate_bytes_per_s: u64, now: Instant) -> u64 {
        let us = u128::from(now.since_us(self.looked_at));
        let taken = us * u128::from(rate_bytes_per_s) / u128::from(US_PER_S);
        let had = self.level_bytes + self.given_bytes;
        had.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX))
    }

    /// T_n, the time for which the socket has bytes; `None` while B_n is not known.
    pub fn margin_us(&self, now: Instant) -> Option<u64> {
        let rate = self.rate.send_bytes_per_s();
        let us = u128::from(self.level_bytes(now)) * u128::from(US_PER_S);
        (rate > 0).then(|| u64::try_from(us / u128::from(rate.max(1))).unwrap_or(u64::MAX))
    }

    /// A response begins. Time in which there was nothing to take counts for nobody's rate.
    pub fn begin(&mut self, now: Instant) {
        if self.level_bytes(now) == 0 {
            (self.level_bytes, self.given_bytes, self.looked_at) = (0, 0, now);
            (self.measured_from, self.measured_bytes) = (now, 0);
            (self.stretch_from, self.stretch_bytes, self.stretch_dry) = (now, 0, false);
        }
    }

    /// The socket took bytes.
    pub fn given(&mut self, bytes: u64) {
        self.given_bytes += bytes;
        self.measured_bytes += bytes;
    }

    /// What the socket took since the last look at it.
    pub fn given_bytes(&self) -> u64 {
        self.given_bytes
    }

    /// The socket took less than it was offered, and holds `unsent_bytes` (SIOCOUTQNSD) now: the rate
    /// is measured, and the margin follows it. `true` if the margin grew, so that more fits in.
    pub fn full(&mut self, unsent_bytes: u64, target_us: u64, now: Instant) -> bool {
        self.look(unsent_bytes, unsent_bytes <= self.given_bytes, now);
        self.aim(target_us)
    }

    /// Whether the connection is to be topped up when somebody else is: the kernel would call for it before `until`, and its
    /// socket has room. A slow client's may have none for long, since the kernel's buffers are large: it holds up to twice its
    /// margin.
    pub fn joins(&self, until: Instant, now: Instant) -> bool {
        let calls = self.level_bytes(until) * 2 <= self.full_bytes();
        let room = self.level_bytes(now) < u64::from(self.lowat_bytes);
        self.rate.send_bytes_per_s() > 0 && calls && room
    }

    /// What counts as full: what the socket took last, not what it might, as SO_SNDBUF may be the tighter limit.
    fn full_bytes(&self) -> u64 {
        self.level_bytes.min(u64::from(self.lowat_bytes))
    }

    /// Let the margin follow the rate, once that is known, if it is a quarter above or a fifth below.
    fn aim(&mut self, target_us: u64) -> bool {
        if self.rate.send_bytes_per_s() == 0 {
            return false;
        }
        let bytes = u128::from(self.rate.send_bytes_per_s()) * u128::from(target_us);
        let bytes = u64::try_from(bytes / u128::from(US_PER_S)).unwrap_or(u64::MAX);
        let bytes = bytes
            .min(u64::from(LOWAT_BYTES_MAX))
            .div_ceil(LOWAT_STEP_BYTES);
        let want =
            (bytes * LOWAT_STEP_BYTES).clamp(LOWAT_BYTES_MIN.into(), LOWAT_BYTES_MAX.into()) as u32;
        let (grows, shrinks) = (
            u64::from(want) * 4 > u64::from(self.lowat_bytes) * 5,
            u64::from(want) * 5 < u64::from(self.lowat_bytes) * 4,
        );
        if grows || shrinks {
            self.lowat_bytes = want;
        }
        grows
    }
}

/// The pace of a first flight, bytes per second: nothing is in flight, so no ACK clocks what is sent
/// next, and a whole window would leave at line rate and overflow the queue at the bottleneck. `None` where a
/// window is no burst, or the path too short to spread it: by the shortest round trip, since queues make any path long.
pub fn first_flight_rate_bytes_per_s(sample: &TcpSample) -> Option<u64> {
    let burst = sample.unacked_bytes == 0
        && sample.path.cwnd_bytes >= PACED_WINDOW_BYTES_MIN
        && sample.path.rtt_min_us >= PACED_RTT_US_MIN;
    // A quarter more than the window in a round trip: the last of it shall not come late.
    let rate = u128::from(sample.path.cwnd_bytes) * u128::from(US_PER_S) * 5 / 4;
    burst.then(|| u64::try_from(rate / u128::from(sample.rtt_us)).unwrap_or(u64::MAX))
}

/// When a worker tops up all of its connections, and to which margin.
#[derive(Clone, Copy, Debug)]
pub struct TopUps {
    budget_bytes: u64,
    target_us: u64,
    /// When the next round may be.
    next_at: Instant,
    due: bool,
    /// When the last round was, and what it found: whose rate is known, and what they take together.
    measured: Option<(Instant, u64, u64)>,
}

impl TopUps {
    /// `budget_bytes` is what all sockets of the worker may hold unsent together.
    pub fn new(budget_bytes: u64) -> TopUps {
        TopUps {
            budget_bytes,
            target_us: TARGET_US_MAX,
            next_at: Instant { us: 0 },
            due: false,
            measured: None,
        }
    }

    /// T: the margin of every connection, from the budget and what all connections take together.
    pub fn target_us(&self) -> u64 {
        self.target_us
    }

    /// TCP_NOTSENT_LOWAT for bytes that were read for their connection alone, if there are so many of these, at least: they take
    /// the same memory in its socket as before it, and the fewer calls bring them there the better. All sockets together hold
    /// the budget at most.
    pub fn own_bytes(&self, connections: u32) -> u32 {
        let each_bytes = self.budget_bytes / u64::from(connections.max(1));
        let steps = each_bytes.min(OWN_BYTES_MAX.into()) / LOWAT_STEP_BYTES;
        ((steps * LOWAT_STEP_BYTES) as u32).max(LOWAT_BYTES_MIN)
    }

    /// The kernel called for one connection: if the last round is long enough ago, all have their turn.
    pub fn called(&mut self, now: Instant) {
        self.due |= now >= self.next_at;
    }

    /// The round to make now, by its reach: whom the kernel would call for until then is topped up. Says so once.
    pub fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let reach_us = self.target_us * ROUND_REACHES_TENTHS / 10;
        core::mem::take(&mut self.due).then(|| now.plus_us(reach_us))
    }

    /// How many connections have a known rate, and the sum of these, bytes per second; nothing if the last round is
    /// too long ago to say.
    pub fn measured(&self, now: Instant) -> (u64, u64) {
        let fresh = |(at, ..): &(Instant, u64, u64)| now.since_us(*at) <= 5 * TARGET_US_MAX;
        let (_, known, rates_bytes_per_s) = self.measured.filter(fresh).unwrap_or((now, 0, 0));
        (known, rates_bytes_per_s)
    }

    /// A round is done; `rates_bytes_per_s` is the sum of the `known` rates of all who are sending.
    pub fn done(&mut self, known: u64, rates_bytes_per_s: u64, now: Instant) {
        self.measured = Some((now, known, rates_bytes_per_s));
        let us = u128::from(self.budget_bytes) * u128::from(US_PER_S);
        let us = us / u128::from(rates_bytes_per_s.max(1));
        let us = u64::try_from(us).unwrap_or(u64::MAX);
        self.target_us = us.clamp(TARGET_US_MIN, TARGET_US_MAX);
        self.next_at = now.plus_us(self.target_us * ROUND_AFTER_TENTHS / 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Path;
    use proptest::prelude::*;

    const MS: u64 = 1000;
    const AT: fn(u64) -> Instant = |ms| Instant { us: ms * MS };

    /// A socket that drains at `rate` and is filled up to its lowat at each look.
    fn fill(margin: &mut Margin, socket: &mut u64, now: Instant) {
        loop {
            let room = u64::from(margin.lowat_bytes()).saturating_sub(*socket);
            margin.given(room);
            *socket += room;
            if !margin.full(*socket, 200 * MS, now) {
                return;
            }
        }
    }

    #[test]
    fn what_is_read_for_one_alone_goes_into_sockets_within_the_budget() {
        let top_ups = TopUps::new(52 << 20);
        let all =
            |connections: u32| u64::from(top_ups.own_bytes(connections)) * u64::from(connections);
        assert_eq!(top_ups.own_bytes(0), OWN_BYTES_MAX);
        assert_eq!(top_ups.own_bytes(16_384), LOWAT_BYTES_MIN);
        for connections in 1..=(52 << 20) / LOWAT_BYTES_MIN {
            assert!(all(connections) <= 52 << 20, "{connections}");
        }
    }

    #[test]
    fn the_margin_becomes_t_at_the_clients_rate() {
        let (mut margin, mut socket) = (Margin::new(AT(0)), 0);
        let rate = 2_500_000; // 20 Mbit/s
        margin.begin(AT(0));
        fill(&mut margin, &mut socket, AT(0));
        for round in 1..20 {
            socket = socket.saturating_sub(rate / 20);
            fill(&mut margin, &mut socket, AT(round * 50));
        }
        assert!(
            margin.rate_bytes_per_s().abs_diff(rate) < rate / 50,
            "{margin:?}"
        );
        assert_eq!(margin.lowat_bytes(), 507_904); // .2 s, up to the next 16 KiB
        let joins = |ms| margin.joins(AT(ms), AT(ms));
        assert!(!joins(19 * 50 + 90) && joins(19 * 50 + 105));
        assert_eq!(
            margin.margin_us(AT(19 * 50)).map(|us| us / MS / 10),
            Some(20)
        );
    }

    #[test]
    fn a_pause_between_two_responses_is_nobodys_rate() {
        let (mut margin, mut socket) = (Margin::new(AT(0)), 0);
        margin.begin(AT(0));
        fill(&mut margin, &mut socket, AT(0));
        socket -= 50_000;
        fill(&mut margin, &mut socket, AT(50));
        let rate = margin.rate_bytes_per_s();
        margin.begin(AT(60_000));
        fill(&mut margin, &mut 0, AT(60_000));
        assert_eq!((rate, margin.rate_bytes_per_s()), (1_000_000, 1_000_000));
    }

    #[test]
    fn a_client_that_calls_every_millisecond_is_measured_all_the_same() {
        let (mut margin, mut socket) = (Margin::new(AT(0)), 0);
        margin.begin(AT(0));
        fill(&mut margin, &mut socket, AT(0));
        socket = 0; // slow at first: it waits for a disk
        fill(&mut margin, &mut socket, AT(2_000));
        assert_eq!(margin.lowat_bytes(), LOWAT_BYTES_MIN);
        for ms in 2_001..2_100 {
            socket = 0; // then it takes whatever there is, at once
            fill(&mut margin, &mut socket, AT(ms));
        }
        assert_eq!(margin.lowat_bytes(), LOWAT_BYTES_MAX);
    }

    #[test]
    fn a_first_rate_is_measured_from_where_there_is_something_to_take() {
        let mut margin = Margin::new(AT(0));
        margin.begin(AT(0));
        margin.taken(300, 300, AT(0)); // the head, into an empty socket
        margin.taken(131_072, 131_072, AT(200)); // it was empty before
        assert_eq!(margin.supply(false, AT(200)).rate_bytes_per_s, 0);
        margin.full(130_072, 200 * MS, AT(1_200));
        assert_eq!(margin.supply(true, AT(1_200)).rate_bytes_per_s, 1_000);
    }

    #[test]
    fn who_took_more_than_was_believed_is_called_faster_and_who_did_not_is_not() {
        let known = || {
            let mut margin = Margin::new(AT(0));
            margin.begin(AT(0));
            margin.given(200_000);
            margin.full(100_000, 200 * MS, AT(1_000)); // 100 KB/s, and a second's worth is left
            margin
        };
        assert_eq!(known().rate_bytes_per_s(), 100_000);
        let mut faster = known();
        faster.taken(50_000, 50_000, AT(1_200)); // 80 KB should have been left
        assert!(faster.rate_bytes_per_s() > 200_000, "{faster:?}");
        let mut as_believed = known();
        as_believed.taken(50_000, 50_000, AT(2_500)); // nothing should have been left
        assert_eq!(as_believed.rate_bytes_per_s(), 100_000);
        let mut not_dry = known();
        not_dry.taken(50_000, 130_000, AT(1_200));
        assert_eq!(not_dry.rate_bytes_per_s(), 100_000);
    }

    #[test]
    fn a_stream_runs_dry_when_socket_and_memory_are_used_up() {
        let supply = |rate_bytes_per_s, full| Supply {
            socket_bytes: 100_000,
            rate_bytes_per_s,
            full,
        };
        let dry_at = |supply: Supply, memory_bytes| supply.dry_at(memory_bytes, AT(5_000));
        assert_eq!(dry_at(supply(100_000, true), 300_000), AT(9_000));
        assert_eq!(dry_at(supply(100_000, false), 0), AT(6_000));
        assert_eq!(dry_at(supply(0, false), 0), AT(5_000), "it took all");
        let guess = AT(5_000).plus_us(UNKNOWN_MARGIN_US);
        assert_eq!(dry_at(supply(0, true), 0), guess);
        assert_eq!(dry_at(supply(0, false), 1), guess);
        assert!(dry_at(supply(1, true), u64::MAX) > AT(u64::MAX / 2_000));
    }

    #[test]
    fn nobody_is_near_before_its_rate_is_known() {
        let mut margin = Margin::new(AT(0));
        margin.given(1000);
        assert!(!margin.joins(AT(10_000), AT(10_000)));
        assert_eq!(margin.margin_us(AT(1)), None);
    }

    /// A client at 300 KB/s, T = 200 ms: a margin of 72 KiB, but a socket that was just filled with two buffers of 64 KiB.
    fn overfull() -> Margin {
        let mut margin = Margin::new(AT(0));
        margin.begin(AT(0));
        margin.given(130_000);
        margin.full(130_000, 200 * MS, AT(0));
        margin.given(30_000);
        margin.full(130_000, 200 * MS, AT(100));
        assert_eq!(margin.lowat_bytes(), LOWAT_BYTES_MIN);
        margin
    }

    #[test]
    fn who_would_call_before_the_next_round_is_served_in_this_one() {
        let margin = overfull();
        // 61 KB of 72 are left after 230 ms, half of them after 310 ms.
        assert!(!margin.joins(AT(405), AT(330)) && margin.joins(AT(415), AT(330)));
        let full = AT(280); // more than the margin: the socket would take nothing
        assert!(!margin.joins(AT(900), full));
    }

    #[test]
    fn t_comes_from_the_budget_within_bounds() {
        let mut rounds = TopUps::new(48 << 20);
        for (rates, target_ms) in [(0, 350), (240_000_000, 209), (10_000_000_000, 100)] {
            rounds.done(1, rates, AT(0));
            assert_eq!(rounds.target_us() / MS, target_ms);
        }
    }

    #[test]
    fn rounds_are_a_fifth_of_t_apart_and_reach_three_fifths() {
        let mut rounds = TopUps::new(48 << 20);
        rounds.done(1, 10_000_000_000, AT(0)); // T = 100 ms
        assert_eq!(rounds.measured(AT(1)), (1, 10_000_000_000));
        assert_eq!(rounds.measured(AT(2_001)), (0, 0), "they may all be gone");
        rounds.called(AT(19));
        assert_eq!(rounds.take_due(AT(19)), None);
        rounds.called(AT(20));
        assert_eq!(rounds.take_due(AT(20)), Some(AT(80)));
        assert_eq!(rounds.take_due(AT(20)), None, "it is said once");
    }

    #[test]
    fn a_window_after_a_pause_is_spread_over_its_round_trip() {
        let sample = TcpSample {
            rtt_us: 20_000,
            path: Path {
                cwnd_bytes: 500_000,
                rtt_min_us: 20_000,
                ..Path::default()
            },
            ..TcpSample::default()
        };
        assert_eq!(first_flight_rate_bytes_per_s(&sample), Some(31_250_000));
        let under_way = TcpSample {
            unacked_bytes: 1,
            ..sample
        };
        let (small, near) = (
            TcpSample {
                path: Path {
                    cwnd_bytes: 14_000,
                    ..sample.path
                },
                ..sample
            },
            // Its round trips are long, since a queue is.
            TcpSample {
                path: Path {
                    rtt_min_us: 100,
                    ..sample.path
                },
                ..sample
            },
        );
        for sample in [under_way, small, near, TcpSample::default()] {
            assert_eq!(first_flight_rate_bytes_per_s(&sample), None, "{sample:?}");
        }
    }

    proptest! {
        #[test]
        fn lowat_stays_in_its_bounds(looks in proptest::collection::vec((0u64..1 << 50, 0u64..1 << 50, 0u64..1 << 40), 1..50)) {
            let mut margin = Margin::new(AT(0));
            let mut now = AT(0);
            for (given, unsent, us) in looks {
                now = now.plus_us(us);
                margin.given(given);
                margin.full(unsent, TARGET_US_MAX, now);
                margin.joins(now.plus_us(us), now);
                let lowat_bytes = margin.lowat_bytes();
                prop_assert!((LOWAT_BYTES_MIN..=LOWAT_BYTES_MAX).contains(&lowat_bytes));
                let step = u64::from(lowat_bytes) % LOWAT_STEP_BYTES == 0;
                prop_assert!(step || lowat_bytes == LOWAT_BYTES_MIN, "{} bytes", lowat_bytes);
            }
        }
    }
}
