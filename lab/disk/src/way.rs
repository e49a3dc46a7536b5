//! What a request costs outside the model, between the host's block layer and the engine and back.
//!
//! It is measured once on the idle device ([`Way::measured`]). With 20,000 requests a second it is longer, since each
//! waits for the threads that others keep busy. The host's block layer knows how long its requests took, and the
//! engine how long they should have taken: what lies between is added to what answers leave earlier.

/// Requests in a period from which on the difference of two means says something.
const READS_LEAST: u64 = 200;
/// The host and the engine count at two moments; further apart, requests were merged or cut.
const COUNTS_APART_SHARE: u64 = 20;
/// More than this is no way but a machine that has no time for us.
pub const LEAD_NS_MAX: u64 = 400_000;

/// Time that a request of `len` bytes spends outside the model: `base_ns + per_mb_ns * len / 1 MB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// For the shortest.
    pub base_ns: u64,
    /// More for each 2^20 bytes.
    pub per_mb_ns: u64,
}

impl Lead {
    /// For a request of that length.
    pub fn of(&self, len_bytes: u64) -> u64 {
        self.base_ns + ((self.per_mb_ns * len_bytes) >> 20)
    }
}

/// Reads so far, and the sum of the times that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number.
    pub reads: u64,
    /// From their coming to their answers.
    pub took_ns: u64,
}

/// The way of a device in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    measured: Lead,
    /// By how much the way is longer now than it was measured.
    extra_ns: u64,
    model: Waits,
    /// Of the host and of the model, when it was last looked at.
    seen: (Waits, Waits),
}

impl Way {
    /// The way of an idle device was measured anew.
    pub fn measured(&mut self, lead: Lead) {
        self.measured = lead;
        self.extra_ns = 0;
    }

    /// By how much answers leave earlier than the model finishes.
    pub fn lead(&self) -> Lead {
        Lead {
            base_ns: self.measured.base_ns + self.extra_ns,
            ..self.measured
        }
    }

    /// The model served a read.
    pub fn served(&mut self, took_ns: u64) {
        self.model.reads += 1;
        self.model.took_ns += took_ns;
    }

    /// A period is over; `host` is what its block layer counted until now.
    pub fn period(&mut self, host: Waits) {
        let (host_mean_ns, model_mean_ns) = {
            let hosts = host.since(self.seen.0);
            let models = self.model.since(self.seen.1);
            self.seen = (host, self.model);
            let apart = hosts.reads.abs_diff(models.reads);
            if hosts.reads < READS_LEAST {
                // With so few the way is as it was measured.
                self.extra_ns /= 2;
                return;
            }
            if apart * COUNTS_APART_SHARE > hosts.reads {
                return;
            }
            (hosts.mean_ns(), models.mean_ns())
        };
        // Half of what is wrong at a time: what is under way was answered by the lead of before.
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

    /// A period with so many reads that the model serves in .35 ms; the host waits as long as the way makes it.
    fn busy(way: &mut Way, host: &mut Waits, reads: u64, way_ns: u64) {
        for _ in 0..reads {
            way.served(350_000);
            host.reads += 1;
            host.took_ns += 350_000 + way_ns - way.lead().base_ns.min(way_ns);
        }
        way.period(*host);
    }

    fn idle_way() -> Way {
        let mut way = Way::default();
        way.measured(Lead {
            base_ns: 40_000,
            per_mb_ns: 0,
        });
        way
    }

    #[test]
    fn a_way_that_gets_longer_with_use_is_followed_and_forgotten() {
        let (mut way, mut host) = (idle_way(), Waits::default());
        for _ in 0..20 {
            busy(&mut way, &mut host, 1000, 70_000);
        }
        let base_ns = way.lead().base_ns;
        assert!((69_000..=71_000).contains(&base_ns), "{base_ns}");
        for _ in 0..20 {
            busy(&mut way, &mut host, 20, 40_000);
        }
        assert_eq!(way.lead().base_ns, 40_000);
    }

    #[test]
    fn it_is_never_less_than_on_an_idle_device_and_never_beyond_all_measure() {
        let (mut way, mut host) = (idle_way(), Waits::default());
        for _ in 0..20 {
            busy(&mut way, &mut host, 1000, 0);
        }
        assert_eq!(way.lead().base_ns, 40_000);
        for _ in 0..20 {
            busy(&mut way, &mut host, 1000, 100_000_000);
        }
        assert_eq!(way.lead().base_ns, LEAD_NS_MAX);
    }

    #[test]
    fn requests_that_the_host_merged_say_nothing() {
        let (mut way, mut host) = (idle_way(), Waits::default());
        (0..1000).for_each(|_| way.served(350_000));
        host.reads += 500;
        host.took_ns += 500 * 700_000;
        way.period(host);
        assert_eq!(way.lead().base_ns, 40_000);
    }
}
