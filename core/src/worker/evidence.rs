//! Evidence: what TCP says of a connection when it is asked, and all that follows from it.

use super::Phase;
use super::Worker;
use super::messages::Out;
use super::pace::{Pace, is_dry};
use super::patience::Verdict;
use super::stream::Stream;
use crate::congestion::{Delay, Path, Signal, Watch};
use crate::conn::{ConnId, TcpSample};
use crate::limits::{FIRST_SAMPLE_BYTES_MIN, FLOW_EACH_US, PAUSED_US, WATCH_US};
use crate::units::Instant;
use crate::why::{Wait, What, Why};

/// What TCP said last of a connection.
pub(super) struct Evidence {
    /// Of its path, and when that was asked.
    watch: Watch,
    watched_at: Instant,
    /// For whoever looks at it.
    pub shown: Pace,
    /// The peer is gone; only what arrived is still to be found out.
    pub gone: bool,
}

impl Evidence {
    pub fn new(now: Instant) -> Evidence {
        Evidence {
            watch: Watch::default(),
            watched_at: now,
            shown: Pace::new(now),
            gone: false,
        }
    }
}

impl Worker {
    /// A socket was given bytes, so what it holds is known, too: ask how its path is, if the disk reads for it, and how fast its client
    /// is, if the socket is full.
    pub(super) fn watch_path(&mut self, id: ConnId, full: bool, now: Instant) {
        let delay = self.settings.delay;
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let stream = conn.stream.as_deref();
        let reads = stream.is_some_and(Stream::wants);
        let each_us = match reads && delay != Delay::Off {
            true => WATCH_US,
            false => FLOW_EACH_US,
        };
        // The first time at once, if it is a long response: what its client takes from now on is counted.
        let long = |stream: &Stream| stream.sent_bytes >= FIRST_SAMPLE_BYTES_MIN;
        let first = !conn.output.margin.is_counted() && stream.is_some_and(long);
        let due = now >= conn.evidence.watched_at.plus_us(each_us);
        if (reads || full) && (first || due) {
            conn.evidence.watched_at = now;
            self.outs.push_back(Out::Sample(id));
        }
    }

    /// TCP was asked.
    pub(super) fn sampled(&mut self, id: ConnId, sample: &TcpSample, now: Instant) {
        self.pace(id, sample, now);
        if self.is_for_show(id, sample, now) {
            return;
        }
        self.hear_path(id, &sample.path, now);
        self.measure(id, sample, now);
        let stalled = self.find_stalled(id, sample);
        if sample.window_closed {
            self.find_paused(id, sample, now);
        }
        if !self.ends_by(id, sample, now) {
            let reads = self.table.get(id).and_then(|conn| conn.stream.as_deref());
            if stalled || reads.is_some_and(Stream::reads_from_disk) {
                self.wake(id.index, false); // its want may have to be dated anew
            }
        }
    }

    /// Whether this was asked for those who look, and decides nothing.
    fn is_for_show(&mut self, id: ConnId, sample: &TcpSample, now: Instant) -> bool {
        let Some(conn) = self.table.get_mut(id) else {
            return true;
        };
        conn.arrivals.measured(sample.unacked_bytes);
        let acked_bytes = conn.arrivals.acked_bytes();
        let idle_us = conn.evidence.shown.heard(sample, acked_bytes, now);
        let stream = conn.stream.as_deref_mut();
        stream.is_some_and(|stream| stream.heard(is_dry(sample), idle_us, now))
    }

    /// Signs of congestion count for a stream that the disk is asked to read for.
    fn hear_path(&mut self, id: ConnId, path: &Path, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let reads = conn.stream.as_deref().is_some_and(Stream::wants);
        if let Some(signal) = conn.evidence.watch.seen(*path).filter(|_| reads) {
            self.congested(id, signal, path, now);
        }
    }

    /// The path is congested: "sample the rate now". What follows for the stream's want is found at its next step.
    fn congested(&mut self, id: ConnId, signal: Signal, path: &Path, now: Instant) {
        self.counts.congested(signal);
        let delay = self.settings.delay;
        let Some(conn) = self.table.get_mut(id).filter(|_| delay != Delay::Off) else {
            return;
        };
        let rate = |margin: &crate::send::Margin| margin.supply(true, now).rate_bytes_per_s;
        let from_bytes_per_s = rate(&conn.output.margin);
        if delay == Delay::Rate {
            conn.output.margin.congest(path.most_bytes_per_s());
        }
        let to_bytes_per_s = rate(&conn.output.margin);
        let stream = conn.stream.as_mut();
        let wants = stream.is_some_and(|stream| stream.congested());
        if wants && from_bytes_per_s > 0 {
            let what = What::Congested {
                signal,
                delay,
                from_bytes_per_s,
                to_bytes_per_s,
            };
            self.decisions.record(now, Some(id), what);
            self.wake(id.index, false);
        }
    }

    /// Its rate is measured, and what arrived is told.
    fn measure(&mut self, id: ConnId, sample: &TcpSample, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let fetched = conn.stream.as_deref().is_some_and(Stream::reads_from_disk);
        if let Some(flow) = sample.flow {
            conn.output.margin.counted(flow, now);
        }
        if let Some(unsent_bytes) = sample.unsent_bytes.filter(|_| fetched) {
            conn.output.margin.seen(unsent_bytes, now);
        }
        while let Some(arrived) = conn.arrivals.settled(&mut self.unsettled) {
            self.outs.push_back(arrived);
        }
    }

    /// A socket that holds nothing takes more: what it took last was less for another reason (a file that ended early).
    fn find_stalled(&mut self, id: ConnId, sample: &TcpSample) -> bool {
        let Some(conn) = self.table.get_mut(id) else {
            return false;
        };
        let full = conn.phase == Phase::Sending && !conn.output.writable;
        let stalled = full && sample.unacked_bytes == 0;
        conn.output.writable |= stalled;
        stalled
    }

    /// Its client's window is closed. A client that pauses keeps nothing that others could use: it is read again when it goes on. A client that
    /// reads slowly closes its window, too, but not for long.
    fn find_paused(&mut self, id: ConnId, sample: &TcpSample, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let stream_id = conn.stream_id();
        let Some(stream) = conn.stream.as_mut() else {
            return;
        };
        let (wait, left_bytes) = (Wait::Window, stream.left_bytes());
        let socket_bytes = sample.unacked_bytes;
        let stands = stream.waits(now).0.is_net();
        if stands && stream.stand_still(wait, socket_bytes, &mut self.counts, now) {
            let what = What::Waits {
                wait,
                left_bytes,
                socket_bytes,
            };
            self.decisions.record(now, Some(id), what);
        }
        let (waits, us) = stream.waits(now);
        if waits == wait && us >= PAUSED_US && stream.let_go() {
            self.outs
                .extend([Out::Forget(stream_id), Out::Release(stream_id)]);
        }
    }

    /// Whether the connection ends now, in the light of what its client has acknowledged.
    fn ends_by(&mut self, id: ConnId, sample: &TcpSample, now: Instant) -> bool {
        let drains = self.drain.is_under_way();
        let Some(conn) = self.table.get_mut(id) else {
            return true;
        };
        let lingering = matches!(conn.phase, Phase::Lingering { .. });
        let leaves = drains && conn.phase == Phase::Open && conn.patience.idle();
        let delivered = sample.unacked_bytes == 0;
        if conn.evidence.gone {
            let why = if lingering { Why::Done } else { Why::PeerReset };
            self.close(id, false, why, now);
        } else if leaves && (conn.request.is_readable() || !delivered) {
            self.linger(id.index, now);
        } else if leaves {
            // It has everything and says nothing: no RST of ours can destroy an answer, so its FIN need not be awaited.
            self.close(id, false, Why::Done, now);
        } else if lingering && conn.request.is_ended() && delivered {
            self.close(id, false, Why::Done, now);
        } else if let Verdict::End(why) = conn.patience.sampled(conn.phase, *sample, now) {
            self.give_up(id, why, now);
        } else {
            return false;
        }
        true
    }
}
