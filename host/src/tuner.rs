//! The machine of `tune`: what snapshots of sockets lead to. Pure: snapshots come in, orders go out, time is an argument.
//!
//! A *look* is a pass over all sockets of the network namespace by a program in the kernel ([`crate::kernel`]). It takes a
//! *snapshot* of each socket that matches. An *order* gives one socket another setting: a clamp of its congestion window, and
//! TCP_NOTSENT_LOWAT. The *record* in a changed socket says what it had before us.
//!
//! The division is the server's own ([`ackpace_share::pool`]), with one worker: this machine is asked for snapshots as
//! a worker is, and hears of shares. What a share means for a socket of another program is
//! [`ackpace_share::outside`]. In between this file keeps what two snapshots together tell: rates, what sets a client's
//! pace, losses of the last seconds.

mod member;
mod members;
mod orders;

use std::net::SocketAddr;

use ackpace_core::conn::ConnId;
use ackpace_core::machine::Machine;
use ackpace_core::rate::Flow;
use ackpace_core::units::{Instant, US_PER_S};
use ackpace_share::outside::{Cause, HandsOff, NONE_SEGMENTS};
use ackpace_share::pool::{In, Out, Pool, Settings};
use ackpace_share::reading::Reading;
use ackpace_share::{ETHERNET_SEGMENT_BYTES, Policy};

use self::members::Members;
use crate::kernel::Order;
use crate::snapshot::{Quiet, Record, SocketSnapshot, View};
use crate::tally::Tally;

/// Sockets that are tuned at once. Each takes some 1.6 KB here. More: the rest are left as they are, and counted.
const SOCKETS_MAX: usize = 131_072;

/// Nothing is divided until all sockets together hold one part in this of the budget. Less: clients that would never need the memory
/// are held up, for 4 % longer. More: what they send within a second, until the next look, may exceed it.
const DIVIDES_FROM_PART: u64 = 16;
/// Nothing is divided any more when they hold less than one part in this, though each may have its share. More: sockets that queue up
/// where nothing holds them would be divided and let go in turns.
const DIVIDES_TO_PART: u64 = 64;

/// For so long they have to hold less than that. Less: one client who stalls and goes has all others divided and let go in turns.
const DIVIDES_ON_US: u64 = 30_000_000;

/// What each socket has at least: two segments in flight and one unsent, of an Ethernet.
pub const FLOOR_BYTES: u64 = 3 * ETHERNET_SEGMENT_BYTES;

/// What the operator chose.
#[derive(Clone, Copy, Debug)]
pub struct TunerSettings {
    /// How the memory is divided.
    pub policy: Policy,
    /// The memory that is divided.
    pub budget_bytes: u64,
    /// A random number, for the table of remembered addresses.
    pub secret: u64,
    /// `net.ipv4.tcp_notsent_lowat`, which a setting never exceeds.
    pub lowat_bytes_most: u32,
    /// Nothing will be carried out: each order counts as if it had been.
    pub dry_run: bool,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take a snapshot of each socket; answered by [`Tuner::begin_look`], [`Tuner::looked`] and [`Tuner::end_look`].
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
    /// The name by which the pool knows it.
    conn: ConnId,
    /// The last look at it.
    snapshot: SocketSnapshot,
    /// What the record in the socket says, if we changed it.
    ours: Option<Record>,
    /// Acknowledged bytes, in all, at which what it held before us is gone.
    before_us_bytes: u64,
    /// By the last two snapshots.
    rate_bytes_per_s: u64,
    /// Its client reads more slowly than its path delivers.
    is_own_pace: bool,
    /// Its share; `None`: it sends nothing, and has none.
    share: Option<Share>,
    /// When it was last seen to have sent something again.
    lost_at: Option<Instant>,
    /// The largest clamp of late, and since when it has it no more.
    lately: Option<(u32, Instant)>,
    /// Somebody else has set it once: it stays alone for good.
    left: Option<HandsOff>,
    /// Number of the pass that saw it last.
    seen: u64,
}

/// A share, and the division that it is from; 0: none yet.
#[derive(Clone, Copy, Debug)]
struct Share {
    bytes: u64,
    division: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Tuner {
    /// What the operator has chosen.
    chosen: TunerSettings,
    /// Divides the memory, as it does for one worker.
    pool: Pool,
    /// The sockets that were seen to send.
    members: Members,
    /// Sockets that match and were never seen to send.
    strangers: u64,
    /// Looks at the sockets so far.
    passes: u64,
    /// When the last one was.
    sampled_at: Instant,
    /// How long before this look the last one was.
    since_us: u64,
    /// The slot from which the pool has asked; a look answers by the piece.
    asked_from: u32,
    /// Shares or snapshots have changed since the last orders.
    dirty: bool,
    /// What all members held at the last look, unsent and in flight.
    held_bytes: u64,
    /// They are held to their shares: memory is not ample; and until when at least.
    divides: bool,
    divides_until: Instant,
    /// What was counted.
    pub tally: Tally,
}

impl Tuner {
    /// Without any socket yet.
    pub fn new(chosen: TunerSettings, now: Instant) -> Tuner {
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
            since_us: 1,
            asked_from: 0,
            dirty: false,
            held_bytes: 0,
            divides: false,
            divides_until: now,
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
        if self.heard(now) {
            return Some(Action::Snapshot);
        }
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        let (changes, sums) = self.changes(now);
        if changes.is_empty() {
            self.show(sums); // otherwise when they are carried out
            return None;
        }
        Some(Action::Orders(changes))
    }

    /// Hears what the pool has to say. Whether it asks for readings.
    fn heard(&mut self, now: Instant) -> bool {
        while let Some(out) = self.pool.poll(now) {
            match out {
                Out::Sample { from, .. } => {
                    self.asked_from = from;
                    return true;
                }
                Out::Share { conn, grant, .. } => {
                    if let Some(member) = self.members.named(conn) {
                        member.share = grant.map(|grant| Share {
                            bytes: grant.share_bytes,
                            division: grant.division,
                        });
                    }
                    if grant.is_none() {
                        self.pool.on(In::Left { worker: 0, conn }, now);
                    }
                    self.dirty = true;
                }
            }
        }
        false
    }

    /// A look begins.
    pub fn begin_look(&mut self, now: Instant) {
        self.passes += 1;
        self.strangers = 0;
        (self.tally.beyond, self.tally.before_bytes) = (0, 0);
        self.since_us = now.since_us(self.sampled_at).max(1);
        self.sampled_at = now;
    }

    /// The look shows some of the sockets that match, and of those that were changed.
    pub fn looked(&mut self, view: &View, now: Instant) {
        let mut readings = Vec::with_capacity(view.snapshots.len());
        let snapshots = view.snapshots.iter();
        readings.extend(snapshots.filter_map(|snapshot| self.saw(snapshot, now)));
        let quiet = view.quiet.iter();
        readings.extend(quiet.filter_map(|one| self.rests(one, now)));
        self.sampled(readings, Some(self.asked_from.wrapping_add(1)), now);
        self.heard(now);
    }

    /// The look is over: a socket that it has not shown is gone, or matches no more.
    pub fn end_look(&mut self, now: Instant) {
        self.members.keep_seen(self.passes);
        let held = self.members.iter().map(Member::held_bytes);
        self.held_bytes = held.sum();
        let part = match self.divides {
            true => DIVIDES_TO_PART,
            false => DIVIDES_FROM_PART,
        };
        if self.held_bytes >= self.chosen.budget_bytes / part {
            self.divides_until = now.plus_us(DIVIDES_ON_US);
        }
        self.divides = now < self.divides_until;
        self.dirty = true;
        self.sampled(Vec::new(), None, now);
    }

    fn sampled(&mut self, readings: Vec<Reading>, next: Option<u32>, now: Instant) {
        let sampled = In::Sampled {
            worker: 0,
            from: self.asked_from,
            readings,
            next,
        };
        self.pool.on(sampled, now);
    }

    /// One that rests. It is as it was, but for what it had to send; nothing else is to be done, unless it has a share
    /// still, or another setting.
    fn rests(&mut self, quiet: &Quiet, now: Instant) -> Option<Reading> {
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
        if member.share.is_none() && snapshot == *before {
            self.members.see(at, self.passes);
            return None;
        }
        self.saw(&snapshot, now)
    }

    /// One socket; its reading, if it takes part.
    fn saw(&mut self, snapshot: &SocketSnapshot, now: Instant) -> Option<Reading> {
        let at = match self.members.find(snapshot.cookie) {
            Some(at) => at,
            None if self.members.len() >= SOCKETS_MAX => {
                self.tally.beyond += 1;
                return None;
            }
            None => self.members.enter(*snapshot),
        };
        let member = self.members.see(at, self.passes)?;
        let (us, keeps_setting) = (self.since_us, self.chosen.dry_run);
        let (is_sending, share_limited_us) = member.take(snapshot, us, now, keeps_setting);
        // One that joins keeps what it has, if that is free.
        let free_bytes = self.chosen.budget_bytes.saturating_sub(self.held_bytes);
        let own_bytes = 2 * snapshot.segment_bytes() * u64::from(snapshot.cwnd_segments);
        let start_bytes = self.pool.totals().start_bytes;
        let start_bytes = start_bytes.max(own_bytes.min(free_bytes / 2));
        let (reading, before_bytes) = member.reading(is_sending, share_limited_us, start_bytes)?;
        self.tally.before_bytes += before_bytes;
        Some(reading)
    }

    /// What is told of the sockets as they are now.
    fn count(&mut self) {
        let mut sums = Sums::default();
        self.members.iter().for_each(|member| sums.add(member));
        self.show(sums);
    }

    fn show(&mut self, sums: Sums) {
        let totals = self.pool.totals();
        let tally = &mut self.tally;
        tally.shares_bytes = totals.shares_bytes;
        tally.held_bytes = match self.divides {
            true => totals.held_bytes,
            false => self.held_bytes,
        };
        tally.is_dividing = self.divides;
        tally.sharing = totals.connections;
        tally.is_short = totals.connections * FLOOR_BYTES > tally.budget_bytes;
        tally.sockets = self.strangers + sums.sockets;
        tally.tuned = sums.tuned;
        tally.clamped = sums.clamped;
        tally.queued_bytes = sums.queued_bytes;
        let reasons = HandsOff::ALL.into_iter().zip(sums.left);
        tally.left_alone = reasons
            .filter(|(_, sockets)| *sockets > 0)
            .map(|(why, sockets)| (why.name().to_owned(), sockets))
            .collect();
    }
}

/// What is counted of sockets.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Sockets that match, those that we have set, and those of these that have a clamp.
    sockets: u64,
    tuned: u64,
    clamped: u64,
    /// Kernel memory for what all of them hold (`sk_wmem_queued`).
    queued_bytes: u64,
    /// Sockets that are left alone, by reason.
    left: [u64; HandsOff::ALL.len()],
}

impl Sums {
    fn add(&mut self, member: &Member) {
        let snapshot = &member.snapshot;
        let is_clamped = snapshot.now.clamp_segments < NONE_SEGMENTS;
        self.sockets += u64::from(snapshot.is_matched);
        self.tuned += u64::from(member.ours.is_some());
        self.clamped += u64::from(member.ours.is_some() && is_clamped);
        self.queued_bytes += u64::from(snapshot.queued_bytes);
        if let Some(why) = member.left {
            self.left[why as usize] += 1;
        }
    }
}

fn acked(snapshot: &SocketSnapshot) -> u64 {
    snapshot.sample.flow.map_or(0, |flow| flow.acked_bytes)
}

/// What was delivered between two snapshots, by the time in which something was to be sent, and whether its
/// own window held the client up for most of that time, not its path. `None`: there was nothing to be sent.
fn progress(before: Flow, now: Flow) -> Option<(u64, bool)> {
    let bytes = now.acked_bytes.saturating_sub(before.acked_bytes);
    let us = now
        .busy_us
        .checked_sub(before.busy_us)
        .filter(|us| *us > 0)?;
    let limited_us = now
        .window_limited_us
        .saturating_sub(before.window_limited_us);
    let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us);
    Some((rate as u64, limited_us * 2 > us))
}

#[cfg(test)]
mod tests;
