//! A connection of the load: calls go out, replies come back in any order.
//!
//! The kernel discards the payload of long READs (`recv(MSG_TRUNC)`, tcp(7)), unless it is to be compared.

use super::calls::{self, Parsed, parse_read};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

/// READs up to this length are received whole: to copy them costs less than a second call.
const WHOLE_BYTES_MAX: usize = 16 << 10;
/// Beginning of a usual reply: its mark, RPC, status, attributes and lengths.
const HEAD_BYTES: usize = 132;

/// A READ under way.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// From this byte of its file on.
    pub offset_bytes: u64,
    /// Since when.
    pub since: Instant,
    /// Its payload is kept.
    pub is_checked: bool,
}

/// A READ that was answered.
#[derive(Debug)]
pub struct Answered {
    /// What was asked.
    pub asked: Asked,
    /// Bytes that came.
    pub payload_bytes: u32,
    /// These, if they are to be compared.
    pub payload: Option<Vec<u8>>,
}

/// A connection. The number of a call is that of its slot.
pub struct Conn {
    socket: TcpStream,
    len_bytes: u32,
    slots: Vec<Option<Asked>>,
    out: Vec<u8>,
    at: Receiving,
}

enum Receiving {
    /// The beginning of a reply, as far as it has come.
    Head(Vec<u8>),
    /// What is behind it.
    Payload {
        slot: usize,
        left_bytes: usize,
        payload_bytes: u32,
        /// What has come, if it is to be compared.
        kept: Option<Vec<u8>>,
    },
}

impl Conn {
    /// A connection on which nothing is under way: at most so many READs of so many bytes at a time.
    pub fn new(socket: TcpStream, under_way: usize, len_bytes: u32) -> Self {
        Self {
            socket,
            len_bytes,
            slots: vec![None; under_way],
            out: Vec::new(),
            at: Receiving::Head(Vec::new()),
        }
    }

    /// Its socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// True if one more READ may be asked for.
    pub fn has_room(&self) -> bool {
        self.slots.iter().any(Option::is_none)
    }

    /// True if READs are under way.
    pub fn waits(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// Prepares a call, if there is room for it; [`Self::send`] sends it.
    pub fn ask(&mut self, file: &[u8], asked: Asked) {
        let Some(slot) = self.slots.iter().position(Option::is_none) else {
            return;
        };
        self.slots[slot] = Some(asked);
        let xid = slot as u32;
        calls::read(&mut self.out, xid, file, asked.offset_bytes, self.len_bytes);
    }

    /// Sends the prepared calls, which always fit into the socket.
    ///
    /// # Errors
    /// That of send(2).
    pub fn send(&mut self) -> std::io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = self.socket.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Receives once, by way of `buffer`, and appends what was answered. False if there was nothing to receive.
    ///
    /// # Errors
    /// What is wrong with the answer, or with the connection.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        answered: &mut Vec<Answered>,
    ) -> Result<bool, String> {
        let (room_bytes, discards) = self.room(buffer.len());
        let flags = match discards {
            true => RecvFlags::DONTWAIT | RecvFlags::TRUNC,
            false => RecvFlags::DONTWAIT,
        };
        match recv(&self.socket, &mut buffer[..room_bytes], flags) {
            Ok((0, _)) => Err("closed a connection".into()),
            Ok((got, _)) if discards => {
                self.skip(got, answered);
                Ok(true)
            }
            Ok((got, _)) => self.feed(&buffer[..got], answered).map(|()| true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(format!("recv: {error}")),
        }
    }

    /// How much to receive next, and whether the kernel discards it.
    fn room(&self, most_bytes: usize) -> (usize, bool) {
        if self.len_bytes as usize <= WHOLE_BYTES_MAX {
            return (most_bytes, false); // replies follow each other
        }
        match &self.at {
            Receiving::Head(head) => (HEAD_BYTES.saturating_sub(head.len()).max(1), false),
            Receiving::Payload {
                left_bytes, kept, ..
            } => ((*left_bytes).min(most_bytes), kept.is_none()),
        }
    }

    /// Takes bytes of the stream that were received.
    fn feed(&mut self, bytes: &[u8], answered: &mut Vec<Answered>) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match &mut self.at {
                Receiving::Head(_) => self.feed_head(rest)?,
                Receiving::Payload {
                    left_bytes, kept, ..
                } => {
                    let taken = (*left_bytes).min(rest.len());
                    if let Some(kept) = kept {
                        kept.extend_from_slice(&rest[..taken]);
                    }
                    self.skip(taken, answered);
                    taken
                }
            };
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Takes bytes up to the payload at most; returns how many.
    fn feed_head(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let Receiving::Head(head) = &mut self.at else {
            return Ok(0);
        };
        let Parsed::Needs(wanted_bytes) = parse_read(head)? else {
            return Ok(0); // the payload begins as soon as the head is complete
        };
        let taken = (wanted_bytes - head.len()).min(bytes.len());
        head.extend_from_slice(&bytes[..taken]);
        let Parsed::Is(reply) = parse_read(head)? else {
            return Ok(taken);
        };
        let slot = reply.xid as usize;
        let asked = self.slots.get(slot).copied().flatten();
        let asked = asked.ok_or_else(|| format!("a reply to {slot}, which is not under way"))?;
        if reply.payload_bytes != self.len_bytes {
            return Err(format!(
                "READ of {} bytes at {} brings {}",
                self.len_bytes, asked.offset_bytes, reply.payload_bytes
            ));
        }
        let left_bytes = reply.behind_bytes as usize;
        self.at = Receiving::Payload {
            slot,
            left_bytes,
            payload_bytes: reply.payload_bytes,
            kept: asked.is_checked.then(|| Vec::with_capacity(left_bytes)),
        };
        Ok(taken)
    }

    /// So many bytes of payload and padding have come.
    fn skip(&mut self, bytes: usize, answered: &mut Vec<Answered>) {
        let Receiving::Payload {
            slot,
            left_bytes,
            payload_bytes,
            kept,
        } = &mut self.at
        else {
            return;
        };
        *left_bytes -= bytes;
        if *left_bytes > 0 {
            return;
        }
        if let Some(asked) = self.slots[*slot].take() {
            answered.push(Answered {
                asked,
                payload_bytes: *payload_bytes,
                payload: kept.take(),
            });
        }
        self.at = Receiving::Head(Vec::with_capacity(HEAD_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_wire::nfs3::{Read, Results, reply};
    use std::net::TcpListener;

    fn conn(under_way: usize, len_bytes: u32) -> (Conn, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        (Conn::new(client, under_way, len_bytes), server)
    }

    fn asked(offset_bytes: u64, is_checked: bool) -> Asked {
        Asked {
            offset_bytes,
            since: Instant::now(),
            is_checked,
        }
    }

    fn replied(xid: u32, payload: &[u8]) -> Vec<u8> {
        let part = Read {
            len_bytes: payload.len() as u32,
            is_end: false,
        };
        let mut bytes = Vec::new();
        reply(xid, &Results::Read(Ok(part), None), &mut bytes);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Receives until so many READs are answered.
    fn answers(conn: &mut Conn, count: usize) -> Result<Vec<Answered>, String> {
        let (mut buffer, mut answered) = (vec![0; 128 << 10], Vec::new());
        while answered.len() < count {
            conn.receive(&mut buffer, &mut answered)?;
        }
        Ok(answered)
    }

    #[test]
    fn replies_come_in_any_order_and_may_be_cut_anywhere() {
        for len_bytes in [5, 60_000] {
            let (mut conn, mut server) = conn(3, len_bytes);
            (0..3).for_each(|slot| conn.ask(b"file", asked(slot * 100, slot != 1)));
            assert!(!conn.has_room());
            conn.send().unwrap();
            let payload = |slot: u32| vec![slot as u8 + 1; len_bytes as usize];
            let bytes = [2, 0, 1].map(|slot| replied(slot, &payload(slot))).concat();
            let writer = std::thread::spawn(move || {
                for piece in bytes.chunks(13_001) {
                    server.write_all(piece).unwrap();
                }
                server
            });
            let answered = answers(&mut conn, 3).unwrap();
            let offsets = answered.iter().map(|one| one.asked.offset_bytes);
            assert_eq!(offsets.collect::<Vec<_>>(), [200, 0, 100]);
            let kept = answered.iter().map(|one| {
                let whole = one.payload.as_ref()?;
                Some(whole[..len_bytes as usize].to_vec())
            });
            let expected = [Some(payload(2)), Some(payload(0)), None];
            assert_eq!(kept.collect::<Vec<_>>(), expected);
            assert!(conn.has_room());
            writer.join().unwrap();
        }
    }

    #[test]
    fn a_reply_that_nobody_waits_for_or_that_is_short_is_an_error() {
        for (reply, what) in [
            (replied(1, b"abcd"), "not under way"),
            (replied(0, b"abc"), "brings 3"),
        ] {
            let (mut conn, mut server) = conn(2, 4);
            conn.ask(b"file", asked(0, false));
            server.write_all(&reply).unwrap();
            let error = answers(&mut conn, 1).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
