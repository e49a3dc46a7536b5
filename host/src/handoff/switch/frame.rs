//! A held packet, made ready to be sent again. Pure.
//!
//! A packet's TCP checksum may not be whole yet: GRO has merged it from several, or the sender on the same machine has left it to the
//! device, and only the pseudo header's sum stands in the field. Such a packet gets a header that tells the kernel to
//! cut it or to finish its checksum (`struct virtio_net_hdr`). A damaged one is not repaired by that.

const ETH_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
/// Where the checksum stands in TCP's header.
const CHECKSUM_AT: usize = 16;
const FLAGS_AT: usize = 13;
const CWR: u8 = 0x80;
const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];

// `struct virtio_net_hdr`.
const NEEDS_CHECKSUM: u8 = 1;
const CUT_TCP_IPV4: u8 = 1;
const CUT_TCP_IPV6: u8 = 4;
const CUT_WITH_CWR: u8 = 0x80;
/// `sizeof(struct virtio_net_hdr)`.
pub const HEAD_BYTES: usize = 10;

/// What TCP's checksum covers.
struct Segment {
    /// Where TCP's header begins in the frame.
    at: usize,
    is_ipv6: bool,
    /// The sum of the pseudo header, folded.
    pseudo: u16,
}

/// Takes the padding off, and tells what the kernel has still to do. `segment_bytes`: the payload of each segment, if it was merged;
/// otherwise 0. `None`: it is damaged.
pub fn prepare(frame: &mut Vec<u8>, segment_bytes: u16) -> Option<[u8; HEAD_BYTES]> {
    let Some(segment) = tcp(frame)? else {
        return Some([0; HEAD_BYTES]); // an ICMP error is whole
    };
    let field = segment.at + CHECKSUM_AT;
    let mut head = [0; HEAD_BYTES];
    if segment_bytes == 0 {
        if sum(segment.pseudo, &frame[segment.at..]) == u16::MAX {
            return Some(head);
        }
        let told = u16::from_be_bytes([frame[field], frame[field + 1]]);
        if told % u16::MAX != segment.pseudo % u16::MAX {
            return None;
        }
    }
    frame[field..field + 2].copy_from_slice(&segment.pseudo.to_be_bytes());
    head[0] = NEEDS_CHECKSUM;
    head[6..8].copy_from_slice(&(segment.at as u16).to_ne_bytes());
    head[8..].copy_from_slice(&(CHECKSUM_AT as u16).to_ne_bytes());
    if segment_bytes > 0 {
        head[1] = cut(&segment, frame[segment.at + FLAGS_AT]);
        let tcp_bytes = usize::from(frame[segment.at + 12] >> 4) * 4;
        head[2..4].copy_from_slice(&((segment.at + tcp_bytes) as u16).to_ne_bytes());
        head[4..6].copy_from_slice(&segment_bytes.to_ne_bytes());
    }
    Some(head)
}

fn cut(segment: &Segment, flags: u8) -> u8 {
    let cut = if segment.is_ipv6 {
        CUT_TCP_IPV6
    } else {
        CUT_TCP_IPV4
    };
    if flags & CWR != 0 {
        cut | CUT_WITH_CWR
    } else {
        cut
    }
}

/// Finds TCP, and cuts the frame behind the packet. `None`: damaged; `Some(None)`: another protocol.
fn tcp(frame: &mut Vec<u8>) -> Option<Option<Segment>> {
    let kind: [u8; 2] = frame.get(12..ETH_BYTES)?.try_into().ok()?;
    let ip = frame.get(ETH_BYTES..)?;
    let (is_ipv6, total, at, addresses, protocol) = match kind {
        ETHER_IPV4 => {
            let head = ip.get(..IPV4_BYTES)?;
            let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
            (false, total, IPV4_BYTES, 12..20, head[9])
        }
        ETHER_IPV6 => {
            let head = ip.get(..IPV6_BYTES)?;
            let payload = usize::from(u16::from_be_bytes([head[4], head[5]]));
            (true, payload + IPV6_BYTES, IPV6_BYTES, 8..40, head[6])
        }
        _ => return None,
    };
    if total > ip.len() || total < at {
        return None;
    }
    let addresses = sum(0, &ip[addresses]);
    frame.truncate(ETH_BYTES + total);
    if i32::from(protocol) != libc::IPPROTO_TCP {
        return Some(None);
    }
    let bytes = total - at;
    if bytes < TCP_BYTES {
        return None;
    }
    let rest = (bytes as u32).to_be_bytes();
    let pseudo = sum(sum(addresses, &rest), &[0, protocol]);
    Some(Some(Segment {
        at: ETH_BYTES + at,
        is_ipv6,
        pseudo,
    }))
}

/// The Internet checksum (RFC 1071), not inverted, that goes on from `so_far`.
fn sum(so_far: u16, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([word[0], low]))
    });
    let mut sum = u64::from(so_far) + words.sum::<u64>();
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of TCP with this payload, whose checksum is the pseudo header's sum.
    fn frame(is_ipv6: bool, payload: &[u8], flags: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let bytes = (TCP_BYTES + payload.len()) as u16;
        if is_ipv6 {
            frame.extend(ETHER_IPV6);
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([6, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend(ETHER_IPV4);
            frame.extend([0x45, 0]);
            frame.extend((bytes + IPV4_BYTES as u16).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 9, 9, 9]);
        }
        frame.extend([
            4, 1, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, flags, 1, 0, 0, 0, 0, 0,
        ]);
        frame.extend(payload);
        let segment = tcp(&mut frame).expect("it is whole").expect("TCP");
        let field = segment.at + CHECKSUM_AT;
        frame[field..field + 2].copy_from_slice(&segment.pseudo.to_be_bytes());
        frame
    }

    /// What a device makes of it.
    fn finished(mut frame: Vec<u8>) -> Vec<u8> {
        let at = tcp(&mut frame).expect("it is whole").expect("TCP").at;
        let whole = !sum(0, &frame[at..]);
        frame[at + CHECKSUM_AT..at + CHECKSUM_AT + 2].copy_from_slice(&whole.to_be_bytes());
        frame
    }

    proptest! {
        #[test]
        fn whole_ones_pass_and_damaged_ones_do_not(
            is_ipv6: bool,
            payload in prop::collection::vec(any::<u8>(), 0..200),
            padding in 0usize..7,
            damage in 0usize..20,
        ) {
            let whole = finished(frame(is_ipv6, &payload, 0x10));
            let mut padded = whole.clone();
            padded.resize(whole.len() + padding, 0);
            prop_assert_eq!(prepare(&mut padded, 0), Some([0; HEAD_BYTES]));
            prop_assert_eq!(&padded, &whole);
            let mut damaged = whole;
            let at = damaged.len() - 20 - payload.len() + damage;
            damaged[at] ^= 0x40;
            prop_assert_eq!(prepare(&mut damaged, 0), None);
        }

        #[test]
        fn no_bytes_cause_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..3, segment_bytes: u16) {
            if bytes.len() > 14 && kind > 0 {
                bytes[12..14].copy_from_slice(if kind == 1 { &ETHER_IPV4 } else { &ETHER_IPV6 });
            }
            prepare(&mut bytes, segment_bytes);
        }
    }

    #[test]
    fn the_kernel_is_told_to_finish_and_to_cut() {
        for (is_ipv6, at, cuts) in [(false, 34u16, 1), (true, 54, 4)] {
            let partial = frame(is_ipv6, &[7; 3_000], 0x10 | CWR);
            let mut sent = partial.clone();
            let head = prepare(&mut sent, 0).expect("only the device's part is missing");
            let [start, offset] = [at, 16].map(u16::to_ne_bytes);
            assert_eq!(head[..2], [NEEDS_CHECKSUM, 0]);
            assert_eq!((&head[6..8], &head[8..]), (&start[..], &offset[..]));
            assert_eq!(sent, partial);
            // GRO leaves a sum that nobody needs.
            let mut merged = finished(partial.clone());
            let head = prepare(&mut merged, 1_448).expect("GRO has looked at it");
            assert_eq!(merged, partial);
            assert_eq!(head[1], cuts | CUT_WITH_CWR);
            assert_eq!(head[2..4], (at + 20).to_ne_bytes());
            assert_eq!(head[4..6], 1_448u16.to_ne_bytes());
        }
    }
}
