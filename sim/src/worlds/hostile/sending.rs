//! How many of the offered bytes a socket takes: as few as the input likes, and no more than its share of the send memory.

use ackpace_core::congestion::{CaState, Path};
use ackpace_core::conn::{ConnId, Held, ObjectId, Span, StreamId, TcpEvent, TcpSample};
use ackpace_core::limits::SEND_BYTES_MAX;
use ackpace_core::rate::Flow;
use ackpace_core::units::MIB;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, SendOrder};

use super::client::{ClientState, check_slots};
use super::response::Response;
use super::shell::Run;

/// Why the socket is offered less than was ordered.
enum Unsent {
    Missing,
    Changed,
}

impl Run<'_> {
    /// Offers a socket what its share has room for.
    pub fn send(&mut self, order: &SendOrder) {
        let cut = self.input.once_in(5);
        let (now, stream) = (self.now, order.stream);
        let body = self.check_order(order);
        let client = client_of(&mut self.clients, stream);
        let held_bytes = client.unacked_bytes;
        let share_bytes = client.share.room_bytes(held_bytes, now);
        if client.share.bound.is_some() {
            let conn = stream.conn;
            self.on(In::SocketLevel { conn, held_bytes });
        }
        let bounded = order.span.len_bytes > share_bytes;
        let whole_bytes = order.span.len_bytes.min(share_bytes);
        let mut len_bytes = whole_bytes;
        if let Some((object, span)) = body.filter(|_| len_bytes > 0) {
            let span = Span { len_bytes, ..span };
            match self.confirm(order, object, span) {
                Ok(resident_bytes) => len_bytes = resident_bytes,
                Err(Unsent::Missing) => return self.on(In::Missing { stream }),
                Err(Unsent::Changed) => {
                    let why = Why::FileChanged;
                    return self.on(In::Failed { stream, why });
                }
            }
        }
        let client = client_of(&mut self.clients, stream);
        let by_sendfile = body.is_some() && order.held == Held::PageCache;
        let least_bytes = u64::from(len_bytes > 0);
        let offered_bytes = if cut { len_bytes / 3 } else { len_bytes }.max(least_bytes);
        let taken_bytes = offered_bytes.min(client.kernel_bytes());
        // A short sendfile(2) means a full socket. Other sends are judged by the bytes that were offered.
        let blocked = taken_bytes
            < if by_sendfile {
                len_bytes
            } else {
                offered_bytes
            };
        let bounded = bounded && !blocked && taken_bytes >= whole_bytes;
        client.unacked_bytes += taken_bytes;
        under_way(&mut client.response, stream).sent(taken_bytes);
        client.share.given(taken_bytes, client.unacked_bytes);
        let unsent_bytes = client.unsent_bytes();
        if let Some(bound) = client.share.bound.as_mut().filter(|_| bounded) {
            bound.stopped(unsent_bytes, now);
        }
        let room_bytes = order.refill.map_or(u64::MAX, |refill| refill.bytes);
        let full = blocked || bounded || taken_bytes >= room_bytes;
        client.awaits_writable |= full;
        let freed = match body.filter(|_| order.held == Held::Slots) {
            Some((_, span)) => client.release_sent(span.offset_bytes + taken_bytes),
            None => 0,
        };
        let unsent_bytes = (full || body.is_some()).then_some(unsent_bytes);
        self.progress += taken_bytes;
        self.disk_thread.free(freed);
        self.on(In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes,
        });
        self.counts.by_call += u64::from(bounded);
    }

    /// Checks an order against its response. For bytes of a file: which they are.
    fn check_order(&mut self, order: &SendOrder) -> Option<(ObjectId, Span)> {
        let client = client_of(&mut self.clients, order.stream);
        let response = under_way(&mut client.response, order.stream);
        assert!(!client.torn && !client.shut, "bytes behind the end");
        let body = response.check(order.part, order.span.offset_bytes, order.span.len_bytes);
        if let Some(refill) = &order.refill {
            client.share.check_refill(refill);
        }
        let room_bytes = order.refill.map_or(u64::MAX, |refill| refill.bytes);
        assert!(
            order.span.len_bytes <= SEND_BYTES_MAX.min(room_bytes),
            "too much"
        );
        if let Some((object, span)) = body {
            match order.held {
                Held::PageCache => assert!(
                    self.files[object.index as usize].may_be_believed(span, self.idle_at),
                    "a worker reads from the disk: {span:?}"
                ),
                Held::Slots => check_slots(&client.pieces, object, span),
            }
        }
        body
    }

    /// How many bytes of the span the socket is offered. What another program dropped ends a copy, and is read by sendfile(2),
    /// which every second file is sent by.
    fn confirm(&mut self, order: &SendOrder, object: ObjectId, span: Span) -> Result<u64, Unsent> {
        let file = &mut self.files[object.index as usize];
        let resident_bytes = match order.held {
            Held::PageCache => file.resident_bytes(span).min(span.len_bytes),
            Held::Slots => span.len_bytes,
        };
        let is_copied = object.index % 2 == 0;
        if resident_bytes == 0 && is_copied {
            return Err(Unsent::Missing);
        }
        let client = client_of(&mut self.clients, order.stream);
        if std::mem::take(&mut client.fails_next) {
            under_way(&mut client.response, order.stream).excused = true;
            return Err(Unsent::Changed);
        }
        if resident_bytes == span.len_bytes || is_copied {
            return Ok(resident_bytes);
        }
        file.keep(span);
        let stream = order.stream;
        self.on(In::Waited { stream });
        Ok(span.len_bytes)
    }

    /// What TCP says of a connection.
    pub fn tcp_sample(&mut self, conn: ConnId) -> Option<TcpSample> {
        let (us, is_divided) = (self.now.us, self.divided);
        let client = self.client(conn)?;
        let marks = client.marks;
        let path = Path {
            state: CaState::Open,
            cwnd_bytes: 100_000,
            threshold_bytes: (marks > 0).then(|| 200_000 / u64::from(marks)),
            rtt_min_us: 20_000,
            marked_segments: marks,
            resent_segments: 0,
        };
        let window_closed = client.window_closed && client.unacked_bytes > 0;
        let flow = Flow {
            acked_bytes: client.acked_bytes,
            busy_us: us,
            window_bytes: if window_closed { 0 } else { MIB },
            segment_bytes: 1_448,
            ..Flow::default()
        };
        Some(TcpSample {
            unacked_bytes: client.unacked_bytes,
            unsent_bytes: Some(client.unsent_bytes()),
            window_closed,
            probes_unanswered: 0,
            rtt_us: 30_000,
            path,
            flow: is_divided.then_some(flow),
        })
    }

    /// The worker asks what TCP says.
    pub fn sample(&mut self, conn: ConnId) {
        if let Some(sample) = self.tcp_sample(conn) {
            self.tcp(conn, TcpEvent::Sample(sample));
        }
    }
}

/// The client of this response.
fn client_of(clients: &mut [Option<ClientState>], stream: StreamId) -> &mut ClientState {
    let client = clients[stream.conn.index as usize].as_mut();
    client.expect("it lives")
}

/// This response, of all that its client may have.
fn under_way(response: &mut Option<(StreamId, Response)>, stream: StreamId) -> &mut Response {
    let response = response.as_mut().filter(|(of, _)| *of == stream);
    let (_, response) = response.expect("a response under way");
    response
}
