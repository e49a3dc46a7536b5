//! READ: which bytes of which file its reply has. They leave from there without a copy here.

use std::sync::Arc;

use ackpace_core::conn::Span;
use ackpace_wire::limits::RPC_PAYLOAD_BYTES_MAX;
use ackpace_wire::nfs3::{Handle, Kind, Read, Results, Status, reply};

use super::call::Call;
use super::fail::Fail;
use super::outcome::Outcome;
use crate::source::Source;
use crate::store::attributes::known_version;

/// What a READ asks.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Of this file.
    pub file: Handle<'a>,
    /// From this byte on.
    pub offset_bytes: u64,
    /// At most so many.
    pub len_bytes: u32,
}

/// READ.
pub fn read(call: &Call<'_>, asked: &Asked<'_>) -> Result<Outcome, Fail> {
    let there = call.find(asked.file)?;
    match there.node.kind() {
        Kind::Regular => {}
        Kind::Folder => return Err(Fail::Is(Status::IsDir)),
        _ => return Err(Fail::Is(Status::Inval)),
    }
    if !there.caller.may_read_content(&there.node.told) {
        return Err(Fail::Is(Status::Acces));
    }
    let attributes = there.node.attributes();
    let file_len_bytes = attributes.size_bytes;
    let left_bytes = file_len_bytes.saturating_sub(asked.offset_bytes);
    let len_bytes = asked.len_bytes.min(RPC_PAYLOAD_BYTES_MAX);
    let len_bytes = left_bytes.min(len_bytes.into()) as u32; // at most what was asked
    let result = Read {
        len_bytes,
        is_end: u64::from(len_bytes) == left_bytes,
    };
    let mut head = Vec::new();
    let behind = reply(
        call.xid,
        &Results::Read(Ok(result), Some(attributes)),
        &mut head,
    );
    if len_bytes == 0 {
        return Ok(Outcome::Reply(head));
    }
    let file = call.tree.open(&there.node, call.eyes_of(&there))?;
    let source = match &call.tree.site.unit {
        Some(unit) => {
            let told = known_version(&there.node.told);
            match unit.find(file, &told, call.wait).ok_or(Fail::Cold)? {
                Ok(blocks) => Source::Blocks(Arc::new(blocks)),
                Err(file) => Source::File(file),
            }
        }
        None => Source::File(file),
    };
    Ok(Outcome::Read {
        source,
        file_len_bytes,
        span: Span {
            offset_bytes: asked.offset_bytes,
            len_bytes: len_bytes.into(),
        },
        head,
        pad_bytes: behind.pad_bytes,
    })
}
