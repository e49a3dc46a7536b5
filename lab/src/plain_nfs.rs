//! A plain pass-through server of NFS, which copies payload as the paper of the network-centric cache counts it: from the page cache
//! to its own memory (pread(2)), and from there to the socket (send(2)). It knows as much of NFS as the lab's own clients need:
//! MNT of the top, LOOKUP in it, and READ.
//!
//! It is a contender of its own process (`ackpace-lab plain-nfs`), with one thread and one epoll.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_wire::nfs3::{
    self, Args, Asked, Attributes, Found, Handle, Kind, MountArgs, MountResults, Read, Results,
    Status, Time,
};
use ackpace_wire::rpc::{self, Incoming, Next, NoCall, Refusal, pad_bytes};
use rustix::event::epoll;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a READ at most.
const READ_BYTES_MAX: u32 = 1 << 20;
/// Files that can be open: more than any experiment has.
const FILES_MAX: usize = 4096;
/// Connections at a time: more than any experiment has.
const CONNS_MAX: usize = 256;
/// Bytes of a reply without its payload, and what pads that.
const HEAD_BYTES_MAX: usize = 512;
/// Bytes received at a time.
const INPUT_BYTES: usize = 64 << 10;
/// Events taken by one wait.
const EVENTS: usize = 64;
/// Stands for the listener among the events.
const LISTENER: u64 = u64::MAX;
const TOP: &[u8] = b"top";

/// Options of `ackpace-lab plain-nfs`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where to listen
    #[arg(long)]
    address: SocketAddr,
    /// The folder that is served
    #[arg(long)]
    root: PathBuf,
}

/// Serves until it is killed.
///
/// # Errors
/// A failed system call that is not one connection's.
pub fn run(options: &Options) -> Result<std::process::ExitCode> {
    let what = || format!("listening at {}", options.address);
    let listener = TcpListener::bind(options.address).doing(what)?;
    listener.set_nonblocking(true).doing(what)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).doing(|| "epoll_create".into())?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, data, epoll::EventFlags::IN).doing(|| "epoll_ctl".into())?;
    let mut files = Files::of(&options.root);
    let mut conns: Vec<Option<Conn>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&epoll, room, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).doing(|| "epoll_wait".into()),
        }
        for event in &events {
            let index = event.data.u64();
            if index == LISTENER {
                accept(&epoll, &listener, &mut conns)?;
                continue;
            }
            let Some(place) = conns.get_mut(index as usize) else {
                continue;
            };
            if let Some(conn) = place {
                if conn.turn(&mut files).is_err() {
                    *place = None; // which takes it out of epoll
                }
            }
        }
    }
}

fn accept(
    epoll: &rustix::fd::OwnedFd,
    listener: &TcpListener,
    conns: &mut Vec<Option<Conn>>,
) -> Result<()> {
    while let Ok((socket, _)) = listener.accept() {
        let free = conns.iter().position(Option::is_none);
        if free.is_none() && conns.len() == CONNS_MAX {
            return Err(LabError::Setup(format!("more than {CONNS_MAX} clients")));
        }
        let what = || "a connection".to_owned();
        socket.set_nonblocking(true).doing(what)?;
        socket.set_nodelay(true).doing(what)?;
        let index = free.unwrap_or(conns.len());
        let data = epoll::EventData::new_u64(index as u64);
        // Edges: a connection goes on until it would wait.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(epoll, &socket, data, flags).doing(|| "epoll_ctl".into())?;
        let conn = Some(Conn::new(socket));
        match conns.get_mut(index) {
            Some(place) => *place = conn,
            None => conns.push(conn),
        }
    }
    Ok(())
}

/// The files that were looked up. The handle of a file is its place here.
struct Files<'a> {
    root: &'a Path,
    names: Vec<Vec<u8>>,
    open: Vec<File>,
}

impl<'a> Files<'a> {
    fn of(root: &'a Path) -> Self {
        Self {
            root,
            names: Vec::new(),
            open: Vec::new(),
        }
    }

    fn find(&mut self, name: &[u8]) -> std::result::Result<u32, Status> {
        if let Some(known) = self.names.iter().position(|known| known == name) {
            return Ok(known as u32);
        }
        let text = std::str::from_utf8(name).map_err(|_| Status::NoEnt)?;
        if text.contains('/') || text.starts_with('.') || self.open.len() == FILES_MAX {
            return Err(Status::Acces);
        }
        let file = File::open(self.root.join(text)).map_err(|_| Status::NoEnt)?;
        self.names.push(name.to_vec());
        self.open.push(file);
        Ok(self.open.len() as u32 - 1)
    }

    fn get(&self, handle: &[u8]) -> std::result::Result<&File, Status> {
        let number = handle.try_into().map(u32::from_be_bytes);
        let number = number.map_err(|_| Status::BadHandle)?;
        self.open.get(number as usize).ok_or(Status::Stale)
    }
}

/// A connection. Calls are answered one after the other.
struct Conn {
    socket: TcpStream,
    incoming: Incoming,
    input: Buffer,
    reply: Buffer,
}

/// A buffer that is never cleared: that would cost as much as a copy.
struct Buffer {
    bytes: Box<[u8]>,
    /// From here on its content is to be taken.
    from: usize,
    /// Up to here.
    to: usize,
}

impl Buffer {
    fn new(len_bytes: usize) -> Self {
        Self {
            bytes: vec![0; len_bytes].into(),
            from: 0,
            to: 0,
        }
    }

    fn content(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Puts other content in the place of its own.
    fn set(&mut self, content: &[u8]) {
        self.bytes[..content.len()].copy_from_slice(content);
        (self.from, self.to) = (0, content.len());
    }
}

impl Conn {
    fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            incoming: Incoming::new(nfs3::payload),
            input: Buffer::new(INPUT_BYTES),
            reply: Buffer::new(READ_BYTES_MAX as usize + HEAD_BYTES_MAX),
        }
    }

    /// Goes on until it would wait for the client.
    ///
    /// # Errors
    /// The connection has ended.
    fn turn(&mut self, files: &mut Files<'_>) -> io::Result<()> {
        loop {
            while !self.reply.content().is_empty() {
                match io::Write::write(&mut self.socket, self.reply.content()) {
                    Ok(sent) => self.reply.from += sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            let fed = self.incoming.feed(self.input.content());
            let (taken, next) = fed.map_err(|_| io::ErrorKind::InvalidData)?;
            self.input.from += taken;
            match next {
                Next::Record => self.answer(files),
                Next::Payload { .. } => return Err(io::ErrorKind::Unsupported.into()), // a WRITE
                Next::More => {
                    let got = io::Read::read(&mut self.socket, &mut self.input.bytes);
                    (self.input.from, self.input.to) = (0, *got.as_ref().unwrap_or(&0));
                    match got {
                        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Makes the reply to the call that has come.
    fn answer(&mut self, files: &mut Files<'_>) {
        let mut reply = Vec::new();
        let request = match nfs3::parse(&self.incoming.record()) {
            Ok(request) => request,
            Err(NoCall::Refused { xid, why }) => {
                rpc::refuse(xid, why, &mut reply);
                return self.reply.set(&reply);
            }
            Err(NoCall::Alien) => return,
        };
        let xid = request.xid;
        match request.asked {
            Asked::Mount(MountArgs::Mount(b"/")) => {
                let top = MountResults::Mount(Ok(Handle(TOP)));
                nfs3::mount_reply(xid, &top, &mut reply);
            }
            Asked::Nfs(Args::Lookup(place)) => {
                let found = files.find(place.name.0).map(u32::to_be_bytes);
                let found = found.as_ref().map(|number| Found {
                    file: Handle(number),
                    attributes: None,
                });
                let results = Results::Lookup(found.map_err(|status| *status), None);
                nfs3::reply(xid, &results, &mut reply);
            }
            Asked::Nfs(Args::Read {
                file,
                offset_bytes,
                len_bytes,
            }) => {
                let read = files
                    .get(file.0)
                    .and_then(|file| read(xid, file, (offset_bytes, len_bytes), &mut self.reply));
                match read {
                    Ok(()) => return,
                    Err(status) => {
                        nfs3::reply(xid, &Results::Read(Err(status), None), &mut reply);
                    }
                }
            }
            _ => rpc::refuse(xid, Refusal::ProcedureUnavailable, &mut reply),
        }
        self.reply.set(&reply);
    }
}

/// Makes the reply to a READ: its beginning is known before its payload, which goes behind it at once.
fn read(
    xid: u32,
    file: &File,
    (offset_bytes, len_bytes): (u64, u32),
    reply: &mut Buffer,
) -> std::result::Result<(), Status> {
    let told = file.metadata().map_err(|_| Status::Io)?;
    let left_bytes = told.len().saturating_sub(offset_bytes);
    let len_bytes = left_bytes.min(u64::from(len_bytes.min(READ_BYTES_MAX))) as u32;
    let part = Read {
        len_bytes,
        is_end: u64::from(len_bytes) == left_bytes,
    };
    let mut head = Vec::with_capacity(HEAD_BYTES_MAX);
    let results = Results::Read(Ok(part), Some(attributes(&told)));
    nfs3::reply(xid, &results, &mut head);
    reply.set(&head);
    let end = head.len() + len_bytes as usize;
    file.read_exact_at(&mut reply.bytes[head.len()..end], offset_bytes)
        .map_err(|_| Status::Io)?;
    let padded = end + pad_bytes(len_bytes as usize);
    reply.bytes[end..padded].fill(0);
    reply.to = padded;
    Ok(())
}

fn attributes(told: &std::fs::Metadata) -> Attributes {
    let time = |s: i64, ns: i64| Time {
        s: s as u32,
        ns: ns as u32,
    };
    Attributes {
        kind: Kind::Regular,
        mode: told.mode() & 0o7777,
        links: told.nlink() as u32,
        uid: told.uid(),
        gid: told.gid(),
        size_bytes: told.len(),
        used_bytes: told.blocks() * 512,
        device: nfs3::Device { major: 0, minor: 0 },
        file_system: told.dev(),
        file_id: told.ino(),
        read_at: time(told.atime(), told.atime_nsec()),
        written_at: time(told.mtime(), told.mtime_nsec()),
        changed_at: time(told.ctime(), told.ctime_nsec()),
    }
}
