//! Evidence: what TCP_INFO says of a connection, and all that follows from it.

use super::ConnPhase;
use super::Worker;
use super::messages::Out;
use super::pace::{RecentArrivals, is_drained};
use super::timeouts::TimeoutVerdict;
use super::turns::QueueEnd;
use crate::congestion::{Delay, Path, Signal, Watch};
use crate::conn::{ConnId, TcpSample};
use crate::limits::{FIRST_SAMPLE_BYTES_MIN, FLOW_EACH_US, FLOW_PATH_EACH_US, PAUSED_US, WATCH_US};
use crate::units::Instant;
use crate::why::{TopUp, Wait, What, Why};

/// What TCP said last about a connection.
pub(super) struct TcpEvidence {
    /// The state of its path, to notice when that gets worse.
    watch: Watch,
    /// When a sample was last asked for or counted.
    pub watched_at: Instant,
    /// The rate shown to operators.
    pub shown: RecentArrivals,
    /// The peer is gone; what is left to find out is how much it received.
    pub gone: bool,
}

impl TcpEvidence {
    pub fn new(now: Instant) -> TcpEvidence {
        TcpEvidence {
            watch: Watch::default(),
            watched_at: now,
            shown: RecentArrivals::new(now),
            gone: false,
        }
    }

    /// A connection that another machine gave away, of which so much has arrived.
    pub fn adopted(acked_bytes: u64, now: Instant) -> TcpEvidence {
        TcpEvidence {
            shown: RecentArrivals::from_here(now, acked_bytes),
            ..TcpEvidence::new(now)
        }
    }
}

impl Worker {
    /// A socket was given bytes, so what it holds is known. Ask for a TCP_INFO sample: of the path, if the disk reads
    /// for the connection, and of the client's rate, if the socket is full.
    pub(super) fn watch_path(&mut self, id: ConnId, full: bool, now: Instant) {
        let delay = self.settings.delay;
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let stream = conn.stream.as_deref();
        let reads = stream.is_some_and(|stream| stream.outstanding.get().is_some());
        let each_us = match reads && delay != Delay::Off {
            true => WATCH_US,
            false if conn.output.send_queue.is_of_path() => FLOW_PATH_EACH_US,
            false => FLOW_EACH_US,
        };
        // A long response is sampled at once: from then on, what its client takes is counted.
        let long = stream.is_some_and(|stream| stream.sent_bytes >= FIRST_SAMPLE_BYTES_MIN);
        let first = conn.output.send_queue.wants_counters() && long;
        let due = now >= conn.evidence.watched_at.plus_us(each_us);
        let fetches =
            stream.is_some_and(|stream| stream.outstanding.has_wanted() && stream.left_bytes() > 0);
        let asked = self.outs.back() == Some(&Out::Sample(id));
        if (full || fetches) && (first || due) && !asked {
            conn.evidence.watched_at = now;
            self.outs.push_back(Out::Sample(id));
        }
    }

    /// A TCP_INFO sample arrived.
    pub(super) fn sampled(&mut self, id: ConnId, sample: &TcpSample, now: Instant) {
        self.pace(id, sample, now);
        if self.record_sample(id, sample, now) {
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
            if stalled || reads.is_some_and(|stream| stream.outstanding.has_wanted()) {
                self.wake(id.index, QueueEnd::Back); // its want may need a new deadline
            }
        }
    }

    /// Records what a sample says of what arrived, and of what a stalled response waited for. `true`: it was only ordered to tell
    /// that, and decides nothing else.
    fn record_sample(&mut self, id: ConnId, sample: &TcpSample, now: Instant) -> bool {
        let Some(conn) = self.table.get_mut(id) else {
            return true;
        };
        conn.arrivals.measured(sample.unacked_bytes);
        let acked_bytes = conn.arrivals.acked_bytes();
        let idle_us = conn.evidence.shown.heard(sample, acked_bytes, now);
        let stream = conn.stream.as_deref_mut();
        stream.is_some_and(|stream| stream.heard(is_drained(sample), idle_us, now))
    }

    /// Congestion signals count for a stream that has a want at the disk.
    fn hear_path(&mut self, id: ConnId, path: &Path, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let reads = conn
            .stream
            .as_deref()
            .is_some_and(|stream| stream.outstanding.get().is_some());
        if let Some(signal) = conn.evidence.watch.seen(*path).filter(|_| reads) {
            self.congested(id, signal, path, now);
        }
    }

    /// The path is congested: "sample the rate now" (TPF 3.3). The stream's next step finds out what that means for its
    /// want.
    fn congested(&mut self, id: ConnId, signal: Signal, path: &Path, now: Instant) {
        self.counts.congested(signal);
        let delay = self.settings.delay;
        let Some(conn) = self.table.get_mut(id).filter(|_| delay != Delay::Off) else {
            return;
        };
        let rate = |queue: &crate::send::SendQueue| queue.supply(true, now).rate_bytes_per_s;
        let from_bytes_per_s = rate(&conn.output.send_queue);
        if delay == Delay::Rate {
            conn.output.send_queue.congest(path.most_bytes_per_s());
        }
        let to_bytes_per_s = rate(&conn.output.send_queue);
        let stream = conn.stream.as_mut();
        let wants = stream.is_some_and(|stream| stream.outstanding.congested());
        if wants && from_bytes_per_s > 0 {
            let what = What::Congested {
                signal,
                delay,
                from_bytes_per_s,
                to_bytes_per_s,
            };
            self.decisions.record(now, Some(id), what);
            self.wake(id.index, QueueEnd::Back);
        }
    }

    /// Measures the rate, and reports the responses that have arrived.
    fn measure(&mut self, id: ConnId, sample: &TcpSample, now: Instant) {
        let guess_bytes = self.send.guess_bytes(self.table.open());
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let stream = conn.stream.as_deref();
        let fetched = stream.is_some_and(|stream| stream.outstanding.has_wanted());
        conn.evidence.watched_at = now;
        conn.output.send_queue.counted(sample, guess_bytes, now);
        if let Some(unsent_bytes) = sample.unsent_bytes.filter(|_| fetched) {
            conn.output.send_queue.seen(unsent_bytes, now);
        }
        while let Some(arrived) = conn.arrivals.settled(&mut self.unsettled) {
            self.outs.push_back(arrived);
        }
    }

    /// Finds a socket that counts as full and is empty: it may be offered more. It took less than it was offered for another reason,
    /// such as a file that ended early.
    fn find_stalled(&mut self, id: ConnId, sample: &TcpSample) -> bool {
        let Some(conn) = self.table.get_mut(id) else {
            return false;
        };
        let full = conn.phase == ConnPhase::Sending && !conn.output.may_offer;
        let stalled = full && sample.unacked_bytes == 0;
        if stalled {
            (conn.output.may_offer, conn.output.top_up) = (true, TopUp::Empty);
            self.counts.topped_up(TopUp::Empty);
        }
        stalled
    }

    /// The client's window is closed. If it stays closed, the client has paused: give back what was fetched for it, and
    /// read again when it goes on. A slow reader closes its window, too, but not for long.
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
        let stands = stream.waits_for().is_net();
        if stands && stream.stall_for(wait, socket_bytes, &mut self.counts, now) {
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

    /// Whether the connection ends now, given what its client has acknowledged.
    fn ends_by(&mut self, id: ConnId, sample: &TcpSample, now: Instant) -> bool {
        let drains = self.drain.is_under_way();
        let Some(conn) = self.table.get_mut(id) else {
            return true;
        };
        let lingering = matches!(conn.phase, ConnPhase::Lingering { .. });
        let idle = conn.phase == ConnPhase::Open && conn.timeouts.idle();
        let leaves = drains && idle && !conn.request.is_readable();
        let delivered = sample.unacked_bytes == 0;
        let between = matches!(conn.phase, ConnPhase::Open | ConnPhase::Skipping { .. });
        let overdue = match conn.timeouts.verdict(conn.phase, &self.settings, now) {
            TimeoutVerdict::End(why) if conn.phase == ConnPhase::Open => Some(why),
            _ => None,
        };
        if conn.evidence.gone {
            let why = if lingering { Why::Done } else { Why::PeerReset };
            self.close(id, false, why, now);
        } else if leaves && !delivered {
            self.linger(id.index, now);
        } else if leaves {
            // It has everything and a receive has found nothing, so no RST of ours can destroy an answer and its FIN need
            // not be awaited.
            self.close(id, false, Why::Done, now);
        } else if between && conn.request.is_ended() && !delivered {
            self.linger(id.index, now);
        } else if between && conn.request.is_ended() {
            self.close(id, false, Why::PeerClosed, now);
        } else if let Some(why) = overdue {
            self.give_up(id, why, now);
        } else if lingering && conn.request.is_ended() && delivered {
            self.close(id, false, Why::Done, now);
        } else if let TimeoutVerdict::End(why) = conn.timeouts.sampled(conn.phase, *sample, now) {
            self.give_up(id, why, now);
        } else {
            return false;
        }
        true
    }
}
