//! Bytes that a stream will not send from where they are, or will never have.

use super::{BrokenFrom, Cancellations, MissCount, Stream};
use crate::cache::{ResidencyCache, rest_of_window};
use crate::conn::{Held, Part, WantSeq};
use crate::limits::MISSES_MAX;
use crate::why::Why;

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

    /// Bytes that were to be sent from the page cache are not in memory: evicted, or somebody else is still reading
    /// them.
    pub(in crate::worker) fn missing(&mut self, residency_cache: &mut ResidencyCache) {
        let Some(&Part::Body { object, span, .. }) = self.plan.parts.get(usize::from(self.part))
        else {
            return;
        };
        let at_bytes = self.body_at_bytes();
        residency_cache.gone(object, rest_of_window(at_bytes, span.end_bytes()));
        if self
            .fetched
            .first()
            .is_none_or(|piece| piece.held == Held::PageCache)
        {
            self.drop_fetched();
        }
        self.count_miss(at_bytes);
    }

    /// Drops what was fetched, if anything: it left the page cache before it was sent. That is a miss.
    pub(super) fn drop_missing(&mut self) {
        if !self.fetched.is_empty() {
            self.count_miss(self.body_at_bytes());
        }
        self.drop_fetched();
    }

    /// The byte at `at_bytes` was missing once more.
    fn count_miss(&mut self, at_bytes: u64) {
        let times = match self.missed {
            before if before.at_bytes == at_bytes => before.times + 1,
            _ => 1,
        };
        self.missed = MissCount { at_bytes, times };
    }

    /// Whether the kernel is not to be asked about these bytes: they were missing [`MISSES_MAX`] times just after they were read.
    pub(super) fn skips_residency_check(&self, at_bytes: u64) -> bool {
        self.missed.at_bytes == at_bytes && self.missed.times >= MISSES_MAX
    }

    /// Drops the fetched pieces: they will not be sent from where they are. A want behind them is dropped, too, since
    /// it would leave a gap.
    pub(super) fn drop_fetched(&mut self) {
        self.cancellations.slots |= (self.fetched.iter()).any(|piece| piece.held == Held::Slots);
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
