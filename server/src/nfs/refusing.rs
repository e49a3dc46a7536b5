//! READs whose bytes can't be had: they say so, or come through the mount.

use std::sync::Arc;

use ackpace_core::machine::Machine;
use ackpace_core::nfs::{CallId, In};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_wire::nfs3::{Asked, MountArgs, Request, Status};

use super::conn::{Conn, whole, with_payload};
use super::hands::Hands;
use super::outcome::Outcome;
use super::sending::Reply;
use crate::log::Topic;
use crate::nfs_tally::status_of;
use crate::source::Source;
use crate::unit::Fallback;

impl Conn {
    /// Tells the operator of a mount that is refused, and why.
    pub(super) fn tell_refused_mount(
        &self,
        request: &Request<'_>,
        outcome: &Outcome,
        hands: &Hands,
        now: Instant,
    ) {
        let (Asked::Mount(MountArgs::Mount(path)), Outcome::Reply(head)) =
            (&request.asked, outcome)
        else {
            return;
        };
        let Some(status @ 1..) = status_of(head) else {
            return;
        };
        let (client, path) = (self.from.ip(), path.escape_ascii());
        let why = match status {
            _ if status == Status::Acces as u32 => "nfs_export gives it to others",
            _ if status == Status::NoEnt as u32 => {
                "no nfs_export names it, or there is no such folder"
            }
            _ => "it is no folder, or can't be opened",
        };
        let text = format_args!("NFS: {client} may not mount {path}: {why}");
        let seldom = &hands.shared.seldom;
        seldom.tell(Topic::Mount, None, text, now);
    }

    /// Tells the operator that a client is told EIO.
    pub(super) fn tell_eio(&self, head: &[u8], hands: &Hands, now: Instant) {
        let writes = hands.served.writing.is_some();
        if writes && status_of(head) == Some(Status::Io as u32) {
            let text = format_args!(
                "an NFS client is told EIO: what it wrote may not be on the disk. Look at the disk (dmesg), and at the log of ackpace-host \
                 gateway if it is a target's"
            );
            hands.shared.seldom.tell(Topic::Unreadable, None, text, now);
        }
    }

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
