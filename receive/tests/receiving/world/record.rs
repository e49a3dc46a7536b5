//! What is measured of a run: the paper's tables and figures.

use super::MSS_BYTES;
use super::sender::{Counts, Sender};
use super::socket::ReceivingSocket;
use crate::o1::{NS_PER_TICK, SliceCounts};

/// Between two samples of the queues, in ticks.
const SAMPLE_TICKS: u64 = 10;

/// The queues of Figs 9, 10 and 12, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// In order, not yet copied to the process.
    pub receive: u64,
    /// Arrived while the lock was owned.
    pub backlog: u64,
    /// Arrived while the process slept.
    pub prequeue: u64,
    /// Beyond a hole.
    pub out_of_order: u64,
}

/// One second of the sequence diagrams, Figs 8 and 11. All figures count from the start of the run to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Timeouts of the sender.
    pub timeouts: u64,
    /// Windows of zero.
    pub zero_windows: u64,
    /// Ticks in which the receiving process ran.
    pub ticks: u64,
}

/// What was counted over the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that were acknowledged.
    pub acknowledged: u64,
    /// Packets copied to the process.
    pub copied: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Timeouts of the sender.
    pub timeouts: u64,
    /// Fast recoveries: losses seen by duplicate ACKs.
    pub recoveries: u64,
    /// How often the window closed.
    pub zero_windows: u64,
    /// Dropped by the network card.
    pub dropped: u64,
    /// Ticks in which the process ran.
    pub ticks: u64,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Totals of the run.
    pub counted: Counted,
    /// How time slices ended.
    pub scheduled: SliceCounts,
    /// Packets by T_wait: below 1, 10, 100, 200 ms and 1 s, and above.
    pub waits: [u64; 6],
    /// The longest T_wait.
    pub longest_wait_ms: u64,
    /// A row for each second.
    pub seconds: Vec<Second>,
    /// The queues, every 10 ms.
    pub queues: Vec<Queues>,
    length_s: u64,
}

impl Outcome {
    /// Acknowledged payload in Mbit/s, as iperf's client reports it.
    pub fn mbits_per_s(&self) -> f64 {
        self.rate(self.counted.acknowledged)
    }

    /// Copied payload in Mbit/s.
    pub fn copied_mbits_per_s(&self) -> f64 {
        self.rate(self.counted.copied)
    }

    /// Share of the CPU in per cent, in ticks as `time` reports it.
    pub fn share_percent(&self) -> f64 {
        self.counted.ticks as f64 / 10.0 / self.length_s as f64
    }

    /// The same after the first `skipped_s` seconds.
    pub fn later_share_percent(&self, skipped_s: u64) -> f64 {
        let before = match skipped_s {
            0 => 0,
            _ => self
                .seconds
                .get(skipped_s as usize - 1)
                .map_or(0, |of| of.ticks),
        };
        let ticks = self.counted.ticks - before;
        ticks as f64 / 10.0 / (self.length_s - skipped_s).max(1) as f64
    }

    fn rate(&self, packets: u64) -> f64 {
        (packets * MSS_BYTES * 8) as f64 / 1e6 / self.length_s as f64
    }
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    length_s: u64,
    ticks: u64,
    all_ticks: u64,
    dropped: u64,
    seconds: Vec<Second>,
    queues: Vec<Queues>,
}

impl Record {
    pub fn new(length_s: u64) -> Record {
        Record {
            length_s,
            ticks: 0,
            all_ticks: 0,
            dropped: 0,
            seconds: Vec::new(),
            queues: Vec::new(),
        }
    }

    pub fn dropped(&mut self) {
        self.dropped += 1;
    }

    pub fn tick(&mut self, runs: bool, now_ns: u64, sender: &Sender, socket: &ReceivingSocket) {
        self.all_ticks += 1;
        self.ticks += u64::from(runs);
        if self.all_ticks % SAMPLE_TICKS == 0 {
            self.queues.push(Queues {
                receive: socket.receive,
                backlog: socket.backlog.len() as u64,
                prequeue: socket.prequeue.len() as u64,
                out_of_order: socket.out_of_order(),
            });
        }
        if now_ns / (1_000 * NS_PER_TICK) > self.seconds.len() as u64
            || self.all_ticks == self.length_s * 1_000
        {
            let Counts {
                retransmitted,
                timeouts,
                zero_windows,
                ..
            } = sender.counts;
            self.seconds.push(Second {
                acknowledged: sender.acknowledged(),
                retransmitted,
                timeouts,
                zero_windows,
                ticks: self.ticks,
            });
        }
    }

    pub fn outcome(
        self,
        sender: &Sender,
        socket: &ReceivingSocket,
        copied: u64,
        scheduled: SliceCounts,
    ) -> Outcome {
        Outcome {
            counted: Counted {
                acknowledged: sender.acknowledged(),
                copied,
                retransmitted: sender.counts.retransmitted,
                timeouts: sender.counts.timeouts,
                recoveries: sender.counts.recoveries,
                zero_windows: sender.counts.zero_windows,
                dropped: self.dropped,
                ticks: self.ticks,
            },
            scheduled,
            waits: socket.waits,
            longest_wait_ms: socket.longest_wait_ns / NS_PER_TICK,
            seconds: self.seconds,
            queues: self.queues,
            length_s: self.length_s,
        }
    }
}
