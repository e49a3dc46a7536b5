//! A snapshot of a socket: what a pass over the sockets tells of each (`struct socket_snapshot`, `struct quiet` and `struct answer` of `host/src/bpf/tune.h`).

use std::net::{IpAddr, SocketAddr};

use ackpace_core::addresses::Address;
use ackpace_core::congestion::{CaState, Path};
use ackpace_core::conn::TcpSample;
use ackpace_core::rate::Flow;
use ackpace_core::units::US_PER_S;
use ackpace_host_base::fields::Fields;
use ackpace_share::Control;
use ackpace_share::outside::{NONE_SEGMENTS, Setting};
use ackpace_share::reading::Counted;

/// Bytes of one snapshot.
pub const SNAPSHOT_BYTES: usize = 152;
/// Bytes of one [`Quiet`].
pub const QUIET_BYTES: usize = 16;
/// Bytes of one [`Answer`].
pub const ANSWER_BYTES: usize = 16;
/// `QUIET`.
const QUIET: u64 = 1 << 63;

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

impl Outcome {
    /// By the number of `OUTCOME_...`.
    fn told(number: u32) -> Outcome {
        match number {
            0 => Outcome::None,
            1 => Outcome::Done,
            2 => Outcome::Changed,
            _ => Outcome::Refused,
        }
    }
}

/// The record in a socket that was changed: what it had, and what was set. 0: that one was not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Before the first change.
    pub was: Setting,
    /// By the last one.
    pub set: Setting,
}

/// A socket at one moment, as the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSnapshot {
    /// The socket's number, never used again (SO_COOKIE).
    pub cookie: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Its congestion control.
    pub control: Control,
    /// What holds it now.
    pub now: Setting,
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
    /// It may hold what is to be sent: ESTABLISHED or CLOSE_WAIT; or its program has closed it before all was sent: FIN_WAIT1, CLOSING or
    /// LAST_ACK.
    pub is_open: bool,
}

/// A socket that matches, is open, has no fixed send buffer, and rests: for 3 s it has sent nothing,
/// and has nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Its number.
    pub cookie: u64,
    /// What holds it now.
    pub now: Setting,
}

/// What became of the order for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its number.
    pub cookie: u64,
    /// That.
    pub outcome: Outcome,
}

/// All sockets, as one pass over them tells.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Those that do something, or did a moment ago.
    pub snapshots: Vec<SocketSnapshot>,
    /// Those that rest.
    pub quiet: Vec<Quiet>,
}

impl View {
    /// Nothing seen yet; the memory stays.
    pub fn clear(&mut self) {
        self.snapshots.clear();
        self.quiet.clear();
    }

    /// How many sockets match.
    pub fn matched(&self) -> usize {
        self.snapshots
            .iter()
            .filter(|snapshot| snapshot.is_matched)
            .count()
            + self.quiet.len()
    }

    /// Takes in what stands at the front of these bytes, and says how long that was. `None`: it is not all there yet.
    /// `ticks_per_s` is the kernel's HZ.
    pub fn take(&mut self, bytes: &[u8], ticks_per_s: u32) -> Option<usize> {
        let cookie = u64::from_ne_bytes(*bytes.first_chunk()?);
        if cookie & QUIET == 0 {
            let snapshot = SocketSnapshot::parse(bytes.get(..SNAPSHOT_BYTES)?, ticks_per_s)?;
            self.snapshots.push(snapshot);
            return Some(SNAPSHOT_BYTES);
        }
        let mut fields = Fields(bytes.get(8..QUIET_BYTES)?);
        self.quiet.push(Quiet {
            cookie: cookie & !QUIET,
            now: setting(&mut fields),
        });
        Some(QUIET_BYTES)
    }
}

impl Answer {
    /// What stands at the front. `None`: it is not all there yet.
    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let mut fields = Fields(bytes.get(..ANSWER_BYTES)?);
        Some(Answer {
            cookie: fields.long(),
            outcome: Outcome::told(fields.word()),
        })
    }
}

fn state_of(ca_state: u8) -> CaState {
    match ca_state {
        0 => CaState::Open,
        1 => CaState::Disorder,
        2 => CaState::Cwr,
        3 => CaState::Recovery,
        _ => CaState::Loss,
    }
}

/// The kernel tells an IPv4 address as an IPv6 one.
fn end(octets: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from(octets).to_canonical(), port)
}

fn setting(fields: &mut Fields<'_>) -> Setting {
    Setting {
        clamp_segments: fields.word(),
        lowat_bytes: fields.word(),
    }
}

impl SocketSnapshot {
    /// MSS.
    pub fn segment_bytes(&self) -> u64 {
        self.sample.flow.map_or(1, |flow| flow.segment_bytes.max(1))
    }

    /// The client, as far as it is remembered: an IPv4 address, or the /64 of an IPv6 one.
    pub fn address(&self) -> Address {
        self.peer.ip().into()
    }

    /// Parses one snapshot, a `struct socket_snapshot`; `None` for bytes that are none. `ticks_per_s` is the kernel's HZ.
    pub fn parse(bytes: &[u8], ticks_per_s: u32) -> Option<SocketSnapshot> {
        let mut fields = Fields(Some(bytes).filter(|bytes| bytes.len() == SNAPSHOT_BYTES)?);
        let (cookie, acked_bytes) = (fields.long(), fields.long());
        let (local, peer, control): ([u8; 16], [u8; 16], [u8; 16]) =
            (fields.take(), fields.take(), fields.take());
        let [cwnd_segments, threshold_segments] = std::array::from_fn(|_| fields.word());
        let now = setting(&mut fields);
        let [window, segment, rtt_eighths, rtt_min] = std::array::from_fn(|_| fields.word());
        let [rto, unacked, unsent, sent] = std::array::from_fn(|_| fields.word());
        let [resent, marked, busy, window_limited] = std::array::from_fn(|_| fields.word());
        let [quiet, queued_bytes, send_buffer_bytes] = std::array::from_fn(|_| fields.word());
        let [local_port, peer_port] = std::array::from_fn(|_| fields.half());
        let [state, ca_state, flags, _] = fields.take();
        let us = |ticks: u32| u64::from(ticks) * US_PER_S / u64::from(ticks_per_s.max(1));
        let segment_bytes = u64::from(segment.max(1));
        let in_bytes = |segments: u32| u64::from(segments) * segment_bytes;
        let has_threshold = threshold_segments < NONE_SEGMENTS;
        let path = Path {
            state: state_of(ca_state),
            cwnd_bytes: in_bytes(cwnd_segments),
            threshold_bytes: has_threshold.then(|| in_bytes(threshold_segments)),
            rtt_min_us: if rtt_min == u32::MAX {
                0
            } else {
                rtt_min.into()
            },
            marked_segments: marked,
            resent_segments: resent,
        };
        let flow = Flow {
            acked_bytes,
            busy_us: us(busy),
            window_limited_us: us(window_limited),
            window_bytes: window.into(),
            segment_bytes,
            quiet_us: us(quiet),
        };
        let name = control.split(|byte| *byte == 0).next();
        let name = std::str::from_utf8(name.unwrap_or_default()); // it is ASCII
        Some(SocketSnapshot {
            cookie,
            local: end(local, local_port),
            peer: end(peer, peer_port),
            control: Control::named(name.unwrap_or_default()),
            now,
            cwnd_segments,
            threshold_segments,
            sample: TcpSample {
                unacked_bytes: unacked.into(),
                unsent_bytes: Some(unsent.into()),
                window_closed: window == 0,
                probes_unanswered: 0,
                rtt_us: u64::from(rtt_eighths >> 3),
                path,
                flow: Some(flow),
            },
            counted: Counted {
                sent_segments: sent,
                rto_us: us(rto),
            },
            queued_bytes,
            send_buffer_bytes,
            buffer_is_fixed: flags & 4 != 0,
            is_matched: flags & 2 != 0,
            is_open: matches!(state, 1 | 4 | 8 | 9 | 11),
        })
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
        let mut bytes = [0; SNAPSHOT_BYTES];
        put(&mut bytes, 0, &7_u64.to_ne_bytes());
        put(&mut bytes, 8, &(5_u64 << 32 | 9).to_ne_bytes());
        put(&mut bytes, 26, &[0xff, 0xff, 10, 1, 2, 3]);
        put(&mut bytes, 32, &[0x20, 1, 0xd, 0xb8]);
        put(&mut bytes, 48, b"bbr\0");
        for (at, value) in [
            (64, 10_u32),
            (68, 0x7fff_ffff),
            (72, u32::MAX),
            (84, 1_448),
            (88, 80_000),
            (120, 250),
        ] {
            put(&mut bytes, at, &value.to_ne_bytes());
        }
        put(&mut bytes, 140, &80_u16.to_ne_bytes());
        put(&mut bytes, 144, &[1, 3, 2]);
        let snapshot = SocketSnapshot::parse(&bytes, 250).expect("so many bytes");
        assert_eq!(
            (snapshot.cookie, snapshot.local.to_string()),
            (7, "10.1.2.3:80".to_owned())
        );
        assert_eq!(snapshot.peer.to_string(), "[2001:db8::]:0");
        assert_eq!(
            (
                snapshot.control,
                snapshot.now.clamp_segments,
                snapshot.is_matched
            ),
            (Control::Model, u32::MAX, true)
        );
        assert_eq!(
            (snapshot.sample.rtt_us, snapshot.sample.path.threshold_bytes),
            (10_000, None)
        );
        let flow = snapshot.sample.flow.expect("it is always there");
        assert_eq!((flow.acked_bytes, flow.busy_us), (5 << 32 | 9, US_PER_S));
        assert_eq!(snapshot.sample.path.cwnd_bytes, 14_480);
        assert!(snapshot.is_open);
        let mut is_open = |state: u8| {
            put(&mut bytes, 144, &[state]);
            SocketSnapshot::parse(&bytes, 250).is_some_and(|it| it.is_open)
        };
        let open: Vec<u8> = (1..12).filter(|state| is_open(*state)).collect();
        assert_eq!(open, [1, 4, 8, 9, 11], "linux/tcp_states.h");
        put(&mut bytes, 144, &[1]);
        let mut view = View::default();
        assert_eq!(view.take(&bytes[..SNAPSHOT_BYTES - 1], 250), None);
        assert_eq!(view.take(&bytes, 250), Some(SNAPSHOT_BYTES));
        assert_eq!((&view.snapshots[..], view.matched()), (&[snapshot][..], 1));
    }

    #[test]
    fn who_rests_is_told_of_in_few_bytes_and_answers_are_read_likewise() {
        let mut bytes = [0; SNAPSHOT_BYTES];
        put(&mut bytes, 0, &(7_u64 | QUIET).to_ne_bytes());
        put(&mut bytes, 8, &34_u32.to_ne_bytes());
        put(&mut bytes, 12, &50_000_u32.to_ne_bytes());
        let now = Setting {
            clamp_segments: 34,
            lowat_bytes: 50_000,
        };
        let quiet = Quiet { cookie: 7, now };
        let mut view = View::default();
        assert_eq!(view.take(&bytes[..QUIET_BYTES - 1], 250), None);
        assert_eq!(view.take(&bytes, 250), Some(QUIET_BYTES));
        assert_eq!((&view.quiet[..], view.matched()), (&[quiet][..], 1));

        for (word, outcome) in [
            (0_u32, Outcome::None),
            (1, Outcome::Done),
            (2, Outcome::Changed),
            (3, Outcome::Refused),
        ] {
            put(&mut bytes, 0, &9_u64.to_ne_bytes());
            put(&mut bytes, 8, &word.to_ne_bytes());
            let answer = Answer { cookie: 9, outcome };
            assert_eq!(Answer::parse(&bytes), Some(answer));
        }
        assert_eq!(Answer::parse(&bytes[..ANSWER_BYTES - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_snapshot_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400), ticks_per_s in any::<u32>()) {
            let snapshot = SocketSnapshot::parse(&bytes, ticks_per_s);
            prop_assert_eq!(snapshot.is_some(), bytes.len() == SNAPSHOT_BYTES);
            if let Some(snapshot) = snapshot {
                prop_assert!(snapshot.segment_bytes() > 0);
                let _ = snapshot.address();
            }
        }
    }
}
