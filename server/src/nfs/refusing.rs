//! READs whose bytes can't be had: they say so, or come through the mount.

use std::sync::Arc;

use ackpace_core::machine::Machine;
use ackpace_core::nfs::{CallId, In};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;

use super::conn::{Conn, whole, with_payload};
use super::hands::Hands;
use super::sending::Reply;
use crate::log::Topic;
use crate::source::Source;
use crate::unit::Fallback;

impl Conn {
    /// A READ whose bytes can't be read says so, or is carried out through the mount.
    pub(super) fn refuse(&mut self, id: CallId, why: Why, hands: &Hands, now: Instant) {
        if why == Why::FileChanged && self.goes_through_mount(id, now) {
            return;
        }
        if let Some(payload) = self.payload(id).filter(|_| why == Why::ReadFailed) {
            let file = hands.shared.site.shown_source(&payload.source);
            let offset_bytes = payload.span.offset_bytes;
            let cure = match &payload.source {
                Source::Blocks(_) => "The log tells of the iSCSI target",
                Source::File(_) | Source::Object(_) => "Look at the disk (dmesg)",
            };
            let text = format_args!(
                "an NFS client's READ at offset_bytes={offset_bytes} failed, and it is told EIO. {cure}"
            );
            let seldom = &hands.shared.seldom;
            seldom.tell(Topic::Unreadable, Some(&file), text, now);
        }
        let mut head = Vec::new();
        hands.served.refuse_read(self.call(id).xid, why, &mut head);
        let (reply, answer) = whole(head);
        self.call(id).reply = Some(reply);
        self.machine.on(In::Resolved { call: id, answer }, now);
    }

    /// The bytes of a READ can't be had from the unit: if no byte of its reply has left, they come through the mount. `false`: they
    /// were not to come from there.
    fn goes_through_mount(&mut self, id: CallId, now: Instant) -> bool {
        let reply = self.call(id).reply.take();
        let Some(Reply {
            head,
            payload: Some(payload),
        }) = reply
        else {
            self.call(id).reply = reply;
            return false;
        };
        let Source::Blocks(blocks) = &payload.source else {
            let payload = Some(payload);
            self.call(id).reply = Some(Reply { head, payload });
            return false;
        };
        blocks.unit.tally.fell_back(Fallback::Changed);
        let (source, span) = (Source::File(Arc::clone(&blocks.file)), payload.span);
        self.reads(&source);
        let (pad_bytes, file_len_bytes) = (payload.pad_bytes, payload.file_len_bytes);
        let (reply, answer) = with_payload(head, source, (span, pad_bytes), file_len_bytes);
        self.call(id).reply = Some(reply);
        self.machine.on(In::Resolved { call: id, answer }, now);
        true
    }
}
