//! Bytes that a stream will not send from where they are, or will never have.

use super::{BrokenFrom, Cancellations, Stream};
use crate::cache::{ResidencyCache, windows};
use crate::conn::{Part, Span, WantSeq};
use crate::why::Why;
use crate::worker::LocalFile;

impl Stream {
    /// The disk machine answered: not even the first byte of the want can be read. A late answer is void.
    pub(in crate::worker) fn fetch_failed(&mut self, seq: WantSeq, why: Why) {
        if let Some(want) = self.outstanding.answered(seq) {
            self.broken = Some(BrokenFrom {
                from_bytes: want.span.offset_bytes,
                why,
            });
        }
    }

    /// The same, and another file has the same bytes. What was fetched before is still sent.
    pub(in crate::worker) fn fetch_elsewhere(&mut self, seq: WantSeq, file: LocalFile) {
        if self.outstanding.answered(seq).is_none() {
            return;
        }
        for part in &mut self.plan.parts {
            if let Part::Body {
                object,
                version,
                residency,
                ..
            } = part
            {
                (*object, *version, *residency) = (file.object, file.version, file.residency);
            }
        }
    }

    /// Bytes that were to be sent from the page cache are not in memory: evicted, or somebody else is still reading
    /// them.
    pub(in crate::worker) fn missing(&mut self, residency_cache: &mut ResidencyCache) {
        self.doubt_offered(residency_cache);
        self.drop_fetched();
        self.missing_at = Some(self.body_at_bytes());
    }

    /// Of the windows of the last offer, nothing is believed any more.
    pub(in crate::worker) fn doubt_offered(&self, residency_cache: &mut ResidencyCache) {
        let part = self.plan.parts.get(usize::from(self.part));
        if let Some(&Part::Body { object, .. }) = part {
            let offered = Span {
                offset_bytes: self.body_at_bytes(),
                len_bytes: self.offered_bytes,
            };
            windows(offered).for_each(|window| residency_cache.gone(object, window));
        }
    }

    /// Drops the fetched pieces: they will not be sent from where they are. A want behind them is dropped, too, since
    /// it would leave a gap; so is a question that may become one.
    pub(super) fn drop_fetched(&mut self) {
        self.probe = None;
        self.cancellations.slots |= (self.fetched.iter()).any(|piece| piece.held.is_own_memory());
        self.fetched.clear();
        let at_bytes = self.body_at_bytes();
        self.cancellations.want |= self.outstanding.drop_behind(at_bytes);
    }

    /// Drops all fetched pieces and the want, since the client does not read. `false` if there were none.
    pub(in crate::worker) fn let_go(&mut self) -> bool {
        let held = self.outstanding.drop_it() || !self.fetched.is_empty();
        self.fetched.clear();
        // An answer to a probe under way tells nothing any more: the stream asks again when its client reads again.
        self.probe = None;
        self.cancellations = Cancellations::default();
        held
    }
}
