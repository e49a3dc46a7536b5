//! What the access log says of a response, once it is settled.

use ackpace_core::worker::Outcome;
use ackpace_wire::access_log::{self, Remote, Sender};

use super::{Ended, Front, Noted, RECORDS_COMMON};
use crate::clock::unix_ms;
use crate::cluster::By;
use crate::log::Record;

impl Front {
    /// By what this node has the bytes of that response, if the log has it.
    pub fn sent_by(&mut self, nth: u16, by: By) {
        if let Some(noted) = self.records.back_mut().filter(|noted| noted.nth == nth) {
            noted.by = by;
        }
    }

    /// The log record of a response that is settled: it arrived, or failed to. `node`: the name of this one in its cluster, and how
    /// often the connection has moved.
    pub fn record<'a>(
        &mut self,
        nth: u16,
        remote: Remote,
        outcome: &Outcome,
        node: Option<(&'a str, u32)>,
    ) -> Option<Record<'a>> {
        let at = self.records.iter().position(|noted| noted.nth == nth)?;
        let Noted {
            status,
            cache,
            by,
            request,
            ended,
            ..
        } = *self.records.remove(at)?;
        if self.records.is_empty() {
            self.records.shrink_to(RECORDS_COMMON);
        }
        let ended = ended.unwrap_or_else(|| Ended {
            unix_ms: unix_ms(),
            later_us: 0,
        });
        let outcome = access_log::Outcome {
            time_unix_ms: i64::try_from(ended.unix_ms).unwrap_or(i64::MAX),
            remote,
            status,
            bytes_sent: outcome.sent_bytes,
            bytes_acked: (remote != Remote::Unix).then_some(outcome.acked_bytes),
            waited_disk_us: outcome.waited_disk_us,
            waited_net_us: outcome.waited_net_us,
            duration_us: outcome.took_us.saturating_add(ended.later_us).max(1),
            why: (!outcome.whole).then(|| outcome.why.name()),
            cache,
            sender: node.map(|(node, moves)| Sender {
                node,
                by: by.name(),
                moves,
            }),
        };
        Some(Record { request, outcome })
    }
}
