//! What is kept of one socket between two snapshots, and the step that it leads to.

use ackpace_core::conn::{ConnId, TcpSample};
use ackpace_core::units::Instant;
use ackpace_share::outside::{self, HandsOff, NONE_SEGMENTS, Seen, Setting, Step};
use ackpace_share::reading::Reading;

use super::{Change, Member, Share, Why, acked, progress};
use crate::snapshot::{Record, SocketSnapshot};

/// How long a socket counts as one that lost, and is raised carefully, after it sent something again.
const LOST_LATELY_US: u64 = 10_000_000;
/// For how long a socket may have its former clamp back at once: longer than a drain.
const LATELY_US: u64 = 3_000_000;

impl Member {
    pub(super) fn new(conn: ConnId, snapshot: SocketSnapshot) -> Member {
        Member {
            conn,
            snapshot,
            ours: None,
            before_us_bytes: acked(&snapshot) + snapshot.sample.unacked_bytes,
            rate_bytes_per_s: 0,
            is_own_pace: false,
            share: None,
            lost_at: None,
            lately: None,
            left: None,
            seen: 0,
        }
    }

    /// A new snapshot, `us` after the last one. Whether it sends, and for how long the clamp held it up meanwhile.
    pub(super) fn take(
        &mut self,
        seen: &SocketSnapshot,
        us: u64,
        now: Instant,
        keeps_setting: bool,
    ) -> (bool, u64) {
        let before = &self.snapshot;
        let was_full = is_full(before);
        let is_sending = seen.sample.unacked_bytes > 0 || acked(seen) != acked(before);
        if seen.sample.path.resent_segments != before.sample.path.resent_segments {
            self.lost_at = Some(now);
        }
        if let (Some(flow), Some(flow_before)) = (seen.sample.flow, before.sample.flow) {
            if let Some(told) = progress(flow_before, flow) {
                (self.rate_bytes_per_s, self.is_own_pace) = told;
            }
        }
        self.snapshot = SocketSnapshot {
            now: if keeps_setting { before.now } else { seen.now },
            ..*seen
        };
        (is_sending, share_limited_us(was_full, &self.snapshot, us))
    }

    /// What it tells the pool, and how much it still holds from before us. `None`: it takes no part. `start_bytes`: the share
    /// of one that has none yet.
    pub(super) fn reading(
        &mut self,
        is_sending: bool,
        share_limited_us: u64,
        start_bytes: u64,
    ) -> Option<(Reading, u64)> {
        let snapshot = &self.snapshot;
        if self.left.is_some() || !snapshot.is_matched || !snapshot.is_open {
            return None;
        }
        if !is_sending && self.share.is_none() {
            return None; // it has nothing, and needs nothing
        }
        let share = *self.share.get_or_insert(Share {
            bytes: start_bytes,
            division: 0,
        });
        // What it held before us can't be taken back. It is let go, and not made up for by the others.
        let left_bytes = self.before_us_bytes.saturating_sub(acked(snapshot));
        let unacked_bytes = snapshot.sample.unacked_bytes;
        let reading = Reading {
            conn: self.conn,
            address: snapshot.address(),
            is_sending,
            sample: TcpSample {
                // Buffers come whole, so a socket may hold more than its share for good; others are not short of that.
                unacked_bytes: unacked_bytes.saturating_sub(left_bytes).min(share.bytes),
                ..snapshot.sample
            },
            counted: snapshot.counted,
            control: snapshot.control,
            is_own_pace: self.is_own_pace,
            rate_bytes_per_s: self.rate_bytes_per_s,
            share_limited_us,
            // What it was told is in force, but for the last eighth.
            share_bytes: share.bytes,
            division: share.division,
        };
        Some((reading, left_bytes.min(unacked_bytes)))
    }

    /// The step that its share and what it has lead to.
    pub(super) fn step(&self, lowat_bytes_most: u32, now: Instant) -> Step {
        let snapshot = &self.snapshot;
        let ours = self.ours.map(|record| record.set);
        let foreign = self
            .left
            .or((!snapshot.is_matched).then_some(HandsOff::Unmatched));
        match (foreign, ours) {
            (Some(why), Some(_)) => return Step::GiveBack(why),
            (Some(why), None) => return Step::Leave(why),
            (None, _) if !snapshot.is_open => return Step::Keep,
            (None, None) if self.share.is_none() => return Step::Keep,
            (None, _) => {}
        }
        let since = |at: Instant, us: u64| now.since_us(at) < us;
        let seen = Seen {
            now: snapshot.now,
            ours,
            buffer_is_fixed: snapshot.buffer_is_fixed,
            cwnd_segments: snapshot.cwnd_segments,
            threshold_segments: snapshot.threshold_segments,
            segment_bytes: snapshot.segment_bytes(),
            rate_bytes_per_s: self.rate_bytes_per_s,
            rtt_min_us: snapshot.sample.path.rtt_min_us,
            window_bytes: snapshot.sample.flow.map_or(0, |flow| flow.window_bytes),
            control: snapshot.control,
            lost_lately: self.lost_at.is_some_and(|at| since(at, LOST_LATELY_US)),
            lately_segments: self
                .lately
                .filter(|(_, at)| since(*at, LATELY_US))
                .map_or(0, |(segments, _)| segments),
        };
        outside::step(&seen, self.share_bytes(), lowat_bytes_most)
    }

    /// The step where memory is ample.
    pub(super) fn let_go(&self) -> Step {
        let foreign = (!self.snapshot.is_matched).then_some(HandsOff::Unmatched);
        match self.ours {
            Some(_) => Step::GiveBack(foreign.unwrap_or(HandsOff::Ample)),
            None => Step::Keep,
        }
    }

    /// What it holds, unsent and in flight, if it is one of those that are meant.
    pub(super) fn held_bytes(&self) -> u64 {
        match self.snapshot.is_matched && self.snapshot.is_open {
            true => self.snapshot.sample.unacked_bytes,
            false => 0,
        }
    }

    pub(super) fn share_bytes(&self) -> Option<u64> {
        self.share.map(|share| share.bytes)
    }

    /// An order was carried out.
    pub(super) fn changed(&mut self, change: &Change, now: Instant) {
        let snapshot = &mut self.snapshot;
        let from = change.order.from;
        let Some(to) = change.order.to else {
            match change.why {
                Why::GiveBack(why) if why != HandsOff::Ample && snapshot.is_matched => {
                    self.left = Some(why);
                }
                _ => {}
            }
            let record = self.ours.take();
            // What the kernel has now is seen by the next snapshot; this is what was put back of ours.
            if let Some(record) = record {
                snapshot.now.clamp_segments = record.was.clamp_segments;
                snapshot.now.lowat_bytes = record.was.lowat_bytes;
            }
            return;
        };
        let shrinks =
            to.clamp_segments < from.clamp_segments && from.clamp_segments < NONE_SEGMENTS;
        let lately = self.lately.filter(|(_, at)| now.since_us(*at) < LATELY_US);
        if shrinks && lately.is_none_or(|(segments, _)| segments < from.clamp_segments) {
            self.lately = Some((from.clamp_segments, now));
        }
        let record = self.ours.get_or_insert(Record {
            was: from,
            set: Setting::default(),
        });
        if to.clamp_segments != from.clamp_segments {
            record.set.clamp_segments = to.clamp_segments;
        }
        if to.lowat_bytes != from.lowat_bytes {
            record.set.lowat_bytes = to.lowat_bytes;
        }
        snapshot.now = to;
    }
}

/// Whether it has all in flight that its clamp allows, and more to send.
fn is_full(snapshot: &SocketSnapshot) -> bool {
    snapshot.cwnd_segments >= snapshot.now.clamp_segments
        && snapshot.sample.unsent_bytes.unwrap_or(0) > 0
}

/// One that was full both times was so in between.
fn share_limited_us(was_full: bool, snapshot: &SocketSnapshot, us: u64) -> u64 {
    match was_full && is_full(snapshot) {
        true => us,
        false => 0,
    }
}
