//! One connection's next step, and how a response and a connection end.

use alloc::collections::VecDeque;

use super::messages::{Expect, Out};
use super::stream::{Step, Undo};
use super::{Phase, Worker};
use crate::conn::{ConnId, Held, StreamId, Want};
use crate::limits::{PIPELINED_MAX, SHORT_STEPS_MAX, STREAMS_SPARE_MAX};
use crate::units::Instant;
use crate::why::{Wait, What, Why};

/// The order that a stream's wish is.
pub(super) fn wanted(stream: StreamId, step: Step) -> Option<Out> {
    let Step::Want {
        object,
        span,
        dry_at,
        rate_bytes_per_s,
        seq,
        heard,
        signals,
        absent,
    } = step
    else {
        return None;
    };
    Some(Out::Want(Want {
        stream,
        object,
        span,
        dry_at,
        rate_bytes_per_s,
        seq,
        heard,
        signals,
        absent,
    }))
}

/// Orders what a stream needs no more to be forgotten, before anything else is done for it.
pub(super) fn undo(outs: &mut VecDeque<Out>, undo: Undo, stream: StreamId) {
    if undo.slots {
        outs.push_back(Out::Release(stream));
    }
    if undo.wish {
        outs.push_back(Out::Forget(stream));
    }
}

impl Worker {
    pub(super) fn conn_step(&mut self, now: Instant) -> Option<Out> {
        while let Some(index) = self.next_ready() {
            let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
                continue;
            };
            conn.queued = false;
            let expect = match conn.phase {
                Phase::Resolving => continue,
                Phase::Sending => match self.send_step(index, now) {
                    Some(out) => return Some(out),
                    None => match self.outs.pop_front() {
                        Some(out) => return Some(out), // to be undone, although it stands still
                        None => continue,
                    },
                },
                Phase::Open => Expect::Head,
                Phase::Skipping { .. } => Expect::Body,
                Phase::Lingering { .. } => Expect::Rest,
            };
            if conn.readable && !conn.ended {
                return Some(Out::Receive {
                    conn: conn.id,
                    expect,
                });
            }
        }
        None
    }

    /// Whose turn it is: a new request is not to wait for a round of top-ups, nor a body for ever for requests.
    fn next_ready(&mut self) -> Option<u32> {
        let bulk_due = self.short_steps >= SHORT_STEPS_MAX || self.ready.is_empty();
        let bulk = if bulk_due {
            self.bulk.pop_front()
        } else {
            None
        };
        if bulk.is_some() {
            self.short_steps = 0;
            return bulk;
        }
        self.short_steps = self.short_steps.saturating_add(1);
        self.ready.pop_front()
    }

    pub(super) fn send_step(&mut self, index: u32, now: Instant) -> Option<Out> {
        let worker = self.settings.worker;
        let conn = self.conns[index as usize].as_mut()?;
        let (id, stream) = (
            StreamId {
                worker,
                conn: conn.id,
                nth: conn.nth,
            },
            conn.stream.as_mut()?,
        );
        let writable = conn.writable;
        if !writable && stream.waits(now).0 == Wait::Window {
            return None; // a paused client shall not fetch what it does not read
        }
        let supply = conn.margin.supply(!writable, now);
        let step = stream.step(&self.residency_cache, &supply, now);
        let whole = stream.is_whole();
        undo(&mut self.outs, stream.undo(), id);
        let goes_on = matches!(step, Step::Send { .. } | Step::Done | Step::Broken(_));
        if goes_on && stream.asks_for_whom() {
            self.outs.push_back(Out::Sample(id.conn));
            self.wake(index, true);
            return self.outs.pop_front();
        }
        let out = match step {
            Step::Send { .. } | Step::Wait if !writable => {
                // It stands still for its socket already, or was about to when the disk came first.
                if !stream.waits(now).0.is_net() {
                    let wait = self.top_ups.map_or(Wait::Socket, |_| Wait::Margin);
                    stream.stand_still(wait, supply.socket_bytes, &mut self.counts, now);
                }
                return None;
            }
            Step::Send {
                part,
                from_bytes,
                len_bytes,
                held,
                more,
                unconfirmed,
            } => {
                let room = self.top_ups.map(|top_ups| {
                    // Who takes nothing is found out by how little its socket holds.
                    let own = held == Held::Slots && supply.rate_bytes_per_s > 0;
                    let own_bytes = own.then(|| top_ups.own_bytes(self.open));
                    let rest_bytes = stream.left_bytes();
                    (conn.margin).room(own_bytes, rest_bytes, top_ups.target(), now)
                });
                let room_bytes = room.map_or(u64::MAX, |room| room.bytes);
                Out::Send {
                    stream: id,
                    part,
                    from_bytes,
                    len_bytes: len_bytes.min(room_bytes),
                    held,
                    more: more || room_bytes < len_bytes,
                    unconfirmed,
                    room,
                }
            }
            Step::Probe { object, span } => Out::Probe {
                stream: id,
                object,
                span,
            },
            step @ Step::Want { .. } => {
                self.wake(index, false);
                wanted(id, step)?
            }
            Step::Slice => Out::Slice(id),
            Step::Wait => {
                let (wait, left_bytes) = (Wait::Disk, stream.left_bytes());
                let socket_bytes = supply.socket_bytes;
                if stream.stand_still(wait, socket_bytes, &mut self.counts, now) {
                    let what = What::Waits {
                        wait,
                        left_bytes,
                        socket_bytes,
                    };
                    self.decisions.record(now, Some(id.conn), what);
                    self.watch(index, now);
                }
                return None;
            }
            step @ (Step::Done | Step::Broken(_)) => {
                let why = match step {
                    Step::Broken(why) => why,
                    _ if !whole => Why::Misframed,
                    _ => Why::Done,
                };
                self.response_done(index, why, now);
                return self.outs.pop_front();
            }
        };
        // What is to be undone comes first.
        self.outs.push_back(out);
        self.outs.pop_front()
    }

    /// All bytes of the response are with the kernel, or it can't go on (`why` is not `Done`).
    pub(super) fn response_done(&mut self, index: u32, why: Why, now: Instant) {
        if !self.end_stream(index, why, now) {
            return;
        }
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        conn.in_a_row = (conn.in_a_row + 1) % PIPELINED_MAX;
        let goes_on = conn.in_a_row != 0;
        let id = conn.id;
        match why {
            Why::Done if conn.body => {
                (conn.phase, conn.body, conn.readable) =
                    (Phase::Skipping { skipped_bytes: 0 }, false, true);
            }
            Why::Done => self.next_request(index, now),
            // Without a length, an orderly end would make the torso look whole.
            Why::ListingFailed => self.close(id, true, why, now),
            // The client notices: the end comes before the promised length.
            _ => self.linger(index, now),
        }
        self.watch(index, now);
        self.wake(index, goes_on);
    }

    /// Take the stream off its connection: every stage forgets it, and its arrival is awaited. `false`: there was none.
    pub(super) fn end_stream(&mut self, index: u32, why: Why, now: Instant) -> bool {
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return false;
        };
        let Some(mut stream) = conn.stream.take() else {
            return false;
        };
        conn.last |= !stream.plan.keep_alive;
        stream.go_on(&mut self.counts, now);
        let id = StreamId {
            worker: self.settings.worker,
            conn: conn.id,
            nth: conn.nth,
        };
        conn.nth = conn.nth.wrapping_add(1);
        conn.patience.response_ended(now);
        if why != Why::Done || stream.waited_net_us > 0 {
            let (sent_bytes, took_us) = (stream.sent_bytes, now.since_us(stream.started_at));
            let what = What::Ended {
                why,
                sent_bytes,
                took_us,
            };
            self.decisions.record(now, Some(id.conn), what);
        }
        self.outs.push_back(Out::Ended(id));
        if why != Why::Done || stream.reads_from_disk() {
            self.outs.push_back(Out::Forget(id));
        }
        if self.settings.arrivals {
            let all = &mut self.unsettled;
            self.outs
                .extend(conn.arrivals.ended(all, id, &stream, why, now));
        }
        if self.spare.len() < STREAMS_SPARE_MAX {
            stream.plan.parts.clear(); // others may wait for what it holds
            self.spare.push(stream);
        }
        true
    }

    pub(super) fn next_request(&mut self, index: u32, now: Instant) {
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        conn.phase = Phase::Open;
        if conn.last || conn.ended || self.draining.is_some() {
            self.linger(index, now);
        }
    }

    /// Say that nothing more comes, and let the client read what it got: closing with unread input
    /// would send a RST that destroys the answer in its receive buffer (RFC 9112 9.6).
    pub(super) fn linger(&mut self, index: u32, now: Instant) {
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        if matches!(conn.phase, Phase::Lingering { .. }) {
            return;
        }
        conn.patience.linger(now);
        conn.phase = Phase::Lingering { skipped_bytes: 0 };
        let id = conn.id;
        if conn.ended && conn.arrivals.is_empty() {
            return self.close(id, false, Why::Done, now);
        }
        self.outs.push_back(Out::Shutdown(id));
        self.watch(index, now);
        self.wake(index, false);
    }

    pub(super) fn close(&mut self, id: ConnId, abort: bool, why: Why, now: Instant) {
        if self.conn(id).is_none() {
            return;
        }
        self.end_stream(id.index, why, now);
        let Some(mut conn) = self.conns[id.index as usize].take() else {
            return;
        };
        while let Some(arrived) = conn.arrivals.close(&mut self.unsettled) {
            self.outs.push_back(arrived);
        }
        if conn.phase == Phase::Resolving {
            self.outs.push_back(Out::Forget(StreamId {
                worker: self.settings.worker,
                conn: id,
                nth: conn.nth,
            }));
        }
        if let Some(address) = conn.address {
            let count = self.by_address.remove(&address).unwrap_or(0);
            if count > 1 {
                self.by_address.insert(address, count - 1);
            }
        }
        self.counts.closed(why);
        if !matches!(why, Why::Done | Why::PeerClosed | Why::Idle) {
            self.decisions.record(now, Some(id), What::Closed { why });
        }
        self.open -= 1;
        self.wheel.remove(id.index);
        if let Some(until) = conn.paced_until {
            self.paced.remove(&(until, id));
        }
        self.accept_again_at = None; // a descriptor came free
        self.outs.push_back(Out::Close {
            conn: id,
            abort,
            why,
        });
    }
}
