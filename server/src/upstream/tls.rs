//! TLS on a connection to an origin: what is received lies in a buffer of the connection, is decrypted there and copied to where
//! it belongs.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};

/// Bytes received that are not decrypted yet: several records, or the longest message of a handshake (64 KiB, RFC 8446 section
/// 4) in its records. A peer whose message does not fit is at fault.
const RECEIVED_BYTES_MAX: usize = 72 << 10;
/// Times that the buffer is filled in a row without any payload. More: the peer is at fault.
const IDLE_FILLS_MAX: u32 = 64;

/// Why a connection is of no use any more.
#[derive(Debug)]
pub enum Broken {
    Socket(Errno),
    Tls(rustls::Error),
    /// The peer closed it without saying so, or says nothing that leads on.
    Cut,
}

impl From<Errno> for Broken {
    fn from(error: Errno) -> Broken {
        Broken::Socket(error)
    }
}

impl From<rustls::Error> for Broken {
    fn from(error: rustls::Error) -> Broken {
        Broken::Tls(error)
    }
}

/// What one step of the machine came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// So many bytes of payload were copied. There may be more.
    Payload(usize),
    /// The connection stands, and what is received is used up.
    Standing,
    /// The handshake needs more of the peer.
    Blocked,
    /// The peer says no more.
    Closed,
}

/// The state of a connection.
pub struct Session {
    tls: UnbufferedClientConnection,
    /// What was received lies from `start` to `end`.
    received: Box<[u8]>,
    start: usize,
    end: usize,
    /// Payload that had no room where it belongs, at most of one record.
    rest: Vec<u8>,
    /// Payload to be encrypted.
    asked: Vec<u8>,
    /// Encrypted bytes that the socket has not taken.
    out: Vec<u8>,
}

impl Session {
    /// A connection on which nothing was said yet.
    pub fn new(tls: UnbufferedClientConnection) -> Session {
        Session {
            tls,
            received: vec![0; RECEIVED_BYTES_MAX].into(),
            start: 0,
            end: 0,
            rest: Vec::new(),
            asked: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Goes on with the handshake. Returns whether the connection stands.
    pub fn shake(&mut self, socket: &OwnedFd) -> Result<bool, Broken> {
        for _ in 0..IDLE_FILLS_MAX {
            let step = self.step(&mut []);
            let flushed = self.flush(socket);
            match step? {
                Step::Standing | Step::Payload(_) => return Ok(true),
                Step::Closed => return Err(Broken::Cut),
                Step::Blocked => flushed?,
            }
            match self.fill(socket) {
                Err(Broken::Socket(Errno::AGAIN)) => return Ok(false),
                filled => filled?,
            }
        }
        Err(Broken::Cut)
    }

    /// Sends payload.
    pub fn send(&mut self, socket: &OwnedFd, payload: Vec<u8>) -> Result<(), Broken> {
        self.asked = payload;
        self.step(&mut [])?;
        // Whoever answers before it is asked answers something else.
        if !self.asked.is_empty() || !self.rest.is_empty() {
            return Err(Broken::Cut);
        }
        Ok(self.flush(socket)?)
    }

    /// Sends what is left of it, as far as the socket takes it.
    pub fn flush(&mut self, socket: &OwnedFd) -> rustix::io::Result<()> {
        send_all(socket, &mut self.out)
    }

    /// Receives payload; 0 is the end that the peer announced.
    pub fn receive(
        &mut self,
        socket: &OwnedFd,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Broken> {
        if into.iter().all(|slice| slice.is_empty()) {
            return Ok(0);
        }
        if !self.rest.is_empty() {
            let copied = scatter(&self.rest, into, 0);
            drop(self.rest.drain(..copied));
            return Ok(copied);
        }
        for _ in 0..IDLE_FILLS_MAX {
            loop {
                match self.step(into)? {
                    Step::Payload(0) => {} // an empty record
                    Step::Payload(len) => return Ok(len),
                    Step::Closed => return Ok(0),
                    Step::Standing | Step::Blocked => break,
                }
            }
            self.flush(socket)?;
            self.fill(socket)?;
        }
        Err(Broken::Cut)
    }

    /// Uses what was received, up to the next payload.
    fn step(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Step, rustls::Error> {
        loop {
            let received = &mut self.received[self.start..self.end];
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(received);
            let step = match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    let mut copied = 0;
                    while let Some(record) = traffic.next_record() {
                        let payload = record?.payload;
                        let len = match self.rest.is_empty() {
                            true => scatter(payload, into, copied),
                            false => 0,
                        };
                        self.rest.extend_from_slice(&payload[len..]);
                        copied += len;
                    }
                    Some(Step::Payload(copied))
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    append(&mut self.out, |room| match data.encode(room) {
                        Ok(len) => Ok(Ok(len)),
                        Err(EncodeError::InsufficientSize(needed)) => Ok(Err(needed)),
                        Err(error) => Err(rustls::Error::General(error.to_string())),
                    })?;
                    None
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done(); // the socket takes it in its order
                    None
                }
                ConnectionState::WriteTraffic(mut traffic) => {
                    if !self.asked.is_empty() {
                        let asked = &self.asked;
                        append(&mut self.out, |room| match traffic.encrypt(asked, room) {
                            Ok(len) => Ok(Ok(len)),
                            Err(EncryptError::InsufficientSize(needed)) => Ok(Err(needed)),
                            Err(error) => Err(rustls::Error::General(error.to_string())),
                        })?;
                        self.asked.clear();
                    }
                    Some(Step::Standing)
                }
                ConnectionState::BlockedHandshake => Some(Step::Blocked),
                ConnectionState::PeerClosed | ConnectionState::Closed => Some(Step::Closed),
                _ => return Err(rustls::Error::General("an unknown state".to_owned())),
            };
            self.start += discard;
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Receives more into the buffer.
    fn fill(&mut self, socket: &OwnedFd) -> Result<(), Broken> {
        self.received.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.received.len() {
            return Err(Broken::Cut);
        }
        loop {
            let room = &mut self.received[self.end..];
            match recv(socket, room, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                Ok((_, 0)) => return Err(Broken::Cut),
                received => {
                    self.end += received?.1;
                    return Ok(());
                }
            }
        }
    }
}

/// Sends bytes as far as the socket takes them, which are then gone.
pub(super) fn send_all(socket: &OwnedFd, bytes: &mut Vec<u8>) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(socket, bytes, flags) {
            Ok(taken) => drop(bytes.drain(..taken)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies bytes into the slices behind their first `behind` bytes, as far as there is room. Returns how many.
fn scatter(mut bytes: &[u8], into: &mut [IoSliceMut<'_>], mut behind: usize) -> usize {
    let mut copied = 0;
    for slice in into {
        let skipped = behind.min(slice.len());
        behind -= skipped;
        let room = &mut slice[skipped..];
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        bytes = &bytes[len..];
        copied += len;
    }
    copied
}

/// Appends what is written to `out`, in as much room as that needs.
fn append(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<Result<usize, InsufficientSizeError>, rustls::Error>,
) -> Result<(), rustls::Error> {
    let before = out.len();
    let mut room_bytes = 0;
    loop {
        out.resize(before + room_bytes, 0);
        match write(&mut out[before..])? {
            Ok(len) => {
                out.truncate(before + len);
                return Ok(());
            }
            // It says how much it needs, so it comes here once.
            Err(needed) if needed.required_size > room_bytes => room_bytes = needed.required_size,
            Err(_) => return Err(rustls::Error::General("no room".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_scattered_behind_what_is_there() {
        let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 4]);
        let mut into = [&mut a[..], &mut b[..], &mut c[..]].map(IoSliceMut::new);
        assert_eq!(scatter(b"xy", &mut into, 0), 2);
        assert_eq!(scatter(b"12345678", &mut into, 2), 5);
        assert_eq!(scatter(b"z", &mut into, 7), 0);
        assert_eq!((&a, &c), (b"xy1", b"2345"));
    }
}
