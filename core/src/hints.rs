//! Hints: what the kernel's TCP does to connections, as a privileged program hears of it (`ackpace-host events`) and
//! tells servers at once.
//!
//! A hint may be late, lost, doubled or wrong, and its sender is another program. So it decides nothing: who gets one asks the
//! kernel about that socket, and without hints everything works as before, only later.
//!
//! A packet is a tag of eight bytes, then 1 to [`HINTS_PER_PACKET_MAX`] hints of 24 bytes each in the byte order of the
//! machine: the socket's cookie (`SO_COOKIE`), the time in nanoseconds, the kind, and four bytes that are zero.

use alloc::vec::Vec;

use crate::limits::{HINT_PACKET_BYTES_MAX, HINTS_PER_PACKET_MAX};

/// The first bytes of each packet. Another layout gets another tag.
const TAG: [u8; 8] = *b"ackpace1";
const HINT_BYTES: usize = 24;

const _: () = assert!(HINT_PACKET_BYTES_MAX == TAG.len() + HINTS_PER_PACKET_MAX * HINT_BYTES);

/// What the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HintKind {
    /// It cuts the window: marks (ECN), or a full queue of this host.
    Cwr,
    /// It cuts the window: a segment was lost, by duplicate ACKs or by RACK.
    Recovery,
    /// It cuts the window: the retransmission timer ran out.
    Timeout,
    /// It received RST.
    Reset,
}

impl HintKind {
    /// Every variant, each at the index of its discriminant. A packet has that index plus 1.
    pub const ALL: [HintKind; 4] = [
        HintKind::Cwr,
        HintKind::Recovery,
        HintKind::Timeout,
        HintKind::Reset,
    ];

    /// The stable name: a label of the metrics.
    pub fn name(self) -> &'static str {
        match self {
            HintKind::Cwr => "cwr",
            HintKind::Recovery => "recovery",
            HintKind::Timeout => "timeout",
            HintKind::Reset => "reset",
        }
    }

    /// The number of a packet, 1 to 4.
    pub fn from_number(number: u32) -> Option<HintKind> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        HintKind::ALL.get(index).copied()
    }
}

/// One hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Which socket (`SO_COOKIE`, socket(7)).
    pub cookie: u64,
    /// When, by the kernel's monotonic clock, nanoseconds. It tells how late the hint is, and decides nothing.
    pub at_ns: u64,
    /// What happened.
    pub kind: HintKind,
}

/// A packet that is none: its sender is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage;

/// Writes a packet with the first [`HINTS_PER_PACKET_MAX`] of these hints.
pub fn encode(hints: &[Hint], packet: &mut Vec<u8>) {
    packet.clear();
    packet.extend(TAG);
    for hint in hints.iter().take(HINTS_PER_PACKET_MAX) {
        packet.extend(hint.cookie.to_ne_bytes());
        packet.extend(hint.at_ns.to_ne_bytes());
        packet.extend((hint.kind as u32 + 1).to_ne_bytes());
        packet.extend([0; 4]);
    }
}

/// The hints of a packet, [`HINTS_PER_PACKET_MAX`] at most. Those of a kind that is not known are left out: a later version
/// may have more.
///
/// # Errors
/// The tag or the length is not that of a packet.
pub fn decode(packet: &[u8]) -> Result<impl Iterator<Item = Hint> + '_, Garbage> {
    let hints = packet.strip_prefix(&TAG).ok_or(Garbage)?;
    let many = hints.len() / HINT_BYTES;
    if hints.len() % HINT_BYTES != 0 || !(1..=HINTS_PER_PACKET_MAX).contains(&many) {
        return Err(Garbage);
    }
    Ok(hints.chunks_exact(HINT_BYTES).filter_map(hint))
}

fn hint(bytes: &[u8]) -> Option<Hint> {
    let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let number = u32::from_ne_bytes(*bytes.get(16..)?.first_chunk()?);
    Some(Hint {
        cookie: long(0)?,
        at_ns: long(8)?,
        kind: HintKind::from_number(number)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(packet: &[u8]) -> Result<Vec<Hint>, Garbage> {
        decode(packet).map(Iterator::collect)
    }

    #[test]
    fn what_is_told_arrives_as_it_was() {
        let hints: Vec<Hint> = HintKind::ALL
            .iter()
            .map(|kind| Hint {
                cookie: u64::MAX - *kind as u64,
                at_ns: 7 + *kind as u64,
                kind: *kind,
            })
            .collect();
        let mut packet = Vec::new();
        encode(&hints, &mut packet);
        assert_eq!(decoded(&packet), Ok(hints));
    }

    #[test]
    fn a_packet_is_bounded_on_both_sides() {
        let hint = Hint {
            cookie: 1,
            at_ns: 2,
            kind: HintKind::Reset,
        };
        let mut packet = Vec::new();
        encode(&[hint; HINTS_PER_PACKET_MAX + 1], &mut packet);
        assert_eq!(packet.len(), HINT_PACKET_BYTES_MAX);
        assert_eq!(
            decoded(&packet).map(|hints| hints.len()),
            Ok(HINTS_PER_PACKET_MAX)
        );
        packet.extend([0; HINT_BYTES]);
        assert_eq!(decoded(&packet), Err(Garbage), "too long");
        encode(&[], &mut packet);
        assert_eq!(decoded(&packet), Err(Garbage), "nothing is told");
    }

    #[test]
    fn kinds_that_are_not_known_are_left_out_and_a_wrong_tag_is_refused() {
        let hint = Hint {
            cookie: 1,
            at_ns: 2,
            kind: HintKind::Cwr,
        };
        let mut packet = Vec::new();
        encode(&[hint, hint], &mut packet);
        for number in [0, 5, u32::MAX] {
            packet[8 + 16..8 + 20].copy_from_slice(&u32::to_ne_bytes(number));
            assert_eq!(decoded(&packet), Ok(vec![hint]), "{number}");
        }
        packet[7] = b'2';
        assert_eq!(decoded(&packet), Err(Garbage));
        assert_eq!(decoded(&[]), Err(Garbage));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), tagged: bool) {
            let packet = if tagged { [&TAG[..], &bytes].concat() } else { bytes };
            let many = decoded(&packet).map_or(0, |hints| hints.len());
            prop_assert!(many <= packet.len() / HINT_BYTES);
        }
    }
}
