//! A client that writes its file again and again, with several WRITEs under way: a thread with a connection.

use super::Server;
use super::calls::{Blocking, Written, commit, cut, parse_written, write};
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Longest reply to what a writer asks for.
const REPLY_BYTES_MAX: usize = 4096;
/// The content of a file is that of its part before, moved by a byte, and begins anew after so many: no part has its neighbours'.
const SHIFTS: u64 = 251;

/// What a writer is to do.
#[derive(Clone, Copy)]
pub struct Task {
    /// WRITEs that are under way at a time.
    pub under_way: usize,
    /// Length of a WRITE.
    pub len_bytes: u32,
    /// Length of the file.
    pub file_bytes: u64,
    /// The file is cut to nothing before it is written again.
    pub is_cut_first: bool,
}

/// What all writers share.
#[derive(Default)]
pub struct Progress {
    /// Bytes that were acknowledged.
    pub bytes: AtomicU64,
    /// WRITEs that were.
    pub writes: AtomicU64,
    /// Files that were written and committed.
    pub commits: AtomicU64,
    /// They shall go on until their file is whole and committed, and end.
    pub is_over: AtomicBool,
}

/// What a part of a file is made of: the same for all files.
pub struct Content(Vec<u8>);

impl Content {
    /// For WRITEs of this length.
    pub fn new(len_bytes: u32) -> Self {
        let mut state = 1u64;
        let draw = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        Self((0..u64::from(len_bytes) + SHIFTS).map(draw).collect())
    }

    /// That of the part which begins here.
    pub fn at(&self, offset_bytes: u64, len_bytes: u32) -> &[u8] {
        let shift = (offset_bytes / u64::from(len_bytes) % SHIFTS) as usize;
        &self.0[shift..shift + len_bytes as usize]
    }
}

/// A connection and its file.
pub struct Writer {
    who: String,
    socket: TcpStream,
    replies: BufReader<TcpStream>,
    file: Vec<u8>,
    task: Task,
    under_way: usize,
    xid: u32,
    /// The server's run, as its first reply names it.
    run: Option<[u8; 8]>,
}

impl Writer {
    /// Connects.
    ///
    /// # Errors
    /// The server can't be reached.
    pub fn connect(server: &Server, file: Vec<u8>, task: Task) -> Result<Self> {
        let socket = Blocking::connect(server, server.nfs)?.into_stream()?;
        let what = || format!("{}: a socket", server.name);
        Ok(Self {
            who: server.name.clone(),
            replies: BufReader::new(socket.try_clone().doing(what)?),
            socket,
            file,
            task,
            under_way: 0,
            xid: 0,
            run: None,
        })
    }

    /// Writes its file again and again, until it is over: then the whole file is committed.
    ///
    /// # Errors
    /// The first wrong answer.
    pub fn run(mut self, content: &Content, progress: &Progress) -> Result<()> {
        while !progress.is_over.load(Ordering::Relaxed) {
            if self.task.is_cut_first {
                self.ask(&[], cut)?;
                self.hear(progress)?;
            }
            let mut at_bytes = 0;
            while at_bytes < self.task.file_bytes {
                if self.under_way == self.task.under_way {
                    self.hear(progress)?;
                }
                let payload = content.at(at_bytes, self.task.len_bytes);
                self.ask(payload, |to, xid, file| {
                    write(to, xid, file, at_bytes, payload.len() as u32);
                })?;
                at_bytes += u64::from(self.task.len_bytes);
            }
            while self.under_way > 0 {
                self.hear(progress)?;
            }
            self.ask(&[], commit)?;
            self.hear(progress)?;
            progress.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn ask(&mut self, payload: &[u8], put: impl FnOnce(&mut Vec<u8>, u32, &[u8])) -> Result<()> {
        let mut head = Vec::new();
        self.xid += 1;
        self.under_way += 1;
        put(&mut head, self.xid, &self.file);
        let what = || format!("{}: a call", self.who);
        self.socket.write_all(&head).doing(what)?;
        self.socket.write_all(payload).doing(what)
    }

    /// Waits for a reply to any call.
    fn hear(&mut self, progress: &Progress) -> Result<()> {
        let what = || format!("{}: a reply", self.who);
        let mut mark = [0; 4];
        self.replies.read_exact(&mut mark).doing(what)?;
        let len_bytes = (u32::from_be_bytes(mark) & !(1 << 31)) as usize;
        let mut reply = [0; REPLY_BYTES_MAX];
        let reply = reply.get_mut(..len_bytes);
        let reply = reply.ok_or_else(|| self.fault("a reply that is too long"))?;
        self.replies.read_exact(reply).doing(what)?;
        self.under_way -= 1;
        match parse_written(reply).map_err(|why| self.fault(&why))? {
            Written::Nothing => {}
            Written::Committed { run } => self.is_run(run)?,
            Written::Bytes { count, run } if count == self.task.len_bytes => {
                self.is_run(run)?;
                progress.bytes.fetch_add(count.into(), Ordering::Relaxed);
                progress.writes.fetch_add(1, Ordering::Relaxed);
            }
            Written::Bytes { count, .. } => {
                return Err(self.fault(&format!("a WRITE of {count} bytes")));
            }
        }
        Ok(())
    }

    fn is_run(&mut self, run: [u8; 8]) -> Result<()> {
        match *self.run.get_or_insert(run) == run {
            true => Ok(()),
            false => Err(self.fault("another verifier: it has started anew")),
        }
    }

    fn fault(&self, what: &str) -> LabError {
        LabError::contender(&self.who, what)
    }
}
