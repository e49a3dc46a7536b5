//! What clients ask for, get and acknowledge. No byte comes twice or never.

use std::collections::VecDeque;

use super::super::*;
use super::Shell;
use crate::conn::Held;
use crate::send::Refill;

/// What the kernel holds for one client.
const SOCKET_BYTES: u64 = WINDOW + WINDOW / 2;

/// A request that lies in a client's input.
#[derive(Clone, Debug)]
pub struct Request {
    pub plan: Plan,
    pub slices: Vec<u64>,
    pub body_bytes: u64,
}

#[derive(Default)]
pub struct Client {
    pub input: VecDeque<Request>,
    pub body_bytes: u64,
    pub fin: bool,
    pub unacked_bytes: u64,
    /// Bytes ever given to the kernel for this client.
    pub taken_bytes: u64,
    pub full: bool,
    pub shut: bool,
}

/// A response under way as the client sees it.
pub struct Response {
    pub parts: Vec<Part>,
    pub slices: VecDeque<u64>,
    pub slice: Option<(u64, bool)>,
    pub head_bytes: u64,
    pub at: (u16, u64),
    pub start_bytes: u64,
    pub sent_bytes: u64,
}

impl Response {
    /// Go past what is finished: parts, and slices.
    fn settle(&mut self) {
        while let Some(part) = self.parts.get(usize::from(self.at.0)) {
            let mut parts = 1;
            let len_bytes = match part {
                Part::Bytes(_) => {
                    let behind = &self.parts[usize::from(self.at.0)..];
                    let texts = behind.iter().map_while(|part| match part {
                        Part::Bytes(bytes) => Some(bytes.len() as u64),
                        _ => None,
                    });
                    parts = texts.clone().count() as u16;
                    texts.sum()
                }
                Part::Body { span, .. } => span.len_bytes,
                Part::Slices => match self.slice {
                    Some((len_bytes, true)) => len_bytes,
                    _ => return,
                },
            };
            if self.at.1 < len_bytes {
                return;
            }
            self.at = (self.at.0 + parts, 0);
        }
    }

    pub fn whole(&self) -> bool {
        usize::from(self.at.0) == self.parts.len()
    }
}

impl Shell {
    pub(super) fn receive(&mut self, conn: ConnId, expect: Expect) -> Received {
        let (part, broken) = (self.mishap(8), self.mishap(20));
        let client = self.clients.get_mut(&conn).expect("checked");
        let bytes = client.body_bytes.min(1 + self.dice.below(WINDOW));
        match expect {
            Expect::Head if part && !client.input.is_empty() => Received::HeadPart,
            Expect::Head => match client.input.pop_front() {
                Some(request) => {
                    let more = !client.input.is_empty() || client.fin;
                    let body = request.body_bytes > 0;
                    client.body_bytes = request.body_bytes;
                    let nth = self.worker.table.get(conn).expect("it asked").nth;
                    self.resolving.insert(stream_id(conn, nth), request);
                    Received::Request { body, more }
                }
                None if client.fin => Received::End,
                None => Received::Nothing,
            },
            Expect::Body if broken => Received::Broken,
            _ if bytes > 0 => {
                client.body_bytes -= bytes;
                let done = client.body_bytes == 0;
                Received::Skipped { bytes, done }
            }
            Expect::Rest if client.input.pop_front().is_some() => {
                let (bytes, done) = (HEAD_BYTES, false);
                Received::Skipped { bytes, done }
            }
            _ if client.fin => Received::End,
            _ => Received::Nothing,
        }
    }

    pub fn resolve(&mut self, stream: StreamId) {
        let Some(Request { plan, slices, .. }) = self.resolving.remove(&stream) else {
            return;
        };
        let client = self.clients.get(&stream.conn).expect("else forgotten");
        let mut response = Response {
            parts: plan.parts.to_vec(),
            slices: slices.into(),
            slice: None,
            head_bytes: plan.head_len_bytes,
            at: (0, 0),
            start_bytes: client.taken_bytes,
            sent_bytes: 0,
        };
        response.settle();
        if response.parts.iter().any(|p| matches!(p, Part::Slices)) {
            self.listings.insert(stream);
        }
        self.responses.insert(stream, response);
        self.on(In::Resolved { stream, plan });
    }

    pub(super) fn slice(&mut self, stream: StreamId) {
        assert!(self.listings.contains(&stream), "no listing is open");
        let fails = self.mishap(20);
        let response = self.responses.get_mut(&stream).expect("a response");
        if let Some((len_bytes, last)) = response.slice {
            assert!(response.at.1 == len_bytes && !last, "a slice is lost");
        }
        if fails {
            let why = Why::ListingFailed;
            return self.on(In::Failed { stream, why });
        }
        let len_bytes = response.slices.pop_front().unwrap_or(0);
        let last = response.slices.is_empty();
        (response.slice, response.at.1) = (Some((len_bytes, last)), 0);
        response.settle();
        self.on(In::Sliced {
            stream,
            len_bytes,
            last,
        });
    }

    pub(super) fn send(
        &mut self,
        stream: StreamId,
        (part, from_bytes, len_bytes): (u16, u64, u64),
        held: Held,
        refill: Option<Refill>,
    ) {
        let room_bytes = refill.map_or(u64::MAX, |refill| refill.bytes);
        assert!(len_bytes <= room_bytes, "more than the socket is to take");
        let response = self.responses.get_mut(&stream).expect("a response");
        assert_eq!(response.at, (part, from_bytes), "a byte twice or never");
        assert!(len_bytes > 0 && len_bytes <= SEND_BYTES_MAX);
        let body = match response.parts[usize::from(part)] {
            Part::Body {
                object,
                residency,
                span,
                ..
            } => (residency != ResidencySource::Always).then_some((object, span)),
            _ => None,
        };
        if let Some((object, span)) = body {
            let offset_bytes = span.offset_bytes + from_bytes;
            let span = Span {
                offset_bytes,
                len_bytes,
            };
            match held {
                Held::PageCache => self.check_resident(object, span),
                Held::Slots => self.check_slots(stream, span),
            }
            if self.mishap(60) {
                let why = Why::FileChanged;
                return self.on(In::Failed { stream, why });
            }
        }
        let cut = self.mishap(4);
        let client = self.clients.get_mut(&stream.conn).expect("checked");
        let eager = self.send == SendPolicy::Eager; // with margins, a full socket is also asked whether it took more
        assert!(!(client.full && eager), "the socket is full");
        assert!(!client.shut, "bytes behind our FIN");
        let kernel_bytes = SOCKET_BYTES - client.unacked_bytes;
        let want_bytes = if cut {
            len_bytes.div_ceil(3)
        } else {
            len_bytes
        };
        let taken_bytes = want_bytes.min(kernel_bytes);
        let full = taken_bytes == kernel_bytes || taken_bytes >= room_bytes;
        client.full = full;
        client.unacked_bytes += taken_bytes;
        client.taken_bytes += taken_bytes;
        let unsent_bytes = client.unacked_bytes / 2;
        let response = self.responses.get_mut(&stream).expect("as above");
        response.sent_bytes += taken_bytes;
        response.at.1 += taken_bytes;
        response.settle();
        if let Some((_, span)) = body {
            self.release(stream, span.offset_bytes + from_bytes + taken_bytes);
        }
        self.on(In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes: Some(unsent_bytes),
        });
    }

    pub(super) fn arrived(&mut self, stream: StreamId, outcome: Outcome) {
        let response = self.untold.remove(&stream).expect("told once, when ended");
        let client = &self.clients[&stream.conn];
        let end_bytes = response.start_bytes + response.sent_bytes;
        let acked_bytes = (client.taken_bytes - client.unacked_bytes).min(end_bytes);
        let body_from_bytes = response.start_bytes + response.head_bytes;
        let sent_bytes = end_bytes.saturating_sub(body_from_bytes);
        assert_eq!(outcome.sent_bytes, sent_bytes);
        assert!(outcome.acked_bytes <= acked_bytes.saturating_sub(body_from_bytes));
        assert_eq!(outcome.why == Why::Done, response.whole(), "{outcome:?}");
        assert!(!outcome.whole || acked_bytes == end_bytes);
    }

    /// The client acknowledges one in `share` of what it has not yet.
    pub fn acknowledge(&mut self, conn: ConnId, share: u64) {
        let client = self.clients.get_mut(&conn).expect("a client");
        client.unacked_bytes -= client.unacked_bytes.div_ceil(share);
        if client.full && client.unacked_bytes < SOCKET_BYTES * 2 / 3 {
            client.full = false;
            self.tcp(conn, TcpEvent::Writable);
        }
    }
}
