//! Executes the machine's orders, one by one. New connections are in `accept`, finding and planning in `answer`,
//! sending in `sending`.

use std::sync::Arc;

use ackpace_core::conn::{ConnId, Span, StreamId, Want};
use ackpace_core::machine::Machine;
use ackpace_core::residency::Confirmation;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{Expect, In, Out, Outcome};

use super::Worker;
use super::events::EventSource;
use super::sending::Order;
use super::source::Source;
use crate::clock::unix_ms;
use crate::disk::Ask;
use crate::front::http::Ended;
use crate::resolver::Job;

impl Worker {
    pub(super) fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Accept(most) => self.accept(most, now),
            Out::Listen(on) => self.listen(on),
            Out::Receive { conn, expect } => self.receive(conn, expect, now),
            Out::Resolve { stream, refuse } => self.resolve(stream, refuse, now),
            Out::Probe {
                stream,
                span,
                object: _,
            } => self.probe(stream, span, now),
            Out::Want(want) => self.want(want, now),
            Out::Forget(stream) => self.forget(stream),
            Out::Release(stream) => {
                if let Some(conn) = self.conns.get(stream.conn) {
                    conn.pieces.clear();
                }
            }
            Out::Ended(stream) => self.ended(stream, now),
            Out::Slice(stream) => self.slice(stream, now),
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                held,
                more,
                unconfirmed,
                refill,
            } => {
                let order = Order {
                    stream,
                    part,
                    span: Span {
                        offset_bytes: from_bytes,
                        len_bytes,
                    },
                    held,
                    more,
                    unconfirmed,
                    refill,
                };
                self.send(&order, now);
            }
            Out::Pace {
                conn,
                rate_bytes_per_s,
            } => {
                if let Some(conn) = self.conns.get(conn) {
                    conn.transport.set_pace(rate_bytes_per_s);
                }
            }
            Out::Sample(conn) => self.sample(conn, now),
            Out::Arrived { stream, outcome } => self.arrived(stream, &outcome),
            Out::Shutdown(conn) => {
                if let Some(conn) = self.conns.get(conn) {
                    conn.transport.shutdown();
                }
            }
            Out::Close { conn, abort, why } => self.close(conn, abort, why),
            // Never ordered: nothing here says `In::Export`, and no node could take the connection over. A cut is the
            // only honest end of a connection that no machine has.
            Out::Export { conn, .. } => {
                debug_assert!(false, "nobody asked to export {conn:?}");
                self.close(conn, true, Why::Misframed);
            }
            Out::Keep { .. } => {}
        }
    }

    fn sample(&mut self, conn: ConnId, now: Instant) {
        if let Some(sample) = self.conns.get(conn).map(|conn| conn.transport.sample()) {
            self.tcp_event(conn, &EventSource::TcpInfo(sample), now);
        }
    }

    fn receive(&mut self, id: ConnId, expect: Expect, now: Instant) {
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let received = match expect {
            Expect::Head => conn.front.receive(&conn.transport, &mut self.heads),
            Expect::Body => conn.front.skip_body(&conn.transport, &mut self.heads),
            Expect::Rest => conn.front.discard(&conn.transport, &mut self.heads),
        };
        match received {
            Ok(received) => self.decider.on(In::Received { conn: id, received }, now),
            Err(_) => self.tcp_event(id, &EventSource::SocketError, now),
        }
    }

    fn probe(&mut self, stream: StreamId, span: Span, now: Instant) {
        let mut resident_bytes = 0;
        if let Some(conn) = self.conns.get(stream.conn) {
            let told = conn
                .source
                .as_ref()
                .and_then(|source| source.resident_bytes(span));
            resident_bytes = told.unwrap_or(0);
            if resident_bytes == span.len_bytes {
                conn.sure = Some((Confirmation::new(now, self.shared.clock.now()), span));
            }
        }
        self.decider.on(
            In::Probed {
                stream,
                resident_bytes,
            },
            now,
        );
    }

    fn want(&mut self, want: Want, now: Instant) {
        let Some(conn) = self.conns.get(want.stream.conn) else {
            return;
        };
        let source = conn.source.as_ref();
        let Some(file) = source.and_then(Source::on_disk).map(Arc::clone) else {
            return;
        };
        let device = want.object.device;
        match self.shared.disks.get(device) {
            Ok(disk) => {
                conn.asked = Some(device);
                disk.ask(
                    want.stream.worker,
                    want.stream.conn.index,
                    Ask::Want(want, file),
                );
                self.disks_to_wake |= 1 << device;
            }
            Err(error) => {
                tracing::error!("the threads of a disk could not be started: {error}");
                self.decider.on(
                    In::Failed {
                        stream: want.stream,
                        why: Why::ReadFailed,
                    },
                    now,
                );
            }
        }
    }

    fn forget(&mut self, stream: StreamId) {
        let Some(device) = self
            .conns
            .get(stream.conn)
            .and_then(|conn| conn.asked.take())
        else {
            return;
        };
        if let Ok(disk) = self.shared.disks.get(device) {
            disk.ask(stream.worker, stream.conn.index, Ask::Forget(stream));
            self.disks_to_wake |= 1 << device;
        }
    }

    fn ended(&mut self, stream: StreamId, now: Instant) {
        let clock = self.shared.clock;
        if let Some(conn) = self.conns.get(stream.conn) {
            conn.front.ended(stream.nth, || Ended {
                unix_ms: unix_ms(),
                later_us: clock.now().since_us(now),
            });
            conn.uncork();
            conn.pieces.clear();
            (conn.sure, conn.proven) = (None, None); // later sends of this turn may be of another file
            (conn.source, conn.listing, conn.slice) = (None, None, Vec::new());
            conn.refers = false;
        }
    }

    fn slice(&mut self, stream: StreamId, now: Instant) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        conn.slice = Vec::new(); // it is sent
        let submitted = conn
            .listing
            .take()
            .is_some_and(|listing| self.shared.resolver.submit(stream, Job::Slice(listing)));
        if !submitted {
            self.decider.on(
                In::Failed {
                    stream,
                    why: Why::ListingFailed,
                },
                now,
            );
        }
    }

    fn arrived(&mut self, stream: StreamId, outcome: &Outcome) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        if let Some(record) = conn.front.record(stream.nth, conn.remote, outcome) {
            self.log.log(record);
        }
    }

    fn close(&mut self, id: ConnId, abort: bool, why: Why) {
        let Some(mut conn) = self.conns.remove(id) else {
            return;
        };
        self.closed();
        if abort {
            conn.transport.abort();
        }
        conn.front.release(&mut self.heads);
        tracing::debug!(remote = ?conn.remote, "closed: {why}");
    }
}
