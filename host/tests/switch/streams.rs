//! Real connections of TCP between the client and a node.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ackpace_wire::cluster::Tuple;
use rustix::net::{AddressFamily, SocketType};

use crate::packets::tuple;
use crate::world::{CLIENT, PORT, World, vip};

/// Listens at a node.
pub fn listen(world: &World, node: usize, is_ipv6: bool) -> TcpListener {
    let vip = SocketAddr::new(vip(is_ipv6), PORT);
    world.within(node, move || TcpListener::bind(vip).expect("it is on lo"))
}

/// A connection of the client by this port, and its end at whoever listens.
pub fn connect(
    world: &World,
    listener: &TcpListener,
    is_ipv6: bool,
    port: u16,
) -> (Tuple, TcpStream, TcpStream) {
    let tuple = tuple(is_ipv6, port);
    let client = world.within(CLIENT, move || {
        let family = if is_ipv6 {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&socket, &tuple.client).expect("its own address");
        rustix::net::connect(&socket, &tuple.server).expect("it listens");
        TcpStream::from(socket)
    });
    client
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a time");
    let server = listener.accept().expect("just now").0;
    server
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a time");
    (tuple, client, server)
}

/// Bytes of which none stands where another one does.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let words = (0..bytes as u32).step_by(4);
    words
        .flat_map(|at| (at / 4).wrapping_mul(2_654_435_761).to_le_bytes())
        .take(bytes)
        .collect()
}

/// Writes it on a thread of its own.
pub fn write(stream: &TcpStream, bytes: Vec<u8>) {
    let mut stream = stream.try_clone().expect("a descriptor");
    std::thread::spawn(move || drop(stream.write_all(&bytes)));
}

/// Whether exactly this comes next.
pub fn comes(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    let mut read = vec![0; bytes.len()];
    stream.read_exact(&mut read).is_ok() && read == bytes
}

/// What comes within a time: `None`: nothing; `Some(0)`: the end.
pub fn within(stream: &mut TcpStream, time: Duration) -> Option<usize> {
    stream.set_read_timeout(Some(time)).expect("a time");
    let mut read = stream.read(&mut [0; 4_096]);
    while (read.as_ref()).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
        read = stream.read(&mut [0; 4_096]);
    }
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a time");
    match read {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(_) => Some(0),
    }
}

/// How many segments the kernel has sent again.
pub fn sent_again(stream: &TcpStream) -> u32 {
    use std::os::fd::AsRawFd;
    // SAFETY: plain numbers, and the kernel writes no more than there is.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut len = size_of::<libc::tcp_info>() as u32;
        let into = (&raw mut info).cast();
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            into,
            &raw mut len,
        );
        info.tcpi_total_retrans
    }
}
