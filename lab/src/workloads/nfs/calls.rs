//! Calls of NFS version 3 and MOUNT as a client makes them, and what their replies say (RFC 1813, RFC 5531).

use super::Server;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_wire::nfs3::{MOUNT_PROGRAM, NFS_PROGRAM, VERSION};
use ackpace_wire::rpc::{AUTH_SYS, pad_bytes};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const LAST: u32 = 1 << 31;
const LOOKUP: u32 = 3;
const SETATTR: u32 = 2;
const READ: u32 = 6;
const WRITE: u32 = 7;
const COMMIT: u32 = 21;
const MNT: u32 = 1;
/// Attributes of a file (fattr3).
const ATTRIBUTES_BYTES: usize = 84;
/// Longest verifier of a reply, which servers leave empty (RFC 5531, opaque_auth).
const VERIFIER_BYTES_MAX: usize = 400;
/// Time limit for an answer of [`Blocking`].
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Appends the record of a call whose arguments `put` appends: by root, with AUTH_SYS.
fn call(to: &mut Vec<u8>, xid: u32, program: u32, procedure: u32, put: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    for number in [0, xid, 0, 2, program, VERSION, procedure] {
        put_u32(to, number);
    }
    put_u32(to, AUTH_SYS);
    let who = [0, 3, u32::from_be_bytes(*b"lab\0"), 0, 0, 0]; // stamp, name, uid, gid, no groups
    put_u32(to, 4 * who.len() as u32);
    who.iter().for_each(|number| put_u32(to, *number));
    put_u32(to, 0);
    put_u32(to, 0); // AUTH_NONE, the verifier
    put(to);
    let len_bytes = (to.len() - start - 4) as u32;
    to[start..start + 4].copy_from_slice(&(LAST | len_bytes).to_be_bytes());
}

/// Appends a READ.
pub fn read(to: &mut Vec<u8>, xid: u32, file: &[u8], offset_bytes: u64, len_bytes: u32) {
    call(to, xid, NFS_PROGRAM, READ, |to| {
        put_opaque(to, file);
        to.extend(offset_bytes.to_be_bytes());
        put_u32(to, len_bytes);
    });
}

/// Appends a WRITE (UNSTABLE) up to its payload, which the caller sends; its length is a multiple of 4.
pub fn write(to: &mut Vec<u8>, xid: u32, file: &[u8], offset_bytes: u64, len_bytes: u32) {
    let start = to.len();
    call(to, xid, NFS_PROGRAM, WRITE, |to| {
        put_opaque(to, file);
        to.extend(offset_bytes.to_be_bytes());
        for number in [len_bytes, 0, len_bytes] {
            put_u32(to, number);
        }
    });
    let record_bytes = (to.len() - start - 4) as u32 + len_bytes;
    to[start..start + 4].copy_from_slice(&(LAST | record_bytes).to_be_bytes());
}

/// Appends a COMMIT of all of a file.
pub fn commit(to: &mut Vec<u8>, xid: u32, file: &[u8]) {
    call(to, xid, NFS_PROGRAM, COMMIT, |to| {
        put_opaque(to, file);
        to.extend([0; 12]); // offset and count
    });
}

/// Appends a SETATTR that cuts a file to nothing.
pub fn cut(to: &mut Vec<u8>, xid: u32, file: &[u8]) {
    call(to, xid, NFS_PROGRAM, SETATTR, |to| {
        put_opaque(to, file);
        // Mode, user, group; the size, of 64 bits; both times; no guard.
        for number in [0, 0, 0, 1, 0, 0, 0, 0, 0] {
            put_u32(to, number);
        }
    });
}

fn put_u32(to: &mut Vec<u8>, number: u32) {
    to.extend(number.to_be_bytes());
}

fn put_opaque(to: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(to, bytes.len() as u32);
    to.extend(bytes);
    to.resize(to.len() + pad_bytes(bytes.len()), 0);
}

/// The beginning of a reply to READ, up to its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// Number of the call.
    pub xid: u32,
    /// Bytes that were read.
    pub payload_bytes: u32,
    /// Bytes of the record behind this beginning: payload and what pads it.
    pub behind_bytes: u32,
}

/// How much of a reply has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// So many bytes from its mark on.
    Needs(usize),
    /// The beginning is complete.
    Is(ReadReply),
}

/// Reads the beginning of a reply to READ, from its mark on.
///
/// # Errors
/// What is wrong: it is no reply, or one that refuses, or READ has failed.
pub fn parse_read(bytes: &[u8]) -> std::result::Result<Parsed, String> {
    let number = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes(word.try_into().ok()?))
    };
    // Mark, xid, kind, state, flavor and length of the verifier.
    let (Some(mark), Some(xid), Some(kind), Some(state), Some(verifier_bytes)) =
        (number(0), number(4), number(8), number(12), number(20))
    else {
        return Ok(Parsed::Needs(24));
    };
    if mark & LAST == 0 || (kind, state) != (1, 0) {
        return Err(format!(
            "no accepted reply in one record: mark {mark:#x}, kind {kind}, state {state}"
        ));
    }
    let verifier_bytes = verifier_bytes as usize;
    if verifier_bytes > VERIFIER_BYTES_MAX {
        return Err(format!("a verifier of {verifier_bytes} bytes"));
    }
    let results = 24 + verifier_bytes + pad_bytes(verifier_bytes);
    let (Some(accepted), Some(status), Some(follows)) =
        (number(results), number(results + 4), number(results + 8))
    else {
        return Ok(Parsed::Needs(results + 12));
    };
    if (accepted, status) != (0, 0) {
        return Err(format!("RPC says {accepted}, READ says {status}"));
    }
    let behind = results + 12 + if follows == 1 { ATTRIBUTES_BYTES } else { 0 };
    let (Some(count), Some(_), Some(payload_bytes)) =
        (number(behind), number(behind + 4), number(behind + 8))
    else {
        return Ok(Parsed::Needs(behind + 12));
    };
    let record_bytes = (mark & !LAST) as usize + 4;
    let behind_bytes = record_bytes.checked_sub(behind + 12);
    let wanted = payload_bytes as usize + pad_bytes(payload_bytes as usize);
    if count != payload_bytes || behind_bytes != Some(wanted) {
        return Err(format!(
            "lengths differ: {count} of count, {payload_bytes} of data, {record_bytes} of the record"
        ));
    }
    Ok(Parsed::Is(ReadReply {
        xid,
        payload_bytes,
        behind_bytes: wanted as u32,
    }))
}

/// What a reply to WRITE, COMMIT or SETATTR says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// So many bytes, by the server's run of this verifier.
    Bytes {
        /// How many.
        count: u32,
        /// The verifier.
        run: [u8; 8],
    },
    /// COMMIT.
    Committed {
        /// The verifier.
        run: [u8; 8],
    },
    /// SETATTR.
    Nothing,
}

/// Reads a record without its mark: a reply to WRITE, COMMIT or SETATTR, told apart by their lengths.
///
/// # Errors
/// What is wrong: it is no reply, or one that refuses, or the call has failed.
pub fn parse_written(bytes: &[u8]) -> std::result::Result<Written, String> {
    let number = |at: usize| {
        let word = bytes.get(at..at + 4);
        let word = word.and_then(|word| word.try_into().ok());
        word.map_or(u32::MAX, u32::from_be_bytes)
    };
    let (state, accepted, status) = (number(8), number(20), number(24)); // with an empty verifier
    if (number(4), state, accepted, status) != (1, 0, 0, 0) {
        return Err(format!("RPC says {state}, {accepted}, the server {status}"));
    }
    let mut at = 28;
    at += 4 + 24 * usize::from(number(at) == 1); // size and times before
    at += 4 + ATTRIBUTES_BYTES * usize::from(number(at) == 1);
    let run = |at: usize| bytes.get(at..).and_then(|run| run.try_into().ok());
    match bytes.len().checked_sub(at) {
        Some(0) => Ok(Written::Nothing),
        Some(8) => Ok(Written::Committed {
            run: run(at).unwrap_or_default(),
        }),
        Some(16) => Ok(Written::Bytes {
            count: number(at),
            run: run(at + 8).unwrap_or_default(),
        }),
        _ => Err(format!("a reply of {} bytes", bytes.len())),
    }
}

/// A client that waits for each answer.
pub struct Blocking {
    who: String,
    stream: TcpStream,
    xid: u32,
}

impl Blocking {
    /// Connects to one of the server's ports.
    pub fn connect(server: &Server, address: SocketAddr) -> Result<Self> {
        let who = &server.name;
        let what = || format!("{who}: connection to {address}");
        let stream = match server.source {
            None => TcpStream::connect(address).doing(what)?,
            Some(source) => connect_from(source, address).doing(what)?,
        };
        stream.set_nodelay(true).doing(what)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).doing(what)?;
        Ok(Self {
            who: who.clone(),
            stream,
            xid: 0,
        })
    }

    /// Its connection, on which nothing is under way.
    pub fn into_stream(self) -> Result<TcpStream> {
        let what = || format!("{}: a socket", self.who);
        self.stream.set_read_timeout(None).doing(what)?;
        Ok(self.stream)
    }

    /// MNT: the handle of the top.
    pub fn mount(&mut self) -> Result<Vec<u8>> {
        self.handle(MOUNT_PROGRAM, MNT, "MNT /", |to| put_opaque(to, b"/"))
    }

    /// LOOKUP: the handle of a name.
    pub fn look_up(&mut self, folder: &[u8], name: &str) -> Result<Vec<u8>> {
        let what = format!("LOOKUP {name}");
        self.handle(NFS_PROGRAM, LOOKUP, &what, |to| {
            put_opaque(to, folder);
            put_opaque(to, name.as_bytes());
        })
    }

    /// READ: as many bytes as there are, at most so many.
    pub fn read(&mut self, file: &[u8], offset_bytes: u64, len_bytes: u32) -> Result<Vec<u8>> {
        self.xid += 1;
        let mut record = Vec::new();
        read(&mut record, self.xid, file, offset_bytes, len_bytes);
        let bytes = self.ask(&record)?;
        match parse_read(&bytes) {
            Ok(Parsed::Is(reply)) => {
                let start = bytes.len() - reply.behind_bytes as usize;
                Ok(bytes[start..start + reply.payload_bytes as usize].to_vec())
            }
            Ok(Parsed::Needs(_)) => Err(self.fault("a reply to READ that is cut")),
            Err(why) => Err(self.fault(&why)),
        }
    }

    /// The handle with which results begin behind their status.
    fn handle(
        &mut self,
        program: u32,
        procedure: u32,
        what: &str,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>> {
        self.xid += 1;
        let mut record = Vec::new();
        call(&mut record, self.xid, program, procedure, put);
        let reply = self.ask(&record)?;
        let number = |at: usize| {
            let word = reply.get(at..at + 4);
            word.map_or(u32::MAX, |word| {
                u32::from_be_bytes(word.try_into().unwrap_or_default())
            })
        };
        // With an empty verifier: accept_stat at 24, status at 28, the handle behind it.
        let (state, accepted, status) = (number(12), number(24), number(28));
        if (state, accepted, status) != (0, 0, 0) {
            let why = format!("{what}: RPC says {state}, {accepted}, the server {status}");
            return Err(self.fault(&why));
        }
        let handle = reply.get(36..36 + (number(32) as usize).min(64));
        let handle = handle.filter(|handle| !handle.is_empty());
        match handle {
            Some(handle) => Ok(handle.to_vec()),
            None => Err(self.fault(&format!("{what}: no handle in the reply"))),
        }
    }

    /// Sends a record; the record that comes back, with its mark.
    fn ask(&mut self, record: &[u8]) -> Result<Vec<u8>> {
        let what = || format!("{}: a call", self.who);
        self.stream.write_all(record).doing(what)?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).doing(what)?;
        let len_bytes = (u32::from_be_bytes(mark) & !LAST) as usize;
        if len_bytes > 2 << 20 {
            return Err(self.fault("a reply of more than 2 MiB"));
        }
        let mut reply = mark.to_vec();
        reply.resize(4 + len_bytes, 0);
        self.stream.read_exact(&mut reply[4..]).doing(what)?;
        Ok(reply)
    }

    fn fault(&self, what: &str) -> LabError {
        LabError::contender(&self.who, what)
    }
}

/// Connects from this address.
fn connect_from(source: Ipv4Addr, address: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_wire::nfs3::{Args, Asked, Read as Part, Results, parse, reply};
    use ackpace_wire::rpc::{Incoming, Next};

    fn replied(results: &Results<'_>, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        reply(7, results, &mut bytes);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_read_is_the_call_that_the_server_understands() {
        let mut record = Vec::new();
        read(&mut record, 9, b"handle", 1 << 33, 4096);
        let mut incoming = Incoming::new(ackpace_wire::nfs3::payload);
        assert_eq!(incoming.feed(&record), Ok((record.len(), Next::Record)));
        let request = parse(&incoming.record()).unwrap();
        assert_eq!(request.xid, 9);
        let Asked::Nfs(Args::Read {
            file,
            offset_bytes,
            len_bytes,
        }) = request.asked
        else {
            panic!("{request:?}");
        };
        assert_eq!(
            (file.0, offset_bytes, len_bytes),
            (&b"handle"[..], 1 << 33, 4096)
        );
    }

    #[test]
    fn what_writes_is_what_the_server_understands() {
        let mut record = Vec::new();
        write(&mut record, 1, b"handle", 1 << 33, 8);
        record.extend(b"12345678");
        commit(&mut record, 2, b"handle");
        cut(&mut record, 3, b"handle");
        let mut incoming = Incoming::new(ackpace_wire::nfs3::payload);
        let mut at = 0;
        for xid in 1..=3 {
            loop {
                let (taken, next) = incoming.feed(&record[at..]).unwrap();
                at += taken;
                match next {
                    Next::Record => break,
                    Next::Payload { len_bytes } => {
                        at += len_bytes as usize;
                        if incoming.took_payload(len_bytes) == Next::Record {
                            break;
                        }
                    }
                    Next::More => panic!("call {xid} is cut"),
                }
            }
            let request = parse(&incoming.record()).unwrap();
            assert_eq!(request.xid, xid);
            match request.asked {
                Asked::Nfs(Args::Write(write)) => {
                    assert_eq!((xid, write.offset_bytes, write.len_bytes), (1, 1 << 33, 8));
                }
                Asked::Nfs(Args::Commit { .. }) => assert_eq!(xid, 2),
                Asked::Nfs(Args::SetAttr { set, guard, .. }) => {
                    assert_eq!((xid, set.size_bytes, guard), (3, Some(0), None));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(at, record.len());
    }

    #[test]
    fn replies_to_what_writes_are_told_apart() {
        use ackpace_wire::nfs3::{Change, Stable, Written as Told};
        let told = Told {
            len_bytes: 8,
            stable: Stable::Unstable,
            verifier: *b"verifier",
        };
        let run = *b"verifier";
        let without = Change {
            before: None,
            after: None,
        };
        for (results, expected) in [
            (
                Results::Write(Ok(told), without),
                Ok(Written::Bytes { count: 8, run }),
            ),
            (
                Results::Commit(Ok(run), without),
                Ok(Written::Committed { run }),
            ),
            (Results::SetAttr(Ok(()), without), Ok(Written::Nothing)),
            (
                Results::Commit(Err(ackpace_wire::nfs3::Status::Io), without),
                Err("RPC says 0, 0, the server 5".to_owned()),
            ),
        ] {
            assert_eq!(parse_written(&replied(&results, &[])[4..]), expected);
        }
    }

    #[test]
    fn a_reply_is_known_when_its_payload_begins() {
        let part = Part {
            len_bytes: 5,
            is_end: false,
        };
        let bytes = replied(&Results::Read(Ok(part), None), b"hello\0\0\0");
        let head_bytes = bytes.len() - 8;
        for cut in 0..head_bytes {
            let Ok(Parsed::Needs(more)) = parse_read(&bytes[..cut]) else {
                panic!("complete with {cut} bytes");
            };
            assert!(
                more > cut && more <= head_bytes,
                "{more} wanted after {cut}"
            );
        }
        let known = Parsed::Is(ReadReply {
            xid: 7,
            payload_bytes: 5,
            behind_bytes: 8,
        });
        assert_eq!(parse_read(&bytes[..head_bytes]), Ok(known));
    }

    #[test]
    fn a_failure_is_told_with_its_status() {
        let failed = Results::Read(Err(ackpace_wire::nfs3::Status::Io), None);
        let told = parse_read(&replied(&failed, &[]));
        assert_eq!(told, Err("RPC says 0, READ says 5".to_owned()));
    }
}
