//! The data receiving process: it calls tcp_recvmsg for 8 KB again and again, as iperf does (net/ipv4/tcp.c).
//!
//! It proceeds in steps. Each takes CPU time and has its effect at its end. The process owns the lock from the first to
//! the last step of a call, except while it sleeps for data.

use super::socket::ReceivingSocket;
use super::{CALL_NS, COPY_NS, TCP_NS};

/// Packets in a call: 8 KB, iperf's buffer.
const READ: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// From user space, or from sleep, until it owns the lock.
    Enter,
    /// Copies one packet from the receive queue.
    Copy,
    /// Processes one packet of the prequeue.
    Prequeue,
    /// Processes one packet of the backlog.
    Backlog,
}

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The next step.
    Step,
    /// The call returned.
    Returned,
    /// The process sleeps until a packet comes.
    Sleeps,
}

/// The process that receives, and the step that it is in.
#[derive(Clone, Debug)]
pub(super) struct ReceivingProcess {
    step: Step,
    /// CPU time that the step still takes.
    pub left_ns: u64,
    /// Packets copied in this call, and in all.
    in_call: u64,
    pub copied: u64,
    /// All is copied, and the lock is being released.
    is_ending: bool,
}

impl ReceivingProcess {
    pub fn new() -> ReceivingProcess {
        ReceivingProcess {
            step: Step::Enter,
            left_ns: CALL_NS,
            in_call: 0,
            copied: 0,
            is_ending: false,
        }
    }

    /// The step is over.
    pub fn step_ends(&mut self, socket: &mut ReceivingSocket, now_ns: u64) -> After {
        match self.step {
            Step::Enter => {
                (socket.is_owned, socket.is_awaited) = (true, false);
                (self.in_call, self.is_ending) = (0, false);
            }
            Step::Copy => {
                socket.receive -= 1;
                self.in_call += 1;
                self.copied += 1;
            }
            Step::Prequeue | Step::Backlog => {
                let queue = match self.step {
                    Step::Prequeue => &mut socket.prequeue,
                    _ => &mut socket.backlog,
                };
                let (packet, arrived_ns) = queue.pop_front().expect("the step was chosen for it");
                socket.process(packet, arrived_ns, now_ns);
            }
        }
        self.choose(socket)
    }

    fn choose(&mut self, socket: &mut ReceivingSocket) -> After {
        if !self.is_ending && self.in_call < READ && socket.receive > 0 {
            return self.begins(Step::Copy, COPY_NS);
        }
        if !socket.prequeue.is_empty() {
            return self.begins(Step::Prequeue, TCP_NS);
        }
        let has_all = self.in_call == READ || self.in_call > 0 && socket.backlog.is_empty();
        if !self.is_ending && (has_all || socket.backlog.is_empty()) {
            socket.after_copy(self.in_call);
            self.is_ending = true;
        }
        if !socket.backlog.is_empty() {
            return self.begins(Step::Backlog, TCP_NS);
        }
        socket.is_owned = false;
        self.begins(Step::Enter, CALL_NS);
        if self.in_call > 0 {
            return After::Returned;
        }
        socket.is_awaited = true;
        After::Sleeps
    }

    fn begins(&mut self, step: Step, ns: u64) -> After {
        (self.step, self.left_ns) = (step, ns);
        After::Step
    }
}

#[cfg(test)]
mod tests {
    use super::super::sender::Packet;
    use super::*;

    fn packet(number: u64) -> Packet {
        Packet {
            number,
            sent_ns: 0,
            is_probe: false,
        }
    }

    #[test]
    fn a_call_copies_8_kb_and_drains_the_backlog_before_it_returns() {
        let (mut socket, mut process) = (ReceivingSocket::new(100), ReceivingProcess::new());
        (0..8).for_each(|number| socket.process(packet(number), 0, 0));
        assert_eq!(process.step_ends(&mut socket, 0), After::Step);
        assert!(socket.is_owned);
        socket.arrive(packet(8), 0);
        let steps = std::iter::from_fn(|| Some(process.step_ends(&mut socket, 5)));
        let steps = steps.take_while(|&after| after == After::Step).count();
        assert_eq!(steps, 6, "six packets are copied, then one is processed");
        assert!(!socket.is_owned && socket.backlog.is_empty());
        assert_eq!((socket.receive, process.copied), (3, 6));
    }

    #[test]
    fn without_data_it_sleeps_unlocked_and_awaits_it() {
        let (mut socket, mut process) = (ReceivingSocket::new(100), ReceivingProcess::new());
        assert_eq!(process.step_ends(&mut socket, 0), After::Sleeps);
        assert!(!socket.is_owned && socket.is_awaited);
        socket.arrive(packet(0), 0);
        assert_eq!(process.step_ends(&mut socket, 1), After::Step);
        assert_eq!(
            process.step_ends(&mut socket, 2),
            After::Step,
            "the prequeue"
        );
        assert_eq!(process.step_ends(&mut socket, 3), After::Returned);
        assert_eq!(process.copied, 1);
    }
}
