//! Calls that can't be answered at once. One that the kernel's caches can't answer, or that changes something, goes to a thread that may
//! wait; one that has asked an origin goes on with its answer.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use ackpace_core::nfs::CallId;
use ackpace_core::units::Instant;
use ackpace_wire::nfs3;
use ackpace_wire::rpc::Record;

use super::asking::Asker;
use super::conn::Conn;
use super::hands::Hands;
use super::room::Payload;
use super::served::{Outcome, Served};
use crate::resolver::{Done, Errand, Job, JobInterest};

/// The call; its result is an [`Outcome`].
pub struct ColdCall {
    pub served: Arc<Served>,
    /// Its record before the payload of a WRITE.
    pub head: Box<[u8]>,
    /// That payload.
    pub payload: Option<Payload>,
    /// The client.
    pub from: IpAddr,
}

impl Errand for ColdCall {
    fn run(&self) -> Box<dyn Any + Send> {
        let record = Record {
            head: &self.head,
            cut: false,
        };
        let payload = self.payload.as_ref().map_or(&[][..], Payload::bytes);
        Box::new(match nfs3::parse(&record) {
            Ok(request) => {
                let (served, head) = (&self.served, &self.head);
                served.carry_out_once(&request, head, payload, self.from)
            }
            Err(_) => Outcome::Cold, // who submitted it has parsed it
        })
    }

    /// Payload has bounds of its own.
    fn held_bytes(&self) -> usize {
        size_of::<ColdCall>() + self.head.len()
    }
}

impl Conn {
    /// Hands a call to a thread that may wait. `None`: too many wait.
    pub(super) fn submit(
        &self,
        id: CallId,
        head: Box<[u8]>,
        payload: Option<Payload>,
        hands: &Hands,
    ) -> Option<JobInterest> {
        let call = ColdCall {
            served: Arc::clone(&hands.served),
            head,
            payload,
            from: self.from.ip(),
        };
        hands
            .shared
            .resolver
            .submit(self.stream_of(id, hands), Job::Errand(Box::new(call)))
    }

    /// The origin has answered what a call asked.
    pub fn answered(&mut self, id: CallId, answer: Done, hands: &Hands, now: Instant) {
        let Some(pending) = self.call(id).pending.take() else {
            debug_assert!(false, "nobody has asked");
            return;
        };
        let asker = self.asker(id, hands, now);
        match asker.go_on(*pending, answer) {
            Ok(pending) => self.call(id).pending = Some(Box::new(pending)),
            Err(outcome) => self.resolved(id, outcome, hands, now),
        }
    }

    pub(super) fn asker<'h>(&self, id: CallId, hands: &'h Hands, now: Instant) -> Asker<'h> {
        Asker {
            from: self.from.ip(),
            stream: self.stream_of(id, hands),
            hands,
            now,
        }
    }
}
