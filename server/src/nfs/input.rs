//! What a client has sent: takes one call after the other from its socket.

use ackpace_core::nfs::Received;
use ackpace_wire::nfs3::{self, Args, Asked, MountArgs, Request};
use ackpace_wire::rpc::{Incoming, Next, NoCall, Record};

use crate::limits::{NFS_INPUT_BYTES_MAX, NFS_REPLY_BYTES};
use crate::transport::Transport;

/// The input of a connection.
pub struct Input {
    incoming: Incoming,
    /// Bytes that were received and not taken: those from `taken` on.
    bytes: Vec<u8>,
    taken: usize,
}

impl Default for Input {
    fn default() -> Input {
        Input {
            incoming: Incoming::new(nfs3::payload),
            bytes: Vec::new(),
            taken: 0,
        }
    }
}

impl Input {
    /// The call that was received last.
    pub fn record(&self) -> Record<'_> {
        self.incoming.record()
    }

    /// Takes a call, and drops what a WRITE brings. `room` is memory for a moment.
    ///
    /// # Errors
    /// The connection is dead.
    pub fn receive(
        &mut self,
        transport: &Transport,
        room: &mut [u8],
    ) -> rustix::io::Result<Received> {
        loop {
            if self.taken == self.bytes.len() {
                match self.fill(transport, room) {
                    Ok(0) => return Ok(Received::End),
                    Ok(_) => {}
                    Err(rustix::io::Errno::AGAIN) => {
                        self.bytes = Vec::new();
                        self.taken = 0;
                        return Ok(Received::Nothing);
                    }
                    Err(error) => return Err(error),
                }
            }
            match self.feed() {
                Ok(true) => return Ok(self.received()),
                Ok(false) => {}
                Err(_) => return Ok(Received::Broken),
            }
        }
    }

    fn fill(&mut self, transport: &Transport, room: &mut [u8]) -> rustix::io::Result<usize> {
        let room_bytes = room.len().min(NFS_INPUT_BYTES_MAX);
        let came = transport.receive(&mut room[..room_bytes])?;
        self.bytes.clear();
        self.bytes.extend_from_slice(&room[..came]);
        self.taken = 0;
        Ok(came)
    }

    /// Takes bytes from those that were received. Returns whether a record is complete.
    fn feed(&mut self) -> Result<bool, ackpace_wire::rpc::BadStream> {
        let (taken, next) = self.incoming.feed(&self.bytes[self.taken..])?;
        self.taken += taken;
        let next = match next {
            Next::Payload { len_bytes } => {
                let here = self.bytes.len() - self.taken;
                let dropped = here.min(len_bytes as usize);
                self.taken += dropped;
                self.incoming.took_payload(dropped as u32) // at most `len_bytes`
            }
            next => next,
        };
        Ok(next == Next::Record)
    }

    /// A record is complete.
    fn received(&self) -> Received {
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
