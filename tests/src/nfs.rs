//! A client of NFS version 3 and MOUNT that speaks byte by byte: many calls under way, replies in any order.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::PATIENCE;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const LAST: u32 = 1 << 31;

/// Procedures of NFS that the tests call.
pub mod procedure {
    #![allow(missing_docs)]
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSINFO: u32 = 19;
    pub const COMMIT: u32 = 21;
}

/// What a reply says.
#[derive(Debug)]
pub struct NfsReply {
    /// The number of its call.
    pub xid: u32,
    /// RPC took the call (MSG_ACCEPTED and SUCCESS).
    pub accepted: bool,
    /// Its results, if so.
    pub results: Results,
}

/// Results, read from the front.
#[derive(Debug)]
pub struct Results {
    bytes: Vec<u8>,
    at: usize,
}

impl Results {
    /// What is left.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// The next number.
    pub fn u32(&mut self) -> u32 {
        let bytes = self.take(4).try_into().expect("four bytes");
        u32::from_be_bytes(bytes)
    }

    /// The next long number.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    /// The next opaque data, with its length before and padding behind.
    pub fn opaque(&mut self) -> Vec<u8> {
        let len = self.u32() as usize;
        let bytes = self.take(len).to_vec();
        let pad = self.take(len.next_multiple_of(4) - len);
        assert!(pad.iter().all(|byte| *byte == 0), "padding is zero");
        bytes
    }

    /// The next attributes: the length that they tell, and the number of the file.
    pub fn attributes(&mut self) -> (u64, u64) {
        self.take(20);
        let len_bytes = self.u64();
        self.take(24);
        let number = self.u64();
        self.take(24);
        (len_bytes, number)
    }

    /// The next attributes, if there are some.
    pub fn optional_attributes(&mut self) -> Option<(u64, u64)> {
        (self.u32() == 1).then(|| self.attributes())
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let from = self.at;
        self.at += len;
        self.bytes.get(from..self.at).expect("a longer reply")
    }
}

/// Arguments, as they are sent.
#[derive(Clone, Default)]
pub struct NfsArgs(pub Vec<u8>);

impl NfsArgs {
    /// Appends a number.
    pub fn u32(mut self, number: u32) -> NfsArgs {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Appends a long number.
    pub fn u64(mut self, number: u64) -> NfsArgs {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Appends opaque data: a handle, a name, a path.
    pub fn opaque(self, bytes: impl AsRef<[u8]>) -> NfsArgs {
        let bytes = bytes.as_ref();
        let mut args = self.u32(bytes.len() as u32);
        args.0.extend(bytes);
        args.0.resize(args.0.len().next_multiple_of(4), 0);
        args
    }
}

/// A connection to a server of NFS.
pub struct NfsClient {
    stream: TcpStream,
    xid: u32,
    uid: u32,
    gids: Vec<u32>,
    /// Replies that came before they were asked for.
    early: HashMap<u32, NfsReply>,
}

impl NfsClient {
    /// Connects, as root of the client's machine.
    pub fn open(address: SocketAddr) -> NfsClient {
        let stream = TcpStream::connect(address).expect("a server");
        NfsClient::over(stream)
    }

    /// Uses this connection.
    pub fn over(stream: TcpStream) -> NfsClient {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        NfsClient {
            stream,
            xid: 0x1000,
            uid: 0,
            gids: vec![0],
            early: HashMap::new(),
        }
    }

    /// Calls as this user from now on.
    pub fn user(mut self, uid: u32) -> NfsClient {
        self.uid = uid;
        self.gids = vec![uid];
        self
    }

    /// With these groups, the first of which is that of new files.
    pub fn groups(mut self, gids: &[u32]) -> NfsClient {
        self.gids = gids.to_vec();
        self
    }

    /// The connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The record of a call, mark included, and its number.
    pub fn record(&mut self, program: u32, procedure: u32, args: &NfsArgs) -> (u32, Vec<u8>) {
        self.xid += 1;
        let (first, others) = self.gids.split_first().expect("a group");
        let credential = NfsArgs::default()
            .u32(7)
            .opaque("test")
            .u32(self.uid)
            .u32(*first)
            .u32(others.len() as u32);
        let credential = others.iter().fold(credential, |args, gid| args.u32(*gid));
        let header = NfsArgs::default()
            .u32(self.xid)
            .u32(0)
            .u32(2)
            .u32(program)
            .u32(3)
            .u32(procedure)
            .u32(1)
            .opaque(credential.0)
            .u32(0)
            .u32(0);
        let len = (header.0.len() + args.0.len()) as u32;
        let mark = (LAST | len).to_be_bytes();
        (self.xid, [&mark, &header.0[..], &args.0].concat())
    }

    /// Sends raw bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    /// Begins a call of NFS: its number.
    pub fn begin(&mut self, procedure: u32, args: &NfsArgs) -> u32 {
        let (xid, record) = self.record(NFS, procedure, args);
        self.send(&record);
        xid
    }

    /// The next reply, whatever its call.
    pub fn next_reply(&mut self) -> NfsReply {
        self.try_next_reply().expect("a reply")
    }

    /// The same, if one comes before the connection ends.
    pub fn try_next_reply(&mut self) -> std::io::Result<NfsReply> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        assert!(mark & LAST != 0, "one fragment");
        let len = (mark & !LAST) as usize;
        assert!(len < 2 << 20, "a reply of {len} bytes");
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        let mut results = Results { bytes, at: 0 };
        let (xid, kind, state) = (results.u32(), results.u32(), results.u32());
        assert_eq!(kind, 1, "it is a reply");
        let accepted = state == 0 && {
            let _flavor = results.u32();
            results.opaque();
            results.u32() == 0
        };
        Ok(NfsReply {
            xid,
            accepted,
            results,
        })
    }

    /// The reply to this call; others are kept.
    pub fn reply(&mut self, xid: u32) -> NfsReply {
        loop {
            if let Some(reply) = self.early.remove(&xid) {
                return reply;
            }
            let reply = self.next_reply();
            self.early.insert(reply.xid, reply);
        }
    }

    /// Calls NFS, and waits for the results.
    pub fn ask(&mut self, procedure: u32, args: &NfsArgs) -> Results {
        let xid = self.begin(procedure, args);
        let reply = self.reply(xid);
        assert!(reply.accepted, "{reply:?}");
        reply.results
    }

    /// MNT: the handle of a path, or why not.
    pub fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let args = NfsArgs::default().opaque(path);
        let (xid, record) = self.record(MOUNT, 1, &args);
        self.send(&record);
        let mut results = self.reply(xid).results;
        match results.u32() {
            0 => Ok(results.opaque()),
            status => Err(status),
        }
    }

    /// LOOKUP: the handle of a name, or why not.
    pub fn look_up(&mut self, folder: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let args = NfsArgs::default().opaque(folder).opaque(name);
        let mut results = self.ask(procedure::LOOKUP, &args);
        match results.u32() {
            0 => Ok(results.opaque()),
            status => Err(status),
        }
    }

    /// The handle of a path below the root, name by name.
    pub fn find(&mut self, path: &str) -> Vec<u8> {
        let root = self.mount("/").expect("an export");
        path.split('/').fold(root, |folder, name| {
            let found = self.look_up(&folder, name);
            found.unwrap_or_else(|status| panic!("{path}: NFS error {status}"))
        })
    }

    /// GETATTR: the file's length, or why not.
    pub fn len_bytes(&mut self, file: &[u8]) -> Result<u64, u32> {
        let args = NfsArgs::default().opaque(file);
        let mut results = self.ask(procedure::GETATTR, &args);
        match results.u32() {
            0 => Ok(results.attributes().0),
            status => Err(status),
        }
    }

    /// READDIR or READDIRPLUS until its end, in replies of at most so many bytes: names in order, and whether each has a handle.
    pub fn names(&mut self, folder: &[u8], plus: bool, len_bytes: u32) -> Vec<(String, bool)> {
        let (mut cookie, mut names) = (0, Vec::new());
        loop {
            let args = NfsArgs::default()
                .opaque(folder)
                .u64(cookie)
                .u64(0)
                .u32(len_bytes);
            let mut results = match plus {
                true => self.ask(procedure::READDIRPLUS, &args.u32(len_bytes)),
                false => self.ask(procedure::READDIR, &args),
            };
            assert_eq!(results.u32(), 0, "a listing");
            results.optional_attributes();
            results.u64();
            let before = names.len();
            while results.u32() == 1 {
                let _number = results.u64();
                let name = String::from_utf8(results.opaque()).expect("a name of a test");
                cookie = results.u64();
                let mut has_handle = false;
                if plus {
                    results.optional_attributes();
                    has_handle = results.u32() == 1;
                    if has_handle {
                        results.opaque();
                    }
                }
                names.push((name, has_handle));
            }
            if results.u32() == 1 {
                return names;
            }
            assert!(names.len() > before, "it goes on");
        }
    }

    /// Begins a READ: its number.
    pub fn begin_read(&mut self, file: &[u8], offset_bytes: u64, len_bytes: u32) -> u32 {
        self.begin(procedure::READ, &read_args(file, offset_bytes, len_bytes))
    }

    /// READ: the bytes, and whether they reach to the file's end; or why not.
    pub fn read(
        &mut self,
        file: &[u8],
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<(Vec<u8>, bool), u32> {
        let xid = self.begin_read(file, offset_bytes, len_bytes);
        read_of(self.reply(xid))
    }
}

/// Arguments of READ.
pub fn read_args(file: &[u8], offset_bytes: u64, len_bytes: u32) -> NfsArgs {
    let args = NfsArgs::default().opaque(file);
    args.u64(offset_bytes).u32(len_bytes)
}

/// What a READ has read.
pub fn read_of(reply: NfsReply) -> Result<(Vec<u8>, bool), u32> {
    assert!(reply.accepted, "{reply:?}");
    let mut results = reply.results;
    let status = results.u32();
    results.optional_attributes();
    if status != 0 {
        return Err(status);
    }
    let (count, is_end) = (results.u32(), results.u32() == 1);
    let bytes = results.opaque();
    assert_eq!(bytes.len(), count as usize, "both lengths are the same");
    assert!(results.rest().is_empty(), "nothing follows");
    Ok((bytes, is_end))
}
