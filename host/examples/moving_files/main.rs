//! A small HTTP server that is not ackpace: a thread per connection, files of one folder. It moves downloads to another instance
//! of itself on another node, in the middle of a response, by `ackpace-host handoff`: DTCP's hand-off(socket, request, node).
//!
//! | file | what |
//! |---|---|
//! | `main.rs` | HTTP; asks [`moving`] when enough of a response is sent |
//! | `moving.rs` | the sequence: freeze, restore, fill, start, redirect; back, or taken over |
//! | `lines.rs` | the lines to the broker and to the other instance |
//!
//! `docs/host-handoff.md` explains the broker, and has a session with two instances. The line between the instances is plain TCP:
//! whoever reads it can inject bytes into a client's connection, so a real server encrypts it.

mod lines;
mod moving;

use std::fs::File;
use std::io::{self, ErrorKind::WouldBlock, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lines::{Broker, Line};

const USAGE: &str = "moving_files BROKER LISTEN OWN_LINE OTHER OTHER_LINE FOLDER
such as: moving_files /run/ackpace-handoff/handoff.sock 192.0.2.80:80 10.0.0.11:7900 b 10.0.0.12:7900 /srv/www";
/// A response moves when so much of it is sent, and is tried again after as much.
const MOVE_AFTER_BYTES: u64 = 1 << 20;
/// A request's head. Longer: the connection ends.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// What is written at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// How long a read or write waits, until it is seen to other things.
const TICK: Duration = Duration::from_millis(100);
/// Connections of clients and of the other instance. More: closed at once.
const THREADS_MAX: usize = 1_024;
/// A client that asks for nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

struct Server {
    broker: Mutex<Broker>,
    folder: PathBuf,
    /// The other instance: its node's name at the broker, and where it listens for this one.
    other: (String, SocketAddr),
}

struct Client {
    /// `None`: another node has it.
    socket: Option<TcpStream>,
    /// Read and not used.
    input: Vec<u8>,
    /// Counts the moves: each owner has a higher one.
    epoch: u32,
    /// Bytes that were given to this socket.
    written: u64,
    /// SND.UNA when the socket was restored.
    floor: Option<u32>,
    /// Of a guest: the node that accepted it.
    home: Option<moving::Home>,
}

struct Response {
    path: String,
    head: Vec<u8>,
    file: File,
    /// Size and time of the file, to compare it with that of the other node.
    version: Vec<u8>,
    end: u64,
    /// What was given to the socket, the head included.
    at: u64,
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [broker, listen, line, name, other, folder] = &args[..] else {
        return Err(io::Error::other(USAGE));
    };
    let other = other.parse().map_err(io::Error::other)?;
    let server = Server {
        broker: Mutex::new(Broker::at(broker)),
        folder: folder.into(),
        other: (name.clone(), other),
    };
    let server: &'static Server = Box::leak(Box::new(server));
    let (clients, visits) = (TcpListener::bind(listen)?, TcpListener::bind(line)?);
    thread::spawn(move || {
        for line in visits.incoming().flatten() {
            spawn("a visit", move || moving::visit(server, Line(line)));
        }
    });
    for socket in clients.incoming().flatten() {
        spawn("a client", move || Client::accepted(socket).serve(server));
    }
    Ok(())
}

fn spawn(what: &'static str, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    if THREADS.fetch_add(1, Relaxed) < THREADS_MAX {
        thread::spawn(move || {
            if let Err(why) = work() {
                eprintln!("{what}: {why}");
            }
            THREADS.fetch_sub(1, Relaxed);
        });
    } else {
        THREADS.fetch_sub(1, Relaxed);
    }
}

impl Server {
    /// A response, unless the path leads out of the folder or to no file.
    fn open(&self, path: &str) -> Option<Response> {
        let inside = Path::new(path.strip_prefix('/')?);
        let plain = inside
            .components()
            .all(|it| matches!(it, Component::Normal(_)));
        let file = File::open(self.folder.join(inside))
            .ok()
            .filter(|_| plain)?;
        let told = file.metadata().ok().filter(|it| it.is_file())?;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", told.len());
        let numbers = [told.len(), told.mtime() as u64, told.mtime_nsec() as u64];
        Some(Response {
            path: path.to_owned(),
            end: head.len() as u64 + told.len(),
            head: head.into_bytes(),
            file,
            version: numbers.map(u64::to_le_bytes).concat(),
            at: 0,
        })
    }
}

impl Response {
    /// Gives a socket the next piece, up to `until`. How many bytes that were.
    fn give(&mut self, mut socket: &TcpStream, until: u64) -> io::Result<u64> {
        let (head_bytes, until) = (self.head.len() as u64, until.min(self.at + PIECE_BYTES));
        let given = if self.at < head_bytes {
            socket.write(&self.head[self.at as usize..until.min(head_bytes) as usize])?
        } else {
            let mut from = self.at - head_bytes;
            let count = (until - self.at) as usize;
            rustix::fs::sendfile(socket, &self.file, Some(&mut from), count)?
        };
        self.at += given as u64;
        match given {
            0 => Err(io::Error::other("the file is shorter than it was")),
            _ => Ok(given as u64),
        }
    }
}

impl Client {
    fn accepted(socket: TcpStream) -> Client {
        let client = Client {
            socket: Some(socket),
            input: Vec::new(),
            epoch: 0,
            written: 0,
            floor: None,
            home: None,
        };
        if let Some(socket) = &client.socket {
            let _ = moving::set_timeouts(socket);
        }
        client
    }

    fn serve(&mut self, server: &Server) -> io::Result<()> {
        while let Some(path) = self.request(server)? {
            match server.open(&path) {
                Some(mut response) => self.send(server, &mut response)?,
                None => {
                    let head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
                    let Some(socket) = &mut self.socket else {
                        break;
                    };
                    socket.write_all(head)?;
                    self.written += head.len() as u64;
                }
            }
        }
        Ok(())
    }

    /// The path of the next request; `None`: the client has closed, or is another node's.
    fn request(&mut self, server: &Server) -> io::Result<Option<String>> {
        let (mut piece, since) = ([0; 4096], Instant::now());
        loop {
            if let Some(end) = self.input.windows(4).position(|it| it == b"\r\n\r\n") {
                let head: Vec<u8> = self.input.drain(..end + 4).collect();
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head
                    .strip_prefix("GET ")
                    .and_then(|it| it.split(' ').next());
                let path = path.ok_or_else(|| io::Error::other("it asks for something else"))?;
                return Ok(Some(path.to_owned()));
            }
            let Some(socket) = &mut self.socket else {
                return Ok(None);
            };
            match socket.read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(_) if self.input.len() > HEAD_BYTES_MAX => return Ok(None),
                Ok(count) => self.input.extend(&piece[..count]),
                Err(error) if error.kind() != WouldBlock => return Err(error),
                Err(_) if since.elapsed() > IDLE => return Ok(None),
                Err(_) => moving::idle(server, self)?,
            }
        }
    }

    fn send(&mut self, server: &Server, response: &mut Response) -> io::Result<()> {
        let mut move_at = MOVE_AFTER_BYTES;
        while response.at < response.end {
            // Another node has it, and it has ended there.
            let Some(socket) = &self.socket else { break };
            match response.give(socket, response.end) {
                Ok(given) => self.written += given,
                Err(error) if error.kind() == WouldBlock => {}
                Err(error) => return Err(error),
            }
            moving::renew(server, self)?;
            if self.home.is_none() && response.at >= move_at {
                move_at = response.at + MOVE_AFTER_BYTES;
                moving::away(server, self, response)?;
            }
        }
        Ok(())
    }
}
