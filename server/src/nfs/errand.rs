//! A call that the kernel's caches can't answer, or that changes something: it goes to a thread that may wait.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use ackpace_core::nfs::CallId;
use ackpace_wire::nfs3;
use ackpace_wire::rpc::Record;

use super::conn::Conn;
use super::hands::Hands;
use super::room::Payload;
use super::served::{Outcome, Served};
use crate::resolver::{Errand, Job, JobInterest};

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
}
