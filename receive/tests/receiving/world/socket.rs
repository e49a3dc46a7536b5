//! The receiver's socket as Linux 2.6.14 has it: a lock that a process owns, and four queues.
//!
//! | queue | its packets | who takes them |
//! |---|---|---|
//! | backlog | arrived while the lock was owned | the owner, before it releases the lock |
//! | prequeue | arrived while the process slept in its call | the process, or the timer of delayed ACKs |
//! | out of order | lie beyond a hole | TCP, when the hole is filled |
//! | receive | in order, processed | the process copies them |
//!
//! Measurement points A and B of the paper's Fig 3 are [`ReceivingSocket::arrive`] and [`ReceivingSocket::process`].
//! T_wait is the time between them.

use super::sender::{AckPacket, Packet};
use std::collections::{BTreeSet, VecDeque};

const NS_PER_MS: u64 = 1_000_000;
/// TCP_ATO_MIN and TCP_DELACK_MIN.
const DELAYED_ACK_NS: u64 = 40 * NS_PER_MS;
/// How long the prequeue may wait: 3/4 of TCP_RTO_MIN (net/ipv4/tcp.h, `tcp_prequeue`).
const PREQUEUE_NS: u64 = 150 * NS_PER_MS;
/// Packets that are acknowledged at once, at the beginning and after silence (TCP_MAX_QUICKACKS).
const QUICK_ACKS: u64 = 16;
const SILENCE_NS: u64 = 200 * NS_PER_MS;
/// Upper ends of the paper's bins of T_wait; the last one has none.
const BINS_NS: [u64; 5] = [
    NS_PER_MS,
    10 * NS_PER_MS,
    100 * NS_PER_MS,
    200 * NS_PER_MS,
    1_000 * NS_PER_MS,
];

/// What the softirq did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The socket is free: TCP processes it now.
    Process,
    /// It waits for the process.
    Queued,
    /// It waits, as the first, for a process that sleeps.
    Wakes,
}

/// The receiver's socket: its lock and its queues.
#[derive(Clone, Debug)]
pub(super) struct ReceivingSocket {
    capacity: u64,
    pub backlog: VecDeque<(Packet, u64)>,
    pub prequeue: VecDeque<(Packet, u64)>,
    out_of_order: BTreeSet<u64>,
    /// In order and not copied.
    pub receive: u64,
    /// The process owns the lock.
    pub is_owned: bool,
    /// The process sleeps in its call, or was woken there and has not run yet.
    pub is_awaited: bool,
    next: u64,
    edge: u64,
    /// `next` of the last ACK.
    told: u64,
    echo_ns: Option<u64>,
    last_echo_ns: u64,
    heard_ns: u64,
    quick: u64,
    pub timer_ns: Option<u64>,
    acks: Vec<AckPacket>,
    /// Packets by T_wait.
    pub waits: [u64; 6],
    pub longest_wait_ns: u64,
}

impl ReceivingSocket {
    /// A receive buffer for so many packets.
    pub fn new(capacity: u64) -> ReceivingSocket {
        ReceivingSocket {
            capacity,
            backlog: VecDeque::new(),
            prequeue: VecDeque::new(),
            out_of_order: BTreeSet::new(),
            receive: 0,
            is_owned: false,
            is_awaited: false,
            next: 0,
            edge: capacity,
            told: 0,
            echo_ns: None,
            last_echo_ns: 0,
            heard_ns: 0,
            quick: QUICK_ACKS,
            timer_ns: None,
            acks: Vec::new(),
            waits: [0; 6],
            longest_wait_ns: 0,
        }
    }

    /// Packets wait without having been processed.
    pub fn packets_wait(&self) -> bool {
        !self.backlog.is_empty() || !self.prequeue.is_empty()
    }

    /// Packets beyond a hole.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order.len() as u64
    }

    /// ACKs that leave now.
    pub fn acks(&mut self) -> impl Iterator<Item = AckPacket> + '_ {
        self.acks.drain(..)
    }

    /// Point A, tcp_v4_rcv: by the paper's Fig 5.
    pub fn arrive(&mut self, packet: Packet, now_ns: u64) -> Arrival {
        if self.is_owned {
            self.backlog.push_back((packet, now_ns));
            return Arrival::Queued;
        }
        if !self.is_awaited {
            return Arrival::Process;
        }
        self.prequeue.push_back((packet, now_ns));
        if self.prequeue.len() as u64 > self.capacity {
            self.process_prequeue(now_ns);
            return Arrival::Queued;
        }
        if self.prequeue.len() > 1 {
            return Arrival::Queued;
        }
        self.timer_ns.get_or_insert(now_ns + PREQUEUE_NS);
        Arrival::Wakes
    }

    fn process_prequeue(&mut self, now_ns: u64) {
        while let Some((packet, arrived_ns)) = self.prequeue.pop_front() {
            self.process(packet, arrived_ns, now_ns);
        }
    }

    /// Point B, tcp_v4_do_rcv.
    pub fn process(&mut self, packet: Packet, arrived_ns: u64, now_ns: u64) {
        let wait_ns = now_ns - arrived_ns;
        let bin = BINS_NS.iter().position(|&end_ns| wait_ns < end_ns);
        self.waits[bin.unwrap_or(5)] += 1;
        self.longest_wait_ns = self.longest_wait_ns.max(wait_ns);
        if now_ns - self.heard_ns > SILENCE_NS {
            self.quick = QUICK_ACKS;
        }
        self.heard_ns = now_ns;
        if packet.is_probe || packet.number < self.next {
            self.tell(None);
        } else if packet.number > self.next {
            if packet.number < self.edge {
                self.out_of_order.insert(packet.number);
                self.tell(Some(packet.number));
            }
        } else {
            let fills = !self.out_of_order.is_empty();
            self.take_in_order(packet);
            self.acknowledge(fills, now_ns);
        }
    }

    fn take_in_order(&mut self, packet: Packet) {
        self.echo_ns.get_or_insert(packet.sent_ns);
        self.next += 1;
        self.receive += 1;
        while self.out_of_order.remove(&self.next) {
            self.next += 1;
            self.receive += 1;
        }
    }

    /// __tcp_ack_snd_check: at once if two packets are not acknowledged and the window does not shrink.
    fn acknowledge(&mut self, fills: bool, now_ns: u64) {
        let is_quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        let grows = self.free() >= self.edge - self.told;
        if fills || is_quick || self.next - self.told > 1 && grows {
            self.tell(None);
        } else {
            self.timer_ns.get_or_insert(now_ns + DELAYED_ACK_NS);
        }
    }

    fn free(&self) -> u64 {
        self.capacity
            .saturating_sub(self.receive + self.out_of_order())
    }

    fn tell(&mut self, sacked: Option<u64>) {
        self.edge = self.edge.max(self.next + self.free());
        self.last_echo_ns = self.echo_ns.take().unwrap_or(self.last_echo_ns);
        self.told = self.next;
        if self.prequeue.is_empty() {
            self.timer_ns = None;
        }
        self.acks.push(AckPacket {
            next: self.next,
            edge: self.edge,
            sacked,
            echo_ns: self.last_echo_ns,
        });
    }

    /// tcp_cleanup_rbuf, after the process has copied `copied` packets.
    pub fn after_copy(&mut self, copied: u64) {
        let untold = self.next - self.told;
        let acks = untold > 1 || untold == 1 && copied > 0 && self.receive == 0;
        let left = self.edge - self.next;
        let opens = copied > 0 && 2 * left <= self.capacity && self.free() >= (2 * left).max(1);
        if self.free() < self.capacity / 2 {
            self.quick = 0;
        }
        if acks || opens {
            self.tell(None);
        }
    }

    /// tcp_delack_timer is due.
    pub fn timer(&mut self, now_ns: u64) {
        if self.is_owned {
            self.timer_ns = Some(now_ns + DELAYED_ACK_NS);
            return;
        }
        self.timer_ns = None;
        self.process_prequeue(now_ns);
        if self.next > self.told {
            self.tell(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64) -> Packet {
        Packet {
            number,
            sent_ns: 0,
            is_probe: false,
        }
    }

    #[test]
    fn packets_go_where_fig_5_says() {
        let mut socket = ReceivingSocket::new(100);
        assert_eq!(socket.arrive(packet(0), 0), Arrival::Process);
        socket.is_owned = true;
        assert_eq!(socket.arrive(packet(1), 0), Arrival::Queued);
        assert!(socket.packets_wait() && socket.backlog.len() == 1);
        (socket.is_owned, socket.is_awaited) = (false, true);
        assert_eq!(socket.arrive(packet(2), 0), Arrival::Wakes);
        assert_eq!(socket.arrive(packet(3), 0), Arrival::Queued);
        assert_eq!(socket.prequeue.len(), 2);
    }

    /// What the paper's eq. 3-2 does not have: the timer of delayed ACKs bounds the wait on the prequeue.
    #[test]
    fn the_prequeue_waits_for_150_ms_at_most() {
        let mut socket = ReceivingSocket::new(100);
        socket.is_awaited = true;
        socket.arrive(packet(0), 0);
        let due_ns = socket.timer_ns.expect("a timer");
        assert_eq!(due_ns, 150 * NS_PER_MS);
        socket.timer(due_ns);
        assert_eq!((socket.waits, socket.receive), ([0, 0, 0, 1, 0, 0], 1));
        assert_eq!(socket.acks().count(), 1);
    }

    #[test]
    fn a_hole_is_told_and_filled() {
        let mut socket = ReceivingSocket::new(100);
        for number in [0, 2, 3] {
            socket.process(packet(number), 0, 0);
        }
        let acks: Vec<_> = socket.acks().map(|ack| (ack.next, ack.sacked)).collect();
        assert_eq!(acks, [(1, None), (1, Some(2)), (1, Some(3))]);
        socket.process(packet(1), 0, 0);
        assert_eq!((socket.receive, socket.out_of_order()), (4, 0));
        assert_eq!(socket.acks().last().map(|ack| ack.next), Some(4));
    }

    #[test]
    fn a_window_that_shrinks_is_told_late() {
        let mut socket = ReceivingSocket::new(100);
        socket.quick = 0;
        for number in 0..10 {
            socket.process(packet(number), 0, 0);
        }
        assert_eq!(socket.acks().count(), 0);
        assert_eq!(socket.timer_ns, Some(DELAYED_ACK_NS));
        socket.receive = 0;
        socket.after_copy(10);
        assert_eq!(socket.acks().map(|ack| ack.edge).last(), Some(110));
    }
}
