//! What a server asks of the broker on its machine, `ackpace-host handoff`, and the answers. The broker has the rights that it
//! takes to move a connection, and decides nothing.
//!
//! They talk by datagrams (unix(7), SOCK_SEQPACKET): one for each question, one for each answer, which has the question's
//! number. A socket travels beside some ([`Request::has_socket`], [`Reply::has_socket`]) as a descriptor (SCM_RIGHTS).
//! Both run on one machine.
//!
//! A connection moves so: [`Request::Freeze`] at its owner, [`Request::Restore`] at the new owner, which fills the socket with
//! `snd_una..snd_nxt` and then sends [`Request::Start`], and [`Request::Redirect`] at the old one; or [`Request::Thaw`].

mod codec;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use super::{Congestion, Tcp, Tuple};

pub use self::codec::{encode_reply, encode_request, parse_reply, parse_request};

/// The version of these messages. The first question and its answer have the same form in all versions.
pub const VERSION: u16 = 1;

/// SO_PRIORITY (socket(7)) of a guest's socket whose server ends the connection in order. The switch lets FIN of such a socket
/// pass, and no other FIN or RST of a guest: those are what the kernel sends when a process has died. Any process may set it, and
/// nothing else does.
pub const FAREWELL_PRIORITY: i32 = 5;

/// A connection as it was frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its ends.
    pub tuple: Tuple,
    /// Its state.
    pub tcp: Tcp,
    /// Its path.
    pub congestion: Congestion,
    /// Bytes of the client that wait in the socket.
    pub received: Vec<u8>,
}

/// How long a guest may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Of this connection.
    pub tuple: Tuple,
    /// In this tenure.
    pub epoch: u32,
    /// Until then, by CLOCK_MONOTONIC.
    pub until_ns: u64,
}

/// What a server asks. Where a socket travels beside, the request is about its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who is there? First on each stream.
    Hello {
        /// The server's [`VERSION`].
        version: u16,
    },
    /// Hold the client's packets and save this socket's connection, which sends nothing from then on. A refusal leaves it as it
    /// was.
    Freeze {
        /// Of the tenure that begins. A lower one than known is refused.
        epoch: u32,
        /// SND.UNA when this node restored the connection: what lies below is acknowledged, whatever the socket counts.
        una_floor: Option<u32>,
    },
    /// Let the frozen socket go on as before.
    Thaw,
    /// Make a socket of this connection. It is to be filled with `snd_una..snd_nxt`, and sends nothing.
    Restore {
        /// Of the tenure.
        epoch: u32,
        /// The connection.
        connection: Box<Connection>,
    },
    /// The socket is filled: let the client's packets come here, and send.
    Start {
        /// Of the tenure.
        epoch: u32,
        /// The lease of a guest, by CLOCK_MONOTONIC; `None` at home.
        lease_until_ns: Option<u64>,
    },
    /// Send the client's packets of the frozen socket's connection to this peer from now on, those held first. The server
    /// closes the socket then, of which the client hears nothing.
    Redirect {
        /// Of the tenure.
        epoch: u32,
        /// Its place in [`Hello::peers`].
        peer: u16,
    },
    /// Longer leases; those of connections that are not here are ignored.
    Lease(Vec<Lease>),
    /// Drop what the client sends and keep its highest acknowledgement.
    Fence {
        /// Of this connection.
        tuple: Tuple,
        /// Of the tenure that is to end.
        epoch: u32,
    },
    /// What has the client acknowledged?
    Track(Tuple),
    /// The connection is over; its last packets go where they went for two more seconds.
    Forget(Tuple),
}

/// Who a broker is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The broker's [`VERSION`].
    pub version: u16,
    /// Its own name.
    pub node: String,
    /// Addresses that all nodes have.
    pub vips: Vec<IpAddr>,
    /// Ports of the connections that it moves.
    pub ports: Vec<u16>,
    /// Names of the other nodes.
    pub peers: Vec<String>,
}

/// What a broker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Who it is.
    Hello(Hello),
    /// The frozen connection, of which the last so many bytes that the server has written were not sent.
    Saved {
        /// The connection.
        connection: Box<Connection>,
        /// Bytes behind `snd_nxt`.
        unsent_bytes: u32,
    },
    /// The socket of [`Request::Restore`].
    Restored,
    /// That is done.
    Done,
    /// [`Request::Redirect`] is done, and so many packets were held.
    Redirected {
        /// Packets.
        held: u32,
    },
    /// The client's highest acknowledgement and the end of what it has sent; `None`: no packet was seen.
    Tracked(Option<Tracked>),
    /// It is not done.
    Failed {
        /// errno of the system call that failed, or 0.
        errno: i32,
        /// Why.
        text: String,
    },
}

/// What a client's packets tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// Its highest acknowledgement.
    pub ack: u32,
    /// Behind its last byte.
    pub seq_end: u32,
    /// Behind the last byte that it holds, above holes too.
    pub held_end: u32,
}

impl Request {
    /// Whether a socket travels beside.
    pub fn has_socket(&self) -> bool {
        use Request::{Freeze, Redirect, Start, Thaw};
        matches!(self, Freeze { .. } | Thaw | Start { .. } | Redirect { .. })
    }
}

impl Reply {
    /// Whether a socket travels beside.
    pub fn has_socket(&self) -> bool {
        *self == Reply::Restored
    }
}
