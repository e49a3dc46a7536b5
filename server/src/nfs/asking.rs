//! Calls that ask an origin: each waits for an answer, is carried out anew with it, and may ask again.

use std::net::IpAddr;

use ackpace_core::conn::StreamId;
use ackpace_core::units::Instant;
use ackpace_wire::nfs3::{self, Request};
use ackpace_wire::rpc::Record;

use super::hands::Hands;
use super::origin::{Charge, From, Inquiry};
use super::outcome::Outcome;
use crate::gateway::Ask;
use crate::interest::JobInterest;
use crate::log::Topic;
use crate::resolver::Done;

/// A call that waits for an answer.
pub struct Pending {
    /// Its record.
    head: Box<[u8]>,
    inquiry: Inquiry,
    _charge: Charge,
    /// Without this, nothing is asked.
    _job: JobInterest,
}

/// For whom the answers are.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// The client.
    pub from: IpAddr,
    /// The call.
    pub stream: StreamId,
    pub hands: &'a Hands,
    pub now: Instant,
}

impl Asker<'_> {
    /// Carries out a call whose record this is, where an origin is served.
    ///
    /// # Errors
    /// It waits for nothing: this is what becomes of it.
    pub fn begin(&self, request: &Request<'_>, head: &[u8]) -> Result<Pending, Outcome> {
        let mut inquiry = Inquiry::default();
        let outcome = self.carry_out(request, &mut inquiry);
        self.tell(&mut inquiry);
        match outcome {
            Outcome::Asks(ask) => self.ask(ask, inquiry, head.into(), None),
            outcome => Err(outcome),
        }
    }

    /// A call goes on with an answer.
    ///
    /// # Errors
    /// As above.
    pub fn go_on(&self, pending: Pending, answer: Done) -> Result<Pending, Outcome> {
        let Pending {
            head,
            mut inquiry,
            _charge: charge,
            ..
        } = pending;
        let next = match &self.hands.served.origin {
            Some(origin) => inquiry.hear(answer, origin),
            None => None,
        };
        self.tell(&mut inquiry);
        if let Some(ask) = next {
            return self.ask(ask, inquiry, head, Some(charge));
        }
        let record = Record {
            head: &head,
            cut: false,
        };
        let outcome = match nfs3::parse(&record) {
            Ok(request) => self.carry_out(&request, &mut inquiry),
            Err(_) => Outcome::Cold, // it was parsed before
        };
        match outcome {
            Outcome::Asks(ask) => self.ask(ask, inquiry, head, Some(charge)),
            outcome => Err(outcome),
        }
    }

    fn tell(&self, inquiry: &mut Inquiry) {
        if let Some((path, why)) = inquiry.told.take() {
            let path = String::from_utf8_lossy(&path);
            let seldom = &self.hands.shared.seldom;
            let text = format_args!("NFS: {why}");
            seldom.tell(Topic::Unkept, Some(&path), text, self.now);
        }
    }

    fn carry_out(&self, request: &Request<'_>, inquiry: &mut Inquiry) -> Outcome {
        let from = From {
            addr: self.from,
            stream: self.stream,
            inquiry,
        };
        let outcome = self.hands.served.inquire(request, from);
        outcome.unwrap_or(Outcome::Cold)
    }

    /// Asks, within the bounds of what may be asked; beyond them the client is told to try again.
    fn ask(
        &self,
        ask: Ask,
        inquiry: Inquiry,
        head: Box<[u8]>,
        charge: Option<Charge>,
    ) -> Result<Pending, Outcome> {
        let served = &self.hands.served;
        let asked = served.origin.as_ref().and_then(|origin| {
            let charge = charge.or_else(|| origin.charge(head.len() + size_of::<Pending>()))?;
            Some((charge, origin.gateway.ask(self.stream, ask)?))
        });
        let Some((charge, job)) = asked else {
            let record = Record {
                head: &head,
                cut: false,
            };
            let request = nfs3::parse(&record);
            return Err(request.map_or(Outcome::Cold, |request| served.put_off(&request)));
        };
        Ok(Pending {
            head,
            inquiry,
            _charge: charge,
            _job: job,
        })
    }
}
