//! The connection to a client as a worker uses it: requests come in, and texts and files go out. All bytes are counted as the
//! kernel counts them.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_core::conn::Span;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, send, sendmsg};

/// A client's socket: TCP or a unix socket.
#[derive(Debug)]
pub struct Transport(pub(crate) OwnedFd);

impl Transport {
    pub fn new(socket: OwnedFd) -> Transport {
        Transport(socket)
    }

    /// Receives into `into`; 0 is the peer's FIN.
    /// Errors: EAGAIN when there are no bytes; the socket's error.
    pub fn receive(&self, into: &mut [u8]) -> rustix::io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *into, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                result => return result.map(|(read, _)| read),
            }
        }
    }

    /// Sends slices of memory one after the other, texts or bytes of a file, and returns how many bytes the socket took. `more`: bytes follow at once.
    pub fn send_slices(&self, slices: &[IoSlice<'_>], more: bool) -> rustix::io::Result<u64> {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        loop {
            let sent = match slices {
                [one] => send(&self.0, one, flags),
                several => sendmsg(&self.0, several, &mut SendAncillaryBuffer::default(), flags),
            };
            match sent {
                Err(Errno::INTR) => {}
                sent => return sent.map(|taken| taken as u64),
            }
        }
    }

    /// Sends a span of a file from the page cache, and returns how many bytes of it the socket took; 0 at the end of the file.
    /// Errors: EAGAIN when the socket takes nothing; EIO when a page can't be read; EINVAL when the file system has no
    /// sendfile(2), as parts of /proc; the socket's error.
    pub fn send_file(&self, file: impl AsFd, span: Span) -> rustix::io::Result<u64> {
        let mut at_bytes = span.offset_bytes;
        loop {
            match rustix::fs::sendfile(&self.0, &file, Some(&mut at_bytes), span.len_bytes as usize)
            {
                Err(Errno::INTR) => {}
                result => return result.map(|taken| taken as u64),
            }
        }
    }

    /// Says that no more bytes follow; the client's may still come.
    pub fn shutdown(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
        (Transport::new(server.into()), client)
    }

    #[test]
    fn what_a_plain_transport_took_is_what_arrives_and_what_the_kernel_counts() {
        let (transport, mut client) = tcp_pair();
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("a", rustix::fs::MemfdFlags::CLOEXEC).expect("memory"),
        );
        file.write_all(b"0123456789").expect("room");
        let texts = [IoSlice::new(b"one"), IoSlice::new(b"two")];
        let taken = transport.send_slices(&texts, false);
        assert_eq!(taken, Ok(6));
        let span = Span {
            offset_bytes: 4,
            len_bytes: 100,
        };
        assert_eq!(transport.send_file(&file, span), Ok(6), "to its end");
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
        assert_eq!(transport.unsent_bytes(), Some(0));
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
        transport.set_lowat(10_000);
        let mut taken_bytes = 0;
        while let Ok(taken) = transport.send_slices(&[IoSlice::new(&[7; 65_536])], false) {
            taken_bytes += taken;
        }
        let unsent = transport.unsent_bytes().expect("TCP");
        assert!((1..=taken_bytes).contains(&unsent), "{unsent}");
        transport.abort();
        drop(transport);
        let ended = client.read_to_end(&mut Vec::new()).map_err(|e| e.kind());
        assert_eq!(ended, Err(std::io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn a_unix_socket_has_no_count_of_what_is_unsent() {
        let (server, _client) = UnixStream::pair().expect("two descriptors");
        let transport = Transport::new(server.into());
        assert_eq!(transport.unsent_bytes(), None);
        assert_eq!(transport.sample().flow, None);
    }
}
