//! What snapshots of sockets lead to. Pure: snapshots come in, orders go out, time is an argument.
//!
//! The division is the server's own ([`ackpace_core::sndbuf::pool`]), with one worker: this machine is asked for snapshots as
//! a worker is, and hears of shares. What a share means for a socket of another program is
//! [`ackpace_core::sndbuf::outside`]. In between this file keeps what two snapshots together tell: rates, what holds a
//! client up, losses of the last seconds.

mod member;
mod members;

use std::net::SocketAddr;

use ackpace_core::conn::{ConnId, TcpSample};
use ackpace_core::machine::Machine;
use ackpace_core::rate::flow::Flow;
use ackpace_core::sndbuf::bound::Grant;
use ackpace_core::sndbuf::outside::{Cause, HandsOff, NONE_SEGMENTS, Step};
use ackpace_core::sndbuf::pool::{In, Out, Pool, Settings};
use ackpace_core::sndbuf::reading::Reading;
use ackpace_core::sndbuf::{Pace, Policy};
use ackpace_core::units::{Instant, US_PER_S};

use self::members::Members;
pub use self::members::{ByCookie, CookieHasher};
use crate::kernel::Order;
use crate::limits::SOCKETS_MAX;
use crate::snapshot::{Outcome, Quiet, Record, SocketSnapshot, View};
use crate::tally::Tally;

/// What each socket has at least: two segments in flight and one unsent, of an Ethernet.
pub const FLOOR_BYTES: u64 = 3 * 1_448;

/// What the operator chose.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// How it is divided.
    pub policy: Policy,
    /// What is divided.
    pub budget_bytes: u64,
    /// A random number.
    pub secret: u64,
    /// `net.ipv4.tcp_notsent_lowat`, which a setting never exceeds.
    pub lowat_bytes_most: u32,
    /// Nothing will be carried out: each order counts as if it had been.
    pub dry_run: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take a snapshot of each socket; answered by [`Tuner::sampled`].
    Snapshot,
    /// Carry these out; answered by [`Tuner::carried_out`].
    Orders(Vec<Change>),
}

/// An order, with what the log says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// For the kernel.
    pub order: Order,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The share, if it has one.
    pub share_bytes: Option<u64>,
    /// Why.
    pub why: Why,
}

/// Why a socket is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another setting.
    Set(Cause),
    /// What it had before us.
    GiveBack(HandsOff),
}

impl Why {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Why::Set(cause) => cause.name(),
            Why::GiveBack(why) => why.name(),
        }
    }
}

/// What is known of a socket.
#[derive(Clone, Copy, Debug)]
struct Member {
    conn: ConnId,
    snapshot: SocketSnapshot,
    /// What the record in the socket says, if we changed it.
    ours: Option<Record>,
    /// Acknowledged bytes, in all, at which what it held before us is gone.
    before_us_bytes: u64,
    /// By the last two snapshots.
    rate_bytes_per_s: u64,
    pace: Pace,
    /// Its share; `None`: it sends nothing, and has none.
    grant: Option<Grant>,
    /// When it was last seen to have sent something again.
    lost_at: Option<Instant>,
    /// The largest clamp of late, and since when it has it no more.
    lately: Option<(u32, Instant)>,
    /// Somebody else has set it once: it stays alone for good.
    left: Option<HandsOff>,
    /// Number of the pass that saw it last.
    seen: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Tuner {
    chosen: Chosen,
    pool: Pool,
    members: Members,
    /// Sockets that match and were never seen to send.
    strangers: u64,
    passes: u64,
    sampled_at: Instant,
    /// The slot from which the pool has asked; answers have all of them.
    asked_from: u32,
    /// Shares or snapshots have changed since the last orders.
    dirty: bool,
    /// What was counted.
    pub tally: Tally,
}

impl Tuner {
    /// Without any socket yet.
    pub fn new(chosen: Chosen, now: Instant) -> Tuner {
        let settings = Settings {
            policy: chosen.policy,
            pool_bytes: chosen.budget_bytes,
            workers: 1,
            secret: chosen.secret,
        };
        Tuner {
            chosen,
            pool: Pool::new(settings, now),
            members: Members::default(),
            strangers: 0,
            passes: 0,
            sampled_at: now,
            asked_from: 0,
            dirty: false,
            tally: Tally {
                budget_bytes: chosen.budget_bytes,
                dry_run: chosen.dry_run,
                ..Tally::default()
            },
        }
    }

    /// When to [`Tuner::poll`] again.
    pub fn deadline(&self) -> Option<Instant> {
        self.pool.deadline()
    }

    /// What is to be done, until there is nothing more.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        while let Some(out) = self.pool.poll(now) {
            match out {
                Out::Sample { from, .. } => {
                    self.asked_from = from;
                    return Some(Action::Snapshot);
                }
                Out::Share { conn, grant, .. } => {
                    if let Some(member) = self.members.named(conn) {
                        member.grant = grant;
                    }
                    if grant.is_none() {
                        self.pool.on(In::Left { worker: 0, conn }, now);
                    }
                    self.dirty = true;
                }
            }
        }
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        let changes = self.changes(now);
        if changes.is_empty() {
            self.count(); // otherwise when they are carried out
            return None;
        }
        Some(Action::Orders(changes))
    }

    /// All sockets that match, and those that were changed.
    pub fn sampled(&mut self, view: &View, now: Instant) {
        self.passes += 1;
        self.strangers = 0;
        (self.tally.beyond, self.tally.before_bytes) = (0, 0);
        let mut readings = Vec::with_capacity(view.snapshots.len());
        let us = now.since_us(self.sampled_at).max(1);
        let snapshots = view.snapshots.iter();
        readings.extend(snapshots.filter_map(|snapshot| self.saw(snapshot, us, now)));
        let quiet = view.quiet.iter();
        readings.extend(quiet.filter_map(|one| self.rests(one, us, now)));
        self.sampled_at = now;
        self.members.keep_seen(self.passes);
        self.dirty = true;
        let sampled = In::Sampled {
            worker: 0,
            from: self.asked_from,
            readings,
            next: None,
        };
        self.pool.on(sampled, now);
    }

    /// One that rests. It is as it was, but for what it had to send; nothing else is to be done, unless it has a share
    /// still, or another setting.
    fn rests(&mut self, quiet: &Quiet, us: u64, now: Instant) -> Option<Reading> {
        let Some(at) = self.members.find(quiet.cookie) else {
            self.strangers += 1; // it joins when it sends
            return None;
        };
        let member = self.members.at(at)?;
        let before = &member.snapshot;
        let mut snapshot = SocketSnapshot {
            now: quiet.now,
            queued_bytes: 0,
            buffer_is_fixed: false,
            is_matched: true,
            is_open: true,
            ..*before
        };
        snapshot.sample.unacked_bytes = 0;
        snapshot.sample.unsent_bytes = Some(0);
        if member.grant.is_none() && snapshot == *before {
            member.seen = self.passes;
            return None;
        }
        self.saw(&snapshot, us, now)
    }

    /// One socket; its reading, if it takes part.
    fn saw(&mut self, snapshot: &SocketSnapshot, us: u64, now: Instant) -> Option<Reading> {
        let at = match self.members.find(snapshot.cookie) {
            Some(at) => at,
            None if self.members.len() >= SOCKETS_MAX => {
                self.tally.beyond += 1;
                return None;
            }
            None => self.members.enter(*snapshot),
        };
        let member = self.members.at(at)?;
        let before = member.snapshot;
        member.seen = self.passes;
        let mut snapshot = *snapshot;
        if self.chosen.dry_run {
            snapshot.now = before.now;
        }
        let held_up_us = member.take(snapshot, us, now);
        if member.left.is_some() || !snapshot.is_matched || !snapshot.is_open {
            return None;
        }
        let is_sending = snapshot.sample.unacked_bytes > 0 || acked(&snapshot) != acked(&before);
        if !is_sending && member.grant.is_none() {
            return None; // it has nothing, and needs nothing
        }
        let start_bytes = self.pool.totals().start_bytes;
        let grant = *member.grant.get_or_insert(Grant {
            share_bytes: start_bytes,
            segment_bytes: snapshot.segment_bytes(),
            ..Grant::default()
        });
        // What it held before us can't be taken back. It is let go, and not made up for by the others.
        let left_bytes = member.before_us_bytes.saturating_sub(acked(&snapshot));
        self.tally.before_bytes += left_bytes.min(snapshot.sample.unacked_bytes);
        Some(Reading {
            conn: member.conn,
            address: snapshot.address(),
            is_sending,
            sample: TcpSample {
                // Buffers come whole, so a socket may hold more than its share for good; others are not short of that.
                unacked_bytes: snapshot
                    .sample
                    .unacked_bytes
                    .saturating_sub(left_bytes)
                    .min(grant.share_bytes),
                ..snapshot.sample
            },
            counted: snapshot.counted,
            control: snapshot.control,
            pace: member.pace,
            rate_bytes_per_s: member.rate_bytes_per_s,
            held_up_us,
            // What it was told is in force, but for the last eighth.
            share_bytes: grant.share_bytes,
            division: grant.division,
        })
    }

    /// The orders that follow from snapshots and shares.
    fn changes(&mut self, now: Instant) -> Vec<Change> {
        let most = self.chosen.lowat_bytes_most;
        let mut changes = Vec::new();
        for member in self.members.iter_mut() {
            let step = member.step(most, now);
            let (to, why) = match step {
                Step::Keep => continue,
                Step::Leave(why) => {
                    if why != HandsOff::Unmatched {
                        member.left = Some(why);
                    }
                    continue;
                }
                Step::GiveBack(why) => (None, Why::GiveBack(why)),
                Step::Set(to, cause) => (Some(to), Why::Set(cause)),
            };
            changes.push(Change {
                order: Order {
                    cookie: member.snapshot.cookie,
                    from: member.snapshot.now,
                    to,
                },
                local: member.snapshot.local,
                peer: member.snapshot.peer,
                share_bytes: member.share_bytes(),
                why,
            });
        }
        changes
    }

    /// What became of orders: `outcome` of each socket that is still there. In a dry run all count as done.
    pub fn carried_out(
        &mut self,
        changes: &[Change],
        outcome: impl Fn(u64) -> Option<Outcome>,
        now: Instant,
    ) {
        for change in changes {
            let outcome = match self.chosen.dry_run {
                true => Some(Outcome::Done),
                false => outcome(change.order.cookie),
            };
            let at = self.members.find(change.order.cookie);
            match (outcome, at.and_then(|at| self.members.at(at))) {
                (Some(Outcome::Done), Some(member)) => {
                    member.changed(change, now);
                    match change.why {
                        Why::Set(cause) => self.tally.changed(cause),
                        Why::GiveBack(why) => self.tally.gave_back(why),
                    }
                }
                (Some(Outcome::Refused), member) => {
                    self.tally.refused += 1;
                    if let (Some(member), Why::Set(_)) = (member, change.why) {
                        member.ours = None; // the kernel has undone what of it was set
                    }
                }
                _ => self.tally.void += 1,
            }
        }
        self.count();
    }

    fn count(&mut self) {
        let totals = self.pool.totals();
        let tally = &mut self.tally;
        tally.shares_bytes = totals.shares_bytes;
        tally.held_bytes = totals.held_bytes;
        tally.sharing = totals.connections;
        tally.is_short = totals.connections * FLOOR_BYTES > tally.budget_bytes;
        (
            tally.sockets,
            tally.tuned,
            tally.clamped,
            tally.queued_bytes,
        ) = (self.strangers, 0, 0, 0);
        let mut left = [0u64; HandsOff::ALL.len()];
        for member in self.members.iter() {
            let snapshot = &member.snapshot;
            let is_clamped = snapshot.now.clamp_segments < NONE_SEGMENTS;
            tally.sockets += u64::from(snapshot.is_matched);
            tally.tuned += u64::from(member.ours.is_some());
            tally.clamped += u64::from(member.ours.is_some() && is_clamped);
            tally.queued_bytes += u64::from(snapshot.queued_bytes);
            if let Some(why) = member.left {
                left[why as usize] += 1;
            }
        }
        let reasons = HandsOff::ALL.into_iter().zip(left);
        tally.left_alone = reasons
            .filter(|(_, sockets)| *sockets > 0)
            .map(|(why, sockets)| (why.name().to_owned(), sockets))
            .collect();
    }
}

fn acked(snapshot: &SocketSnapshot) -> u64 {
    snapshot.sample.flow.map_or(0, |flow| flow.acked_bytes)
}

/// What was delivered between two snapshots, by the time in which something was to be sent, and what held the client up: its
/// own window for most of that time, or its path. `None`: there was nothing to be sent.
fn progress(before: Flow, now: Flow) -> Option<(u64, Pace)> {
    let bytes = now.acked_bytes.saturating_sub(before.acked_bytes);
    let us = now
        .busy_us
        .checked_sub(before.busy_us)
        .filter(|us| *us > 0)?;
    let limited_us = now
        .window_limited_us
        .saturating_sub(before.window_limited_us);
    let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us);
    let pace = match limited_us * 2 > us {
        true => Pace::Itself,
        false => Pace::Path,
    };
    Some((rate as u64, pace))
}

#[cfg(test)]
mod tests;
