//! The connection to a client as a worker uses it: plaintext goes in and comes out, whatever it is on the wire.
//!
//! A response, its plan and the worker machine count plaintext. The kernel's counters of a socket (SIOCOUTQ, TCP_INFO,
//! TCP_NOTSENT_LOWAT) count bytes on the wire. `Transport::plaintext` and `Transport::on_wire` are the only places
//! where one becomes the other.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_core::conn::{Span, TcpSample};
use ackpace_core::rate::Flow;
use ackpace_share::Control;
use ackpace_share::reading::Counted;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, send, sendmsg};

use crate::limits::COPY_BYTES;
use crate::tcp;

/// Bytes of requests and responses, as HTTP counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlainBytes(pub u64);

/// Bytes of the TCP stream, as the kernel counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireBytes(pub u64);

/// A client's socket, and what its bytes are on the wire.
#[derive(Debug)]
pub enum Transport {
    /// TCP or a unix socket; the wire carries plaintext.
    Plain(OwnedFd),
}

impl Transport {
    /// Receives into `into`; 0 is the peer's FIN.
    ///
    /// # Errors
    /// EAGAIN when there are no bytes; the socket's error.
    pub fn receive(&self, into: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Transport::Plain(socket) => receive(socket, into),
        }
    }

    /// Sends texts one after the other, and returns how much of them the socket took. `more`: bytes follow at once.
    ///
    /// # Errors
    /// As send(2); EAGAIN for a socket that takes nothing now.
    pub fn send_texts(&self, texts: &[IoSlice<'_>], more: bool) -> rustix::io::Result<PlainBytes> {
        let taken = match self {
            Transport::Plain(socket) => send_texts(socket, texts, more),
        };
        taken.map(|taken| PlainBytes(taken as u64))
    }

    /// Sends a span of a file from the page cache, and returns how much of it the socket took; 0 at the end of the file.
    ///
    /// # Errors
    /// EAGAIN when the socket takes nothing; EIO when a page can't be read; the socket's error.
    pub fn send_file(&self, file: &OwnedFd, span: Span) -> rustix::io::Result<PlainBytes> {
        let taken = match self {
            Transport::Plain(socket) => send_file(socket, file, span),
        };
        taken.map(|taken| PlainBytes(taken as u64))
    }

    /// What bytes on the wire are in plaintext. A transport that can't say it exactly rounds up: bytes that wait or are
    /// in flight may be overstated, since nothing may count as arrived that has not.
    fn plaintext(&self, wire: WireBytes) -> PlainBytes {
        match self {
            Transport::Plain(_) => PlainBytes(wire.0),
        }
    }

    /// What plaintext is at most on the wire.
    fn on_wire(&self, plain: PlainBytes) -> WireBytes {
        match self {
            Transport::Plain(_) => WireBytes(plain.0),
        }
    }

    /// Bytes that were taken and have not been sent yet, without those in flight. `None` where that can't be known.
    pub fn unsent(&self) -> Option<PlainBytes> {
        let unsent = tcp::unsent_bytes(self.socket()).map(WireBytes);
        unsent.map(|wire| self.plaintext(wire))
    }

    /// Bytes that were taken and are not acknowledged, unsent ones included. `None` where that can't be known.
    pub fn held(&self) -> Option<PlainBytes> {
        let held = tcp::held_bytes(self.socket()).map(WireBytes);
        held.map(|wire| self.plaintext(wire))
    }

    /// Whether the kernel has given the connection up: it was reset, or has timed out.
    pub fn is_dead(&self) -> bool {
        tcp::is_dead(self.socket())
    }

    /// Its congestion control.
    pub fn control(&self) -> Control {
        tcp::control(self.socket())
    }

    /// TCP's state of the connection. What the client has and lacks is counted in plaintext; windows, segments and the
    /// path stay as they are on the wire.
    pub fn sample(&self) -> TcpSample {
        self.in_plaintext(tcp::sample(self.socket()))
    }

    /// The same, and what the division of send memory needs besides; that counts what is on the wire.
    pub fn sample_and_count(&self) -> (TcpSample, Counted) {
        let (wire, counted) = tcp::sample_and_count(self.socket());
        (self.in_plaintext(wire), counted)
    }

    fn in_plaintext(&self, wire: TcpSample) -> TcpSample {
        let plain_bytes = |wire_bytes| self.plaintext(WireBytes(wire_bytes)).0;
        TcpSample {
            unacked_bytes: plain_bytes(wire.unacked_bytes),
            unsent_bytes: wire.unsent_bytes.map(plain_bytes),
            flow: wire.flow.map(|flow| Flow {
                acked_bytes: plain_bytes(flow.acked_bytes),
                ..flow
            }),
            ..wire
        }
    }

    /// The socket takes no more than this beyond what is in flight (TCP_NOTSENT_LOWAT).
    pub fn set_lowat(&self, unsent_max: PlainBytes) {
        let wire = self.on_wire(unsent_max).0;
        tcp::set_lowat(self.socket(), wire.try_into().unwrap_or(u32::MAX));
    }

    /// The kernel's bound of what it holds, unsent and in flight (SO_SNDBUF).
    pub fn bound_send_buffer(&self, most: PlainBytes) {
        tcp::bound_send_buffer(self.socket(), self.on_wire(most).0);
    }

    /// The rate at which it sends at most, a hint; `None`: as fast as TCP likes.
    pub fn set_pace(&self, rate_bytes_per_s: Option<u64>) {
        let wire_bytes_per_s = rate_bytes_per_s.map(|rate| self.on_wire(PlainBytes(rate)).0);
        tcp::set_pace(self.socket(), wire_bytes_per_s);
    }

    /// Holds back segments that are not full, or sends the last one.
    pub fn cork(&self, on: bool) {
        tcp::cork(self.socket(), on);
    }

    /// Says that no more bytes follow; the client's may still come.
    pub fn shutdown(&self) {
        match self {
            Transport::Plain(socket) => {
                let _ = rustix::net::shutdown(socket, Shutdown::Write);
            }
        }
    }

    /// Makes the following close send RST and drop the bytes in the kernel.
    pub fn abort(&self) {
        tcp::abort(self.socket());
    }

    fn socket(&self) -> &OwnedFd {
        match self {
            Transport::Plain(socket) => socket,
        }
    }
}

/// recv(2).
fn receive(socket: &OwnedFd, into: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return result.map(|(read, _)| read),
        }
    }
}

/// send(2) and sendmsg(2).
fn send_texts(socket: &OwnedFd, texts: &[IoSlice<'_>], more: bool) -> rustix::io::Result<usize> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    loop {
        let sent = match texts {
            [one] => send(socket, one, flags),
            several => sendmsg(socket, several, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}

/// sendfile(2), or a copy where the file system refuses it.
fn send_file(socket: &OwnedFd, file: &OwnedFd, span: Span) -> rustix::io::Result<usize> {
    let mut at_bytes = span.offset_bytes;
    loop {
        match rustix::fs::sendfile(socket, file, Some(&mut at_bytes), span.len_bytes as usize) {
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) => return copy_file(socket, file, span),
            result => return result,
        }
    }
}

/// As sendfile(2), for file systems whose files can't be spliced, such as some that are no part of Linux.
fn copy_file(socket: &OwnedFd, file: &OwnedFd, span: Span) -> rustix::io::Result<usize> {
    let mut room = [0; COPY_BYTES];
    let (mut taken, len) = (0, span.len_bytes as usize);
    while taken < len {
        let into = &mut room[..COPY_BYTES.min(len - taken)];
        let read = match rustix::io::pread(file, into, span.offset_bytes + taken as u64) {
            Err(Errno::INTR) => continue,
            Err(error) if taken == 0 => return Err(error),
            Ok(0) | Err(_) => break, // the next call meets an error again
            Ok(read) => read,
        };
        match send_texts(socket, &[IoSlice::new(&room[..read])], false) {
            Err(error) if taken == 0 => return Err(error),
            Err(_) => break,
            Ok(sent) => taken += sent,
        }
        if taken % COPY_BYTES != 0 {
            break; // the socket is full, or the file ends
        }
    }
    Ok(taken)
}

/// For epoll.
impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn tcp_pair() -> (Transport, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a client");
        let (server, _) = listener.accept().expect("the client");
        server.set_nonblocking(true).expect("a socket");
        (Transport::Plain(server.into()), client)
    }

    #[test]
    fn a_file_that_sendfile_refuses_is_copied() {
        let file = std::fs::File::open("/proc/self/cmdline").expect("procfs");
        let (transport, mut client) = tcp_pair();
        let Transport::Plain(socket) = &transport;
        let refused = rustix::fs::sendfile(socket, &file, Some(&mut 0), 9);
        assert_eq!(refused, Err(Errno::INVAL), "it has no splice_read");
        let span = |offset_bytes, len_bytes| Span {
            offset_bytes,
            len_bytes,
        };
        let content = std::fs::read("/proc/self/cmdline").expect("procfs");
        let file = OwnedFd::from(file);
        let all = content.len() as u64;
        assert_eq!(transport.send_file(&file, span(0, 3)), Ok(PlainBytes(3)));
        let rest = transport.send_file(&file, span(3, 1 << 20));
        assert_eq!(rest, Ok(PlainBytes(all - 3)));
        assert_eq!(transport.send_file(&file, span(all, 9)), Ok(PlainBytes(0)));
        transport.shutdown();
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("all of it");
        assert_eq!(came, content);
    }

    #[test]
    fn what_a_plain_transport_took_is_what_arrives_and_what_the_kernel_counts() {
        let (transport, mut client) = tcp_pair();
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("a", rustix::fs::MemfdFlags::CLOEXEC).expect("memory"),
        );
        file.write_all(b"0123456789").expect("room");
        let texts = [IoSlice::new(b"one"), IoSlice::new(b"two")];
        let taken = transport.send_texts(&texts, false);
        assert_eq!(taken, Ok(PlainBytes(6)));
        let span = Span {
            offset_bytes: 4,
            len_bytes: 100,
        };
        assert_eq!(
            transport.send_file(&file.into(), span),
            Ok(PlainBytes(6)),
            "to its end"
        );
        transport.shutdown();
        let mut came = String::new();
        client.read_to_string(&mut came).expect("all of it");
        assert_eq!(came, "onetwo456789");
        // The ACKs come in a moment; the loop ends by its count, not by a clock.
        let acked = (0..1_000_000)
            .map(|_| transport.sample())
            .find(|sample| sample.unacked_bytes <= 1); // the FIN counts as one
        let flow = acked.and_then(|sample| sample.flow);
        let acked_bytes = flow.expect("Linux 5.4 or later").acked_bytes;
        assert!((12..=13).contains(&acked_bytes), "{acked_bytes}");
        assert_eq!(transport.unsent(), Some(PlainBytes(0)));
        client.write_all(b"GET").expect("still open");
        drop(client);
        let mut bytes = [0; 8];
        let received = (0..1_000_000)
            .map(|_| transport.receive(&mut bytes))
            .find(|received| *received != Err(Errno::AGAIN));
        assert_eq!(received, Some(Ok(3)));
    }

    #[test]
    fn a_full_transport_counts_what_it_holds_and_an_aborted_one_resets() {
        let (transport, mut client) = tcp_pair();
        transport.set_lowat(PlainBytes(10_000));
        let mut taken_bytes = 0;
        while let Ok(taken) = transport.send_texts(&[IoSlice::new(&[7; 65_536])], false) {
            taken_bytes += taken.0;
        }
        let unsent = transport.unsent().expect("TCP");
        assert!(unsent.0 > 0 && unsent.0 <= taken_bytes, "{unsent:?}");
        assert!(unsent <= transport.plaintext(transport.on_wire(PlainBytes(taken_bytes))));
        transport.abort();
        drop(transport);
        let ended = client.read_to_end(&mut Vec::new()).map_err(|e| e.kind());
        assert_eq!(ended, Err(std::io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn a_unix_socket_has_no_count_of_what_is_unsent() {
        let (server, _client) = UnixStream::pair().expect("two descriptors");
        let transport = Transport::Plain(server.into());
        assert_eq!(transport.unsent(), None);
        assert_eq!(transport.sample().flow, None);
    }
}
