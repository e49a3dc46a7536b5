//! Small senders and receivers in one thread. It polls all connections every few ms, so a thousand of them cost
//! little, and acknowledgements never wait for a reader.

use crate::Wan;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, acceptfrom_with, bind, connect,
    getsockname, listen, recv, send, socket_with, sockopt,
};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Interval between two polls. Buffers hold the data that arrives in between.
const TURN: Duration = Duration::from_millis(4);
const PATIENCE: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 256 << 10;

/// A connection of which we hold both ends.
pub struct Pair {
    /// The server's end.
    pub server: OwnedFd,
    /// The client's end.
    pub client: OwnedFd,
}

/// The sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A download.
    Server,
    /// An upload.
    Client,
}

/// Data that a connection transferred during the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time between the two readings of this connection.
    pub seconds: f64,
}

impl Pair {
    /// The sending end, then the receiving one.
    pub fn ends(&self, sender: Sender) -> (&OwnedFd, &OwnedFd) {
        match sender {
            Sender::Server => (&self.server, &self.client),
            Sender::Client => (&self.client, &self.server),
        }
    }
}

/// Sizes of socket buffers. All connections share the machine's TCP memory: when it is short, all starve.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Send buffer: more than the data in flight, to cover the interval between two polls.
    pub send_bytes: usize,
    /// Receive buffer: about half of the window that the kernel derives from it.
    pub receive_bytes: usize,
}

/// Connects each client address to the server, all at once; returns them in the same order.
pub fn connect_all(
    wan: &Wan,
    clients: &[IpAddr],
    port: u16,
    buffers: impl Fn(usize) -> Buffers + Sync,
) -> Result<Vec<Pair>> {
    let server = SocketAddr::new(wan.server_addresses()[0], port);
    let listener = wan.server().run(|| {
        let what = || format!("listening at {server}");
        let listener = socket(server.ip(), SocketType::STREAM).doing(what)?;
        sockopt::set_socket_reuseaddr(&listener, true).doing(what)?;
        set_buffers(&listener, buffers(0))?;
        bind(&listener, &server).doing(what)?;
        listen(&listener, 4096).doing(what)?;
        Ok(listener)
    })?;
    let ends = wan.client().run(|| {
        let open = |(nth, address): (usize, &IpAddr)| {
            let what = || format!("connecting from {address}");
            let end = socket(*address, SocketType::STREAM).doing(what)?;
            set_buffers(&end, buffers(nth))?;
            bind(&end, &SocketAddr::new(*address, 0)).doing(what)?;
            match connect(&end, &server) {
                Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
                Err(error) => return Err(error).doing(what),
            }
            let own = getsockname(&end).doing(what)?;
            Ok((SocketAddr::try_from(own).doing(what)?, end))
        };
        clients
            .iter()
            .enumerate()
            .map(open)
            .collect::<Result<Vec<_>>>()
    })?;
    let mut accepted = HashMap::new();
    let until = Instant::now() + PATIENCE;
    while accepted.len() < clients.len() {
        match acceptfrom_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((end, Some(peer))) => {
                let peer = SocketAddr::try_from(peer).doing(|| "accept".into())?;
                accepted.insert(peer, end);
            }
            Ok((_, None)) => {}
            Err(rustix::io::Errno::AGAIN) if Instant::now() < until => std::thread::sleep(TURN),
            Err(error) => return Err(error).doing(|| "waiting for connections".into()),
        }
    }
    let pair = |(nth, (own, client)): (usize, (SocketAddr, OwnedFd))| {
        let server = accepted.remove(&own);
        let server =
            server.ok_or_else(|| LabError::Setup(format!("a stranger in place of {own}")))?;
        set_buffers(&server, buffers(nth))?;
        Ok(Pair { server, client })
    };
    ends.into_iter().enumerate().map(pair).collect()
}

/// A UDP socket of the client and one of the server, connected to each other. `port` is the server's.
pub fn datagrams(wan: &Wan, client: IpAddr, port: u16) -> Result<Pair> {
    let what = || format!("UDP between {client} and port {port}");
    let ends = [
        SocketAddr::new(wan.server_addresses()[0], port),
        SocketAddr::new(client, port),
    ];
    let open = |own: SocketAddr| {
        let end = socket(own.ip(), SocketType::DGRAM).doing(what)?;
        sockopt::set_socket_recv_buffer_size_force(&end, 64 << 20).doing(what)?;
        bind(&end, &own).doing(what)?;
        Ok(end)
    };
    let server = wan.server().run(|| open(ends[0]))?;
    let client = wan.client().run(|| open(ends[1]))?;
    connect(&server, &ends[1]).doing(what)?;
    connect(&client, &ends[0]).doing(what)?;
    Ok(Pair { server, client })
}

impl Buffers {
    /// The same size for both directions.
    pub fn both(bytes: usize) -> Buffers {
        Buffers {
            send_bytes: bytes,
            receive_bytes: bytes,
        }
    }

    /// For a window of up to 200 ms at a rate, with a queue of `QUEUE_MS`. The window fills the link and never
    /// overflows the queue, so no gap in the stream hides bytes that have arrived.
    pub fn filling(mbit_per_s: f64) -> Buffers {
        let receive_bytes = (mbit_per_s * 12_500.0) as usize;
        Buffers {
            send_bytes: 8 * receive_bytes,
            receive_bytes,
        }
    }
}

/// Length of the queue of a link that [`Buffers::filling`] is to fill.
pub const QUEUE_MS: f64 = 400.0;

/// Sends as much as TCP accepts on all connections; measures for `measured` after the warm-up.
pub fn pump(pairs: &[(Pair, Sender)], warm_up: Duration, measured: Duration) -> Result<Vec<Moved>> {
    let chunk = vec![0x5a; CHUNK_BYTES];
    let mut sink = vec![0; CHUNK_BYTES];
    let pause = TURN * (1 + pairs.len() as u32 / 200); // poll a thousand connections less often
    let began = Instant::now();
    let mut arrived = vec![0u64; pairs.len()];
    let mut marks: Vec<Option<(u64, Instant)>> = vec![None; pairs.len()];
    let mut moved: Vec<Option<Moved>> = vec![None; pairs.len()];
    loop {
        let turn = Instant::now();
        for (nth, (pair, from)) in pairs.iter().enumerate() {
            let (sender, receiver) = pair.ends(*from);
            arrived[nth] += drain(receiver, &mut sink)?;
            let now = Instant::now();
            let mark = marks[nth].get_or_insert((arrived[nth], now));
            if now - began < warm_up {
                *mark = (arrived[nth], now);
            } else if now - mark.1 >= measured && moved[nth].is_none() {
                moved[nth] = Some(Moved {
                    bytes: arrived[nth] - mark.0,
                    seconds: (now - mark.1).as_secs_f64(),
                });
            }
            fill(sender, &chunk)?;
        }
        if moved.iter().all(Option::is_some) {
            return Ok(moved.into_iter().flatten().collect());
        }
        std::thread::sleep(pause.saturating_sub(turn.elapsed()));
    }
}

/// Discards all data that has arrived; returns its length in bytes.
pub fn drain(receiver: &OwnedFd, sink: &mut [u8]) -> Result<u64> {
    let mut bytes = 0;
    loop {
        // MSG_TRUNC: the kernel discards the data instead of copying it (tcp(7)).
        match recv(receiver, &mut *sink, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok(bytes),
            Ok((_, len)) => bytes += len as u64,
            Err(rustix::io::Errno::AGAIN) => return Ok(bytes),
            Err(error) => return Err(error).doing(|| "receiving".into()),
        }
    }
}

fn fill(sender: &OwnedFd, chunk: &[u8]) -> Result<()> {
    loop {
        match send(sender, chunk, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(len) if len == chunk.len() => {}
            Ok(_) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error).doing(|| "sending".into()),
        }
    }
}

fn socket(address: IpAddr, kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    socket_with(
        family,
        kind,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
}

fn set_buffers(socket: &OwnedFd, buffers: Buffers) -> Result<()> {
    let what = || "socket buffers".to_owned();
    sockopt::set_socket_recv_buffer_size_force(socket, buffers.receive_bytes).doing(what)?;
    let bytes = libc::c_int::try_from(buffers.send_bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: SO_SNDBUFFORCE reads one int, which lives here.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(what),
    }
}
