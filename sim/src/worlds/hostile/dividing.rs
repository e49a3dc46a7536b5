//! How the send memory is divided in a run: by the input, or by the pool machine.

use ackpace_core::Machine;
use ackpace_core::addresses::Address;
use ackpace_core::conn::{ConnId, TcpEvent};
use ackpace_core::units::MIB;
use ackpace_core::worker::{In, Sender};
use ackpace_share::Control;
use ackpace_share::bound::Grant;
use ackpace_share::pool;
use ackpace_share::reading::{Counted, Reading};

use super::client::PLACES;
use super::division::{Division, READINGS_MAX, REPORTS_MAX};
use super::input::Input;
use super::shell::Run;

impl Run<'_> {
    /// Something happens to the send memory.
    pub fn act_of_shares(&mut self) {
        let what = self.input.below(8);
        match (&self.division, what) {
            (Division::Nobody, _) => {}
            (Division::Input, _) => self.told_by_input(what),
            (Division::Pool(_), 1) => {
                let us = self.input.pick(&[20_000, 110_000, 1_100_000]);
                self.now = self.now.plus_us(us);
            }
            (Division::Pool(_), 2 | 3) => {
                let reports = self.input.below(4) as usize;
                self.divider_turn(reports);
            }
            (Division::Pool(_), 4 | 5) => drop(self.hear_grant()),
            (Division::Pool(_), _) => drop(self.hear_question()),
        }
    }

    /// A connection that is there, was there, or never will be.
    fn anyone(&mut self) -> ConnId {
        let index = self.input.below(u64::from(PLACES) + 1) as u32;
        let generation = self.generations.get(index as usize).copied().unwrap_or(0);
        let apart = self.input.pick(&[0, 0, 0, 0, 0, u32::MAX, 1]);
        ConnId {
            index,
            generation: generation.wrapping_add(apart),
        }
    }

    fn told_by_input(&mut self, what: u64) {
        let conn = self.anyone();
        let held_bytes = self.client(conn).map_or(0, |client| client.unacked_bytes);
        match what {
            1 => {
                let share_bytes = share_bytes(&mut self.input);
                self.start_share(share_bytes);
            }
            2 => {
                self.unshare(conn);
            }
            3 => {
                let grant = grant(&mut self.input, held_bytes / 2); // less than is in flight
                self.share(conn, grant);
            }
            _ => {
                let share_bytes = share_bytes(&mut self.input);
                let grant = grant(&mut self.input, share_bytes);
                self.share(conn, grant);
                if what == 7 {
                    self.share(conn, grant);
                }
            }
        }
    }

    /// Send memory is divided from now on.
    pub fn start_share(&mut self, cap_bytes: u64) {
        self.divides = true;
        self.trace.note(self.now, "start", &cap_bytes);
        self.on(In::StartCap { cap_bytes });
    }

    /// What is told first, if anything is.
    pub fn begin_division(&mut self) {
        match &self.division {
            Division::Nobody => {}
            Division::Input => {
                if !self.input.once_in(4) {
                    let share_bytes = share_bytes(&mut self.input);
                    self.start_share(share_bytes);
                }
            }
            Division::Pool(divider) => {
                let share_bytes = divider.pool.totals().start_bytes;
                self.start_share(share_bytes);
            }
        }
    }

    /// A connection has another share, as `server/src/worker/divide.rs` hears of it. Setting SO_SNDBUF has the kernel check whether
    /// it is writable.
    fn share(&mut self, conn: ConnId, grant: Grant) {
        self.trace.note(self.now, "share", &(conn, grant));
        let Some(client) = self.client(conn) else {
            return;
        };
        let held_bytes = client.unacked_bytes;
        let Some(before) = client.share.bound else {
            return; // a late one
        };
        let changes = client.share.hold(grant);
        let becomes_writable = changes && client.awaits_writable && client.is_writable();
        client.awaits_writable &= !becomes_writable;
        let Some(bound) = client.share.bound else {
            return;
        };
        if becomes_writable {
            self.tcp(conn, TcpEvent::Writable);
        }
        let cap_bytes = Some(bound.share_bytes());
        self.on(In::Cap { conn, cap_bytes });
        if bound.share_bytes() < before.share_bytes() {
            self.report(pool::In::Lessened {
                worker: 0,
                conn,
                holding: bound.holding(held_bytes),
            });
        }
    }

    /// A connection has no share any more, unless its socket holds something or another response has begun.
    fn unshare(&mut self, conn: ConnId) {
        self.trace.note(self.now, "no share", &conn);
        let client = self.client(conn);
        if client.is_none_or(|client| client.share.bound.is_none() || client.unacked_bytes > 0) {
            return;
        }
        let cap_bytes = None;
        self.on(In::Cap { conn, cap_bytes });
        if self.worker.sender(conn).is_none() {
            self.counts.taken_back += 1;
            if let Some(client) = self.client(conn) {
                client.share.end();
            }
            self.report(pool::In::Left { worker: 0, conn });
        }
    }

    /// All who send get a share with which they are soon done.
    pub fn widen_shares(&mut self) {
        if !matches!(self.division, Division::Input) {
            return;
        }
        let senders: Vec<Sender> = self.worker.senders(0).collect();
        for sender in senders {
            self.share(sender.conn, Grant::start(MIB));
        }
    }

    /// The pool's thread has a turn.
    pub fn divider_turn(&mut self, reports: usize) {
        let now = self.now;
        let Some(divider) = self.division.divider_mut() else {
            return;
        };
        divider.turn(reports, now);
        let share_bytes = divider.pool.totals().start_bytes;
        self.start_share(share_bytes);
    }

    /// The pool's thread and the worker do all that waits for them; `false` if nothing did.
    pub fn divider_round(&mut self) -> bool {
        let now = self.now;
        let Some(divider) = self.division.divider_mut() else {
            return false;
        };
        let due = divider.pool.deadline().is_some_and(|at| at <= now);
        let mut busy = due || !divider.reports.is_empty();
        if busy {
            self.divider_turn(REPORTS_MAX);
        }
        busy |= self.hear_question();
        while self.hear_grant() {
            busy = true;
        }
        busy
    }

    /// The worker hears of one share; `false` if none waits.
    pub fn hear_grant(&mut self) -> bool {
        let divider = self.division.divider_mut();
        let Some((conn, grant)) = divider.and_then(|divider| divider.grants.take()) else {
            return false;
        };
        match grant {
            Some(grant) => {
                self.counts.by_pool += 1;
                self.share(conn, grant);
            }
            None => self.unshare(conn),
        }
        true
    }

    /// The worker answers the pool's question; `false` if it was not asked.
    pub fn hear_question(&mut self) -> bool {
        let divider = self.division.divider_mut();
        let Some(from) = divider.and_then(|divider| divider.sample_from.take()) else {
            return false;
        };
        let senders: Vec<Sender> = self.worker.senders(from).take(READINGS_MAX).collect();
        let full = senders.last().filter(|_| senders.len() == READINGS_MAX);
        let next = full.map(|sender| sender.conn.index + 1);
        let readings = senders
            .iter()
            .filter_map(|sender| self.reading(*sender))
            .collect();
        self.report(pool::In::Sampled {
            worker: 0,
            from,
            readings,
            next,
        });
        true
    }

    fn report(&mut self, report: pool::In) {
        self.trace.note(self.now, "report", &report);
        if let Some(divider) = self.division.divider_mut() {
            divider.report(report);
        }
    }

    fn reading(&mut self, sender: Sender) -> Option<Reading> {
        let (now, sample) = (self.now, self.tcp_sample(sender.conn)?);
        let client = self.clients.get_mut(sender.conn.index as usize)?.as_mut()?;
        let bound = client.share.bound.as_mut()?;
        let holding = bound.holding(sample.unacked_bytes);
        Some(Reading {
            conn: sender.conn,
            address: Address(sender.conn.index.into()),
            is_sending: sender.is_sending,
            sample,
            counted: Counted {
                sent_segments: (client.acked_bytes / 1_448) as u32,
                rto_us: 220_000,
            },
            control: Control::Cubic,
            is_own_pace: sender.is_own_pace,
            rate_bytes_per_s: sender.rate_bytes_per_s,
            share_limited_us: bound.take_share_limited_us(now),
            share_bytes: holding.share_bytes,
            division: holding.division,
        })
    }

    /// A response begins, with this cap until the pool has heard of it.
    pub fn join(&mut self, conn: ConnId, cap_bytes: u64) {
        if let Some(client) = self.client(conn) {
            client.share.hold(Grant::start(cap_bytes));
            client.share.start_bytes = cap_bytes.max(client.unacked_bytes);
            let sender = self.worker.sender(conn);
            if let Some(reading) = sender.and_then(|sender| self.reading(sender)) {
                self.report(pool::In::Joined { worker: 0, reading });
            }
        }
    }

    /// A connection with a share is closed.
    pub fn unbound(&mut self, conn: ConnId) {
        self.report(pool::In::Left { worker: 0, conn });
    }

    /// What is held and may be taken at any time is no more than the pool, and what nobody may yet have told it of.
    pub fn check_pool(&self) {
        let Some(divider) = self.division.divider() else {
            return;
        };
        let shares = self
            .clients
            .iter()
            .flatten()
            .filter(|client| client.share.bound.is_some())
            // One that the worker has closed is given nothing more, and its socket ends with the order that waits.
            .filter(|client| self.worker.sender(client.id).is_some());
        let (mut most_bytes, mut starts_bytes) = (0, 0);
        for client in shares {
            most_bytes += client.share.most_bytes(client.unacked_bytes);
            starts_bytes += client.share.start_bytes;
        }
        assert!(
            most_bytes <= divider.pool_bytes + starts_bytes,
            "shares of {most_bytes} bytes, {starts_bytes} to start with, in a pool of {}",
            divider.pool_bytes
        );
    }
}

fn share_bytes(input: &mut Input<'_>) -> u64 {
    input.pick(&[14_480, 60_000, 0, 1, 2_896, 5_000, MIB, u64::MAX])
}

fn grant(input: &mut Input<'_>, share_bytes: u64) -> Grant {
    Grant {
        share_bytes,
        segment_bytes: input.pick(&[1_448, 1_448, 536, 70_000, 0, u64::MAX]),
        division: input.below(4),
    }
}
