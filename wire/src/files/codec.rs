//! The datagrams: [`MAGIC`], [`VERSION`], what it is, and its fields, as XDR (RFC 4506).

use super::{For, How, Known, Node, Operation, Reply, Request, Spot, User, VERSION};
use crate::limits::{
    FILES_DATAGRAM_BYTES_MAX, NFS_NAME_BYTES_MAX, NFS_PATH_BYTES_MAX, RPC_GROUPS_MAX,
};
use crate::nfs3::{Device, SetAttributes, SetTime, Time};
use crate::rpc::Bad;
use crate::rpc::xdr::{Put, Reader};

/// First bytes of a datagram: "ACKF".
const MAGIC: u32 = u32::from_be_bytes(*b"ACKF");

const HELLO: u32 = 1;
const OPEN: u32 = 2;
const CREATE: u32 = 3;
const MAKE_FOLDER: u32 = 4;
const MAKE_LINK: u32 = 5;
const MAKE_NODE: u32 = 6;
const REMOVE: u32 = 7;
const REMOVE_FOLDER: u32 = 8;
const RENAME: u32 = 9;
const ADD_NAME: u32 = 10;
const SET: u32 = 11;
const LOOK: u32 = 12;

const HERE: u32 = 21;
const DONE: u32 = 22;
const OPENED: u32 = 23;
const FOUND: u32 = 24;
const NOT_SYNC: u32 = 25;
const MOVED: u32 = 26;
const FAILED: u32 = 27;

fn head(code: u32) -> Vec<u8> {
    let mut to = Vec::new();
    for number in [MAGIC, VERSION, code] {
        to.put_u32(number);
    }
    to
}

/// The datagram of a question. A field that breaks its bound makes one that [`parse_request`] refuses.
pub fn encode_request(request: &Request) -> Vec<u8> {
    let Request::Do(user, operation) = request else {
        return head(HELLO);
    };
    let mut to = head(match operation {
        Operation::Look(_) => LOOK,
        Operation::Open(..) => OPEN,
        Operation::Create(..) => CREATE,
        Operation::MakeFolder(..) => MAKE_FOLDER,
        Operation::MakeLink(..) => MAKE_LINK,
        Operation::MakeNode(..) => MAKE_NODE,
        Operation::Remove(_) => REMOVE,
        Operation::RemoveFolder(_) => REMOVE_FOLDER,
        Operation::Rename(..) => RENAME,
        Operation::AddName(..) => ADD_NAME,
        Operation::Set(..) => SET,
    });
    to.put_u32(user.uid);
    to.put_u32(user.gid);
    to.put_u32(u32::try_from(user.gids.len()).unwrap_or(u32::MAX));
    user.gids.iter().for_each(|gid| to.put_u32(*gid));
    put_operation(operation, &mut to);
    to
}

fn put_operation(operation: &Operation, to: &mut Vec<u8>) {
    match operation {
        Operation::Look(path) => to.put_opaque(path),
        Operation::Open(file, aim) => {
            file.put(to);
            to.put_u32(*aim as u32);
        }
        Operation::Create(spot, how) => {
            spot.put(to);
            put_how(how, to);
        }
        Operation::MakeFolder(spot, set) => {
            spot.put(to);
            put_set(set, to);
        }
        Operation::MakeLink(spot, target, set) => {
            spot.put(to);
            to.put_opaque(target);
            put_set(set, to);
        }
        Operation::MakeNode(spot, node, set) => {
            spot.put(to);
            put_node(node, to);
            put_set(set, to);
        }
        Operation::Remove(spot) | Operation::RemoveFolder(spot) => spot.put(to),
        Operation::Rename(from, into) => {
            from.put(to);
            into.put(to);
        }
        Operation::AddName(file, spot) => {
            file.put(to);
            spot.put(to);
        }
        Operation::Set(file, set, guard) => {
            file.put(to);
            put_set(set, to);
            to.put_optional(*guard, |to, time| time.put(to));
        }
    }
}

/// What is asked.
///
/// # Errors
/// It is no such datagram, or of another version.
pub fn parse_request(datagram: &[u8]) -> Result<Request, Bad> {
    let (code, mut body) = parse_head(datagram)?;
    let from = &mut body;
    if code == HELLO {
        return end(from, Request::Hello);
    }
    let user = user(from)?;
    let operation = match code {
        LOOK => Operation::Look(path(from)?),
        OPEN => Operation::Open(Known::read(from)?, aim(from)?),
        CREATE => Operation::Create(Spot::read(from)?, how(from)?),
        MAKE_FOLDER => Operation::MakeFolder(Spot::read(from)?, SetAttributes::read(from)?),
        MAKE_LINK => {
            let (spot, target) = (Spot::read(from)?, from.opaque(NFS_PATH_BYTES_MAX)?);
            if target.is_empty() || target.contains(&0) {
                return Err(Bad::Value);
            }
            Operation::MakeLink(spot, target.to_vec(), SetAttributes::read(from)?)
        }
        MAKE_NODE => {
            Operation::MakeNode(Spot::read(from)?, node(from)?, SetAttributes::read(from)?)
        }
        REMOVE => Operation::Remove(Spot::read(from)?),
        REMOVE_FOLDER => Operation::RemoveFolder(Spot::read(from)?),
        RENAME => Operation::Rename(Spot::read(from)?, Spot::read(from)?),
        ADD_NAME => Operation::AddName(Known::read(from)?, Spot::read(from)?),
        SET => Operation::Set(
            Known::read(from)?,
            SetAttributes::read(from)?,
            from.optional(Time::read)?,
        ),
        _ => return Err(Bad::Value),
    };
    end(from, Request::Do(user, operation))
}

fn parse_head(datagram: &[u8]) -> Result<(u32, Reader<'_>), Bad> {
    if datagram.len() > FILES_DATAGRAM_BYTES_MAX {
        return Err(Bad::Long);
    }
    let mut body = Reader(datagram);
    match [body.u32()?, body.u32()?] {
        [MAGIC, VERSION] => Ok((body.u32()?, body)),
        _ => Err(Bad::Value),
    }
}

fn end<T>(rest: &Reader<'_>, parsed: T) -> Result<T, Bad> {
    match rest.0 {
        [] => Ok(parsed),
        _ => Err(Bad::Long),
    }
}

fn user(from: &mut Reader<'_>) -> Result<User, Bad> {
    let (uid, gid, gids) = (from.u32()?, from.u32()?, from.u32()? as usize);
    if gids > RPC_GROUPS_MAX {
        return Err(Bad::Long);
    }
    let gids = (0..gids).map(|_| from.u32()).collect::<Result<_, _>>()?;
    Ok(User { uid, gid, gids })
}

fn path(from: &mut Reader<'_>) -> Result<Vec<u8>, Bad> {
    let path = from.opaque(NFS_PATH_BYTES_MAX)?;
    let mut names = path.split(|byte| *byte == b'/');
    match path.is_empty() || names.all(is_name) {
        true => Ok(path.to_vec()),
        false => Err(Bad::Value),
    }
}

impl Known {
    fn put(&self, to: &mut Vec<u8>) {
        to.put_opaque(&self.path);
        to.put_u64(self.device);
        to.put_u64(self.inode);
    }

    fn read(from: &mut Reader<'_>) -> Result<Known, Bad> {
        Ok(Known {
            path: path(from)?,
            device: from.u64()?,
            inode: from.u64()?,
        })
    }
}

impl Spot {
    fn put(&self, to: &mut Vec<u8>) {
        self.folder.put(to);
        to.put_opaque(&self.name);
    }

    fn read(from: &mut Reader<'_>) -> Result<Spot, Bad> {
        let folder = Known::read(from)?;
        let name = from.opaque(NFS_NAME_BYTES_MAX)?;
        if !is_name(name) {
            return Err(Bad::Value);
        }
        let name = name.to_vec();
        Ok(Spot { folder, name })
    }
}

/// Whether a file can have this name.
fn is_name(name: &[u8]) -> bool {
    let is_bad = |byte: &u8| matches!(byte, b'/' | 0);
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(is_bad)
}

fn aim(from: &mut Reader<'_>) -> Result<For, Bad> {
    let (code, all) = (from.u32()?, [For::Reading, For::Writing]);
    let found = all.into_iter().find(|aim| *aim as u32 == code);
    found.ok_or(Bad::Value)
}

fn put_how(how: &How, to: &mut Vec<u8>) {
    match how {
        How::Unchecked(set) => {
            to.put_u32(0);
            put_set(set, to);
        }
        How::Guarded(set) => {
            to.put_u32(1);
            put_set(set, to);
        }
        How::Exclusive(verifier) => {
            to.put_u32(2);
            to.extend(verifier);
        }
    }
}

fn how(from: &mut Reader<'_>) -> Result<How, Bad> {
    Ok(match from.u32()? {
        0 => How::Unchecked(SetAttributes::read(from)?),
        1 => How::Guarded(SetAttributes::read(from)?),
        2 => How::Exclusive(from.fixed()?),
        _ => return Err(Bad::Value),
    })
}

fn put_node(node: &Node, to: &mut Vec<u8>) {
    let (code, device) = match node {
        Node::Pipe => (0, None),
        Node::Socket => (1, None),
        Node::Block(device) => (2, Some(device)),
        Node::Character(device) => (3, Some(device)),
    };
    to.put_u32(code);
    if let Some(device) = device {
        to.put_u32(device.major);
        to.put_u32(device.minor);
    }
}

fn node(from: &mut Reader<'_>) -> Result<Node, Bad> {
    let code = from.u32()?;
    let mut device = || {
        let (major, minor) = (from.u32()?, from.u32()?);
        Ok(Device { major, minor })
    };
    Ok(match code {
        0 => Node::Pipe,
        1 => Node::Socket,
        2 => Node::Block(device()?),
        3 => Node::Character(device()?),
        _ => return Err(Bad::Value),
    })
}

/// As sattr3 (RFC 1813 section 2.5).
fn put_set(set: &SetAttributes, to: &mut Vec<u8>) {
    for number in [set.mode, set.uid, set.gid] {
        to.put_optional(number, Vec::put_u32);
    }
    to.put_optional(set.size_bytes, Vec::put_u64);
    for time in [set.read_at, set.written_at] {
        match time {
            None => to.put_u32(0),
            Some(SetTime::Now) => to.put_u32(1),
            Some(SetTime::At(time)) => {
                to.put_u32(2);
                time.put(to);
            }
        }
    }
}

/// The datagram of an answer.
pub fn encode_reply(reply: &Reply) -> Vec<u8> {
    let code = match reply {
        Reply::Here { .. } => HERE,
        Reply::Done => DONE,
        Reply::Opened { .. } => OPENED,
        Reply::Found => FOUND,
        Reply::NotSync => NOT_SYNC,
        Reply::Moved => MOVED,
        Reply::Failed { .. } => FAILED,
    };
    let mut to = head(code);
    match *reply {
        Reply::Here {
            device,
            inode,
            allows_root,
        } => {
            to.put_u64(device);
            to.put_u64(inode);
            to.put_bool(allows_root);
        }
        Reply::Opened { is_new } => to.put_bool(is_new),
        Reply::Failed { errno } => to.put_u32(errno as u32),
        Reply::Done | Reply::Found | Reply::NotSync | Reply::Moved => {}
    }
    to
}

/// What is answered.
///
/// # Errors
/// As [`parse_request`].
pub fn parse_reply(datagram: &[u8]) -> Result<Reply, Bad> {
    let (code, mut body) = parse_head(datagram)?;
    let from = &mut body;
    let reply = match code {
        HERE => Reply::Here {
            device: from.u64()?,
            inode: from.u64()?,
            allows_root: from.bool()?,
        },
        DONE => Reply::Done,
        OPENED => Reply::Opened {
            is_new: from.bool()?,
        },
        FOUND => Reply::Found,
        NOT_SYNC => Reply::NotSync,
        MOVED => Reply::Moved,
        FAILED => Reply::Failed {
            errno: from.u32()? as i32,
        },
        _ => return Err(Bad::Value),
    };
    end(from, reply)
}
