//! WRITE and COMMIT: payload that was received into memory goes to the page cache by pwrite(2), from a descriptor that the broker has
//! opened with the caller's rights.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ackpace_wire::files::{For, Operation};
use ackpace_wire::nfs3::{Handle, Kind, Results, Stable, Status, Write, Written, reply};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pwritev2};

use super::broker::{Told, status_of};
use super::call::There;
use super::changing::Work;
use super::fail::Fail;
use super::writers::Writable;

impl Work<'_> {
    /// WRITE.
    pub fn write(self, write: &Write<'_>, payload: &[u8], to: &mut Vec<u8>) -> Result<(), Fail> {
        let there = self.call.find(write.file)?;
        is_regular(&there)?;
        if write.len_bytes != write.payload_bytes || payload.len() != write.len_bytes as usize {
            return Err(Fail::Is(Status::Inval));
        }
        let changing = self.begin(&there.node);
        let written = self.open(&there).and_then(|file| {
            let len_bytes = put(&file.file, write.offset_bytes, payload, write.stable)?;
            Ok(Written {
                len_bytes,
                stable: write.stable,
                verifier: file.verifier(self.writing.verifier),
            })
        });
        let written = match written {
            Ok(written) => Ok(written),
            Err(Fail::Is(status)) => Err(status),
            Err(Fail::Cold) => return Err(Fail::Cold),
        };
        reply(self.call.xid, &Results::Write(written, changing.end()), to);
        Ok(())
    }

    /// COMMIT: all of the file, whatever part is asked for.
    pub fn commit(self, file: Handle<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
        let there = self.call.find(file)?;
        is_regular(&there)?;
        let changing = self.begin(&there.node);
        let file = match self.open(&there) {
            Ok(file) => Ok(file),
            Err(Fail::Is(status)) => Err(status),
            Err(Fail::Cold) => return Err(Fail::Cold),
        };
        let committed = file.and_then(|file| {
            synced(&file.file)?;
            Ok(file.verifier(self.writing.verifier))
        });
        let results = Results::Commit(committed, changing.end());
        reply(self.call.xid, &results, to);
        Ok(())
    }

    /// The file, open for writing by its caller.
    fn open(self, there: &There<'_>) -> Result<Arc<Writable>, Fail> {
        let (identity, caller, told) = (&there.node.identity, &there.caller, &there.node.told);
        let writers = &self.writing.writers;
        if let Some(file) = writers.get(identity, caller, told) {
            return Ok(file);
        }
        let mut nodes = [there.node.clone()];
        let opened = self.ask(there, &mut nodes, |nodes| {
            Operation::Open(nodes[0].known(), For::Writing)
        })?;
        match opened {
            Told::Opened(file) => Ok(writers.keep(identity, caller, told, file)),
            _ => Err(Fail::Is(Status::ServerFault)),
        }
    }
}

fn is_regular(there: &There<'_>) -> Result<(), Fail> {
    match there.node.kind() {
        Kind::Regular => Ok(()),
        Kind::Folder => Err(Fail::Is(Status::IsDir)),
        _ => Err(Fail::Is(Status::Inval)),
    }
}

/// Writes all, or as much as there is room for. How much.
fn put(file: &OwnedFd, offset_bytes: u64, payload: &[u8], stable: Stable) -> Result<u32, Status> {
    let end_bytes = offset_bytes.checked_add(payload.len() as u64);
    if end_bytes.is_none_or(|end_bytes| i64::try_from(end_bytes).is_err()) {
        return Err(Status::FBig);
    }
    let flags = match stable {
        Stable::Unstable => ReadWriteFlags::empty(),
        Stable::DataSync => ReadWriteFlags::DSYNC,
        Stable::FileSync => ReadWriteFlags::SYNC,
    };
    let mut at = 0;
    while at < payload.len() {
        let rest = [IoSlice::new(&payload[at..])];
        match pwritev2(file, &rest, offset_bytes + at as u64, flags) {
            Ok(0) => break,
            Ok(taken) => at += taken,
            Err(Errno::INTR) => {}
            Err(_) if at > 0 => break, // the client writes the rest, and hears why that fails
            Err(error) => return Err(status_of(error)),
        }
    }
    match at {
        0 if !payload.is_empty() => Err(Status::NoSpc),
        _ => Ok(at as u32), // at most a payload
    }
}

fn synced(file: &OwnedFd) -> Result<(), Status> {
    loop {
        match rustix::fs::fdatasync(file) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(status_of(error)),
        }
    }
}
