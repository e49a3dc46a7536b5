//! The messages between the nodes of a cluster, on one stream of bytes for each pair of nodes (DTCP 5.1 sends them over
//! IP, marked by TCP options; here they need no marks). They travel over TLS, which keeps them secret and authentic.
//!
//! A frame is a header of [`HEADER_LEN_BYTES`] and a body, little endian:
//! magic u32, version u16, type u8, flags u8, length of the body u32, flow {home u16, boot nonce u32, number u64}, epoch u32.
//! [`encode`] appends one; [`parse`] takes one from the start of what has been received.
//!
//! The queue for sending does not travel: byte n of a response follows from its plan, so the new owner fills its socket
//! from its own file. [`Message::Prepare`] comes first, and the file is in memory before anything freezes.

pub mod broker;
mod bytes;
pub mod etcd;
mod response;
mod resume;
mod state;
#[cfg(test)]
mod tests;

pub use self::response::{Object, Progress, Record, Response};
pub use self::state::{Congestion, Handoff, Tcp, Tuple};

use self::bytes::{Reader, put_bytes};
use crate::limits::{CLUSTER_BODY_BYTES_MAX, CLUSTER_KEYS_MAX, CLUSTER_NAME_BYTES_MAX};

/// First bytes of a frame: "ACKC".
pub const MAGIC: u32 = u32::from_le_bytes(*b"ACKC");
/// The version that this program speaks. HELLO has the same form in all versions.
pub const VERSION: u16 = 1;
/// Bytes of a frame before its body.
pub const HEADER_LEN_BYTES: usize = 30;

/// A connection of a client, by a name that no other has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The node that accepted it. On the wire: a number of its name, which is the same in all nodes; in a node: its place there.
    pub home: u16,
    /// Drawn when that node's server started.
    pub boot_nonce: u32,
    /// A number that the node never gives twice before its next start.
    pub number: u64,
}

/// A message and the tenure that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The connection. All zero where the message is about none.
    pub flow: FlowId,
    /// Of the guest's tenure: each attempt to move a connection has its own, and a later owner a higher one.
    pub epoch: u32,
    /// The message.
    pub message: Message,
}

/// Why a node refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// It speaks another version, and the requests are relayed.
    Version = 1,
    /// It has no such file, or another version of it.
    Object = 2,
    /// It has no room, or too many connections freeze.
    Busy = 3,
    /// It is being emptied.
    Draining = 4,
    /// The socket could not be restored.
    Restore = 5,
    /// The lease would end too soon.
    Late = 6,
}

impl Reason {
    const ALL: [Reason; 6] = [
        Reason::Version,
        Reason::Object,
        Reason::Busy,
        Reason::Draining,
        Reason::Restore,
        Reason::Late,
    ];

    fn of(code: u8) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| *reason as u8 == code)
    }
}

/// What a node tells once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Processing Load (DTCP 4.3): messages in the CPU's queue and in those for input.
    pub processing: u32,
    /// Disk Load (DTCP 4.3): messages in the disks' queues.
    pub disk: u32,
    /// Connections that it owns.
    pub connections: u32,
    /// It takes no more.
    pub draining: bool,
}

/// What nodes tell each other. Home accepted the connection; the guest serves it for a time. Numbers named `turn` tell
/// attempts apart, and stamps are times of the guest's own clock, which home sends back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who speaks, first on each stream. A node of which another nonce was known has restarted.
    Hello {
        /// The node's name.
        node: String,
        /// Drawn at its start.
        boot_nonce: u32,
        /// The lowest version that it speaks.
        version_min: u16,
        /// The highest version that it speaks.
        version_max: u16,
        /// The TCP port on which it serves plain HTTP for the other nodes, at the address where they reach it.
        relay_port: u16,
    },
    /// Open this file, check its version and have these bytes in memory.
    Prepare(Object),
    /// That is done.
    Prepared {
        /// The guest's time, microseconds. The lease runs from it.
        stamp_us: u64,
    },
    /// Refused, and the tenure or the return does not take place.
    Nak {
        /// Why.
        reason: Reason,
        /// The refused attempt to return, or 0.
        turn: u32,
    },
    /// The connection, to its guest.
    Handoff {
        /// That of [`Message::Prepared`].
        stamp_us: u64,
        /// The state.
        state: Box<Handoff>,
    },
    /// The guest owns the connection.
    Ready,
    /// The connection, to its home.
    Back {
        /// The guest's attempts to return it in this tenure, from 1.
        turn: u32,
        /// The state.
        state: Box<Handoff>,
    },
    /// The tenure is over; home owns the connection or has closed it.
    BackOk,
    /// From the guest: the client has closed.
    Gone,
    /// Give the connection up.
    Abort,
    /// That is done.
    Aborted {
        /// The guest has owned the connection, so the client may have bytes of it.
        sent: bool,
    },
    /// The guest asks for a longer lease.
    Renew {
        /// The guest's time, microseconds.
        stamp_us: u64,
    },
    /// Home grants it.
    Renewed {
        /// That of [`Message::Renew`].
        stamp_us: u64,
    },
    /// How busy the node is.
    Load(Load),
    /// Objects that came into the node's cache.
    Came(Vec<u64>),
    /// Nothing; it shows that the stream works.
    Ping,
    /// An operator wants the node to be emptied, or no longer.
    Drain {
        /// It is to be emptied.
        on: bool,
    },
}

/// What [`parse`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// A frame.
    Complete {
        /// The frame.
        frame: Frame,
        /// Its bytes.
        len_bytes: usize,
    },
    /// The stream can't be understood from here on, and is closed.
    Bad(Bad),
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It does not begin with [`MAGIC`].
    Magic,
    /// It is of a version that this program does not speak: the requests are relayed.
    Version,
    /// No message has this type or these flags.
    Type,
    /// Its length is above the bound, or not that of its fields.
    Length,
    /// A field has a value that it cannot have.
    Value,
}

/// Appends a frame. A field above its bound makes a frame that [`parse`] refuses.
pub fn encode(frame: &Frame, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend(MAGIC.to_le_bytes());
    to.extend(VERSION.to_le_bytes());
    to.extend([code(&frame.message), 0]);
    to.extend([0; 4]);
    to.extend(frame.flow.home.to_le_bytes());
    to.extend(frame.flow.boot_nonce.to_le_bytes());
    to.extend(frame.flow.number.to_le_bytes());
    to.extend(frame.epoch.to_le_bytes());
    let body = to.len();
    encode_body(&frame.message, to);
    let len = u32::try_from(to.len() - body).unwrap_or(u32::MAX);
    to[start + 8..start + 12].copy_from_slice(&len.to_le_bytes());
}

/// Takes a frame from the start of `input`. No length is believed before it is compared with its bound.
pub fn parse(input: &[u8]) -> Parsed {
    if !MAGIC
        .to_le_bytes()
        .starts_with(&input[..input.len().min(4)])
    {
        return Parsed::Bad(Bad::Magic);
    }
    let Some((header, rest)) = input.split_at_checked(HEADER_LEN_BYTES) else {
        return Parsed::Incomplete;
    };
    match parse_framed(header, rest) {
        Ok(parsed) => parsed,
        Err(bad) => Parsed::Bad(bad),
    }
}

fn parse_framed(header: &[u8], rest: &[u8]) -> Result<Parsed, Bad> {
    let mut header = Reader(&header[4..]);
    let (version, code, flags, len) = (header.u16()?, header.u8()?, header.u8()?, header.u32()?);
    let flow = FlowId {
        home: header.u16()?,
        boot_nonce: header.u32()?,
        number: header.u64()?,
    };
    let epoch = header.u32()?;
    if version != VERSION && code != HELLO {
        return Err(Bad::Version);
    }
    if flags != 0 && version == VERSION {
        return Err(Bad::Type);
    }
    let len = usize::try_from(len).map_err(|_| Bad::Length)?;
    if len > body_bytes_max(code)? {
        return Err(Bad::Length);
    }
    let Some(body) = rest.get(..len) else {
        return Ok(Parsed::Incomplete);
    };
    let mut body = Reader(body);
    let message = parse_body(code, &mut body)?;
    // A later version may tell more in HELLO.
    if !body.0.is_empty() && version == VERSION {
        return Err(Bad::Length);
    }
    Ok(Parsed::Complete {
        frame: Frame {
            flow,
            epoch,
            message,
        },
        len_bytes: HEADER_LEN_BYTES + len,
    })
}

const HELLO: u8 = 1;
const PREPARE: u8 = 2;
const PREPARED: u8 = 3;
const NAK: u8 = 4;
const HANDOFF: u8 = 5;
const READY: u8 = 6;
const BACK: u8 = 7;
const BACK_OK: u8 = 8;
const GONE: u8 = 9;
const ABORT: u8 = 10;
const ABORTED: u8 = 11;
const RENEW: u8 = 12;
const RENEWED: u8 = 13;
const LOAD: u8 = 14;
const CAME: u8 = 15;
const PING: u8 = 16;
const DRAIN: u8 = 17;

fn code(message: &Message) -> u8 {
    match message {
        Message::Hello { .. } => HELLO,
        Message::Prepare(_) => PREPARE,
        Message::Prepared { .. } => PREPARED,
        Message::Nak { .. } => NAK,
        Message::Handoff { .. } => HANDOFF,
        Message::Ready => READY,
        Message::Back { .. } => BACK,
        Message::BackOk => BACK_OK,
        Message::Gone => GONE,
        Message::Abort => ABORT,
        Message::Aborted { .. } => ABORTED,
        Message::Renew { .. } => RENEW,
        Message::Renewed { .. } => RENEWED,
        Message::Load(_) => LOAD,
        Message::Came(_) => CAME,
        Message::Ping => PING,
        Message::Drain { .. } => DRAIN,
    }
}

/// The longest body of a type, so that a peer cannot make a node wait for, and keep, what is refused later.
fn body_bytes_max(code: u8) -> Result<usize, Bad> {
    match code {
        HANDOFF | BACK | PREPARE | CAME => Ok(CLUSTER_BODY_BYTES_MAX),
        HELLO..=DRAIN => Ok(CLUSTER_NAME_BYTES_MAX + 64),
        _ => Err(Bad::Type),
    }
}

fn encode_body(message: &Message, to: &mut Vec<u8>) {
    match message {
        Message::Hello {
            node,
            boot_nonce,
            version_min,
            version_max,
            relay_port,
        } => {
            put_bytes(to, node.as_bytes());
            to.extend(boot_nonce.to_le_bytes());
            to.extend(version_min.to_le_bytes());
            to.extend(version_max.to_le_bytes());
            to.extend(relay_port.to_le_bytes());
        }
        Message::Prepare(object) => object.encode(to),
        Message::Prepared { stamp_us }
        | Message::Renew { stamp_us }
        | Message::Renewed { stamp_us } => to.extend(stamp_us.to_le_bytes()),
        Message::Nak { reason, turn } => {
            to.push(*reason as u8);
            to.extend(turn.to_le_bytes());
        }
        Message::Handoff { stamp_us, state } => {
            to.extend(stamp_us.to_le_bytes());
            state.encode(to);
        }
        Message::Back { turn, state } => {
            to.extend(turn.to_le_bytes());
            state.encode(to);
        }
        Message::Aborted { sent: flag } | Message::Drain { on: flag } => to.push((*flag).into()),
        Message::Load(load) => {
            for number in [load.processing, load.disk, load.connections] {
                to.extend(number.to_le_bytes());
            }
            to.push(load.draining.into());
        }
        Message::Came(keys) => {
            keys.iter().for_each(|key| to.extend(key.to_le_bytes()));
        }
        Message::Ready | Message::BackOk | Message::Gone | Message::Abort | Message::Ping => {}
    }
}

fn parse_body(code: u8, body: &mut Reader<'_>) -> Result<Message, Bad> {
    Ok(match code {
        HELLO => hello(body)?,
        PREPARE => Message::Prepare(Object::parse(body)?),
        PREPARED => Message::Prepared {
            stamp_us: body.u64()?,
        },
        NAK => Message::Nak {
            reason: Reason::of(body.u8()?).ok_or(Bad::Value)?,
            turn: body.u32()?,
        },
        HANDOFF => Message::Handoff {
            stamp_us: body.u64()?,
            state: Box::new(Handoff::parse(body)?),
        },
        READY => Message::Ready,
        BACK => Message::Back {
            turn: body.u32()?,
            state: Box::new(Handoff::parse(body)?),
        },
        BACK_OK => Message::BackOk,
        GONE => Message::Gone,
        ABORT => Message::Abort,
        ABORTED => Message::Aborted { sent: body.bool()? },
        RENEW => Message::Renew {
            stamp_us: body.u64()?,
        },
        RENEWED => Message::Renewed {
            stamp_us: body.u64()?,
        },
        LOAD => Message::Load(Load {
            processing: body.u32()?,
            disk: body.u32()?,
            connections: body.u32()?,
            draining: body.bool()?,
        }),
        CAME => Message::Came(keys(body)?),
        PING => Message::Ping,
        DRAIN => Message::Drain { on: body.bool()? },
        _ => return Err(Bad::Type),
    })
}

fn hello(body: &mut Reader<'_>) -> Result<Message, Bad> {
    let node = body.text(CLUSTER_NAME_BYTES_MAX)?;
    let (boot_nonce, version_min, version_max) = (body.u32()?, body.u16()?, body.u16()?);
    let relay_port = body.u16()?;
    let named = !node.is_empty() && node.bytes().all(|byte| byte.is_ascii_graphic());
    if !named || version_min > version_max || relay_port == 0 {
        return Err(Bad::Value);
    }
    Ok(Message::Hello {
        node,
        boot_nonce,
        version_min,
        version_max,
        relay_port,
    })
}

fn keys(body: &mut Reader<'_>) -> Result<Vec<u64>, Bad> {
    let count = body.0.len() / 8;
    if body.0.len() % 8 != 0 || count > CLUSTER_KEYS_MAX {
        return Err(Bad::Length);
    }
    (0..count).map(|_| body.u64()).collect()
}
