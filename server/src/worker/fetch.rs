//! Requests to a gateway: what is known is answered at once, and the rest is asked of the upstream's thread.

use ackpace_core::conn::StreamId;
use ackpace_core::units::Instant;
use ackpace_wire::http::caching::varies_for;

use super::Worker;
use crate::clock::unix_ms;
use crate::front::fetching::asked_of;
use crate::front::http::Front;
use crate::front::site::SiteAnswer;
use crate::gateway::{Ask, Asked, Found, Gateway, How, LookUp};

/// Whether the present request would get another response than one without its fields, by these values of Vary.
pub(super) fn varies(front: &Front, vary: &[u8]) -> bool {
    let request = front.request();
    request.is_ok_and(|request| varies_for(std::iter::once(vary), &request))
}

/// The question to an origin for the present request, for its client alone.
fn private(front: &Front, gateway: &Gateway) -> Option<Asked> {
    let request = front.request().ok()?;
    let asked = asked_of(&request, front.head(), gateway).ok()?;
    Some(Asked {
        private: true,
        ..asked
    })
}

impl Worker {
    /// Finds what an origin has for the request just received.
    pub(super) fn fetch(&mut self, stream: StreamId, asked: Asked, now: Instant) {
        let Some(gateway) = self.shared.site.gateway.clone() else {
            return;
        };
        let only_if_cached = asked.only_if_cached;
        let known = match asked.private {
            true => LookUp::Passes,
            false => gateway.catalog.look_up(&asked.target, unix_ms() / 1000),
        };
        if only_if_cached && !matches!(known, LookUp::Fresh(_) | LookUp::Stale(_, true)) {
            return self.answer(stream, SiteAnswer::NotCached, now);
        }
        let (object, how) = match known {
            LookUp::Fresh(object) => {
                let how = object.met(asked.hint);
                (object, how)
            }
            LookUp::Stale(object, true) => {
                // Nobody waits for the answer.
                drop(gateway.ask(stream, Ask::Refresh(asked.target)));
                (object, How::Stale)
            }
            LookUp::Passes => {
                let asked = Asked {
                    private: true,
                    ..asked
                };
                return self.ask_upstream(stream, asked, now);
            }
            LookUp::Stale(_, false) | LookUp::Unknown => {
                return self.ask_upstream(stream, asked, now);
            }
        };
        let found = Found {
            validity: object.validity(),
            object,
            how,
            collapsed: false,
        };
        self.answer(stream, SiteAnswer::Object(found), now);
    }

    /// Asks for the present request for its client alone.
    pub(super) fn fetch_alone(&mut self, stream: StreamId, now: Instant) {
        let gateway = self.shared.site.gateway.clone();
        let (Some(conn), Some(gateway)) = (self.conns.get(stream.conn), gateway) else {
            return;
        };
        if let Some(asked) = private(&conn.front, &gateway) {
            self.ask_upstream(stream, asked, now);
        }
    }

    fn ask_upstream(&mut self, stream: StreamId, asked: Asked, now: Instant) {
        let shared = std::sync::Arc::clone(&self.shared);
        let (Some(gateway), Some(conn)) = (&shared.site.gateway, self.conns.get(stream.conn))
        else {
            return;
        };
        conn.job = gateway.ask(stream, Ask::Open(asked));
        if conn.job.is_none() {
            self.answer(stream, SiteAnswer::Crowded, now);
        }
    }
}
