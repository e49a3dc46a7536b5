//! A call that the kernel's caches can't answer: it goes to a thread that may wait.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use ackpace_wire::nfs3;
use ackpace_wire::rpc::Record;

use super::served::{Outcome, Served};
use crate::resolver::Errand;
use crate::store::door::Wait;

/// The call; its result is an [`Outcome`].
pub struct ColdCall {
    pub served: Arc<Served>,
    /// Its record before the payload of a WRITE.
    pub head: Box<[u8]>,
    /// The client.
    pub from: IpAddr,
}

impl Errand for ColdCall {
    fn run(&self) -> Box<dyn Any + Send> {
        let record = Record {
            head: &self.head,
            cut: false,
        };
        Box::new(match nfs3::parse(&record) {
            Ok(request) => self.served.carry_out(&request, self.from, Wait::Yes),
            Err(_) => Outcome::Cold, // who submitted it has parsed it
        })
    }

    fn held_bytes(&self) -> usize {
        size_of::<ColdCall>() + self.head.len()
    }
}
