//! What a client has sent: takes one call after the other from its socket, and what a WRITE brings to where it stays.

use ackpace_core::nfs::Received;
use ackpace_wire::nfs3::{self, Args, Asked, MountArgs, Request, Write};
use ackpace_wire::rpc::{BadStream, Incoming, Next, NoCall, Record};
use rustix::io::Errno;

use super::room::{Payload, Room};
use crate::limits::{NFS_INPUT_BYTES_MAX, NFS_REPLY_BYTES, NFS_STALL_BYTES};
use crate::transport::Transport;

/// The input of a connection.
pub struct Input {
    incoming: Incoming,
    /// Bytes that were received and not taken: those from `taken` on.
    bytes: Vec<u8>,
    taken: usize,
    payload: Coming,
    /// Memory for payload of this connection.
    room: Room,
    /// It can't go on for lack of memory for payload.
    is_full: bool,
    /// Bytes of payload that have come, and [`NFS_STALL_BYTES`] for each payload that came whole.
    progress_bytes: u64,
}

/// The payload of the record that comes.
#[derive(Default)]
enum Coming {
    /// It has not begun.
    #[default]
    Unknown,
    /// It is dropped.
    Dropped,
    /// It is received.
    Taken(Payload),
}

/// What takes payload, besides a connection.
pub struct Taker<'a> {
    /// Whether the payload of a WRITE is to be received.
    pub takes: &'a dyn Fn(&Write<'_>) -> bool,
    /// Memory for all connections of the thread.
    pub room: &'a Room,
}

/// How far a step has come.
enum Step {
    /// There is more to take.
    On,
    /// The record is complete.
    Record,
    /// It ends here for now.
    Until(Received),
}

impl Default for Input {
    fn default() -> Input {
        Input {
            incoming: Incoming::new(nfs3::payload),
            bytes: Vec::new(),
            taken: 0,
            payload: Coming::Unknown,
            room: Room::of_connection(),
            is_full: false,
            progress_bytes: 0,
        }
    }
}

impl Input {
    /// The call that was received last.
    pub fn record(&self) -> Record<'_> {
        self.incoming.record()
    }

    /// What that call has brought.
    pub fn take_payload(&mut self) -> Option<Payload> {
        match std::mem::take(&mut self.payload) {
            Coming::Taken(payload) => {
                self.progress_bytes += NFS_STALL_BYTES;
                Some(payload)
            }
            Coming::Unknown | Coming::Dropped => None,
        }
    }

    /// Whether memory is held for payload that has not come.
    pub fn is_amid_payload(&self) -> bool {
        matches!(self.payload, Coming::Taken(_))
    }

    /// How much payload has come. It rises by [`NFS_STALL_BYTES`] at least from one payload to the next.
    pub fn progress_bytes(&self) -> u64 {
        self.progress_bytes
    }

    /// Whether it goes on when there is room for payload.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes a call, with what a WRITE brings. `memory` is for a moment.
    ///
    /// # Errors
    /// The connection is dead.
    pub fn receive(
        &mut self,
        transport: &Transport,
        memory: &mut [u8],
        taker: &Taker<'_>,
    ) -> rustix::io::Result<Received> {
        self.is_full = false;
        loop {
            let step = match self.feed() {
                Err(_) => return Ok(Received::Broken),
                Ok(Next::Record) => Step::Record,
                Ok(Next::Payload { len_bytes }) => {
                    self.payload_step(len_bytes, transport, memory, taker)?
                }
                Ok(Next::More) => self.fill(transport, memory)?,
            };
            match step {
                Step::On => {}
                Step::Record => return Ok(self.received()),
                Step::Until(received) => return Ok(received),
            }
        }
    }

    /// Takes bytes from those that were received.
    fn feed(&mut self) -> Result<Next, BadStream> {
        let (taken, next) = self.incoming.feed(&self.bytes[self.taken..])?;
        self.taken += taken;
        Ok(next)
    }

    /// Receives more bytes; all were taken.
    fn fill(&mut self, transport: &Transport, memory: &mut [u8]) -> rustix::io::Result<Step> {
        let len = memory.len().min(NFS_INPUT_BYTES_MAX);
        match transport.receive(&mut memory[..len]) {
            Ok(0) => Ok(Step::Until(Received::End)),
            Ok(came) => {
                self.bytes.clear();
                self.bytes.extend_from_slice(&memory[..came]);
                self.taken = 0;
                Ok(Step::On)
            }
            Err(Errno::AGAIN) => {
                self.bytes = Vec::new();
                self.taken = 0;
                Ok(Step::Until(Received::Nothing))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes some of so many bytes of payload: first what was received with the head, then from the socket.
    fn payload_step(
        &mut self,
        len_bytes: u32,
        transport: &Transport,
        memory: &mut [u8],
        taker: &Taker<'_>,
    ) -> rustix::io::Result<Step> {
        if matches!(self.payload, Coming::Unknown) {
            match self.begin_payload(taker) {
                Some(payload) => self.payload = payload,
                None => {
                    self.is_full = true;
                    return Ok(Step::Until(Received::Nothing));
                }
            }
        }
        let here = &self.bytes[self.taken..];
        let here = &here[..here.len().min(len_bytes as usize)];
        let came = match &mut self.payload {
            Coming::Taken(payload) if here.is_empty() => {
                match transport.receive(payload.rest(len_bytes)) {
                    Ok(0) => return Ok(Step::Until(Received::End)),
                    Ok(came) => {
                        payload.came(came);
                        came
                    }
                    Err(Errno::AGAIN) => return Ok(Step::Until(Received::Nothing)),
                    Err(error) => return Err(error),
                }
            }
            Coming::Taken(payload) => {
                payload.rest(here.len() as u32).copy_from_slice(here); // at most `len_bytes`
                payload.came(here.len());
                self.taken += here.len();
                here.len()
            }
            _ if here.is_empty() => return self.fill(transport, memory),
            _ => {
                self.taken += here.len();
                here.len()
            }
        };
        self.progress_bytes += came as u64;
        Ok(match self.incoming.took_payload(came as u32) {
            Next::Record => Step::Record,
            Next::More | Next::Payload { .. } => Step::On,
        })
    }

    /// What becomes of payload that begins; `None`: there is no memory for it.
    fn begin_payload(&self, taker: &Taker<'_>) -> Option<Coming> {
        let request = nfs3::parse(&self.record());
        match request.map(|request| request.asked) {
            Ok(Asked::Nfs(Args::Write(write))) if (taker.takes)(&write) => {
                let payload = Payload::new(write.payload_bytes, taker.room, &self.room);
                payload.map(Coming::Taken)
            }
            _ => Some(Coming::Dropped),
        }
    }

    /// A record is complete.
    fn received(&mut self) -> Received {
        if matches!(self.payload, Coming::Dropped) {
            self.payload = Coming::Unknown;
        }
        match nfs3::parse(&self.record()) {
            Ok(request) => Received::Call {
                reply_bytes_max: request.asked.reply_bytes_max(),
            },
            Err(NoCall::Refused { .. }) => Received::Call {
                reply_bytes_max: NFS_REPLY_BYTES,
            },
            Err(NoCall::Alien) => Received::Broken,
        }
    }
}

/// Whether the results of a request begin with a status.
pub fn has_status(request: &Request<'_>) -> bool {
    match request.asked {
        Asked::Nfs(args) => !matches!(args, Args::Null),
        Asked::Mount(args) => matches!(args, MountArgs::Mount(_)),
    }
}
