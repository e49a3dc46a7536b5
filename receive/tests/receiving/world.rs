//! A receiver on a busy machine: Wu and Crawford's experiments in simulation. There is one CPU with the scheduler of
//! Linux 2.6 ([`crate::o1`]), a socket with prequeue and backlog, a process that receives all it can, other
//! processes, and a sender that is faster than the receiver.
//!
//! Softirqs run first. Their time is charged to the process that they interrupt, as ticks were. Times are in
//! nanoseconds, lengths in packets.

mod process;
mod record;
mod sender;
mod socket;

pub use record::{Outcome, Queues};

use self::process::{After, ReceivingProcess};
use self::record::Record;
use self::sender::{AckPacket, Packet, Sender};
use self::socket::{Arrival, ReceivingSocket};
use crate::o1::{NS_PER_TICK, Receiving, Rule, Scheduler, Task, Wake};
use ackpace_sim::models::link::{Link, LinkProfile, Loss, QueueDiscipline, Verdict};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::collections::VecDeque;

/// Payload of a packet.
pub const MSS_BYTES: u64 = 1_448;
/// Its length on Ethernet, with headers, preamble and gap.
const WIRE_BYTES: u32 = 1_538;
/// Packets that the sender queues (txqueuelen).
const SENDER_QUEUE: u64 = 1_000;
/// Descriptors of the receiver's network card.
const RING: usize = 512;

// CPU time of the paper's receiver (Pentium III, 1 GHz). The sum follows from the paper: 504 Mbit/s of payload take all of the CPU, so
// a packet takes 23 us. The split is ours: at 1 Gbit/s, a packet each 12.3 us, softirqs leave next to nothing to processes.
/// Driver and IP for a packet, in the softirq.
const IRQ_NS: u64 = 7_500;
/// TCP for a packet, with its part of an ACK: in the softirq, or in the process.
const TCP_NS: u64 = 4_500;
/// Copying a packet to the process.
const COPY_NS: u64 = 10_200;
/// A system call.
const CALL_NS: u64 = 4_800;
/// sleep_avg of the receiving process when the connection begins. iperf's thread has this: its parent waited for a
/// connection, which gives 900 (recalc_task_prio), and a child has .95 of the bonus, rounded down.
const CREDIT_MS: u64 = 800;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct World {
    /// What the scheduler does when a slice ends while packets wait.
    pub rule: Rule,
    /// Processes beside the receiver that execute operations in a loop and never sleep (section 5, fairness).
    pub loops: usize,
    /// Round trip of an empty path.
    pub rtt_us: u64,
    /// Probability that the path loses a packet to the receiver.
    pub loss: f64,
    /// Receive buffer, in packets.
    pub buffer: u64,
    /// Length of the run.
    pub seconds: u64,
    /// Seed of the loops' slices and of losses.
    pub seed: u64,
}

impl Default for World {
    /// The paper's network and receiver at BL0: 40 MB of buffer.
    fn default() -> World {
        World {
            rule: Rule::Usual,
            loops: 0,
            rtt_us: 200,
            loss: 0.0,
            buffer: 40_000_000 / MSS_BYTES,
            seconds: 20,
            seed: 1,
        }
    }
}

/// A packet in the softirq, and the CPU time that it still takes.
#[derive(Clone, Copy, Debug)]
struct Softirq {
    packet: Packet,
    left_ns: u64,
}

struct Run {
    now_ns: u64,
    ends_ns: u64,
    tick_ns: u64,
    scheduler: Scheduler,
    receiver: Task,
    process: ReceivingProcess,
    socket: ReceivingSocket,
    sender: Sender,
    link: Link,
    back_ns: u64,
    data: VecDeque<(u64, Packet)>,
    acks: VecDeque<(u64, AckPacket)>,
    ring: VecDeque<Packet>,
    softirq: Option<Softirq>,
    record: Record,
}

impl World {
    /// Runs the world for `seconds`.
    pub fn run(&self) -> Outcome {
        let mut run = Run::new(self);
        run.push();
        while run.now_ns < run.ends_ns {
            run.step();
        }
        let scheduled = run.scheduler.counts();
        run.record
            .outcome(&run.sender, &run.socket, run.process.copied, scheduled)
    }
}

impl Run {
    fn new(world: &World) -> Run {
        let mut scheduler = Scheduler::new(world.rule);
        let receiver = scheduler.add(0, CREDIT_MS * NS_PER_TICK, 50);
        // They have run for a while, and are somewhere in their slices.
        let mut dice = Pcg64Mcg::seed_from_u64(world.seed);
        let draws = std::iter::repeat_with(|| dice.next_u64());
        for draw in draws.step_by(3).take(world.loops) {
            let task = scheduler.add(0, 0, 1 + draw % 100);
            scheduler.wake(task, Wake::Disk, 0);
        }
        scheduler.wake(receiver, Wake::Interrupt, 0);
        scheduler.schedule(false, 0);
        let profile = LinkProfile {
            rate_bits_per_s: Some(1_000_000_000),
            delay_us: world.rtt_us / 2,
            jitter_us: 10,
            may_reorder: false,
            queue: QueueDiscipline::DropTail {
                limit_bytes: SENDER_QUEUE * u64::from(WIRE_BYTES),
            },
            loss: Loss::Bernoulli { p: world.loss },
            mark: 0.0,
        };
        Run {
            now_ns: 0,
            ends_ns: world.seconds * 1_000 * NS_PER_TICK,
            // Where in a tick it begins.
            tick_ns: 1 + world.seed * 7_919 % NS_PER_TICK,
            scheduler,
            receiver,
            process: ReceivingProcess::new(),
            socket: ReceivingSocket::new(world.buffer),
            sender: Sender::new(world.buffer),
            link: Link::new(profile, world.seed),
            back_ns: (world.rtt_us - world.rtt_us / 2) * 1_000,
            data: VecDeque::new(),
            acks: VecDeque::new(),
            ring: VecDeque::new(),
            softirq: None,
            record: Record::new(world.seconds),
        }
    }

    /// CPU time until the running process comes to its next step.
    fn process_left_ns(&self) -> Option<u64> {
        let task = self.scheduler.running()?;
        Some(match task == self.receiver {
            true => self.process.left_ns,
            false => u64::MAX,
        })
    }

    /// Advances to the next event.
    fn step(&mut self) {
        let work_ns = match self.softirq {
            Some(softirq) => Some(softirq.left_ns),
            None => self.process_left_ns(),
        };
        let done_ns = work_ns.map_or(u64::MAX, |ns| self.now_ns.saturating_add(ns));
        let head = |at: Option<u64>| at.unwrap_or(u64::MAX);
        let data_ns = head(self.data.front().map(|of| of.0));
        let ack_ns = head(self.acks.front().map(|of| of.0));
        let sender_ns = head(self.sender.timer_ns());
        let socket_ns = head(self.socket.timer_ns);
        let at_ns = [data_ns, ack_ns, sender_ns, socket_ns, done_ns]
            .into_iter()
            .fold(self.tick_ns, u64::min)
            .max(self.now_ns);
        self.work(at_ns - self.now_ns);
        self.now_ns = at_ns;
        match at_ns {
            _ if done_ns <= at_ns => self.work_is_done(),
            _ if data_ns <= at_ns => self.packet_arrives(),
            _ if ack_ns <= at_ns => {
                if let Some((_, ack)) = self.acks.pop_front() {
                    self.sender.hear(ack, at_ns);
                    self.push();
                }
            }
            _ if self.tick_ns <= at_ns => self.tick(),
            _ if sender_ns <= at_ns => {
                if let Some(packet) = self.sender.time_out(at_ns) {
                    self.transmit(packet);
                }
            }
            _ => {
                self.socket.timer(at_ns);
                self.answer();
            }
        }
    }

    fn work(&mut self, ns: u64) {
        if let Some(softirq) = &mut self.softirq {
            softirq.left_ns -= ns;
        } else if self.scheduler.running() == Some(self.receiver) {
            self.process.left_ns -= ns;
        }
    }

    fn work_is_done(&mut self) {
        if let Some(softirq) = self.softirq.take() {
            self.softirq_ends(softirq.packet);
            self.begin_softirq();
            return;
        }
        let after = self.process.step_ends(&mut self.socket, self.now_ns);
        self.answer();
        match after {
            After::Step => {}
            After::Returned => {
                if self.scheduler.call_ends(self.now_ns) {
                    self.scheduler.schedule(false, self.now_ns);
                }
            }
            After::Sleeps => {
                self.scheduler.schedule(true, self.now_ns);
            }
        }
    }

    fn packet_arrives(&mut self) {
        if let Some((_, packet)) = self.data.pop_front() {
            match self.ring.len() < RING {
                true => self.ring.push_back(packet),
                false => self.record.dropped(),
            }
            if self.softirq.is_none() {
                self.begin_softirq();
            }
        }
    }

    fn begin_softirq(&mut self) {
        let is_free = !self.socket.is_owned && !self.socket.is_awaited;
        let tcp_ns = if is_free { TCP_NS } else { 0 };
        self.softirq = self.ring.pop_front().map(|packet| Softirq {
            packet,
            left_ns: IRQ_NS + tcp_ns,
        });
    }

    fn softirq_ends(&mut self, packet: Packet) {
        match self.socket.arrive(packet, self.now_ns) {
            Arrival::Process => self.socket.process(packet, self.now_ns, self.now_ns),
            Arrival::Queued => {}
            Arrival::Wakes => {
                if self
                    .scheduler
                    .wake(self.receiver, Wake::Interrupt, self.now_ns)
                {
                    self.scheduler.schedule(false, self.now_ns);
                }
            }
        }
        self.answer();
    }

    fn tick(&mut self) {
        self.tick_ns += NS_PER_TICK;
        let runs = self.scheduler.running() == Some(self.receiver);
        let receiving = runs.then_some(Receiving {
            packets_wait: self.socket.packets_wait(),
            owns_lock: self.socket.is_owned,
        });
        self.record
            .tick(runs, self.now_ns, &self.sender, &self.socket);
        if self.scheduler.tick(receiving, self.now_ns) {
            self.scheduler.schedule(false, self.now_ns);
        }
    }

    /// The sender sends what its windows allow.
    fn push(&mut self) {
        while let Some(packet) = self.sender.send(self.now_ns) {
            self.transmit(packet);
        }
    }

    fn transmit(&mut self, packet: Packet) {
        if let Verdict::Deliver { at_ns, .. } = self.link.offer(self.now_ns, WIRE_BYTES, false) {
            self.data.push_back((at_ns, packet));
        }
    }

    /// ACKs leave.
    fn answer(&mut self) {
        let at_ns = self.now_ns + self.back_ns;
        self.acks.extend(self.socket.acks().map(|ack| (at_ns, ack)));
    }
}
