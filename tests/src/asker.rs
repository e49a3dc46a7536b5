//! A client that compares all bytes and counts what it sees: it tells of what is wrong instead of failing.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::AddAssign;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Rng, connect_with, pattern};

/// How long a client waits for the next byte.
const WAIT: Duration = Duration::from_secs(20);

/// At the end of what is said of a connection that broke before an answer.
const NOTHING_CAME: &str = ", before an answer";

/// Why a response is no good.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Other bytes than asked for.
    Wrong(String),
    /// The connection ended, or nothing came.
    Broken(String),
    /// The client did not want the rest.
    GaveUp,
    /// Nobody took the connection, or it ended between two answers.
    Refused,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Broken(error.to_string())
    }
}

/// A connection.
pub struct Asker {
    /// The socket.
    pub stream: TcpStream,
    unread: Vec<u8>,
    /// The longest time in which nothing came, while something was to come.
    pub gap: Duration,
}

impl Asker {
    /// Connects.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn open(to: SocketAddr) -> Result<Asker, Fault> {
        Asker::over(TcpStream::connect_timeout(&to, WAIT))
    }

    /// Connects from this address.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn open_from(from: Ipv4Addr, to: SocketAddr) -> Result<Asker, Fault> {
        Asker::over(connect_with(to, Some(from), None, 0))
    }

    fn over(stream: io::Result<TcpStream>) -> Result<Asker, Fault> {
        let stream = stream.map_err(|_| Fault::Refused)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        Ok(Asker {
            stream,
            unread: Vec::new(),
            gap: Duration::ZERO,
        })
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Fault> {
        Ok(self.stream.write_all(bytes.as_ref())?)
    }

    /// Asks for a target as a whole.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn ask(&mut self, target: &str) -> Result<(), Fault> {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"))
    }

    /// Asks for a target and compares what comes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn get(&mut self, target: &str, expected: &[u8]) -> Result<(), Fault> {
        self.ask(target)?;
        self.answer(expected)
    }

    /// Reads a response and compares it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn answer(&mut self, expected: &[u8]) -> Result<(), Fault> {
        self.paced(expected, None, |_| true)
    }

    /// The same at this rate. After each piece `goes_on` is told what was read of the body; the client gives up if it returns
    /// `false`, and that is [`Fault::GaveUp`].
    ///
    /// # Errors
    /// What is wrong.
    pub fn paced(
        &mut self,
        expected: &[u8],
        rate_bytes_per_s: Option<f64>,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<(), Fault> {
        self.head(expected.len())?;
        let start = Instant::now();
        let mut have = self.unread.len().min(expected.len());
        same(&self.unread[..have], expected, 0)?;
        self.unread.drain(..have);
        let mut piece = vec![
            0;
            if rate_bytes_per_s.is_some() {
                16 << 10
            } else {
                256 << 10
            }
        ];
        while have < expected.len() {
            let room = piece.len().min(expected.len() - have);
            let read = self.read(&mut piece[..room], have)?;
            same(&piece[..read], expected, have)?;
            have += read;
            if !goes_on(have) {
                return Err(Fault::GaveUp);
            }
            if let Some(rate) = rate_bytes_per_s {
                let due = Duration::from_secs_f64(have as f64 / rate);
                thread::sleep(due.saturating_sub(start.elapsed())); // the pace
            }
        }
        Ok(())
    }

    fn head(&mut self, len: usize) -> Result<(), Fault> {
        let mut piece = [0; 16 << 10];
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            let has_some = !self.unread.is_empty();
            let read = self.read(&mut piece, 0).map_err(|fault| match fault {
                Fault::Broken(what) if !has_some => Fault::Broken(format!("{what}{NOTHING_CAME}")),
                fault => fault,
            })?;
            self.unread.extend_from_slice(&piece[..read]);
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8_lossy(&head);
        let is_fine = head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 206 ");
        let length = format!("\r\ncontent-length: {len}\r\n");
        match is_fine && head.to_ascii_lowercase().contains(&length) {
            true => Ok(()),
            false => Err(Fault::Wrong(format!(
                "{len} bytes expected, and there is {head:?}"
            ))),
        }
    }

    fn read(&mut self, into: &mut [u8], at: usize) -> Result<usize, Fault> {
        let from = Instant::now();
        let read = self.stream.read(into);
        self.gap = self.gap.max(from.elapsed());
        match read {
            Ok(0) => Err(Fault::Broken(format!("closed at {at}"))),
            Ok(read) => Ok(read),
            Err(error) => Err(Fault::Broken(format!("{error} at {at}"))),
        }
    }
}

fn same(got: &[u8], expected: &[u8], at: usize) -> Result<(), Fault> {
    if *got == expected[at..at + got.len()] {
        return Ok(());
    }
    let first = got
        .iter()
        .zip(&expected[at..])
        .position(|(one, other)| one != other);
    let first = first.unwrap_or_default();
    let some = &got[first..got.len().min(first + 40)];
    // Where they belong, if they are of this file.
    let of = expected.windows(some.len()).position(|bytes| bytes == some);
    Err(Fault::Wrong(format!(
        "at {} of {} come the bytes of {of:?}: {:?}",
        at + first,
        expected.len(),
        String::from_utf8_lossy(some)
    )))
}

/// Files, by their names.
pub struct Files(pub Vec<(String, Vec<u8>)>);

impl Files {
    /// `count` of them; the shortest has `least` bytes, and each next one `step` more.
    pub fn new(count: usize, least: usize, step: usize) -> Files {
        let file = |nth: usize| (format!("f{nth}"), pattern(least + nth * step, nth as u64));
        Files((0..count).map(file).collect())
    }
}

/// Random requests on connections that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Of files, ranges, depths and pieces.
    pub seed: u64,
    /// Connections at a time.
    pub connections: usize,
    /// Requests that are sent before an answer is read, at most.
    pub depth: usize,
    /// For how long.
    pub lasts: Duration,
    /// Of ten requests, so many ask for a range.
    pub ranges: usize,
    /// The longest range, bytes.
    pub range_bytes_max: usize,
    /// Requests of a connection before it is closed, at most.
    pub requests: usize,
    /// Whence it comes; `None`: the system chooses.
    pub from: Option<Ipv4Addr>,
}

/// What a load saw.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Whole and right.
    pub responses: u64,
    /// In them.
    pub bytes: u64,
    /// What was wrong.
    pub wrong: Vec<String>,
    /// How connections broke.
    pub broken: Vec<String>,
    /// Connections that nobody took, and those that were closed or reset before a byte of an answer came, as a server does that
    /// stops.
    pub refused: u64,
    /// The longest time in which nothing came.
    pub gap: Duration,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.responses += other.responses;
        self.bytes += other.bytes;
        self.wrong.extend(other.wrong);
        self.broken.extend(other.broken);
        self.refused += other.refused;
        self.gap = self.gap.max(other.gap);
    }
}

impl Load {
    /// Puts it on servers at these addresses, from the namespace of this thread.
    pub fn run(&self, to: &[SocketAddr], files: &Files) -> Tally {
        let mut all = Tally::default();
        thread::scope(|scope| {
            let one = |nth: usize| scope.spawn(move || self.one(nth, to[nth % to.len()], files));
            let threads: Vec<_> = (0..self.connections).map(one).collect();
            for thread in threads {
                all += thread.join().expect("no panic");
            }
        });
        all
    }

    fn one(&self, nth: usize, to: SocketAddr, files: &Files) -> Tally {
        let mut rng = Rng::new(self.seed * 1000 + nth as u64);
        let (mut tally, until) = (Tally::default(), Instant::now() + self.lasts);
        for turn in 0.. {
            if Instant::now() >= until || tally.broken.len() + tally.wrong.len() > 5 {
                break;
            }
            let name = format!("{}.{nth}.{turn}", self.seed);
            match self.connection(&name, to, files, &mut rng, (&mut tally, until)) {
                Ok(()) | Err(Fault::GaveUp) => {}
                Err(Fault::Refused) => {
                    tally.refused += 1;
                    thread::sleep(Duration::from_millis(20)); // a client that tries again
                }
                Err(Fault::Wrong(what)) => tally.wrong.push(format!("{name}: {what}")),
                Err(Fault::Broken(what)) => tally.broken.push(format!("{name}: {what}")),
            }
        }
        tally
    }

    fn connection(
        &self,
        name: &str,
        to: SocketAddr,
        files: &Files,
        rng: &mut Rng,
        (tally, until): (&mut Tally, Instant),
    ) -> Result<(), Fault> {
        let mut asker = match self.from {
            Some(from) => Asker::open_from(from, to)?,
            None => Asker::open(to)?,
        };
        let mut nth = 0;
        for _ in 0..1 + rng.below(self.requests) {
            if Instant::now() >= until {
                break;
            }
            let (mut text, mut expected) = (String::new(), Vec::new());
            for _ in 0..1 + rng.below(self.depth) {
                nth += 1;
                expected.push(self.request(&mut text, &format!("{name}.{nth}"), files, rng));
            }
            let sent = send_in_pieces(&mut asker, text.as_bytes(), rng);
            sent.map_err(|_| Fault::Refused)?;
            for bytes in expected {
                match asker.answer(bytes) {
                    // A server that stops closes a connection without a response under way, and answers the first of several
                    // requests only.
                    Err(Fault::Broken(what))
                        if what.ends_with(NOTHING_CAME)
                            && ["closed", "reset", "Broken pipe"]
                                .iter()
                                .any(|it| what.contains(it)) =>
                    {
                        return Err(Fault::Refused);
                    }
                    answered => answered?,
                }
                tally.responses += 1;
                tally.bytes += bytes.len() as u64;
            }
            tally.gap = tally.gap.max(asker.gap);
        }
        Ok(())
    }

    /// Adds a request to the text. Returns what its answer is to be.
    fn request<'a>(
        &self,
        text: &mut String,
        name: &str,
        files: &'a Files,
        rng: &mut Rng,
    ) -> &'a [u8] {
        let (file, bytes) = &files.0[rng.below(files.0.len())];
        let (mut range, mut expected) = (String::new(), &bytes[..]);
        if rng.below(10) < self.ranges {
            let from = rng.below(bytes.len());
            // Short ones are as frequent as long ones.
            let most = self.range_bytes_max >> rng.below(16);
            let end = bytes.len().min(from + 1 + rng.below(most.max(1)));
            range = format!("Range: bytes={from}-{}\r\n", end - 1);
            expected = &bytes[from..end];
        }
        *text += &format!("GET /{file}?{name} HTTP/1.1\r\nHost: t\r\n{range}\r\n");
        expected
    }
}

fn send_in_pieces(asker: &mut Asker, bytes: &[u8], rng: &mut Rng) -> Result<(), Fault> {
    if rng.below(10) >= 3 {
        return asker.send(bytes);
    }
    let cut = 1 + rng.below(bytes.len() - 1);
    asker.send(&bytes[..cut])?;
    thread::sleep(Duration::from_micros(rng.below(3000) as u64)); // a client that is slow
    asker.send(&bytes[cut..])
}
