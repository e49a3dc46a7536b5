//! What a connection's path does while its stream reads from a disk: TCP is asked, and its signs of congestion are heard.

use super::messages::Out;
use super::stream::Stream;
use super::{Worker, conn_in};
use crate::congestion::{Delay, Path, Signal};
use crate::conn::ConnId;
use crate::limits::{FIRST_SAMPLE_BYTES_MIN, FLOW_EACH_US, WATCH_US};
use crate::units::Instant;
use crate::why::What;

impl Worker {
    /// A socket was given bytes, so what it holds is known, too: ask how its path is, if the disk reads for it, and how fast its client
    /// is, if the socket is full.
    pub(super) fn watch_path(&mut self, id: ConnId, full: bool, now: Instant) {
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        let reads = conn.stream.as_ref().is_some_and(|stream| stream.wishes());
        let each_us = match reads && self.settings.delay != Delay::Off {
            true => WATCH_US,
            false => FLOW_EACH_US,
        };
        // The first time at once, if it is a long response: what its client takes from now on is counted.
        let long = |stream: &Stream| stream.sent_bytes >= FIRST_SAMPLE_BYTES_MIN;
        let first = !conn.margin.is_counted() && conn.stream.as_deref().is_some_and(long);
        if (reads || full) && (first || now >= conn.watched_at.plus_us(each_us)) {
            conn.watched_at = now;
            self.outs.push_back(Out::Sample(id));
        }
    }

    /// The path is congested: "sample the rate now". What follows for the stream's wish is found at its next step.
    pub(super) fn congested(&mut self, id: ConnId, signal: Signal, path: &Path, now: Instant) {
        self.counts.congested(signal);
        let delay = self.settings.delay;
        let Some(conn) = conn_in(&mut self.conns, id).filter(|_| delay != Delay::Off) else {
            return;
        };
        let rate = |margin: &crate::send::Margin| margin.supply(true, now).rate_bytes_per_s;
        let from_bytes_per_s = rate(&conn.margin);
        if delay == Delay::Rate {
            conn.margin.congest(path.most_bytes_per_s());
        }
        let to_bytes_per_s = rate(&conn.margin);
        let wishes = conn
            .stream
            .as_mut()
            .is_some_and(|stream| stream.congested());
        if wishes && from_bytes_per_s > 0 {
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
}
