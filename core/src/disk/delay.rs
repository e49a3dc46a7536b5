//! What congestion of a stream's path does to its want: TPF's EDRC for duplicate ACKs and ECN (3.3, 4.6).

use super::scheduler::Position;
use super::{Disk, ReaderId};
use crate::congestion::Delay;
use crate::conn::Want;
use crate::units::Instant;

/// What congestion signals have postponed: wants that were due, which in the paper's words are requests in the disk's
/// queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delayed {
    /// Their number.
    pub wants: u64,
    /// Bytes that would have been read for them at that moment.
    pub bytes: u64,
}

/// A pending want whose stream's path is found congested.
pub(super) struct CongestedWant {
    /// Whether it is due and waits for the sweep.
    due: bool,
    /// When its stream runs dry.
    dry_at: Instant,
    /// The length of the read that would be made for it now.
    read_bytes: u64,
}

impl Disk {
    /// What congestion signals have postponed since the start.
    pub fn delayed(&self) -> Delayed {
        self.delayed
    }

    /// The stream's pending want, if `want`, which is to replace it, is the first since a congestion signal. First
    /// reads are not concerned, nor is what the device already has.
    pub(super) fn congested(
        &self,
        id: ReaderId,
        want: &Want,
        now: Instant,
    ) -> Option<CongestedWant> {
        let reader = self.readers.get(&id)?;
        let before = reader.want;
        let sign = before.stream == want.stream && before.signals != want.signals;
        let due = match reader.position.filter(|_| sign)? {
            Position::Urgent(_) => return None,
            Position::Due(_) | Position::DueRest(..) => true,
            Position::Later(_) => false,
        };
        let asked = self.read_need(&before, before.answers, self.target_us(), now);
        let (read_bytes, _) = self.settings.prefetch.read_bytes(&asked);
        Some(CongestedWant {
            due,
            dry_at: self.entry(id)?.dry_at,
            read_bytes: read_bytes.min(before.span.len_bytes),
        })
    }

    /// The want was replaced after a congestion signal. The paper's rule: one that is due is postponed by T_D/2, any
    /// other is due T_D/2 later; only once, and only if the disk has something else to do.
    pub(super) fn delay(&mut self, id: ReaderId, before: &CongestedWant, now: Instant) {
        let target_us = self.target_us();
        let paper = self.settings.delay == Delay::Paper && self.is_busy();
        // A want that is dated anew for a client that became faster is due sooner than it was.
        let dry_at = self.entry(id).map(|entry| entry.dry_at.min(before.dry_at));
        let dry_at = dry_at.unwrap_or(before.dry_at);
        if let Some(reader) = self.readers.get_mut(&id).filter(|_| paper) {
            let later = if before.due {
                now.plus_us(target_us)
            } else {
                dry_at.plus_us(target_us / 2)
            };
            reader.put_off_to.get_or_insert(later);
        }
        let dry_at = self.entry(id).map(|entry| entry.dry_at);
        if before.due && dry_at.is_some_and(|dry_at| dry_at > now.plus_us(target_us / 2)) {
            self.delayed.wants += 1;
            self.delayed.bytes += before.read_bytes;
        }
    }

    /// Whether more is asked for now than the device and the memory have room for.
    fn is_busy(&self) -> bool {
        self.flights.len() >= self.reads_max() || self.slots_lacking > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, SETTINGS, done, orders, want};
    use super::super::{In, Out, Settings};
    use super::*;
    use crate::machine::Machine;

    /// Eight streams whose wants are due; two are read for. The last one's path is congested, and it sends its want
    /// again.
    fn congested(delay: Delay, again: Want) -> (Disk, Vec<Out>) {
        let mut disk = Disk::new(Settings { delay, ..SETTINGS });
        for n in 0..8 {
            disk.on(In::Want(want(n, n, 0, 1)), NOW);
        }
        let reads = orders(&mut disk, NOW);
        assert_eq!(reads.len(), disk.reads_max());
        disk.on(In::Want(again), NOW);
        (disk, reads)
    }

    /// Which files are read until nothing is left to read at `now`.
    fn files_read(disk: &mut Disk, mut reads: Vec<Out>, now: Instant) -> Vec<u32> {
        let mut files = Vec::new();
        while let Some(read) = reads.pop() {
            let Out::Read { object, .. } = read else {
                continue;
            };
            files.push(object.index);
            disk.on(done(&read), now);
            reads.extend(orders(disk, now));
        }
        files.sort_unstable();
        files
    }

    const ALL: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    fn signal() -> Want {
        Want {
            signals: 1,
            ..want(7, 7, 0, 1)
        }
    }

    #[test]
    fn by_the_paper_a_read_that_is_due_waits_for_half_of_t_d_once() {
        let (mut disk, reads) = congested(Delay::Paper, signal());
        assert_eq!(disk.delayed().wants, 1);
        assert_eq!(disk.delayed().bytes, disk.target_us(), "T_D at 1 MB/s");
        let half_us = disk.target_us() / 2;
        disk.on(
            In::Want(Want {
                signals: 2,
                ..signal()
            }),
            NOW.plus_us(half_us / 2),
        );
        assert_eq!(disk.delayed().wants, 1, "no further penalty");
        let read = files_read(&mut disk, reads, NOW);
        assert_eq!(read, ALL[..7], "the others go first");
        // T_D is the same again when all streams want more: those whose bytes last for long are not due.
        for n in 0..7 {
            let underrun_at = NOW.plus_us(60_000_000);
            let again = Want {
                underrun_at,
                ..want(n, n, 4 << 20, 2)
            };
            disk.on(In::Want(again), NOW);
        }
        assert_eq!(orders(&mut disk, NOW.plus_us(half_us - 1_000)), []);
        let late = orders(&mut disk, NOW.plus_us(half_us + 1_000));
        assert!(
            matches!(late[..], [Out::Read { object, .. }] if object.index == 7),
            "{late:?}"
        );
    }

    #[test]
    fn by_the_paper_a_client_that_became_faster_waits_for_half_of_t_d_from_its_new_date() {
        // Its bytes would have lasted for hours at its old rate.
        let slow = Want {
            underrun_at: NOW.plus_us(10_000_000_000),
            rate_bytes_per_s: 2,
            ..want(7, 7, 0, 1)
        };
        let mut disk = Disk::new(Settings {
            delay: Delay::Paper,
            ..SETTINGS
        });
        disk.on(In::Want(slow), NOW);
        for n in 0..6 {
            disk.on(In::Want(want(n, n, 0, 1)), NOW);
        }
        let reads = orders(&mut disk, NOW);
        assert_eq!(reads.len(), disk.reads_max());
        let half_us = disk.target_us() / 2;
        let underrun_at = NOW.plus_us(half_us);
        disk.on(
            In::Want(Want {
                underrun_at,
                ..signal()
            }),
            NOW,
        );
        let latest = underrun_at.plus_us(half_us);
        assert_eq!(files_read(&mut disk, reads, NOW), ALL[..6]);
        let later = orders(&mut disk, latest);
        assert_eq!(files_read(&mut disk, later, latest), [7]);
    }

    #[test]
    fn by_the_paper_an_idle_disk_puts_nothing_off() {
        let mut disk = Disk::new(Settings {
            delay: Delay::Paper,
            ..SETTINGS
        });
        let underrun_at = NOW.plus_us(700_000);
        let soon = |signals| Want {
            underrun_at,
            signals,
            ..want(0, 0, 0, 1)
        };
        disk.on(In::Want(soon(0)), NOW);
        orders(&mut disk, NOW);
        let due_at = disk.deadline();
        disk.on(In::Want(soon(1)), NOW);
        assert_eq!((disk.deadline(), disk.delayed().wants), (due_at, 0));
    }

    #[test]
    fn by_its_rate_a_read_is_due_when_its_stream_runs_dry_and_a_small_change_delays_nothing() {
        let later = |us| Want {
            underrun_at: NOW.plus_us(us),
            rate_bytes_per_s: 500_000,
            ..signal()
        };
        let (mut disk, reads) = congested(Delay::Rate, later(60_000_000));
        assert_eq!(disk.delayed().wants, 1);
        assert_eq!(files_read(&mut disk, reads, NOW), ALL[..7]);
        let (mut disk, reads) = congested(Delay::Rate, later(1_000));
        assert_eq!(disk.delayed(), Delayed::default(), "it is due all the same");
        assert_eq!(files_read(&mut disk, reads, NOW), ALL);
    }

    #[test]
    fn without_a_signal_a_new_date_is_no_delay_and_off_delays_nothing() {
        let later = Want {
            underrun_at: NOW.plus_us(60_000_000),
            ..want(7, 7, 0, 1)
        };
        let (disk, _) = congested(Delay::Rate, later);
        assert_eq!(disk.delayed(), Delayed::default());
        let (mut disk, reads) = congested(Delay::Off, signal());
        assert_eq!(disk.delayed(), Delayed::default());
        assert_eq!(files_read(&mut disk, reads, NOW), ALL);
    }
}
