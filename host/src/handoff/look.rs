//! What Linux tells and takes of a connection that moves, for which it has no option: the sequence numbers of a live socket,
//! congestion window and slow start threshold (`host/src/bpf/seed.bpf.c`).

use std::fs;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;

use ackpace_host_base::bpf::{Aligned, Program};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::Fields;
use ackpace_host_base::object;
use ackpace_wire::cluster::Tuple;

use super::Refused;
use super::socket;

static OBJECT: &Aligned<[u8]> = object!("seed");
const NEEDS: &str =
    "this kernel has no BTF or no congestion control by BPF: Linux 6.6 or later has both";
/// `struct question` with room for a `struct answer`.
const PACKET_BYTES: usize = 64;

/// A socket as it was at one moment. Names are those of `struct tcp_sock`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// SO_COOKIE, or 0 where nobody has asked for it yet.
    pub cookie: u64,
    /// Behind the last byte that was written.
    pub write_seq: u32,
    /// The first byte that is not acknowledged.
    pub snd_una: u32,
    /// The next byte to be sent.
    pub snd_nxt: u32,
    /// The next byte expected from the client.
    pub rcv_nxt: u32,
    /// The next byte that the program reads.
    pub copied_seq: u32,
    /// Congestion window.
    pub cwnd_segments: u32,
    /// Slow start threshold.
    pub ssthresh_segments: u32,
    /// Smoothed round trip time; 0 without a sample.
    pub srtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// Segments that are SACKed, lost or sent again.
    pub outstanding: u32,
    /// 1: ESTABLISHED.
    pub state: u8,
    /// State of congestion control (`enum tcp_ca_state`).
    pub ca_state: u8,
    /// Segments of the client wait for an earlier one.
    pub has_hole: bool,
    /// Urgent data is pending.
    pub is_urgent: bool,
}

/// The door to the kernel.
pub struct Sockets {
    program: Program,
    /// Of the congestion control.
    name: String,
}

impl Sockets {
    /// Loads the programs, and registers the congestion control until this is dropped.
    ///
    /// # Errors
    /// The kernel refuses; what to do. Or this binary has no BPF.
    pub fn open() -> Result<Sockets, Failure> {
        Sockets::open_as("ack")
    }

    /// The same beside another one in this network namespace, whose congestion control has another name.
    pub(super) fn open_as(prefix: &str) -> Result<Sockets, Failure> {
        let space = fs::metadata("/proc/thread-self/ns/net")
            .map_err(|error| Failure::runtime(format!("/proc/thread-self/ns/net: {error}")))?
            .ino();
        let name = format!("{prefix}{space}");
        let mut program = Program::load_named(OBJECT, NEEDS, "seed", &name)?;
        program.attach_structures()?;
        Ok(Sockets { program, name })
    }

    /// Looks at the connection in this network namespace; `None`: there is none.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn look(&mut self, tuple: &Tuple) -> Result<Option<Looked>, Failure> {
        let mut packet = question(tuple);
        match self.program.run("look", &mut packet)? {
            0 => Ok(Some(answer(&packet))),
            _ => Ok(None),
        }
    }

    /// Sets congestion window and slow start threshold, in segments.
    ///
    /// # Errors
    /// As bpf(2) and setsockopt(2).
    pub fn seed(
        &mut self,
        socket: BorrowedFd<'_>,
        cwnd_segments: u32,
        ssthresh_segments: u32,
    ) -> Result<(), Refused> {
        let control = socket::congestion_control(socket)?;
        let windows = [cwnd_segments, ssthresh_segments].map(u32::to_ne_bytes);
        self.program.set_only("windows", &windows.concat())?;
        socket::set_congestion_control(socket, &self.name)?;
        socket::set_congestion_control(socket, &control)
    }
}

/// `struct question`.
fn question(tuple: &Tuple) -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    let family = match tuple.client {
        std::net::SocketAddr::V4(_) => libc::AF_INET,
        std::net::SocketAddr::V6(_) => libc::AF_INET6,
    };
    packet[14..16].copy_from_slice(&(family as u16).to_ne_bytes());
    for (at, end) in [(16, tuple.client), (32, tuple.server)] {
        match end.ip() {
            IpAddr::V4(ip) => packet[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => packet[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    packet[48..50].copy_from_slice(&tuple.client.port().to_be_bytes());
    packet[50..52].copy_from_slice(&tuple.server.port().to_be_bytes());
    packet
}

/// `struct answer`.
fn answer(packet: &[u8]) -> Looked {
    let mut told = Fields(packet);
    Looked {
        cookie: told.long(),
        write_seq: told.word(),
        snd_una: told.word(),
        snd_nxt: told.word(),
        rcv_nxt: told.word(),
        copied_seq: told.word(),
        cwnd_segments: told.word(),
        ssthresh_segments: told.word(),
        srtt_us: told.word(),
        rttvar_us: told.word(),
        outstanding: told.word(),
        state: told.take::<1>()[0],
        ca_state: told.take::<1>()[0],
        has_hole: told.take::<1>()[0] != 0,
        is_urgent: told.take::<1>()[0] != 0,
    }
}
