//! The counters of one NFS thread: only it writes them, any thread may read them at any time.

use std::sync::Arc;

use crate::answers::NfsRow;
use crate::count::Count;

/// What became of a call: the index in [`Tally::calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It succeeded.
    Ok,
    /// NFS or MOUNT says why not: NFS3ERR_NOENT and the like.
    Failed,
    /// RPC says why not: a wrong program, arguments that can't be read.
    Refused,
}

/// Behind mark, number and direction of a reply: whether it was accepted.
const OF_RPC: usize = 12;
/// Behind the verifier: what came of it.
const ACCEPTED: usize = 24;

fn word(reply: &[u8], at: usize) -> Option<u32> {
    let bytes = reply.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_be_bytes)
}

fn is_accepted(reply: &[u8]) -> bool {
    word(reply, OF_RPC) == Some(0) && word(reply, ACCEPTED) == Some(0)
}

/// The status of NFS or MOUNT in a reply whose results begin with one; `None`: RPC has refused the call.
pub fn status_of(reply: &[u8]) -> Option<u32> {
    is_accepted(reply).then(|| word(reply, ACCEPTED + 4))?
}

impl Ended {
    pub const NAMES: [&'static str; 3] = ["ok", "failed", "refused"];

    /// What a reply says. `has_status`: its results begin with a status, as those of all procedures but a few do.
    pub fn of(reply: &[u8], has_status: bool) -> Ended {
        match () {
            () if !is_accepted(reply) => Ended::Refused,
            () if has_status && status_of(reply) != Some(0) => Ended::Failed,
            () => Ended::Ok,
        }
    }
}

/// How bytes get into a socket: the index in [`Tally::sent_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Made for this reply: heads, attributes, listings.
    Made,
    /// Payload by sendfile(2), which copies nothing.
    Sendfile,
    /// Payload through our own memory: the two copies of read(2) and send(2).
    Copied,
    /// Payload from a gateway's slab.
    Slab,
}

impl Path {
    pub const NAMES: [&'static str; 4] = ["made", "sendfile", "copied", "slab"];
}

/// The counters of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Tally {
    pub accepted: Count,
    pub connections: Count,
    /// Connections that could not be accepted, or were closed to make room.
    pub shed: Count,
    /// Calls by [`Ended`].
    pub calls: [Count; Ended::NAMES.len()],
    /// READs whose payload was not in memory.
    pub missed: Count,
    /// Payload of WRITEs that succeeded.
    pub written_bytes: Count,
    pub sent_bytes: [Count; Path::NAMES.len()],
}

/// The threads of NFS, for `ackpace top`.
pub fn rows(tallies: &[Arc<Tally>]) -> Vec<NfsRow> {
    let rows = (0..).zip(tallies).map(|(thread, tally)| NfsRow {
        thread,
        connections: tally.connections.get(),
        calls: tally.calls.iter().map(Count::get).sum(),
        missed_reads: tally.missed.get(),
        sent_bytes: tally.sent_bytes.iter().map(Count::get).sum(),
        written_bytes: tally.written_bytes.get(),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use ackpace_wire::nfs3::{Results, Status, reply};
    use ackpace_wire::rpc::{Refusal, refuse};

    use super::*;

    #[test]
    fn a_reply_tells_what_became_of_its_call() {
        let of = |results: &Results<'_>, has_status| {
            let mut to = Vec::new();
            reply(7, results, &mut to);
            Ended::of(&to, has_status)
        };
        assert_eq!(of(&Results::Null, false), Ended::Ok);
        assert_eq!(of(&Results::Access(Ok(1), None), true), Ended::Ok);
        assert_eq!(
            of(&Results::GetAttr(Err(Status::Stale)), true),
            Ended::Failed
        );
        for why in [Refusal::GarbageArgs, Refusal::RpcMismatch] {
            let mut to = Vec::new();
            refuse(7, why, &mut to);
            assert_eq!(Ended::of(&to, true), Ended::Refused);
        }
    }
}
