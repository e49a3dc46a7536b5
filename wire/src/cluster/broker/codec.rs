//! The datagrams, little endian: [`MAGIC`] u32, what it is u8, the question's number u64, and its fields.

use std::net::IpAddr;

use super::{Connection, Hello, Lease, Reply, Request, Tracked};
use crate::cluster::bytes::{Reader, put_bytes};
use crate::cluster::{Bad, Congestion, Tcp, Tuple};
use crate::limits::{
    BROKER_DATAGRAM_BYTES_MAX, BROKER_LEASES_MAX, BROKER_LIST_MAX, BROKER_TEXT_BYTES_MAX,
    CLUSTER_NAME_BYTES_MAX, CLUSTER_QUEUE_BYTES_MAX,
};

/// First bytes of a datagram: "ACKH".
const MAGIC: u32 = u32::from_le_bytes(*b"ACKH");

const HELLO: u8 = 1;
const FREEZE: u8 = 2;
const THAW: u8 = 3;
const RESTORE: u8 = 4;
const START: u8 = 5;
const REDIRECT: u8 = 6;
const LEASE: u8 = 7;
const FENCE: u8 = 8;
const TRACK: u8 = 9;
const FORGET: u8 = 10;

const SAVED: u8 = 18;
const RESTORED: u8 = 19;
const DONE: u8 = 20;
const REDIRECTED: u8 = 21;
const TRACKED: u8 = 22;
const FAILED: u8 = 24;
const HERE: u8 = 25;

fn head(code: u8, id: u64) -> Vec<u8> {
    let mut to = MAGIC.to_le_bytes().to_vec();
    to.push(code);
    to.extend(id.to_le_bytes());
    to
}

/// The datagram of a question. A field above its bound makes one that [`parse_request`] refuses.
pub fn encode_request(id: u64, request: &Request) -> Vec<u8> {
    let code = match request {
        Request::Hello { .. } => HELLO,
        Request::Freeze { .. } => FREEZE,
        Request::Thaw => THAW,
        Request::Restore { .. } => RESTORE,
        Request::Start { .. } => START,
        Request::Redirect { .. } => REDIRECT,
        Request::Lease(_) => LEASE,
        Request::Fence { .. } => FENCE,
        Request::Track(_) => TRACK,
        Request::Forget(_) => FORGET,
    };
    let mut to = head(code, id);
    match request {
        Request::Hello { version } => to.extend(version.to_le_bytes()),
        Request::Freeze { epoch, una_floor } => {
            to.extend(epoch.to_le_bytes());
            put_option(&mut to, una_floor.map(u32::to_le_bytes));
        }
        Request::Thaw => {}
        Request::Restore { epoch, connection } => {
            to.extend(epoch.to_le_bytes());
            connection.encode(&mut to);
        }
        Request::Start {
            epoch,
            lease_until_ns,
        } => {
            to.extend(epoch.to_le_bytes());
            put_option(&mut to, lease_until_ns.map(u64::to_le_bytes));
        }
        Request::Redirect { epoch, peer } => {
            to.extend(epoch.to_le_bytes());
            to.extend(peer.to_le_bytes());
        }
        Request::Lease(leases) => {
            for lease in leases {
                lease.tuple.encode(&mut to);
                to.extend(lease.epoch.to_le_bytes());
                to.extend(lease.until_ns.to_le_bytes());
            }
        }
        Request::Fence { tuple, epoch } => {
            tuple.encode(&mut to);
            to.extend(epoch.to_le_bytes());
        }
        Request::Track(tuple) | Request::Forget(tuple) => {
            tuple.encode(&mut to);
        }
    }
    to
}

/// The number of a datagram's question, and the question.
///
/// # Errors
/// It is no such datagram. The number, where there is one, names the question in the answer.
pub fn parse_request(datagram: &[u8]) -> Result<(u64, Request), (u64, Bad)> {
    let (code, id, mut body) = parse_head(datagram).map_err(|bad| (0, bad))?;
    let request = request(code, &mut body).map_err(|bad| (id, bad))?;
    // A later version may tell more in HELLO.
    match body.0.is_empty() || code == HELLO {
        true => Ok((id, request)),
        false => Err((id, Bad::Length)),
    }
}

fn parse_head(datagram: &[u8]) -> Result<(u8, u64, Reader<'_>), Bad> {
    if datagram.len() > BROKER_DATAGRAM_BYTES_MAX {
        return Err(Bad::Length);
    }
    let mut body = Reader(datagram);
    match body.u32()? {
        MAGIC => Ok((body.u8()?, body.u64()?, body)),
        _ => Err(Bad::Magic),
    }
}

fn request(code: u8, body: &mut Reader<'_>) -> Result<Request, Bad> {
    Ok(match code {
        HELLO => Request::Hello {
            version: body.u16()?,
        },
        FREEZE => Request::Freeze {
            epoch: body.u32()?,
            una_floor: option(body, Reader::u32)?,
        },
        THAW => Request::Thaw,
        RESTORE => Request::Restore {
            epoch: body.u32()?,
            connection: Box::new(Connection::parse(body)?),
        },
        START => Request::Start {
            epoch: body.u32()?,
            lease_until_ns: option(body, Reader::u64)?,
        },
        REDIRECT => Request::Redirect {
            epoch: body.u32()?,
            peer: body.u16()?,
        },
        LEASE => Request::Lease(leases(body)?),
        FENCE => Request::Fence {
            tuple: Tuple::parse(body)?,
            epoch: body.u32()?,
        },
        TRACK => Request::Track(Tuple::parse(body)?),
        FORGET => Request::Forget(Tuple::parse(body)?),
        _ => return Err(Bad::Type),
    })
}

fn leases(body: &mut Reader<'_>) -> Result<Vec<Lease>, Bad> {
    let mut leases = Vec::new();
    while !body.0.is_empty() {
        if leases.len() == BROKER_LEASES_MAX {
            return Err(Bad::Length);
        }
        leases.push(Lease {
            tuple: Tuple::parse(body)?,
            epoch: body.u32()?,
            until_ns: body.u64()?,
        });
    }
    Ok(leases)
}

/// The datagram of an answer. A text above its bound is cut; another field above its bound makes one that [`parse_reply`]
/// refuses.
pub fn encode_reply(id: u64, reply: &Reply) -> Vec<u8> {
    let code = match reply {
        Reply::Hello(_) => HERE,
        Reply::Saved { .. } => SAVED,
        Reply::Restored => RESTORED,
        Reply::Done => DONE,
        Reply::Redirected { .. } => REDIRECTED,
        Reply::Tracked(_) => TRACKED,
        Reply::Failed { .. } => FAILED,
    };
    let mut to = head(code, id);
    match reply {
        Reply::Hello(hello) => hello.encode(&mut to),
        Reply::Saved {
            connection,
            unsent_bytes,
        } => {
            connection.encode(&mut to);
            to.extend(unsent_bytes.to_le_bytes());
        }
        Reply::Restored | Reply::Done => {}
        Reply::Redirected { held } => to.extend(held.to_le_bytes()),
        Reply::Tracked(tracked) => {
            to.push(tracked.is_some().into());
            for word in tracked
                .iter()
                .flat_map(|it| [it.ack, it.seq_end, it.held_end])
            {
                to.extend(word.to_le_bytes());
            }
        }
        Reply::Failed { errno, text } => {
            to.extend(errno.to_le_bytes());
            let end = (0..=BROKER_TEXT_BYTES_MAX.min(text.len()))
                .rev()
                .find(|end| text.is_char_boundary(*end));
            put_bytes(&mut to, &text.as_bytes()[..end.unwrap_or(0)]);
        }
    }
    to
}

/// The number of an answer's question, and the answer.
///
/// # Errors
/// It is no such datagram.
pub fn parse_reply(datagram: &[u8]) -> Result<(u64, Reply), Bad> {
    let (code, id, mut body) = parse_head(datagram)?;
    let reply = reply(code, &mut body)?;
    match body.0.is_empty() || code == HERE {
        true => Ok((id, reply)),
        false => Err(Bad::Length),
    }
}

fn reply(code: u8, body: &mut Reader<'_>) -> Result<Reply, Bad> {
    Ok(match code {
        HERE => Reply::Hello(Hello::parse(body)?),
        SAVED => Reply::Saved {
            connection: Box::new(Connection::parse(body)?),
            unsent_bytes: body.u32()?,
        },
        RESTORED => Reply::Restored,
        DONE => Reply::Done,
        REDIRECTED => Reply::Redirected { held: body.u32()? },
        TRACKED => Reply::Tracked(option(body, |body| {
            Ok(Tracked {
                ack: body.u32()?,
                seq_end: body.u32()?,
                held_end: body.u32()?,
            })
        })?),
        FAILED => Reply::Failed {
            errno: body.u32()? as i32,
            text: body.text(BROKER_TEXT_BYTES_MAX)?,
        },
        _ => return Err(Bad::Type),
    })
}

fn put_option<const N: usize>(to: &mut Vec<u8>, bytes: Option<[u8; N]>) {
    to.push(bytes.is_some().into());
    to.extend(bytes.iter().flatten());
}

fn option<'a, T>(
    body: &mut Reader<'a>,
    value: impl Fn(&mut Reader<'a>) -> Result<T, Bad>,
) -> Result<Option<T>, Bad> {
    match body.bool()? {
        true => value(body).map(Some),
        false => Ok(None),
    }
}

impl Connection {
    fn encode(&self, to: &mut Vec<u8>) {
        self.tuple.encode(to);
        self.tcp.encode(to);
        self.congestion.encode(to);
        put_bytes(to, &self.received);
    }

    fn parse(body: &mut Reader<'_>) -> Result<Connection, Bad> {
        Ok(Connection {
            tuple: Tuple::parse(body)?,
            tcp: Tcp::parse(body)?,
            congestion: Congestion::parse(body)?,
            received: body.bytes(CLUSTER_QUEUE_BYTES_MAX)?.to_vec(),
        })
    }
}

impl Hello {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.version.to_le_bytes());
        put_bytes(to, self.node.as_bytes());
        let count = |to: &mut Vec<u8>, len: usize| to.push(u8::try_from(len).unwrap_or(u8::MAX));
        count(to, self.vips.len());
        for vip in &self.vips {
            match vip {
                IpAddr::V4(ip) => {
                    to.push(4);
                    to.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    to.push(6);
                    to.extend(ip.octets());
                }
            }
        }
        count(to, self.ports.len());
        for port in &self.ports {
            to.extend(port.to_le_bytes());
        }
        count(to, self.peers.len());
        for peer in &self.peers {
            put_bytes(to, peer.as_bytes());
        }
    }

    fn parse(body: &mut Reader<'_>) -> Result<Hello, Bad> {
        let (version, node) = (body.u16()?, body.text(CLUSTER_NAME_BYTES_MAX)?);
        Ok(Hello {
            version,
            node,
            vips: list(body, address)?,
            ports: list(body, Reader::u16)?,
            peers: list(body, |body| body.text(CLUSTER_NAME_BYTES_MAX))?,
        })
    }
}

fn address(body: &mut Reader<'_>) -> Result<IpAddr, Bad> {
    match body.u8()? {
        4 => Ok(body.address::<4>()?.into()),
        6 => Ok(body.address::<16>()?.into()),
        _ => Err(Bad::Value),
    }
}

fn list<'a, T>(
    body: &mut Reader<'a>,
    item: impl Fn(&mut Reader<'a>) -> Result<T, Bad>,
) -> Result<Vec<T>, Bad> {
    let count = usize::from(body.u8()?);
    if count > BROKER_LIST_MAX {
        return Err(Bad::Length);
    }
    (0..count).map(|_| item(body)).collect()
}
