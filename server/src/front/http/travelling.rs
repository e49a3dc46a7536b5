//! The input and the records of a connection that goes to another node, or comes from one.

use ackpace_wire::access_log;
use ackpace_wire::cluster;
use ackpace_wire::limits::HEAD_BYTES_MAX;

use super::{Front, HeadBuffer, NOTED_BYTES};
use crate::log::RequestText;

impl Front {
    /// Memory of the record for the access log of the request that was planned last, if there is one.
    pub fn record_bytes(&self, nth: u16) -> Option<u64> {
        let noted = self.records.back().filter(|noted| noted.nth == nth)?;
        Some(NOTED_BYTES + noted.request.held_bytes())
    }

    /// The response that was planned last is not sent here: the log has nothing of it.
    pub fn unplanned(&mut self, nth: u16) {
        self.records.retain(|noted| noted.nth != nth);
    }

    /// The input of a connection that comes from another node: what its client has sent and nobody has parsed, and the record of the
    /// response under way.
    pub fn arrived(unparsed: &[u8], nth: u16, record: Option<&cluster::Record>) -> Front {
        let mut front = Front::default();
        if !unparsed.is_empty() {
            let buffer: &mut HeadBuffer = front
                .buffer
                .get_or_insert_with(|| Box::new([0; HEAD_BYTES_MAX]));
            let len = unparsed.len().min(HEAD_BYTES_MAX);
            buffer[..len].copy_from_slice(&unparsed[..len]);
            front.end = len;
        }
        if let Some(record) = record {
            let [method, target, version] = &record.line;
            let [range, referer, user_agent] = &record.fields;
            let text = access_log::RequestText {
                method,
                target,
                version,
                range: range.as_deref(),
                referer: referer.as_deref(),
                user_agent: user_agent.as_deref(),
                brief: record.brief,
            };
            front.recorded(nth, record.status, Some(RequestText::new(&text, u64::MAX)));
        }
        front
    }

    /// The record of that response, for another node.
    pub fn travelling(&self, nth: u16) -> Option<cluster::Record> {
        let noted = self.records.iter().find(|noted| noted.nth == nth)?;
        let text = noted.request.as_wire();
        Some(cluster::Record {
            status: noted.status,
            line: [text.method, text.target, text.version].map(<[u8]>::to_vec),
            fields: [text.range, text.referer, text.user_agent]
                .map(|field| field.map(<[u8]>::to_vec)),
            brief: text.brief,
        })
    }
}
