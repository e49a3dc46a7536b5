//! An acknowledgement as an IP packet (RFC 9293, RFC 791, RFC 8200).

use std::net::{IpAddr, SocketAddr};

use ackpace_wire::cluster::{Tcp, Tuple};

const TCP: u8 = 6;
const TTL: u8 = 64;
const ACK: u8 = 0x10;

/// What the client would send to acknowledge all below `snd_una`, with a timestamp that echoes `echo`. Its own timestamp is
/// 0, which leaves the socket's last one of the client as it is.
pub(super) fn acknowledgement(tuple: &Tuple, tcp: &Tcp, echo: Option<u32>) -> Vec<u8> {
    let mut segment = Vec::with_capacity(32);
    segment.extend(tuple.client.port().to_be_bytes());
    segment.extend(tuple.server.port().to_be_bytes());
    segment.extend(tcp.rcv_nxt.to_be_bytes());
    segment.extend(tcp.snd_una.to_be_bytes());
    let words = if echo.is_some() { 8 } else { 5 };
    segment.extend([words << 4, ACK]);
    let scale = tcp.wscales.map_or(0, |(client, _)| client);
    let window = u16::try_from(tcp.snd_wnd_bytes >> scale).unwrap_or(u16::MAX);
    segment.extend(window.to_be_bytes());
    segment.extend([0; 4]);
    if let Some(echo) = echo {
        segment.extend([1, 1, 8, 10, 0, 0, 0, 0]);
        segment.extend(echo.to_be_bytes());
    }
    let sum = checksum(tuple, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut packet = header(tuple, segment.len() as u16);
    packet.extend(segment);
    packet
}

/// The IP header. Linux sets the checksum of one that it is given.
fn header(tuple: &Tuple, payload_bytes: u16) -> Vec<u8> {
    let mut header = match tuple.server {
        SocketAddr::V4(_) => {
            let [high, low] = (20 + payload_bytes).to_be_bytes();
            // Don't fragment.
            vec![0x45, 0, high, low, 0, 0, 0x40, 0, TTL, TCP, 0, 0]
        }
        SocketAddr::V6(_) => {
            let [high, low] = payload_bytes.to_be_bytes();
            vec![0x60, 0, 0, 0, high, low, TCP, TTL]
        }
    };
    header.extend(addresses(tuple));
    header
}

/// From the client to the server.
fn addresses(tuple: &Tuple) -> Vec<u8> {
    let mut addresses = Vec::with_capacity(32);
    for end in [tuple.client, tuple.server] {
        match end.ip() {
            IpAddr::V4(ip) => addresses.extend(ip.octets()),
            IpAddr::V6(ip) => addresses.extend(ip.octets()),
        }
    }
    addresses
}

/// Over the pseudo header and a segment whose own field is 0 (RFC 1071).
fn checksum(tuple: &Tuple, segment: &[u8]) -> u16 {
    let mut covered = addresses(tuple);
    covered.extend((segment.len() as u32).to_be_bytes());
    covered.extend([0, 0, 0, TCP]);
    covered.extend(segment);
    let words = covered.chunks(2);
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_what_has_its_checksum_is_0() {
        let (v4, v6) = (
            ("10.1.0.2:5000", "10.9.9.9:80"),
            ("[fd00::2]:5000", "[fd00::9]:80"),
        );
        for (client, server) in [v4, v6] {
            for echo in [None, Some(7)] {
                let tuple = Tuple {
                    client: client.parse().expect("an address"),
                    server: server.parse().expect("an address"),
                };
                let tcp = Tcp {
                    snd_una: 0x1234_5678,
                    snd_wnd_bytes: 70_000,
                    ..Tcp::default()
                };
                let packet = acknowledgement(&tuple, &tcp, echo);
                let start = if tuple.client.is_ipv4() { 20 } else { 40 };
                let segment = &packet[start..];
                assert_eq!(checksum(&tuple, segment), 0);
                assert_eq!(segment.len(), if echo.is_some() { 32 } else { 20 });
                assert_eq!(segment[8..12], [0x12, 0x34, 0x56, 0x78]);
                assert_eq!(segment[14..16], [0xff, 0xff], "no more than a field holds");
            }
        }
    }
}
