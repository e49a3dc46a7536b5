//! Packets that no client sends, for a connection that another node serves.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ackpace_tests::segment::{Segment, vip};

use crate::scene::{A, Scene};

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
/// What the forged router takes: more than the least that Linux believes (`net.ipv4.route.min_pmtu`).
const MTU: u16 = 600;
/// Of connections that nobody opens.
const FREE_PORT: u16 = 1_999;

#[test]
fn forged_packets_harm_no_connection_that_has_moved() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.in_the_middle(vip(A), |segment, _, guest| {
        segment.client.within(|| {
            let forger = Forger::new(segment);
            // Unreachable: network, host, port, and "don't fragment" by whoever does not see the connection.
            for code in [0, 1, 3, 13] {
                forger.error(code, 0, 4_711);
            }
            forger.error(4, MTU, 4_711);
            assert!(!segment.believes(guest, MTU), "out of its window");
            // From the path: it is the guest's to believe.
            let until = Instant::now() + Duration::from_secs(5);
            while !segment.believes(guest, MTU) {
                assert!(Instant::now() < until, "the guest does not hear of it");
                forger.error(4, MTU, forger.next_seq());
            }
            assert!(!segment.believes(A, MTU), "home does not send");
            // The guest answers by an ACK, which the client does not mind.
            for seq in [0, forger.next_seq()] {
                forger.send(&forger.syn(forger.port, seq), &[], 0);
            }
        });
    });
    scene.is_well(&[vip(A)]);
}

/// They can't be told apart from those of a connection that is elsewhere.
#[test]
fn fragments_and_options_do_not_reach_a_server() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.in_the_middle(vip(A), |segment, _, _| {
        segment.client.within(|| {
            let forger = Forger::new(segment);
            let syn = |port| forger.syn(port, 7);
            forger.send(&syn(FREE_PORT + 1), &[1; 4], 0);
            // The second one has no ports.
            let whole = syn(FREE_PORT + 2);
            forger.send(&whole[..16], &[], 0x2000);
            forger.send(&whole[16..], &[], 2);
            assert!(!forger.is_answered(FREE_PORT + 1), "options");
            assert!(!forger.is_answered(FREE_PORT + 2), "fragments");
            forger.send(&syn(FREE_PORT), &[], 0);
            assert!(forger.is_answered(FREE_PORT), "as it is, it would be");
        });
    });
    scene.is_well(&[vip(A)]);
}

/// Of the client's machine, which sees all that comes to it.
struct Forger {
    out: OwnedFd,
    seen: OwnedFd,
    client: Ipv4Addr,
    /// Of the connection that has moved.
    port: u16,
}

impl Forger {
    fn new(segment: &Segment) -> Forger {
        let client: SocketAddr = segment.connected().expect("there is a download");
        let SocketAddr::V4(client) = client else {
            panic!("it came by IPv4");
        };
        Forger {
            out: raw(libc::IPPROTO_RAW),
            seen: raw(libc::IPPROTO_TCP),
            client: *client.ip(),
            port: client.port(),
        }
    }

    /// An IPv4 packet to the VIP: of TCP, or ICMP where there is no port in `what`. Linux makes its checksum.
    fn send_as(&self, protocol: u8, what: &[u8], options: &[u8], fragment: u16) {
        let head_bytes = 20 + options.len();
        let total = (head_bytes + what.len()) as u16;
        let mut packet = vec![0x40 | (head_bytes / 4) as u8, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([7, 7]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0]);
        packet.extend(self.client.octets());
        packet.extend(server().octets());
        packet.extend(options);
        packet.extend(what);
        // SAFETY: plain numbers.
        let mut to: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        to.sin_family = libc::AF_INET as libc::sa_family_t;
        to.sin_addr.s_addr = u32::from_ne_bytes(server().octets());
        let len = size_of_val(&to) as libc::socklen_t;
        // SAFETY: the kernel reads a packet and an address, each with its length.
        let sent = unsafe {
            let bytes = packet.as_ptr().cast();
            let to = (&raw const to).cast();
            libc::sendto(self.out.as_raw_fd(), bytes, packet.len(), 0, to, len)
        };
        assert_eq!(
            sent,
            packet.len() as isize,
            "{}",
            io::Error::last_os_error()
        );
    }

    fn send(&self, segment: &[u8], options: &[u8], fragment: u16) {
        self.send_as(libc::IPPROTO_TCP as u8, segment, options, fragment);
    }

    fn syn(&self, port: u16, seq: u32) -> Vec<u8> {
        let mut segment = port.to_be_bytes().to_vec();
        segment.extend(vip(A).port().to_be_bytes());
        segment.extend(seq.to_be_bytes());
        segment.extend([0, 0, 0, 0, 5 << 4, SYN, 255, 255, 0, 0, 0, 0]);
        let mut covered = [self.client.octets(), server().octets()].concat();
        covered.extend([0, libc::IPPROTO_TCP as u8, 0, segment.len() as u8]);
        covered.extend(&segment);
        segment[16..18].copy_from_slice(&checksum(&covered));
        segment
    }

    /// "Destination unreachable" about a segment of the connection.
    fn error(&self, code: u8, mtu: u16, seq: u32) {
        let mut icmp = vec![3, code, 0, 0, 0, 0];
        icmp.extend(mtu.to_be_bytes());
        icmp.extend([
            0x45,
            0,
            5,
            220,
            0,
            0,
            0x40,
            0,
            63,
            libc::IPPROTO_TCP as u8,
            0,
            0,
        ]);
        icmp.extend(server().octets());
        icmp.extend(self.client.octets());
        icmp.extend(vip(A).port().to_be_bytes());
        icmp.extend(self.port.to_be_bytes());
        icmp.extend(seq.to_be_bytes());
        let sum = checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum);
        self.send_as(libc::IPPROTO_ICMP as u8, &icmp, &[], 0);
    }

    /// The first byte that the client lacks, by the next segment that comes. Nobody reads meanwhile, so that it soon is a probe of a
    /// closed window, of the byte before.
    fn next_seq(&self) -> u32 {
        let until = Instant::now() + Duration::from_secs(3);
        let next = self.seen(until, |port, segment| {
            let seq = u32::from_be_bytes(*segment[4..].first_chunk().expect("a head"));
            let payload_bytes = segment.len() - usize::from(segment[12] >> 4) * 4;
            let next = seq.wrapping_add(payload_bytes.max(1) as u32);
            (port == self.port).then_some(next)
        });
        next.expect("a connection")
    }

    /// Whether a SYN from this port is answered within a fifth of a second.
    fn is_answered(&self, of: u16) -> bool {
        let until = Instant::now() + Duration::from_millis(200);
        let seen = self.seen(until, |port, segment| {
            (port == of && segment[13] == SYN_ACK).then_some(())
        });
        seen.is_some()
    }

    /// Looks at segments from the server, by the client's port.
    fn seen<T>(&self, until: Instant, look: impl Fn(u16, &[u8]) -> Option<T>) -> Option<T> {
        let mut packet = vec![0; 70_000];
        while Instant::now() < until {
            // SAFETY: the kernel writes at most so many bytes, which there are.
            let count = unsafe {
                let into = packet.as_mut_ptr().cast();
                libc::recv(
                    self.seen.as_raw_fd(),
                    into,
                    packet.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if count < 40 {
                std::thread::yield_now();
                continue;
            }
            let segment = &packet[usize::from(packet[0] & 15) * 4..count as usize];
            let port = u16::from_be_bytes([segment[2], segment[3]]);
            if let Some(found) = look(port, segment) {
                return Some(found);
            }
        }
        None
    }
}

fn server() -> Ipv4Addr {
    match vip(A) {
        SocketAddr::V4(it) => *it.ip(),
        SocketAddr::V6(_) => panic!("it is one of IPv4"),
    }
}

fn raw(protocol: i32) -> OwnedFd {
    // SAFETY: no pointers; the descriptor is new.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let socket = libc::socket(libc::AF_INET, kind, protocol);
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(socket)
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
