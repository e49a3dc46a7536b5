//! Clients of a cluster: plain blocking sockets, which compare bytes, and note how long they waited.

use super::segment::vip;
use ackpace_lab_base::content::{Tag, first_wrong};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Longest wait for a byte.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Most bytes of a head.
const HEAD_BYTES_MAX: usize = 16 << 10;
const PIECE_BYTES: usize = 128 << 10;

/// What a client saw of a response.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Seen {
    /// From the request to the first byte of the answer, us.
    pub first_us: u64,
    /// From the request to the last byte, us.
    pub whole_us: u64,
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    piece: Vec<u8>,
}

/// A response whose head was read.
pub struct Body {
    /// Bytes that came with the head, at the begin of the client's buffer.
    have: usize,
    asked: Instant,
    first_us: u64,
}

impl Client {
    /// Connects from the network of the calling thread.
    pub fn connect(receive_buffer_bytes: Option<usize>) -> Result<Self> {
        let stream = match receive_buffer_bytes {
            None => TcpStream::connect(vip())?,
            Some(bytes) => connect_small(bytes)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self {
            stream,
            piece: vec![0; PIECE_BYTES],
        })
    }

    /// Asks for a file and reads the head of the answer.
    pub fn ask(&mut self, path: &str, len_bytes: u64) -> Result<Body> {
        let asked = Instant::now();
        let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        let (mut have, mut first_us) = (0, 0);
        loop {
            let len = self.stream.read(&mut self.piece[have..HEAD_BYTES_MAX])?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if have == 0 {
                first_us = micros(asked);
            }
            have += len;
            let head = &self.piece[..have];
            let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
                if have == HEAD_BYTES_MAX {
                    return Err(Error::other("the head has no end"));
                }
                continue;
            };
            let head = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
            if !head.starts_with("http/1.1 200") || !head.contains(&format!("length: {len_bytes}"))
            {
                return Err(Error::other(format!("not what was asked for: {head}")));
            }
            self.piece.copy_within(end + 4..have, 0);
            return Ok(Body {
                have: have - end - 4,
                asked,
                first_us,
            });
        }
    }

    /// Reads the body. `pace` hears of each piece: how far the body came, and how long that had to be waited for; it returns
    /// false when the rest is not wanted.
    pub fn read(
        &mut self,
        mut body: Body,
        (path, len_bytes): (&str, u64),
        mut pace: impl FnMut(u64, Duration) -> bool,
    ) -> Result<Seen> {
        let (tag, mut done) = (Tag::of(path), 0);
        while done < len_bytes {
            let (waits, mut waited) = (Instant::now(), Duration::ZERO);
            let len = match std::mem::take(&mut body.have) {
                0 => {
                    let most = (len_bytes - done).min(PIECE_BYTES as u64) as usize;
                    let len = self.stream.read(&mut self.piece[..most])?;
                    waited = waits.elapsed();
                    len
                }
                have => have,
            };
            if len == 0 {
                return Err(Error::other(format!(
                    "closed at {done} of {len_bytes} bytes"
                )));
            }
            if let Some(at) = first_wrong(tag, done, &self.piece[..len]) {
                return Err(Error::other(format!("wrong at {at}: {path}")));
            }
            done += len as u64;
            if !pace(done, waited) {
                break;
            }
        }
        Ok(Seen {
            first_us: body.first_us,
            whole_us: micros(body.asked),
        })
    }

    /// A whole response.
    pub fn get(&mut self, path: &str, len_bytes: u64) -> Result<Seen> {
        let body = self.ask(path, len_bytes)?;
        self.read(body, (path, len_bytes), |_, _| true)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both); // the server may have gone
    }
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}

/// The buffer has to be there before the connection is.
fn connect_small(bytes: usize) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    connect(&socket, &vip())?;
    Ok(socket.into())
}
