//! A server's end of the door to a broker.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use ackpace_wire::cluster::broker::{Reply, Request, encode_request, parse_reply};
use ackpace_wire::limits::BROKER_DATAGRAM_BYTES_MAX;
use rustix::cmsg_space;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};

/// A connection to a broker.
pub struct Client {
    stream: OwnedFd,
    id: u64,
}

impl Client {
    /// `None`: nobody listens.
    pub fn connect(path: &Path) -> Option<Client> {
        let kind = SocketType::SEQPACKET;
        let stream = net::socket(AddressFamily::UNIX, kind, None).expect("a socket");
        net::connect(&stream, &SocketAddrUnix::new(path).expect("short")).ok()?;
        Some(Client { stream, id: 0 })
    }

    /// Makes room for another server.
    pub fn leave(&self) {
        net::shutdown(&self.stream, net::Shutdown::Both).expect("it is connected");
    }

    /// Asks, and waits for the answer.
    pub fn ask(
        &mut self,
        request: &Request,
        socket: Option<BorrowedFd<'_>>,
    ) -> (Reply, Option<OwnedFd>) {
        self.id += 1;
        self.send(&encode_request(self.id, request), socket.as_slice());
        let (answer, socket) = self.hear().expect("the broker is there");
        let (id, reply) = parse_reply(&answer).expect("an answer");
        assert_eq!(id, self.id);
        (reply, socket)
    }

    /// Sends any bytes, with any sockets.
    pub fn send(&self, datagram: &[u8], sockets: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(sockets));
        }
        let flags = SendFlags::NOSIGNAL;
        net::sendmsg(&self.stream, &[IoSlice::new(datagram)], &mut beside, flags)
            .expect("the broker is there");
    }

    /// Sends without waiting; `false`: the broker takes no more, or has closed.
    pub fn try_send(&self, datagram: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match net::send(&self.stream, datagram, flags) {
            Ok(_) => true,
            // It is busy with the ones before.
            Err(rustix::io::Errno::AGAIN) => {
                std::thread::sleep(std::time::Duration::from_micros(100));
                true
            }
            Err(_) => false,
        }
    }

    /// The next answer; `None`: the broker has closed.
    pub fn hear(&self) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let mut bytes = vec![0; BROKER_DATAGRAM_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut bytes)];
        let came = net::recvmsg(self.stream.as_fd(), &mut into, &mut beside, flags).ok()?;
        let sockets = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        bytes.truncate(came.bytes);
        (came.bytes > 0).then_some((bytes, sockets))
    }
}
