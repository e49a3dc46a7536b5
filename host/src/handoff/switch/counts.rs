//! What the flow switch counts.

use ackpace_host_base::fields::Fields;
use serde::Serialize;

/// Packets, but for `epochs_refused`. The first eleven are a `struct counts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Sent on to a peer; released ones and ICMP errors among them.
    pub forwarded: u64,
    /// Of frozen flows, handed over.
    pub held: u64,
    /// Of frozen flows, dropped since the ring buffer was full. It grows: this process is too slow.
    pub ring_full: u64,
    /// Of fenced flows, dropped.
    pub fenced: u64,
    /// Own packets of flows that are held, fenced or away, dropped.
    pub silenced: u64,
    /// A guest's packets after its lease, dropped. It grows: a home does not reach this node.
    pub lease_over: u64,
    /// A guest's packets with SYN, FIN or RST, dropped.
    pub muted: u64,
    /// Fragments to a VIP, dropped.
    pub fragments: u64,
    /// Packets to a VIP with IP options or extension headers, dropped.
    pub options: u64,
    /// ICMP errors that followed a flow.
    pub errors_followed: u64,
    /// Dropped, since two nodes had sent it to each other until its TTL was used up.
    pub looped: u64,
    /// Held packets sent on to a peer or into the own stack.
    pub released: u64,
    /// Held packets beyond the bounds, dropped.
    pub no_room: u64,
    /// Held packets whose checksum is wrong, dropped.
    pub damaged: u64,
    /// Held packets that a device did not take.
    pub not_sent: u64,
    /// Decisions that came too late.
    pub epochs_refused: u64,
}

impl Counts {
    /// Those counted here, with those of the program (`struct counts`).
    pub fn with_those_of(self, told: &[u8]) -> Counts {
        let mut fields = Fields(told);
        Counts {
            forwarded: fields.long(),
            held: fields.long(),
            ring_full: fields.long(),
            fenced: fields.long(),
            silenced: fields.long(),
            lease_over: fields.long(),
            muted: fields.long(),
            fragments: fields.long(),
            options: fields.long(),
            errors_followed: fields.long(),
            looped: fields.long(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_their_order() {
        let told: Vec<u8> = (1..=11u64).flat_map(u64::to_ne_bytes).collect();
        let own = Counts {
            released: 12,
            ..Counts::default()
        };
        let counts = own.with_those_of(&told);
        assert_eq!((counts.forwarded, counts.held, counts.muted), (1, 2, 7));
        assert_eq!((counts.looped, counts.released), (11, 12));
    }
}
