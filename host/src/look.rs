//! What a pass over the sockets tells of each (`struct look` of `host/src/bpf/tune.h`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ackpace_core::addresses::Address;
use ackpace_core::congestion::{CaState, Path};
use ackpace_core::conn::TcpSample;
use ackpace_core::rate::flow::Flow;
use ackpace_core::sndbuf::Control;
use ackpace_core::sndbuf::outside::{NONE_SEGMENTS, Setting};
use ackpace_core::sndbuf::reading::Counted;
use ackpace_core::units::US_PER_S;

/// Bytes of one look.
pub const LOOK_BYTES: usize = 176;

/// What the kernel did with the order for a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// There was none.
    #[default]
    None,
    /// Carried out.
    Done,
    /// The socket was not as the order said: somebody else changed it meanwhile. Nothing was done.
    Changed,
    /// The kernel refused.
    Refused,
}

/// The record in a socket that was changed: what it had, and what was set. 0: that one was not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Before the first change.
    pub was: Setting,
    /// By the last one.
    pub set: Setting,
}

/// A socket, as the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The socket's number, never used again (SO_COOKIE).
    pub cookie: u64,
    /// Id of its cgroup; 0 where nobody asked.
    pub cgroup: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Its congestion control.
    pub control: Control,
    /// What holds it now; in the answer to an order, what held it before.
    pub now: Setting,
    /// The record, if we changed it.
    pub ours: Option<Record>,
    /// `snd_cwnd`.
    pub cwnd_segments: u32,
    /// `snd_ssthresh`.
    pub threshold_segments: u32,
    /// What TCP_INFO would say.
    pub sample: TcpSample,
    /// Likewise.
    pub counted: Counted,
    /// `sk_wmem_queued`: kernel memory for what it holds.
    pub queued_bytes: u32,
    /// SO_SNDBUF.
    pub send_buffer_bytes: u32,
    /// Its program fixed that.
    pub buffer_is_fixed: bool,
    /// It is one of those that were asked for.
    pub is_matched: bool,
    /// It may send: ESTABLISHED or CLOSE_WAIT.
    pub is_open: bool,
    /// What became of its order.
    pub outcome: Outcome,
}

impl Look {
    /// MSS.
    pub fn segment_bytes(&self) -> u64 {
        self.sample.flow.map_or(1, |flow| flow.segment_bytes.max(1))
    }

    /// The client, as far as it is remembered: an IPv4 address, or the /64 of an IPv6 one.
    pub fn address(&self) -> Address {
        match self.peer.ip() {
            IpAddr::V4(v4) => Address(u64::from(u32::from(v4))),
            IpAddr::V6(v6) => Address(((u128::from(v6) >> 64) as u64) | (1 << 63)),
        }
    }

    /// Parses one look; `None` for bytes that are none. `ticks_per_s` is the kernel's HZ.
    pub fn parse(bytes: &[u8], ticks_per_s: u32) -> Option<Look> {
        let raw = Raw {
            bytes: bytes.try_into().ok()?,
            ticks_per_s: ticks_per_s.max(1),
        };
        let flags = raw.bytes[170];
        Some(Look {
            cookie: raw.long(0),
            cgroup: raw.long(8),
            local: SocketAddr::new(raw.address(24), raw.half(164)),
            peer: SocketAddr::new(raw.address(40), raw.half(166)),
            control: Control::named(&raw.name()),
            now: raw.setting(80),
            ours: (flags & 1 != 0).then(|| Record {
                was: raw.setting(148),
                set: raw.setting(156),
            }),
            cwnd_segments: raw.word(72),
            threshold_segments: raw.word(76),
            sample: raw.sample(),
            counted: Counted {
                sent_segments: raw.word(116),
                rto_us: raw.us(104),
            },
            queued_bytes: raw.word(140),
            send_buffer_bytes: raw.word(144),
            buffer_is_fixed: flags & 4 != 0,
            is_matched: flags & 2 != 0,
            is_open: matches!(raw.bytes[168], 1 | 8),
            outcome: match raw.bytes[171] {
                0 => Outcome::None,
                1 => Outcome::Done,
                2 => Outcome::Changed,
                _ => Outcome::Refused,
            },
        })
    }
}

/// The bytes of a look, with the numbers in them by their places.
struct Raw<'a> {
    bytes: &'a [u8; LOOK_BYTES],
    ticks_per_s: u32,
}

impl Raw<'_> {
    fn half(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = &self.bytes[at..at + 4];
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn long(&self, at: usize) -> u64 {
        let (first, second) = (u64::from(self.word(at)), u64::from(self.word(at + 4)));
        match cfg!(target_endian = "little") {
            true => first | second << 32,
            false => first << 32 | second,
        }
    }

    /// A time that the kernel counts in ticks.
    fn us(&self, at: usize) -> u64 {
        u64::from(self.word(at)) * US_PER_S / u64::from(self.ticks_per_s)
    }

    fn setting(&self, at: usize) -> Setting {
        Setting {
            clamp_segments: self.word(at),
            lowat_bytes: self.word(at + 4),
        }
    }

    /// An IPv4 address stands as an IPv6 one.
    fn address(&self, at: usize) -> IpAddr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.bytes[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
    }

    /// The name of the congestion control.
    fn name(&self) -> String {
        let mut parts = self.bytes[56..72].split(|byte| *byte == 0);
        String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned()
    }

    fn sample(&self) -> TcpSample {
        let segment_bytes = u64::from(self.word(92).max(1));
        let in_bytes = |segments: u32| u64::from(segments) * segment_bytes;
        let path = Path {
            state: match self.bytes[169] {
                0 => CaState::Open,
                1 => CaState::Disorder,
                2 => CaState::Cwr,
                3 => CaState::Recovery,
                _ => CaState::Loss,
            },
            cwnd_bytes: in_bytes(self.word(72)),
            threshold_bytes: Some(self.word(76))
                .filter(|segments| *segments < NONE_SEGMENTS)
                .map(in_bytes),
            rtt_min_us: Some(self.word(100))
                .filter(|us| *us != u32::MAX)
                .map_or(0, u64::from),
            marked_segments: self.word(124),
            resent_segments: self.word(120),
        };
        TcpSample {
            unacked_bytes: self.word(108).into(),
            unsent_bytes: Some(self.word(112).into()),
            window_closed: self.word(88) == 0,
            probes_unanswered: 0,
            rtt_us: u64::from(self.word(96) >> 3),
            path,
            flow: Some(Flow {
                acked_bytes: self.long(16),
                busy_us: self.us(128),
                window_limited_us: self.us(132),
                window_bytes: self.word(88).into(),
                segment_bytes,
                quiet_us: self.us(136),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    #[test]
    fn fields_are_read_at_their_places() {
        let mut bytes = [0; LOOK_BYTES];
        put(&mut bytes, 0, &7_u64.to_ne_bytes());
        put(&mut bytes, 16, &(5_u64 << 32 | 9).to_ne_bytes());
        put(&mut bytes, 34, &[0xff, 0xff, 10, 1, 2, 3]);
        put(&mut bytes, 40, &[0x20, 1, 0xd, 0xb8]);
        put(&mut bytes, 56, b"bbr\0");
        for (at, value) in [
            (72, 10_u32),
            (76, 0x7fff_ffff),
            (80, u32::MAX),
            (92, 1_448),
            (96, 80_000),
            (128, 250),
        ] {
            put(&mut bytes, at, &value.to_ne_bytes());
        }
        put(&mut bytes, 164, &80_u16.to_ne_bytes());
        put(&mut bytes, 168, &[1, 3, 2, 1]);
        let look = Look::parse(&bytes, 250).expect("so many bytes");
        assert_eq!(
            (look.cookie, look.local),
            (7, "10.1.2.3:80".parse().expect("an address"))
        );
        assert_eq!(
            look.peer.ip(),
            "2001:db8::".parse::<IpAddr>().expect("an address")
        );
        assert_eq!(
            (look.control, look.ours, look.is_matched),
            (Control::Model, None, true)
        );
        assert_eq!(
            (look.sample.rtt_us, look.sample.path.threshold_bytes),
            (10_000, None)
        );
        let flow = look.sample.flow.expect("it is always there");
        assert_eq!((flow.acked_bytes, flow.busy_us), (5 << 32 | 9, US_PER_S));
        assert_eq!(look.sample.path.cwnd_bytes, 14_480);
        assert_eq!((look.outcome, look.is_open), (Outcome::Done, true));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_look_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400), ticks_per_s in any::<u32>()) {
            let look = Look::parse(&bytes, ticks_per_s);
            prop_assert_eq!(look.is_some(), bytes.len() == LOOK_BYTES);
            if let Some(look) = look {
                prop_assert!(look.segment_bytes() > 0);
                let _ = look.address();
            }
        }
    }
}
