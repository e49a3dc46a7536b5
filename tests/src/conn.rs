//! A client that sends exactly the bytes it is given, and parses responses as strictly as it can.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::PATIENCE;

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The code in its status line.
    pub status: u16,
    /// The status line and the fields as they came, without the empty line at the end.
    pub head: String,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field; `None` if the field is missing.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        });
        let value = values.next();
        assert!(
            values.next().is_none(),
            "{name} stands twice:\n{}",
            self.head
        );
        value
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection.
pub struct Conn {
    /// The socket.
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Conn {
    /// Connects.
    pub fn open(address: SocketAddr) -> Conn {
        Conn::try_open(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// Connects, if something accepts the connection.
    pub fn try_open(address: SocketAddr) -> io::Result<Conn> {
        Conn::over(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// Uses this stream.
    pub fn over(stream: TcpStream) -> io::Result<Conn> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Conn {
            stream,
            unread: Vec::new(),
        })
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Conn {
        self.try_send(bytes)
            .expect("the server takes all that is sent");
        self
    }

    /// Sends these bytes, if the server accepts them.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends a GET with these further field lines, each ended by CRLF, and reads the response.
    pub fn get(&mut self, target: &str, fields: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{fields}\r\n"));
        self.response()
    }

    /// Shuts down the sending side.
    pub fn finish(&mut self) -> &mut Conn {
        self.stream.shutdown(Shutdown::Write).expect("a half-close");
        self
    }

    /// Reads a response to anything but HEAD.
    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        response.body = self.body(&response);
        response
    }

    /// Reads the head of a response. Its body is still to be read, or absent because it answers HEAD.
    pub fn head(&mut self) -> Response {
        let len = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at;
            }
            let read = self.fill().expect("a head in time");
            let have = String::from_utf8_lossy(&self.unread).into_owned();
            assert!(read > 0, "closed where a head should be; there is {have:?}");
        };
        let head = String::from_utf8(self.unread.drain(..len + 4).take(len).collect());
        let head = head.expect("a head in ASCII");
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .unwrap_or_else(|| panic!("no status line of HTTP/1.1: {head:?}"));
        Response {
            status,
            head,
            body: Vec::new(),
        }
    }

    fn body(&mut self, response: &Response) -> Vec<u8> {
        if matches!(response.status, 100..200 | 204 | 304) {
            return Vec::new();
        }
        let length = response
            .field("Content-Length")
            .map(|value| value.parse().expect("a length"));
        match (response.field("Transfer-Encoding"), length) {
            (Some("chunked"), None) => self.chunks(),
            (None, Some(len)) => self.exactly(len),
            (None, None) => self.rest(),
            _ => panic!("framed in two ways:\n{}", response.head),
        }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let len = usize::from_str_radix(&line, 16).expect("the length of a chunk");
            body.extend(self.exactly(len));
            assert_eq!(self.line(), "", "the end of a chunk");
            if len == 0 {
                return body;
            }
        }
    }

    fn line(&mut self) -> String {
        let at = loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                break at;
            }
            assert!(
                self.fill().expect("a line in time") > 0,
                "closed in the middle"
            );
        };
        let line = self.unread.drain(..at + 2).take(at).collect();
        String::from_utf8(line).expect("a line in ASCII")
    }

    /// Reads the next `len` bytes.
    pub fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.unread.len() < len {
            let read = self.fill().expect("bytes in time");
            assert!(
                read > 0,
                "closed after {} of {len} bytes",
                self.unread.len()
            );
        }
        self.unread.drain(..len).collect()
    }

    /// Reads these bytes, or as many of them as come before the connection ends. Returns how many; fails at another byte.
    #[track_caller]
    pub fn compare(&mut self, expected: &[u8]) -> usize {
        let mut piece = vec![0; 256 << 10];
        let ahead = self.unread.len().min(expected.len());
        assert!(self.unread[..ahead] == expected[..ahead], "other bytes");
        self.unread.drain(..ahead);
        let mut at = ahead;
        while at < expected.len() {
            let room = piece.len().min(expected.len() - at);
            let read = match self.stream.read(&mut piece[..room]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    panic!("nothing more came after {at} of {} bytes", expected.len())
                }
                Err(_) => return at, // a reset
            };
            if read == 0 {
                return at;
            }
            let same = piece[..read] == expected[at..at + read];
            assert!(same, "other bytes within {read} behind {at}");
            at += read;
        }
        at
    }

    /// Reads until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill().expect("an orderly end in time") > 0 {}
        std::mem::take(&mut self.unread)
    }

    /// Reads until the server closes or resets the connection.
    pub fn rest_or_reset(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("not closed"),
                Err(_) => break,
            }
        }
        std::mem::take(&mut self.unread)
    }

    /// Checks that the server closes now and sends nothing more.
    pub fn ends(&mut self) {
        let rest = self.rest();
        assert!(
            rest.is_empty(),
            "more came: {:?}",
            String::from_utf8_lossy(&rest)
        );
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 64 << 10];
        let read = self.stream.read(&mut piece)?;
        self.unread.extend_from_slice(&piece[..read]);
        Ok(read)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
