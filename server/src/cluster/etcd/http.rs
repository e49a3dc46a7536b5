//! Questions to etcd's JSON gateway, in a thread that may wait: HTTP/1.1, a connection for each question, and bounds in time and
//! bytes for each answer. The parsers are those for origins.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use ackpace_wire::cluster::etcd::{BadAnswer, error_of};
use ackpace_wire::http::{Asked, BodyReader, ParsedResponse, parse_response};
use ackpace_wire::limits::ETCD_ANSWER_BYTES_MAX;
use rustls::{ClientConnection, StreamOwned};

use crate::gateway::{Tls, tls_told};
use crate::options::EtcdUrl;

/// From a name to a connection, for each address.
const CONNECT: Duration = Duration::from_secs(2);
/// Addresses of a name that are tried. More: the first ones.
const ADDRESSES_MAX: usize = 4;
/// From a question to the end of its answer. Longer: etcd is away.
const ANSWER: Duration = match cfg!(test) {
    true => Duration::from_secs(1),
    false => Duration::from_secs(5),
};
/// A read waits for so long at most before something else is looked at.
const SLICE: Duration = Duration::from_millis(250);
/// Bytes that a read takes at most.
const READ_BYTES: usize = 16 << 10;
/// Interim responses before one answer. More: whoever sends them is no etcd.
const INTERIMS_MAX: usize = 4;

/// Why a question has no answer.
#[derive(Debug)]
pub enum Failed {
    /// There is no connection, or it broke, or nothing came in time.
    Io(io::Error),
    /// The name has no address, or TLS is refused, or what came is no HTTP.
    Wrong(String),
    /// etcd refuses.
    Status(u16, Option<String>),
    /// What came is no answer to the question.
    Answer(BadAnswer),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Io(error)
    }
}

impl From<BadAnswer> for Failed {
    fn from(bad: BadAnswer) -> Failed {
        Failed::Answer(bad)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Io(error) => error.fmt(f),
            Failed::Wrong(why) => f.write_str(why),
            Failed::Status(status, Some(why)) => write!(f, "it answers {status}: {why}"),
            Failed::Status(status, None) => write!(f, "it answers {status}"),
            Failed::Answer(BadAnswer::Long) => f.write_str("its answer is too long"),
            Failed::Answer(BadAnswer::Json) => f.write_str("its answer is no JSON"),
            Failed::Answer(BadAnswer::Field(name)) => write!(f, "its answer lacks {name}"),
            Failed::Answer(BadAnswer::Many) => {
                f.write_str("more stands below the cluster's path than one cluster can have")
            }
        }
    }
}

/// Where etcd is.
pub struct Http {
    url: EtcdUrl,
    tls: Option<Tls>,
}

impl Http {
    pub fn new(url: EtcdUrl, tls: Option<Tls>) -> Http {
        Http { url, tls }
    }

    pub fn url(&self) -> &EtcdUrl {
        &self.url
    }

    /// The whole answer to a question.
    pub fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, Failed> {
        let mut answer = self.ask(path, body, "close")?;
        let mut whole = Vec::new();
        while answer.take(&mut whole)? {
            if whole.len() > ETCD_ANSWER_BYTES_MAX {
                return Err(BadAnswer::Long.into());
            }
            answer.receive()?;
        }
        match answer.status {
            200 => Ok(whole),
            status => Err(Failed::Status(status, error_of(&whole))),
        }
    }

    /// A watch, which says at first that it is there.
    pub fn watch(&self, body: &str) -> Result<Watch, Failed> {
        let answer = self.ask("/v3/watch", body, "keep-alive")?;
        match answer.status {
            200 => Ok(Watch {
                answer,
                said: Vec::new(),
            }),
            status => Err(Failed::Status(status, None)),
        }
    }

    fn ask(&self, path: &str, body: &str, connection: &str) -> Result<Answer, Failed> {
        let mut answer = Answer {
            link: self.connect()?,
            until: Instant::now() + ANSWER,
            received: Vec::new(),
            status: 0,
            reader: BodyReader::new(ackpace_wire::http::Framing::None),
        };
        let (host, len) = (self.url.authority(), body.len());
        let question = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\
             Connection: {connection}\r\n\r\n{body}"
        );
        answer
            .link
            .send(question.as_bytes())
            .map_err(|error| self.told(error))?;
        answer.head().map_err(|failed| match failed {
            Failed::Io(error) => self.told(error),
            failed => failed,
        })?;
        Ok(answer)
    }

    fn connect(&self) -> Result<Link, Failed> {
        let addresses = (&*self.url.host, self.url.port).to_socket_addrs()?;
        let mut failed = Failed::Wrong("its name has no address".to_owned());
        for address in addresses.take(ADDRESSES_MAX) {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(SLICE))?;
                    socket.set_write_timeout(Some(ANSWER))?;
                    let Some(tls) = &self.tls else {
                        return Ok(Link::Plain(socket));
                    };
                    let tls = tls.blocking(&self.url.host);
                    let tls = tls.map_err(|error| Failed::Wrong(error.to_string()))?;
                    return Ok(Link::Tls(Box::new(StreamOwned::new(tls, socket))));
                }
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }

    /// A failure of a connection, which may be one of TLS.
    fn told(&self, error: io::Error) -> Failed {
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(inner) => Failed::Wrong(tls_told(inner, &self.url.host)),
            None => error.into(),
        }
    }
}

/// A connection to etcd.
enum Link {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Link {
    /// Sends a question; a handshake may wait in slices.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + ANSWER;
        match self {
            Link::Plain(socket) => socket.write_all(bytes),
            Link::Tls(stream) => {
                let stream = &mut **stream;
                while stream.conn.is_handshaking() {
                    match stream.conn.complete_io(&mut stream.sock) {
                        Ok(_) => {}
                        Err(error) if is_slice(&error) && Instant::now() < until => {}
                        Err(error) => return Err(error),
                    }
                }
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Bytes that came, in one slice; `None`: none came.
    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match self {
            Link::Plain(socket) => socket.read(into),
            Link::Tls(stream) => stream.read(into),
        };
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(Some(len)),
            Err(error) if is_slice(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_slice(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::WouldBlock,
        ErrorKind::TimedOut,
        ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind())
}

/// An answer as far as it came.
struct Answer {
    link: Link,
    until: Instant,
    /// What came and is not used yet; one read at most, but for a head.
    received: Vec<u8>,
    status: u16,
    reader: BodyReader,
}

impl Answer {
    /// Waits for the head.
    fn head(&mut self) -> Result<(), Failed> {
        let mut interims = 0;
        loop {
            let used = match parse_response(&self.received, Asked::Get) {
                ParsedResponse::Incomplete => None,
                ParsedResponse::Interim { head_len_bytes } if interims < INTERIMS_MAX => {
                    interims += 1;
                    Some(head_len_bytes)
                }
                ParsedResponse::Complete {
                    response,
                    head_len_bytes,
                } => {
                    (self.status, self.reader) =
                        (response.status, BodyReader::new(response.framing));
                    drop(self.received.drain(..head_len_bytes));
                    return Ok(());
                }
                ParsedResponse::Interim { .. } => {
                    return Err(Failed::Wrong("it sends no answer".to_owned()));
                }
                ParsedResponse::Bad(why) => return Err(Failed::Wrong(why.to_owned())),
            };
            match used {
                Some(used) => drop(self.received.drain(..used)),
                None => self.receive()?,
            }
        }
    }

    /// Waits for more bytes.
    fn receive(&mut self) -> Result<(), Failed> {
        while !self.listen()? {
            if self.until <= Instant::now() {
                return Err(Failed::Io(ErrorKind::TimedOut.into()));
            }
        }
        match self.until <= Instant::now() {
            true => Err(Failed::Io(ErrorKind::TimedOut.into())), // a byte now and then is no answer
            false => Ok(()),
        }
    }

    /// Whether bytes came in one slice.
    fn listen(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        let read = self.link.read(&mut bytes)?;
        self.received.extend(&bytes[..read.unwrap_or(0)]);
        Ok(read.is_some())
    }

    /// Takes the payload of what came. `false`: the answer has ended.
    fn take(&mut self, whole: &mut Vec<u8>) -> Result<bool, Failed> {
        while !self.reader.is_done() {
            let piece = self.reader.next(&self.received);
            let piece = piece.map_err(|why| Failed::Wrong(why.to_owned()))?;
            whole.extend(&self.received[piece.data.clone()]);
            drop(self.received.drain(..piece.consumed_bytes));
            if piece.data.is_empty() {
                return Ok(!self.reader.is_done());
            }
        }
        Ok(false)
    }
}

/// Whether there may be something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    No,
    Yes,
}

/// A watch that is under way.
pub struct Watch {
    answer: Answer,
    /// The line that says that it is there.
    said: Vec<u8>,
}

impl Watch {
    /// Waits for a slice. Anything but its first line, and its end, may mean something new.
    pub fn listen(&mut self) -> Rung {
        let heard = match self.answer.take(&mut self.said) {
            Ok(true) if !self.has_rung() => self.answer.listen().map(drop).is_ok(),
            _ => return Rung::Yes,
        };
        let goes_on = heard && matches!(self.answer.take(&mut self.said), Ok(true));
        match goes_on && !self.has_rung() {
            true => Rung::No,
            false => Rung::Yes,
        }
    }

    fn has_rung(&self) -> bool {
        let first = self.said.iter().position(|byte| *byte == b'\n');
        let is_there = br#""created":true"#;
        match first {
            None => self.said.len() > READ_BYTES, // no such line is so long
            Some(end) if end + 1 < self.said.len() => true,
            Some(end) => {
                let line = &self.said[..end];
                !line.windows(is_there.len()).any(|part| part == is_there)
            }
        }
    }
}
