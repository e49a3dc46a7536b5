//! What a socket holds at most while its client's rate is a guess.
//!
//! A burst into an empty receive buffer leaves the socket as fast as its path carries it. Until TCP's counters tell
//! whether the client reads that fast, the rate by which the socket is filled may be a thousand times too high. So two
//! kinds of bytes are told apart. The client's window takes those up to its right edge, since receivers do not take back
//! what they have offered (RFC 9293, 3.8.6): they leave whether the client reads or not, and are not bounded here. Those
//! beyond the edge stay in the socket until the client has read something.
//!
//! Beyond the edge, a socket holds what the client has read so far, or one congestion window if that is less: whoever
//! reads as fast as the path carries gets two windows, one in flight and one unsent, and slow start is never held back
//! for lack of bytes. It holds [`LOWAT_BYTES_START`] at least, and no more than the socket's part of the budget. Until
//! TCP has told of the window, which is when the socket is full for the first time, the kernel's first lowat bounds it.

use crate::conn::TcpSample;
use crate::limits::LOWAT_BYTES_START;

/// What the client's window is known to take, and what may wait beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    seen: SeenWindow,
    /// What the socket was given since the last sample.
    given_bytes: u64,
    /// Its part of what all sockets hold beyond the edges of windows.
    share_bytes: u64,
}

/// What TCP has said of the client's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SeenWindow {
    /// It was not asked yet.
    #[default]
    NotYet,
    /// It counts nothing here.
    Nothing,
    /// The last sample.
    Window(ClientWindow),
}

/// A window, as TCP told of it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientWindow {
    /// From the last byte sent to its right edge.
    room_bytes: u64,
    /// What the socket held unsent.
    unsent_bytes: u64,
    /// Its right edge in the first sample, as a number of bytes since the beginning.
    first_edge_bytes: u64,
    /// Its right edge now.
    edge_bytes: u64,
    /// The congestion window.
    cwnd_bytes: u64,
}

impl Burst {
    /// TCP was asked.
    pub fn sampled(&mut self, sample: &TcpSample) {
        let (Some(flow), Some(unsent_bytes)) = (sample.flow, sample.unsent_bytes) else {
            self.seen = SeenWindow::Nothing;
            return;
        };
        let in_flight_bytes = sample.unacked_bytes.saturating_sub(unsent_bytes);
        let edge_bytes = flow.acked_bytes.saturating_add(flow.window_bytes);
        let first_edge_bytes = match self.seen {
            SeenWindow::Window(before) => before.first_edge_bytes.min(edge_bytes),
            SeenWindow::NotYet | SeenWindow::Nothing => edge_bytes,
        };
        self.given_bytes = 0;
        self.seen = SeenWindow::Window(ClientWindow {
            room_bytes: flow.window_bytes.saturating_sub(in_flight_bytes),
            unsent_bytes,
            first_edge_bytes,
            edge_bytes,
            cwnd_bytes: sample.path.cwnd_bytes,
        });
    }

    /// The socket was given bytes.
    pub fn given(&mut self, bytes: u64) {
        self.given_bytes = self.given_bytes.saturating_add(bytes);
    }

    /// Its part of what all sockets together hold beyond the edges of their clients' windows.
    pub fn share(&mut self, bytes: u64) {
        self.share_bytes = bytes;
    }

    /// What the socket may hold unsent, if `level_bytes` are in it now; `None`: there is no bound, since nothing is
    /// known of the client's window.
    pub fn most_bytes(&self, level_bytes: u64) -> Option<u64> {
        let floor_bytes = u64::from(LOWAT_BYTES_START);
        let window = match self.seen {
            SeenWindow::NotYet | SeenWindow::Nothing => return None,
            SeenWindow::Window(window) => window,
        };
        let had_bytes = window.unsent_bytes.saturating_add(self.given_bytes);
        let left_bytes = had_bytes.saturating_sub(level_bytes);
        let read_bytes = window.edge_bytes - window.first_edge_bytes;
        let beyond_bytes = read_bytes.min(window.cwnd_bytes).min(self.share_bytes);
        let room_bytes = window.room_bytes.saturating_sub(left_bytes);
        Some(room_bytes.saturating_add(beyond_bytes.max(floor_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Path;
    use crate::rate::flow::Flow;
    use crate::units::{KIB, MIB};
    use proptest::prelude::*;

    const FLOOR: u64 = LOWAT_BYTES_START as u64;

    fn sample(
        acked_bytes: u64,
        window_bytes: u64,
        in_flight_bytes: u64,
        unsent_bytes: u64,
    ) -> TcpSample {
        TcpSample {
            unacked_bytes: in_flight_bytes + unsent_bytes,
            unsent_bytes: Some(unsent_bytes),
            path: Path {
                cwnd_bytes: MIB,
                ..Path::default()
            },
            flow: Some(Flow {
                acked_bytes,
                window_bytes,
                ..Flow::default()
            }),
            ..TcpSample::default()
        }
    }

    fn burst(samples: &[TcpSample]) -> Burst {
        let mut burst = Burst::default();
        burst.share(2 * MIB);
        samples.iter().for_each(|sample| burst.sampled(sample));
        burst
    }

    #[test]
    fn an_open_window_bounds_little_and_a_closed_one_much() {
        assert_eq!(Burst::default().most_bytes(0), None);
        let open = burst(&[sample(64 * KIB, 6 * MIB, MIB, FLOOR)]);
        assert_eq!(open.most_bytes(FLOOR), Some(5 * MIB + FLOOR));
        assert_eq!(open.most_bytes(0), Some(5 * MIB));
        let closed = burst(&[
            sample(64 * KIB, 6 * MIB, 0, 0),
            sample(6 * MIB + 64 * KIB, 0, 0, FLOOR),
        ]);
        assert_eq!(closed.most_bytes(FLOOR), Some(FLOOR));
    }

    #[test]
    fn who_reads_as_fast_as_its_path_carries_gets_a_window_beyond_the_one_in_flight() {
        let first = sample(64 * KIB, MIB, MIB, FLOOR);
        for (read_kib, beyond_bytes) in [(64, FLOOR), (512, 512 * KIB), (10_240, MIB)] {
            let now = sample((64 + read_kib) * KIB, MIB, MIB, FLOOR);
            assert_eq!(burst(&[first, now]).most_bytes(FLOOR), Some(beyond_bytes));
        }
    }

    #[test]
    fn where_tcp_counts_nothing_there_is_no_bound() {
        assert_eq!(burst(&[TcpSample::default()]).most_bytes(0), None);
    }

    proptest! {
        #[test]
        fn what_waits_beyond_the_edge_is_never_more_than_the_floor_or_what_was_read(
            steps in proptest::collection::vec((0u64..4 * MIB, 0u64..4 * MIB, 0u64..MIB), 1..50),
            window_bytes in 0u64..8 * MIB,
        ) {
            let mut burst = burst(&[]);
            let (mut given, mut sent, mut edge) = (0u64, 0u64, window_bytes);
            for (n, (path_bytes, ask_bytes, reads_bytes)) in steps.into_iter().enumerate() {
                // TCP is not asked each time.
                if n % 3 != 1 {
                    burst.sampled(&sample(sent, edge - sent, 0, given - sent));
                }
                let most_bytes = burst.most_bytes(given - sent).unwrap_or(u64::MAX);
                let bytes = ask_bytes.min(most_bytes.saturating_sub(given - sent));
                burst.given(bytes);
                given += bytes;
                let read_bytes = edge - window_bytes;
                let beyond_bytes = given.saturating_sub(edge);
                prop_assert!(beyond_bytes <= FLOOR.max(read_bytes.min(MIB)), "{n}: {beyond_bytes}");
                sent = given.min(edge).min(sent + path_bytes);
                edge += reads_bytes;
            }
        }
    }
}
