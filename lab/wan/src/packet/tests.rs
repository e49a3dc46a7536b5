use super::*;
use proptest::prelude::*;

/// A TCP frame as the kernel would give it. Unusual options and values, so that no test passes by chance.
#[derive(Clone, Debug)]
pub struct Made {
    pub ip_options: usize,
    pub tcp_options: usize,
    pub payload: Vec<u8>,
    pub segment: u16,
    pub sequence: u32,
    pub id: u16,
    pub flags: u8,
    pub ecn: u8,
}

impl Made {
    pub fn frame(&self) -> Vec<u8> {
        let (network, tcp_len) = (self.network_len(), 20 + 4 * self.tcp_options);
        let len = network + tcp_len + self.payload.len();
        let is_many = self.payload.len() > usize::from(self.segment);
        let kind = match is_many {
            false => GSO_NONE,
            true => GSO_TCPV4 | (self.flags & CWR),
        };
        let mut frame = vec![NEEDS_CSUM, kind];
        let size = if is_many { self.segment } else { 0 };
        for number in [(network + tcp_len) as u16, size, network as u16, 16] {
            frame.extend(number.to_ne_bytes());
        }
        let mut ip = vec![0; network];
        (ip[0], ip[1], ip[8], ip[9]) = (0x40 | (network / 4) as u8, self.ecn, 64, TCP);
        ip[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&self.id.to_be_bytes());
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 1, 2, 3]);
        ip[20..].fill(1); // "no operation"
        write_header_checksum(&mut ip);
        let pseudo = pseudo_header_sum(&ip, (len - network) as u16);
        frame.extend(ip);
        let mut tcp = vec![1; tcp_len];
        tcp[..4].copy_from_slice(&[0x1f, 0x90, 0xc3, 0x50]);
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        (tcp[12], tcp[13]) = ((tcp_len / 4 * 16) as u8, self.flags);
        tcp[16..18].copy_from_slice(&pseudo.to_be_bytes());
        frame.extend(tcp);
        frame.extend(&self.payload);
        frame
    }

    fn network_len(&self) -> usize {
        20 + 4 * self.ip_options
    }
}

/// Completes the checksum as the receiving kernel does for NEEDS_CSUM: the sum over the transport, with the
/// seed in place.
fn completed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    assert_eq!(frame[0], NEEDS_CSUM);
    let at = |n: usize| usize::from(u16::from_ne_bytes([frame[n], frame[n + 1]]));
    let (start, offset) = (OFFLOAD_LEN_BYTES + at(6), at(8));
    let sum = !fold(sum_of_words(&frame[start..]));
    frame[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// True if pseudo-header and transport sum to all ones, as a receiver checks it.
fn checksums_hold(frame: &[u8]) -> bool {
    let head = parse(frame).unwrap();
    let whole = completed(frame);
    let (header, transport) = whole[OFFLOAD_LEN_BYTES..].split_at(head.network_len_bytes);
    let pseudo = u32::from(pseudo_header_sum(header, transport.len() as u16));
    fold(sum_of_words(header)) == 0xffff && fold(sum_of_words(transport) + pseudo) == 0xffff
}

fn tcp_of<'a>(frame: &'a [u8], head: &Head) -> &'a [u8] {
    &frame[OFFLOAD_LEN_BYTES + head.network_len_bytes..]
}

prop_compose! {
    pub fn any_made()(
        ip_options in 0usize..=10, tcp_options in 0usize..=10,
        payload in prop::collection::vec(any::<u8>(), 1..20_000), segment in 1u16..9_000,
        sequence: u32, id: u16, flags: u8, ecn in 0u8..4,
    ) -> Made {
        Made { ip_options, tcp_options, payload, segment, sequence, id, flags, ecn }
    }
}

proptest! {
    #[test]
    fn segments_are_the_frame_s_bytes_with_valid_headers(made in any_made(), split in 1usize..9) {
        let frame = made.frame();
        let head = parse(&frame).expect("a good frame");
        prop_assert_eq!(head.ecn_capable, made.ecn != 0);
        let count = head.segments();
        if count == 1 {
            prop_assert_eq!(head.wire_len_bytes(0) as usize, frame.len() - OFFLOAD_LEN_BYTES);
            return Ok(());
        }
        let (mut payload, mut out, mut first, mut wire_len) = (Vec::new(), Vec::new(), 0, 0usize);
        while first < count {
            let run = Run { first, count: split.min(count - first) };
            cut(&frame, &head, run, &mut out);
            prop_assert!(checksums_hold(&out));
            let got = parse(&out).expect("a good segment");
            prop_assert_eq!(got.segments(), run.count);
            for nth in 0..run.count {
                prop_assert_eq!(got.wire_len_bytes(nth), head.wire_len_bytes(first + nth));
                wire_len += got.wire_len_bytes(nth) as usize;
            }
            let tcp = tcp_of(&out, &got);
            let sequence = u32::from_be_bytes(*tcp[4..].first_chunk().unwrap());
            prop_assert_eq!(sequence, made.sequence.wrapping_add(payload.len() as u32));
            let mut flags = made.flags;
            if first > 0 { flags &= !CWR; }
            if first + run.count < count { flags &= !FIN_AND_PSH; }
            prop_assert_eq!(tcp[TCP_FLAGS_AT], flags);
            let id = u16::from_be_bytes([out[OFFLOAD_LEN_BYTES + 4], out[OFFLOAD_LEN_BYTES + 5]]);
            prop_assert_eq!(id, made.id.wrapping_add(first as u16));
            payload.extend_from_slice(&tcp[20 + 4 * made.tcp_options..]);
            first += run.count;
        }
        prop_assert_eq!(&payload, &made.payload);
        let headers = made.network_len() + 20 + 4 * made.tcp_options;
        prop_assert_eq!(wire_len, payload.len() + count * headers);
    }

    #[test]
    fn a_mark_is_set_and_nothing_else(made in any_made()) {
        let mut frame = made.frame();
        let head = parse(&frame).unwrap();
        let before = frame.clone();
        mark_ce(&mut frame, &head);
        prop_assert!(checksums_hold(&frame));
        let ip = &frame[OFFLOAD_LEN_BYTES..];
        prop_assert_eq!(ip[1] & CE, CE);
        let allowed = [OFFLOAD_LEN_BYTES + 1, OFFLOAD_LEN_BYTES + 10, OFFLOAD_LEN_BYTES + 11];
        for at in (0..frame.len()).filter(|at| frame[*at] != before[*at]) {
            prop_assert!(allowed.contains(&at), "byte {at} changed");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        made in any_made(), noise in prop::collection::vec((0usize..120, any::<u8>()), 0..6),
        len in prop::option::of(0usize..200), junk in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut frame = made.frame();
        for (at, value) in noise {
            if let Some(byte) = frame.get_mut(at) { *byte = value; }
        }
        frame.truncate(len.unwrap_or(frame.len()));
        for mut frame in [frame, junk] {
            let Some(head) = parse(&frame) else { continue };
            let count = head.segments();
            let sum: usize = (0..count).map(|nth| head.wire_len_bytes(nth) as usize).sum();
            prop_assert!(count >= 1 && sum >= frame.len() - OFFLOAD_LEN_BYTES);
            mark_ce(&mut frame, &head);
            let mut out = Vec::new();
            for first in (0..count).filter(|_| count > 1) {
                cut(&frame, &head, Run { first, count: 1 }, &mut out);
            }
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let made = Made {
        ip_options: 0,
        tcp_options: 3,
        payload: vec![7; 4000],
        segment: 1448,
        sequence: 1,
        id: 1,
        flags: 0x18,
        ecn: 0,
    };
    let good = made.frame();
    assert_eq!(parse(&good).map(|head| head.segments()), Some(3));
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        parse(&frame)
    };
    assert_eq!(with(OFFLOAD_LEN_BYTES, 0x55), None, "no IP");
    assert_eq!(with(OFFLOAD_LEN_BYTES, 0x44), None, "header too short");
    assert_eq!(with(OFFLOAD_LEN_BYTES + 3, 1), None, "wrong length");
    assert_eq!(with(OFFLOAD_LEN_BYTES + 9, 17), None, "TCP offload of UDP");
    assert_eq!(
        with(OFFLOAD_LEN_BYTES + 32, 0x40),
        None,
        "TCP header too short"
    );
    assert_eq!(with(1, 5), None, "an offload that was not asked for");
    assert_eq!(parse(&good[..good.len() - 1]), None, "cut short");
    assert_eq!(parse(&[]), None);
}
