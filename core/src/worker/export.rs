//! Giving a live connection away, at any byte of a response, and taking one over from another machine.
//!
//! `Export` is answered by [`Out::Export`], with all that another machine needs to go on from the next byte, or by
//! [`Out::Keep`]. [`In::Adopt`] gives that to the other machine, or back to this one. Byte n of a response is a function of its
//! plan alone ([`Part`]), so the plan and the number of bytes sent say which byte is next.
//!
//! [`In::Adopt`]: super::In::Adopt

use alloc::boxed::Box;

use super::arrivals::Arrivals;
use super::ending::unsend;
use super::evidence::TcpEvidence;
use super::exported::{Exported, ExportedPart, ExportedResponse, Kept, LocalFile, Stage};
use super::messages::Out;
use super::requests::Request;
use super::sending::Output;
use super::stream::{Cursor, Stream};
use super::timeouts::Timeouts;
use super::turns::QueueEnd;
use super::{Conn, ConnPhase, Worker};
use crate::addresses::Address;
use crate::conn::{ConnId, Part, Plan, StreamId};
use crate::units::Instant;
use crate::why::Why;

/// Slots that are looked at for a connection to give away. More: the others of the worker wait, and the next look covers
/// others.
const MOVE_LOOKS_MAX: u32 = 256;

impl Conn {
    /// What it is in the middle of; otherwise, why it can't be given away now.
    fn stage(&self, now: Instant) -> Result<Stage<LocalFile>, Kept> {
        let for_us = self.timeouts.for_us(now);
        match self.phase {
            _ if self.evidence.gone => Err(Kept::Ending),
            ConnPhase::Lingering { .. } => Err(Kept::Ending),
            _ if !self.request.is_open() => Err(Kept::HalfClosed),
            ConnPhase::Resolving => Err(Kept::Resolving),
            ConnPhase::Skipping { .. } => Err(Kept::RequestBody),
            ConnPhase::Sending => {
                let stream = self.stream.as_deref();
                let response =
                    stream.and_then(|stream| response_of(stream, self.request.body, now));
                response.map(Stage::Response).ok_or(Kept::Listing)
            }
            ConnPhase::Open if self.timeouts.silent_since().is_some() => Ok(Stage::New { for_us }),
            ConnPhase::Open if self.timeouts.idle() => Ok(Stage::Idle { for_us }),
            ConnPhase::Open => Ok(Stage::Head { for_us }),
        }
    }
}

impl Worker {
    /// The shell wants to give a connection away. Every stage forgets it in this turn, as when it closes.
    ///
    /// The shell has frozen its socket: `unacked_bytes` is what it holds, if that is known.
    pub(super) fn export(&mut self, id: ConnId, unacked_bytes: Option<u64>, now: Instant) {
        let stage = match self.table.get(id).map(|conn| conn.stage(now)) {
            Some(Ok(stage)) => stage,
            Some(Err(why)) => return self.outs.push_back(Out::Keep { conn: id, why }),
            None => return,
        };
        let Some(mut conn) = self.table.remove(id) else {
            return;
        };
        let stream_id = conn.stream_id();
        unsend(&mut self.outs, stream_id);
        if let Some(stream) = conn.stream.take() {
            self.let_go(stream_id, stream, now);
        }
        if let Some(unacked_bytes) = unacked_bytes {
            conn.arrivals.measured(unacked_bytes);
        }
        self.leave(&mut conn);
        let exported = Exported {
            nth: conn.nth,
            given_bytes: conn.arrivals.given_bytes(),
            acked_bytes: conn.arrivals.acked_bytes(),
            rate: conn.output.send_queue.believed(),
            refused: conn.admitted.refused,
            stage,
        };
        self.outs.push_back(Out::Export {
            conn: id,
            exported: Box::new(exported),
        });
    }

    /// A connection to give away, of some slots from `from` on: the one that is sending and whose known rate is the highest of
    /// at most `rate_max_bytes_per_s`; `None`: any that can be given away. Also returns the slot at which the next look begins.
    pub fn movable(
        &self,
        from: u32,
        rate_max_bytes_per_s: Option<u64>,
        now: Instant,
    ) -> (Option<ConnId>, u32) {
        let places = self.table.places();
        let looks = places.min(MOVE_LOOKS_MAX);
        let slots = (0..looks).map(|nth| (from + nth) % places);
        let conns = slots.filter_map(|slot| self.table.at(slot));
        let rates = conns.filter_map(|conn| {
            let rate = conn.output.send_queue.rate_bytes_per_s();
            let fits = match rate_max_bytes_per_s {
                Some(most) => (1..=most).contains(&rate) && conn.phase == ConnPhase::Sending,
                None => true,
            };
            (fits && conn.stage(now).is_ok()).then_some((rate, conn.id))
        });
        let fastest = rates.max_by_key(|(rate, _)| *rate);
        (fastest.map(|(_, id)| id), (from + looks) % places.max(1))
    }

    /// Another machine sends the rest of this response: give back what was fetched for it, and cancel its want.
    fn let_go(&mut self, id: StreamId, mut stream: Box<Stream>, now: Instant) {
        stream.end_stall(&mut self.counts, now);
        if stream.outstanding.has_wanted() {
            self.outs.push_back(Out::Forget(id));
        }
        if stream.let_go() {
            self.outs.push_back(Out::Release(id));
        }
        self.table.spare(stream);
    }

    /// A connection that another machine gave away, or this one: it goes on from the next byte.
    pub(super) fn adopt(
        &mut self,
        id: ConnId,
        address: Option<Address>,
        exported: &Exported<LocalFile>,
        now: Instant,
    ) {
        let mut admitted = self.door.admit(address);
        admitted.refused = exported.refused; // whoever came meanwhile does not take its place
        let mut conn = Conn::new(id, &self.settings, admitted, now);
        conn.nth = exported.nth;
        let mut sound = exported.is_sound();
        if sound {
            let (given_bytes, acked_bytes) = (exported.given_bytes, exported.acked_bytes);
            conn.arrivals = Arrivals::adopted(given_bytes, acked_bytes);
            conn.timeouts = Timeouts::adopted(&self.settings, given_bytes, acked_bytes, now);
            conn.evidence = TcpEvidence::adopted(acked_bytes, now);
            conn.output = Output::adopted(exported.rate, now);
        }
        match &exported.stage {
            Stage::New { for_us } => conn.timeouts.was(true, true, *for_us, now),
            Stage::Head { for_us } => conn.timeouts.was(false, true, *for_us, now),
            Stage::Idle { for_us } => conn.timeouts.was(false, false, *for_us, now),
            Stage::Response(response) => {
                let plan = response.plan();
                sound &= plan.is_sound() && plan.parts.len() < usize::from(u16::MAX);
                sound &= plan.promised_bytes() >= Some(response.sent_bytes);
                if sound {
                    self.resume_response(&mut conn, response, plan, now);
                }
            }
        }
        self.table.insert(conn);
        if self.drain.is_under_way() && matches!(exported.stage, Stage::Idle { .. }) {
            self.outs.push_back(Out::Sample(id)); // it leaves as others did when the drain began
        }
        if matches!(exported.stage, Stage::Response(_)) {
            self.join(id);
        }
        if !sound {
            return self.close(id, true, Why::Misframed, now);
        }
        self.wake(id.index, QueueEnd::Front);
    }

    /// The response under way of an adopted connection goes on from its next byte.
    fn resume_response(
        &mut self,
        conn: &mut Conn,
        response: &ExportedResponse<LocalFile>,
        plan: Plan,
        now: Instant,
    ) {
        conn.request = Request::adopted(response.request_body, now);
        conn.arrivals
            .adopt_response(response.sent_bytes, response.head_len_bytes);
        conn.timeouts.was(false, false, 0, now);
        conn.timeouts.response_begun(now);
        let (id, delay) = (conn.stream_id(), self.settings.delay);
        let cursor = Cursor {
            sent_bytes: response.sent_bytes,
            took_us: response.took_us,
            waited_disk_us: response.waited_disk_us,
            waited_net_us: response.waited_net_us,
        };
        let stream = Stream::resumed(id, plan, &cursor, delay, now);
        conn.stream = Some(self.table.boxed(stream));
        conn.phase = ConnPhase::Sending;
    }
}

/// The response under way. `None`: it has a part that is made on demand.
fn response_of(
    stream: &Stream,
    request_body: bool,
    now: Instant,
) -> Option<ExportedResponse<LocalFile>> {
    let plan = &stream.plan;
    let parts = plan.parts.iter().map(|part| match part {
        Part::Bytes(bytes) => Some(ExportedPart::Bytes(bytes.clone())),
        Part::Body {
            object,
            version,
            promise,
            residency,
            span,
        } => Some(ExportedPart::File {
            file: LocalFile {
                object: *object,
                version: *version,
                residency: *residency,
            },
            promise: *promise,
            span: *span,
        }),
        Part::Slices => None,
    });
    let (waited_disk_us, waited_net_us) = stream.waited_us(now);
    Some(ExportedResponse {
        parts: parts.collect::<Option<_>>()?,
        head_len_bytes: plan.head_len_bytes,
        body_len_bytes: plan.body_len_bytes?,
        keep_alive: plan.keep_alive,
        sent_bytes: stream.sent_bytes,
        request_body,
        took_us: now.since_us(stream.started_at),
        waited_disk_us,
        waited_net_us,
    })
}
