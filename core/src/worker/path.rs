//! What a connection's path does while its stream reads from a disk: TCP is asked, and its signs of congestion are heard.

use super::messages::Out;
use super::{Worker, conn_in};
use crate::congestion::{Delay, Path, Signal};
use crate::conn::ConnId;
use crate::limits::WATCH_US;
use crate::units::Instant;
use crate::why::What;

impl Worker {
    /// A socket was given bytes, so what it holds is known, too: ask how its path is, if the disk reads for it.
    pub(super) fn watch_path(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        let reads = conn.stream.as_ref().is_some_and(|stream| stream.wishes());
        let old = now >= conn.watched_at.plus_us(WATCH_US);
        if reads && old && self.settings.delay != Delay::Off {
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
