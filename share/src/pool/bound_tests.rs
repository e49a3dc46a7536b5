//! Sockets that fill whatever share is in force: whatever is late or lost, they hold no more than the pool.

use super::tests::{POOL_BYTES, at, pool, reading};
use super::*;
use crate::eatbt::Need;
use ackpace_core::rate::Flow;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

const SLOTS: u32 = 6;
/// Connections in an answer.
const PIECE: usize = 2;

/// A connection, as its worker has it.
#[derive(Clone, Copy, Debug)]
struct Socket {
    conn: ConnId,
    is_sending: bool,
    held_bytes: u64,
    acked_bytes: u64,
    /// What it was held to when it joined, and is now.
    start_bytes: u64,
    share: Option<Grant>,
}

impl Socket {
    fn reading(&self) -> Reading {
        let share = self.share.expect("it has one");
        let mut reading = reading(self.conn.index, 1_000_000, 10);
        reading.conn = self.conn;
        reading.is_sending = self.is_sending;
        reading.sample.unacked_bytes = self.held_bytes;
        reading.sample.flow = reading.sample.flow.map(|flow| Flow {
            acked_bytes: self.acked_bytes,
            ..flow
        });
        reading.share_bytes = share.share_bytes;
        reading.division = share.division;
        reading
    }

    /// The most that it may hold by what it has heard.
    fn most_bytes(&self) -> u64 {
        let share_bytes = self.share.map_or(0, |share| share.share_bytes);
        self.held_bytes.max(share_bytes)
    }
}

/// A pool, and one worker with its mailboxes.
struct World {
    pool: Pool,
    now: Instant,
    sockets: [Option<Socket>; SLOTS as usize],
    grants: BTreeMap<u32, (ConnId, Option<Grant>)>,
    asked_from: Option<u32>,
    reports: VecDeque<In>,
    start_bytes: u64,
    next_generation: u32,
}

impl World {
    fn new(policy: Policy) -> World {
        let mut settings = pool(1).settings;
        settings.policy = policy;
        let pool = Pool::new(settings, at(0));
        World {
            start_bytes: pool.totals().start_bytes,
            pool,
            now: at(0),
            sockets: [None; SLOTS as usize],
            grants: BTreeMap::new(),
            asked_from: None,
            reports: VecDeque::new(),
            next_generation: 0,
        }
    }

    fn report(&mut self, event: In, lost: bool) {
        if !lost {
            self.reports.push_back(event);
        }
    }

    fn begins(&mut self, slot: u32, lost: bool) {
        let generation = self.next_generation;
        let start_bytes = self.start_bytes;
        let socket = self.sockets[slot as usize].get_or_insert(Socket {
            conn: ConnId {
                index: slot,
                generation,
            },
            is_sending: true,
            held_bytes: 0,
            acked_bytes: 0,
            start_bytes,
            share: None,
        });
        self.next_generation += 1;
        socket.is_sending = true;
        if socket.share.is_none() {
            socket.start_bytes = start_bytes;
            socket.share = Some(Grant::start(start_bytes));
            let reading = socket.reading();
            self.report(In::Joined { worker: 0, reading }, lost);
        }
    }

    fn closes(&mut self, slot: u32, lost: bool) {
        let socket = self.sockets[slot as usize].take();
        if let Some(conn) = socket
            .filter(|socket| socket.share.is_some())
            .map(|socket| socket.conn)
        {
            self.report(In::Left { worker: 0, conn }, lost);
        }
    }

    /// As `server/src/worker/divide.rs` does it.
    fn takes_grant(&mut self, lost: bool) {
        let Some((slot, (conn, grant))) = self.grants.pop_first() else {
            return;
        };
        let socket = self.sockets[slot as usize].as_mut();
        let Some(socket) = socket.filter(|socket| socket.conn == conn && socket.share.is_some())
        else {
            return;
        };
        let before_bytes = socket.share.map_or(0, |share| share.share_bytes);
        if grant.is_none() && socket.held_bytes > 0 {
            return;
        }
        if grant.is_none() && socket.is_sending {
            return; // another response has begun
        }
        let held_bytes = socket.held_bytes;
        socket.share = grant;
        match grant {
            None => self.report(In::Left { worker: 0, conn }, lost),
            Some(grant) if grant.share_bytes < before_bytes => {
                let holding = Holding {
                    held_bytes,
                    share_bytes: grant.share_bytes,
                    division: grant.division,
                };
                let lessened = In::Lessened {
                    worker: 0,
                    conn,
                    holding,
                };
                self.report(lessened, lost);
            }
            Some(_) => {}
        }
    }

    fn sample(&mut self, lost: bool) {
        let Some(from) = self.asked_from.take() else {
            return;
        };
        let sockets = self.sockets[from as usize..].iter().flatten();
        let shown: Vec<Reading> = sockets
            .filter(|socket| socket.share.is_some())
            .take(PIECE)
            .map(Socket::reading)
            .collect();
        let full = shown.last().filter(|_| shown.len() == PIECE);
        let next = full
            .map(|last| last.conn.index + 1)
            .filter(|next| *next < SLOTS);
        let sampled = In::Sampled {
            worker: 0,
            from,
            next,
            readings: shown.clone(),
        };
        self.report(sampled, lost);
    }

    fn divider_hears(&mut self, reports: usize) {
        for _ in 0..reports {
            let Some(report) = self.reports.pop_front() else {
                break;
            };
            self.pool.on(report, self.now);
        }
        while let Some(out) = self.pool.poll(self.now) {
            match out {
                Out::Sample { from, .. } => self.asked_from = Some(from),
                Out::Share { conn, grant, .. } => {
                    self.grants.insert(conn.index, (conn, grant));
                }
            }
        }
        self.start_bytes = self.pool.totals().start_bytes;
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now = self.now.plus_us(ms * 1_000);
    }

    fn settle(&mut self) {
        for _ in 0..40 {
            self.divider_hears(99);
            for _ in 0..SLOTS {
                self.takes_grant(false);
            }
            self.sample(false);
        }
    }

    fn holds_bytes(&self) -> u64 {
        self.sockets
            .iter()
            .flatten()
            .map(|socket| socket.most_bytes())
            .sum()
    }

    /// Every socket takes all that it may, and none is read from.
    fn fill(&mut self) {
        for socket in self.sockets.iter_mut().flatten() {
            socket.held_bytes = socket.most_bytes();
        }
    }

    fn check(&mut self) {
        let sockets = self.sockets.iter().flatten();
        for socket in sockets.clone() {
            let member = self.pool.members.get(&(0, socket.conn.index));
            if let Some(member) = member.filter(|member| member.conn == socket.conn) {
                // That it has joined may not have been heard yet, or is lost: it has no more than a start share then.
                let known = self.reports.is_empty() && socket.share.is_some();
                let least_bytes = member.taken_bytes.max(socket.start_bytes);
                assert!(
                    !known || socket.most_bytes() <= least_bytes,
                    "{socket:?} {member:?}"
                );
            }
        }
        let starts: u64 = sockets.map(|socket| socket.start_bytes).sum();
        let holds_bytes = self.holds_bytes();
        assert!(
            holds_bytes <= POOL_BYTES + starts,
            "{holds_bytes} in sockets, {starts} to start with"
        );
    }

    fn step(&mut self, (what, slot, number): (u8, u32, u64), lost: bool) {
        match what {
            0..3 => self.begins(slot, lost),
            3 => self.closes(slot, lost),
            4 | 5 => self.fill(),
            6 => {
                if let Some(socket) = self.sockets[slot as usize].as_mut() {
                    let acked_bytes = socket.held_bytes.min(number * 1_000);
                    socket.held_bytes -= acked_bytes;
                    socket.acked_bytes += acked_bytes;
                }
            }
            7 => {
                if let Some(socket) = self.sockets[slot as usize].as_mut() {
                    socket.is_sending = false;
                }
            }
            8..11 => self.takes_grant(lost),
            11 | 12 => self.sample(lost),
            13..16 => self.divider_hears(number as usize % 4),
            _ => self.wait_ms(number),
        }
    }
}

/// The clients of a wave read nothing; the waves come a tenth of a second apart, before anybody is looked at again.
#[test]
fn waves_of_clients_that_read_nothing_hold_no_more_than_the_pool() {
    for policy in [Policy::Equal, Policy::ByNeed(Need::Law)] {
        let mut world = World::new(policy);
        world.wait_ms(1_001);
        world.settle();
        for slot in 0..SLOTS {
            world.begins(slot, false);
            world.fill();
            for _ in 0..3 {
                world.wait_ms(101);
                world.settle();
                world.fill();
            }
        }
        let holds_bytes = world.holds_bytes();
        assert!(holds_bytes <= POOL_BYTES, "{policy:?}: {holds_bytes}");
    }
}

#[test]
fn a_departure_is_heard_of_at_once_and_others_get_what_it_leaves() {
    let mut world = World::new(Policy::Equal);
    (0..2).for_each(|slot| world.begins(slot, false));
    world.wait_ms(200);
    world.settle();
    world.wait_ms(200);
    world.settle();
    world.fill();
    world.begins(2, false);
    world.wait_ms(150);
    world.settle();
    world.closes(0, false);
    world.wait_ms(150);
    world.settle();
    let third = world.sockets[2].expect("it is there");
    assert!(third.most_bytes() > POOL_BYTES / 3, "{third:?}");
}

proptest! {
    #[test]
    fn sockets_hold_no_more_than_the_pool_whatever_is_late_or_lost(
        steps in prop::collection::vec(((0..18u8, 0..SLOTS, 0..700u64), 0..40u8), 1..300),
        equal in any::<bool>(),
    ) {
            let mut world = World::new(if equal { Policy::Equal } else { Policy::ByNeed(Need::Law) });
        for (step, luck) in steps {
            world.step(step, luck == 0);
            world.check();
        }
        // Whatever was lost: in the end all who send have shares that are in force, and the pool is in use.
        world.sockets.iter_mut().flatten().for_each(|socket| socket.held_bytes = 0);
        world.begins(0, false);
        for _ in 0..60 {
            world.wait_ms(150);
            world.settle();
            world.check();
        }
        let shared = world.pool.totals().shares_bytes;
        let held_to: u64 = world.sockets.iter().flatten().filter_map(|socket| socket.share).map(|share| share.share_bytes).sum();
        prop_assert_eq!(shared, held_to, "{:?}", world.sockets);
        prop_assert!((POOL_BYTES / 8 * 7..=POOL_BYTES).contains(&shared), "{}", shared);
    }
}
