//! The path overhead: what a request costs outside the model, from the host's block layer to the engine and
//! back.
//!
//! It is measured once on the idle device ([`PathOverhead::measured`]). At 20,000 requests a second it grows, since each
//! request waits for threads that others keep busy. The host's block layer knows how long its requests took,
//! and the engine how long they should have taken. Answers leave earlier by the difference as well.

/// Fewest requests in a period for which the difference of the two means is significant.
const READS_LEAST: u64 = 200;
/// The host and the engine count at different moments. If their counts differ by more than 1/20, requests were
/// merged or split.
const COUNTS_APART_SHARE: u64 = 20;
/// Most overhead that is compensated, in nanoseconds. More than this is not the path but an overloaded machine.
pub const LEAD_NS_MAX: u64 = 400_000;

/// Time that a request of `len` bytes spends outside the model: `base_ns + per_mb_ns * len / 1 MB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// Overhead of the shortest request.
    pub base_ns: u64,
    /// Additional overhead for each 2^20 bytes.
    pub per_mb_ns: u64,
}

impl Lead {
    /// Overhead of a request of that length, in nanoseconds.
    pub fn of(&self, len_bytes: u64) -> u64 {
        self.base_ns + ((self.per_mb_ns * len_bytes) >> 20)
    }
}

/// Number of reads so far, and the sum of their service times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of reads.
    pub reads: u64,
    /// Sum of the times from arrival to answer.
    pub took_ns: u64,
}

/// The path overhead of a device in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathOverhead {
    measured: Lead,
    /// How much longer the path is now than it was when measured.
    extra_ns: u64,
    model: Waits,
    /// Counts of the host and of the model at the end of the last period.
    seen: (Waits, Waits),
}

impl PathOverhead {
    /// Sets the overhead of the idle device, newly measured.
    pub fn measured(&mut self, lead: Lead) {
        self.measured = lead;
        self.extra_ns = 0;
    }

    /// How much earlier answers leave than the model finishes.
    pub fn lead(&self) -> Lead {
        Lead {
            base_ns: self.measured.base_ns + self.extra_ns,
            ..self.measured
        }
    }

    /// Counts a read that the model served.
    pub fn served(&mut self, took_ns: u64) {
        self.model.reads += 1;
        self.model.took_ns += took_ns;
    }

    /// Ends a period. `host` has the block layer's counts until now.
    pub fn period(&mut self, host: Waits) {
        let (host_mean_ns, model_mean_ns) = {
            let hosts = host.since(self.seen.0);
            let models = self.model.since(self.seen.1);
            self.seen = (host, self.model);
            let apart = hosts.reads.abs_diff(models.reads);
            if hosts.reads < READS_LEAST {
                // Under low load the overhead returns to the measured one.
                self.extra_ns /= 2;
                return;
            }
            if apart * COUNTS_APART_SHARE > hosts.reads {
                return;
            }
            (hosts.mean_ns(), models.mean_ns())
        };
        // Correct half of the error at a time: requests in flight were answered with the previous lead.
        let longer_ns = host_mean_ns.saturating_sub(model_mean_ns) / 2;
        let shorter_ns = model_mean_ns.saturating_sub(host_mean_ns) / 2;
        let most_ns = LEAD_NS_MAX.saturating_sub(self.measured.base_ns);
        self.extra_ns = (self.extra_ns + longer_ns)
            .saturating_sub(shorter_ns)
            .min(most_ns);
    }
}

impl Waits {
    fn since(&self, before: Waits) -> Waits {
        Waits {
            reads: self.reads.saturating_sub(before.reads),
            took_ns: self.took_ns.saturating_sub(before.took_ns),
        }
    }

    fn mean_ns(&self) -> u64 {
        self.took_ns / self.reads.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A period with `reads` reads that the model serves in .35 ms each, over a path that takes `overhead_ns`.
    fn busy(overhead: &mut PathOverhead, host: &mut Waits, reads: u64, overhead_ns: u64) {
        for _ in 0..reads {
            overhead.served(350_000);
            host.reads += 1;
            host.took_ns += 350_000 + overhead_ns - overhead.lead().base_ns.min(overhead_ns);
        }
        overhead.period(*host);
    }

    fn idle_overhead() -> PathOverhead {
        let mut overhead = PathOverhead::default();
        overhead.measured(Lead {
            base_ns: 40_000,
            per_mb_ns: 0,
        });
        overhead
    }

    #[test]
    fn a_way_that_gets_longer_with_use_is_followed_and_forgotten() {
        let (mut overhead, mut host) = (idle_overhead(), Waits::default());
        for _ in 0..20 {
            busy(&mut overhead, &mut host, 1000, 70_000);
        }
        let base_ns = overhead.lead().base_ns;
        assert!((69_000..=71_000).contains(&base_ns), "{base_ns}");
        for _ in 0..20 {
            busy(&mut overhead, &mut host, 20, 40_000);
        }
        assert_eq!(overhead.lead().base_ns, 40_000);
    }

    #[test]
    fn it_is_never_less_than_on_an_idle_device_and_never_beyond_all_measure() {
        let (mut overhead, mut host) = (idle_overhead(), Waits::default());
        for _ in 0..20 {
            busy(&mut overhead, &mut host, 1000, 0);
        }
        assert_eq!(overhead.lead().base_ns, 40_000);
        for _ in 0..20 {
            busy(&mut overhead, &mut host, 1000, 100_000_000);
        }
        assert_eq!(overhead.lead().base_ns, LEAD_NS_MAX);
    }

    #[test]
    fn requests_that_the_host_merged_say_nothing() {
        let (mut overhead, mut host) = (idle_overhead(), Waits::default());
        (0..1000).for_each(|_| overhead.served(350_000));
        host.reads += 500;
        host.took_ns += 500 * 700_000;
        overhead.period(host);
        assert_eq!(overhead.lead().base_ns, 40_000);
    }
}
