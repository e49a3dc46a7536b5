//! An entry of the flow switch, as user space and the program in the kernel tell it (`host/src/bpf/flows.h`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ackpace_host_base::fields::Fields;
use ackpace_wire::cluster::Tuple;

/// `sizeof(struct flow_key)`.
pub const KEY_BYTES: usize = 36;
/// `sizeof(struct flow)`.
pub const ENTRY_BYTES: usize = 72;
const AF_INET: u32 = libc::AF_INET as u32;
const AF_INET6: u32 = libc::AF_INET6 as u32;

/// A time of CLOCK_MONOTONIC as entries have it, in units of 1.07 s (`LAST_SHIFT`).
pub fn last(ns: u64) -> u32 {
    (ns >> 30) as u32
}

/// Which flow: a `struct flow_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// That of a connection.
    pub fn of(tuple: &Tuple) -> Key {
        let mut bytes = [0; KEY_BYTES];
        bytes[..16].copy_from_slice(&mapped(tuple.client.ip()));
        bytes[16..32].copy_from_slice(&mapped(tuple.server.ip()));
        bytes[32..34].copy_from_slice(&tuple.client.port().to_be_bytes());
        bytes[34..].copy_from_slice(&tuple.server.port().to_be_bytes());
        Key(bytes)
    }

    /// As the kernel tells it.
    pub fn read(bytes: &[u8]) -> Option<Key> {
        bytes.first_chunk().copied().map(Key)
    }

    /// Whether it is a flow of IPv6.
    pub fn is_ipv6(self) -> bool {
        let client = self.0.first_chunk().copied().map(Ipv6Addr::from);
        client.is_some_and(|client: Ipv6Addr| client.to_ipv4_mapped().is_none())
    }
}

/// An address as maps have it: IPv4 is mapped.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The server's end, with IPv4 as such where a socket has it mapped.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What happens to a flow's packets (`enum action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They wait here.
    Hold = 1,
    /// They go to a peer.
    Redirect = 2,
    /// They are for this node.
    Mine = 3,
    /// They are dropped.
    Fence = 4,
    /// They wait behind those that are given back.
    Thaw = 5,
}

/// Where packets are sent on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The device's index.
    pub device: u32,
    /// The peer's address, on the segment of that device.
    pub address: IpAddr,
}

/// What the client said last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// Its highest ACK.
    pub ack: u32,
    /// The end of its data: the sequence number behind its last byte.
    pub seq_end: u32,
    /// The end of what it holds, above holes too: its ACK, or the highest edge of its SACK (RFC 2018).
    pub held_end: u32,
}

/// A `struct flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happens.
    pub action: Action,
    /// By whose decision: a lower one is refused.
    pub epoch: u32,
    /// A guest sends until then (CLOCK_MONOTONIC); 0: not a guest.
    pub lease_until_ns: u64,
    /// The entry ends then; 0: it stays.
    pub expires_ns: u64,
    /// What the client said; `None`: nothing since the entry is there.
    pub tracked: Option<Tracked>,
    /// Where packets go on to, if they do.
    pub next: Option<NextHop>,
    /// When a packet of the client came last, or the entry was written ([`last`]).
    pub last: u32,
    /// The server that decided, by its number; 0: none is there.
    pub owner: u32,
}

impl Entry {
    /// One that stays.
    pub fn new(action: Action, epoch: u32) -> Entry {
        Entry {
            action,
            epoch,
            lease_until_ns: 0,
            expires_ns: 0,
            tracked: None,
            next: None,
            last: 0,
            owner: 0,
        }
    }

    /// The same while packets are given back.
    pub fn thawing(self) -> Entry {
        let action = Action::Thaw;
        Entry { action, ..self }
    }

    /// A guest's that was held, as it was before.
    pub fn guest_again(self) -> Entry {
        Entry {
            action: Action::Mine,
            expires_ns: 0,
            ..self
        }
    }

    /// Whether packets wait.
    pub fn is_held(&self) -> bool {
        matches!(self.action, Action::Hold | Action::Thaw)
    }

    /// Whether it has ended.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.expires_ns != 0 && now_ns >= self.expires_ns
    }

    /// For the kernel.
    pub fn bytes(&self) -> [u8; ENTRY_BYTES] {
        let said = self.tracked.unwrap_or_default();
        let (device, family, address) = match self.next {
            Some(NextHop { device, address }) => {
                let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
                (device, family, mapped(address))
            }
            None => (0, 0, [0; 16]),
        };
        let words = [
            self.action as u32,
            self.epoch,
            u32::from(self.tracked.is_some()),
            said.ack,
            said.seq_end,
            device,
            family,
            said.held_end,
        ];
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.lease_until_ns.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.expires_ns.to_ne_bytes());
        bytes[16..48].copy_from_slice(&words.map(u32::to_ne_bytes).concat());
        bytes[48..64].copy_from_slice(&address);
        bytes[64..].copy_from_slice(&[self.last, self.owner].map(u32::to_ne_bytes).concat());
        bytes
    }

    /// From the kernel; `None`: not one of ours.
    pub fn read(bytes: &[u8]) -> Option<Entry> {
        let mut fields = Fields(bytes);
        let (lease_until_ns, expires_ns) = (fields.long(), fields.long());
        let action = match fields.word() {
            1 => Action::Hold,
            2 => Action::Redirect,
            3 => Action::Mine,
            4 => Action::Fence,
            5 => Action::Thaw,
            _ => return None,
        };
        let (epoch, seen) = (fields.word(), fields.word());
        let (ack, seq_end) = (fields.word(), fields.word());
        let (device, family) = (fields.word(), fields.word());
        let said = Tracked {
            ack,
            seq_end,
            held_end: fields.word(),
        };
        let address = IpAddr::from(fields.take::<16>()).to_canonical();
        Some(Entry {
            action,
            epoch,
            lease_until_ns,
            expires_ns,
            tracked: (seen != 0).then_some(said),
            next: (family != 0).then_some(NextHop { device, address }),
            last: fields.word(),
            owner: fields.word(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            Just(Action::Hold),
            Just(Action::Redirect),
            Just(Action::Mine),
            Just(Action::Fence),
            Just(Action::Thaw)
        ]
    }

    proptest! {
        #[test]
        fn an_entry_is_read_as_it_was_told(
            action in action(),
            numbers: (u32, u64, u64, u32, u32),
            said: Option<(u32, u32, u32)>,
            next: Option<(u32, IpAddr)>,
        ) {
            let (epoch, lease_until_ns, expires_ns, last, owner) = numbers;
            let entry = Entry {
                action,
                epoch,
                lease_until_ns,
                expires_ns,
                tracked: said.map(|(ack, seq_end, held_end)| Tracked { ack, seq_end, held_end }),
                next: next.map(|(device, address)| NextHop { device, address: address.to_canonical() }),
                last,
                owner,
            };
            prop_assert_eq!(Entry::read(&entry.bytes()), Some(entry));
        }
    }

    #[test]
    fn a_key_stands_in_network_order_and_ipv4_is_mapped() {
        let tuple = |client: &str, server: &str| Tuple {
            client: client.parse().expect("an address"),
            server: server.parse().expect("an address"),
        };
        let key = Key::of(&tuple("10.0.0.2:258", "10.9.9.9:80"));
        assert_eq!(key.0[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255]);
        assert_eq!(key.0[12..16], [10, 0, 0, 2]);
        assert_eq!(key.0[32..], [1, 2, 0, 80]);
        assert!(!key.is_ipv6());
        let dual_stack = tuple("[::ffff:10.0.0.2]:258", "[::ffff:10.9.9.9]:80");
        assert_eq!(Key::of(&dual_stack), key, "a socket of IPv6 may carry IPv4");
        assert!(Key::of(&tuple("[fd00::2]:258", "[fd00::9]:80")).is_ipv6());
    }

    #[test]
    fn what_is_not_an_entry_is_none() {
        assert_eq!(Entry::read(&[0; ENTRY_BYTES]), None);
        assert_eq!(Entry::read(&[]), None);
        assert_eq!(Key::read(&[0; 35]), None);
    }
}
