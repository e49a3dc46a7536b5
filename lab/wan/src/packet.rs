//! Packets in the format of a TUN device with `IFF_VNET_HDR`: an offload header (struct virtio_net_hdr), then
//! IP. One such frame may stand for many packets on the wire (TCP segmentation offload). This module counts,
//! measures and splits them.
//!
//! The frames come from the kernel, but the packets in them may come from anybody: no byte is read before its
//! presence is checked.

use std::net::Ipv4Addr;

/// Length of the offload header, before IP (virtio 1.2, 5.1.6; the legacy form, in host order).
pub const OFFLOAD_LEN_BYTES: usize = 10;
/// The largest frame: the largest IP packet, with its offload header.
pub const FRAME_LEN_BYTES_MAX: usize = OFFLOAD_LEN_BYTES + 65_535;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_ECN: u8 = 0x80;
const TCP: u8 = 6;
const TCP_CHECKSUM_AT: usize = 16;
const TCP_FLAGS_AT: usize = 13;
const CWR: u8 = 0x80;
const FIN_AND_PSH: u8 = 0x09;
const CE: u8 = 3;

/// What the emulator needs to know about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Sender.
    pub from: Ipv4Addr,
    /// Receiver.
    pub to: Ipv4Addr,
    /// True if the network may mark it instead of dropping it (ECT or CE).
    pub ecn_capable: bool,
    /// Length of the IP header, without extensions.
    network_len_bytes: usize,
    /// Length of the IP and TCP headers together, which every segment repeats.
    headers_len_bytes: usize,
    /// Total length of the IP packet.
    len_bytes: usize,
    /// Payload of a segment; 0 if the frame is one packet.
    segment_len_bytes: usize,
}

/// Consecutive segments of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first, from 0.
    pub first: usize,
    /// Number of segments, at least 1.
    pub count: usize,
}

/// Parses the headers of a frame. `None` if it is not an IPv4 packet or contradicts itself.
pub fn parse(frame: &[u8]) -> Option<Head> {
    let ip = frame.get(OFFLOAD_LEN_BYTES..)?;
    let fixed: &[u8; 20] = ip.first_chunk()?;
    let network_len_bytes = 4 * usize::from(fixed[0] & 15);
    let len_bytes = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let fits = network_len_bytes >= 20 && len_bytes >= network_len_bytes && len_bytes == ip.len();
    if fixed[0] >> 4 != 4 || !fits {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
    let mut head = Head {
        from: address(12),
        to: address(16),
        ecn_capable: fixed[1] & CE != 0,
        network_len_bytes,
        headers_len_bytes: network_len_bytes,
        len_bytes,
        segment_len_bytes: 0,
    };
    let segment_len_bytes = usize::from(u16::from_ne_bytes([frame[4], frame[5]]));
    match frame[1] & !GSO_ECN {
        GSO_NONE => {}
        GSO_TCPV4 if fixed[9] == TCP && segment_len_bytes > 0 => {
            let words = ip[network_len_bytes..].get(12)? >> 4;
            head.headers_len_bytes = network_len_bytes + 4 * usize::from(words);
            if words < 5 || head.headers_len_bytes >= len_bytes {
                return None;
            }
            head.segment_len_bytes = segment_len_bytes;
        }
        _ => return None,
    }
    Some(head)
}

impl Head {
    /// Number of packets that the frame is on the wire.
    pub fn segments(&self) -> usize {
        match self.segment_len_bytes {
            0 => 1,
            segment => (self.len_bytes - self.headers_len_bytes).div_ceil(segment),
        }
    }

    /// Length of the nth packet, from 0: IP with all its headers.
    pub fn wire_len_bytes(&self, nth: usize) -> u32 {
        let len_bytes = match self.segment_len_bytes {
            0 => self.len_bytes,
            segment => {
                let payload = self.len_bytes - self.headers_len_bytes;
                self.headers_len_bytes + segment.min(payload.saturating_sub(nth * segment))
            }
        };
        len_bytes as u32 // at most 65,535
    }
}

/// Writes some segments of a frame as a frame of their own, for one packet or again for many. The receiving
/// kernel completes the checksum, as for the original frame.
///
/// # Panics
/// If the frame does not belong to this head, is one packet, or lacks these segments.
pub fn cut(frame: &[u8], head: &Head, run: Run, into: &mut Vec<u8>) {
    let (network, headers) = (head.network_len_bytes, head.headers_len_bytes);
    let segment = head.segment_len_bytes;
    let all = &frame[OFFLOAD_LEN_BYTES + headers..OFFLOAD_LEN_BYTES + head.len_bytes];
    let from = run.first * segment;
    let to = all.len().min(from + run.count * segment);
    let payload = &all[from..to];
    into.clear();
    into.extend_from_slice(&frame[..OFFLOAD_LEN_BYTES + headers]);
    into.extend_from_slice(payload);

    let (offload, ip) = into.split_at_mut(OFFLOAD_LEN_BYTES);
    let len_bytes = (headers + payload.len()) as u16; // no longer than the frame was
    let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(run.first as u16);
    ip[2..4].copy_from_slice(&len_bytes.to_be_bytes());
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    write_header_checksum(&mut ip[..network]);
    let pseudo = pseudo_header_sum(ip, len_bytes - network as u16);
    let tcp = &mut ip[network..headers];
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(from as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if to < all.len() {
        tcp[TCP_FLAGS_AT] &= !FIN_AND_PSH; // the last one carries them
    }
    if run.first > 0 {
        tcp[TCP_FLAGS_AT] &= !CWR; // the first one carries it
    }
    tcp[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&pseudo.to_be_bytes());

    let many = payload.len() > segment;
    let ecn = if run.first == 0 { GSO_ECN } else { 0 };
    offload[0] = NEEDS_CSUM;
    offload[1] = if many {
        offload[1] & (!GSO_ECN | ecn)
    } else {
        GSO_NONE
    };
    let numbers = [
        if many { headers } else { 0 },
        if many { segment } else { 0 },
        network,
        TCP_CHECKSUM_AT,
    ];
    for (field, number) in offload[2..].chunks_exact_mut(2).zip(numbers) {
        field.copy_from_slice(&(number as u16).to_ne_bytes());
    }
}

/// Sets "congestion experienced" in all packets that a frame stands for.
pub fn mark_ce(frame: &mut [u8], head: &Head) {
    let ip = &mut frame[OFFLOAD_LEN_BYTES..];
    ip[1] |= CE;
    write_header_checksum(&mut ip[..head.network_len_bytes]);
}

fn write_header_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !fold(sum_of_words(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The pseudo-header's sum, with which the transport's checksum starts (RFC 9293, 3.1).
fn pseudo_header_sum(ip: &[u8], transport_len_bytes: u16) -> u16 {
    fold(sum_of_words(&ip[12..20]) + u32::from(ip[9]) + u32::from(transport_len_bytes))
}

/// Sum of the big-endian 16-bit words; cannot overflow for at most 64 KB.
fn sum_of_words(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| (u32::from(word[0]) << 8) | word.get(1).map_or(0, |low| u32::from(*low)))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(super) mod tests;
