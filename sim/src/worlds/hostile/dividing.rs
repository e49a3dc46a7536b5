//! How the send memory is divided in a run: by the input, or by the pool machine.

use ackpace_core::Machine;
use ackpace_core::addresses::Address;
use ackpace_core::conn::{ConnId, TcpEvent};
use ackpace_core::limits::{PAUSED_US, REFILL_US_MAX, REFILL_US_MIN};
use ackpace_core::sndbuf::Control;
use ackpace_core::sndbuf::bound::{Bound, Grant};
use ackpace_core::sndbuf::depletion::RefillDelay;
use ackpace_core::sndbuf::pool;
use ackpace_core::sndbuf::reading::{Counted, Holding, Reading};
use ackpace_core::units::MIB;
use ackpace_core::worker::{In, Sender};

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
            (_, 0) => self.timer_by_itself(),
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

    /// The worker is told that a share lasts for some time, though nobody has asked.
    fn timer_by_itself(&mut self) {
        let conn = self.anyone();
        let delay = RefillDelay {
            us: self.input.pick(&[REFILL_US_MIN, 0, REFILL_US_MAX]),
            whole_us: self.input.pick(&[REFILL_US_MIN, REFILL_US_MAX]),
        };
        self.on(In::RefillAfter { conn, delay });
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
                let held_bytes = if self.input.once_in(4) { 0 } else { held_bytes };
                self.take_back(conn, held_bytes);
            }
            3 => {
                let grant = grant(&mut self.input, held_bytes / 2); // less than is in flight
                self.grant(conn, grant);
            }
            _ => {
                let share_bytes = share_bytes(&mut self.input);
                let grant = grant(&mut self.input, share_bytes);
                self.grant(conn, grant);
                if what == 7 {
                    self.grant(conn, grant);
                }
            }
        }
    }

    /// Send memory is divided from now on.
    pub fn start_share(&mut self, share_bytes: u64) {
        self.divides = true;
        self.trace.note(self.now, "start", &share_bytes);
        self.on(In::StartShare { share_bytes });
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

    fn grant(&mut self, conn: ConnId, grant: Grant) {
        let has_share = self.worker.sender(conn).is_some();
        if let Some(client) = self.client(conn).filter(|_| has_share) {
            client.share.told = Some(grant);
            client.share.may_be_cut |= grant.pause_us_max < u64::MAX;
        }
        self.trace.note(self.now, "share", &(conn, grant));
        self.on(In::Share { conn, grant });
    }

    fn take_back(&mut self, conn: ConnId, held_bytes: u64) {
        if let Some(client) = self.client(conn).filter(|_| held_bytes == 0) {
            client.share.told = None;
        }
        self.trace.note(self.now, "no share", &(conn, held_bytes));
        self.on(In::NoShare { conn, held_bytes });
    }

    /// All who send get a share with which they are soon done.
    pub fn widen_shares(&mut self) {
        if !matches!(self.division, Division::Input) {
            return;
        }
        let senders: Vec<Sender> = self.worker.senders(0).collect();
        for sender in senders {
            let share_bytes = MIB;
            self.grant(
                sender.conn,
                Grant {
                    share_bytes,
                    ..Grant::default()
                },
            );
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
                self.grant(conn, grant);
            }
            None => {
                let held_bytes = self.client(conn).map_or(0, |client| client.unacked_bytes);
                self.take_back(conn, held_bytes);
            }
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
        let share_limited_us = client.share.bound.as_mut();
        let share_limited_us = share_limited_us.map_or(0, |bound| bound.take_share_limited_us(now));
        let bound = client.share.bound;
        let bound = bound.unwrap_or_else(|| Bound::new(Grant::default()));
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
            pace: sender.pace,
            rate_bytes_per_s: sender.rate_bytes_per_s,
            share_limited_us,
            share_bytes: bound.share_bytes(),
            division: bound.division(),
        })
    }

    /// The worker orders a share, as `server/src/worker/divide.rs` obeys it. Setting SO_SNDBUF has the kernel check
    /// whether it is writable.
    pub fn hold(&mut self, conn: ConnId, grant: Option<Grant>, joins: bool) {
        self.counts.taken_back += u64::from(grant.is_none());
        let client = self.clients[conn.index as usize].as_mut();
        let client = client.expect("it lives");
        let held_bytes = client.unacked_bytes;
        let before_bytes = client.share.bound.map(|bound| bound.share_bytes());
        let changes = client.share.hold(grant, joins);
        let bound = client.share.bound;
        let becomes_writable = changes && client.awaits_writable && client.is_writable();
        client.awaits_writable &= !becomes_writable;
        if becomes_writable {
            self.tcp(conn, TcpEvent::Writable);
        }
        let sender = self.worker.sender(conn);
        let report = match (joins, bound) {
            (true, _) => sender
                .and_then(|sender| self.reading(sender))
                .map(|reading| pool::In::Joined { worker: 0, reading }),
            (false, None) if sender.is_none() => Some(pool::In::Left { worker: 0, conn }),
            (false, None) => None,
            (false, Some(bound)) => {
                let less = before_bytes.is_some_and(|before| bound.share_bytes() < before);
                less.then_some(pool::In::Lessened {
                    worker: 0,
                    conn,
                    holding: Holding {
                        held_bytes,
                        share_bytes: bound.share_bytes(),
                        division: bound.division(),
                    },
                })
            }
        };
        report.into_iter().for_each(|report| self.report(report));
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
            .filter(|client| client.share.bound.is_some());
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
        rtt_us: input.pick(&[1_000, 20_000, 0, 1, u64::MAX]),
        division: input.below(4),
        pause_us_max: match input.once_in(16) {
            true => PAUSED_US,
            false => u64::MAX,
        },
    }
}
