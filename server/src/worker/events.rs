//! The one door by which the machine hears of a connection's TCP, whoever noticed it.

use ackpace_core::conn::{ConnId, TcpEvent, TcpSample};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::worker::In;
use rustix::event::epoll::EventFlags;

use super::Worker;

/// Who noticed something of a connection, and what. A new source (BPF, the error queue of a socket) is one more variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum EventSource {
    /// epoll(7) reports the socket.
    Epoll(EventFlags),
    /// TCP_INFO was read, when the machine's timer or its evidence asked for it (`Out::Sample`).
    TcpInfo(TcpSample),
    /// A call on the socket failed: the connection is dead.
    SocketError,
    /// This shell: the response before was not what its head promised, so the connection can't go on.
    PromiseBroken,
}

/// What epoll's flags say, in the order in which the machine is told.
const EPOLL: [(EventFlags, TcpEvent); 4] = [
    (EventFlags::ERR, TcpEvent::Reset),
    (EventFlags::IN, TcpEvent::Readable),
    (EventFlags::RDHUP.union(EventFlags::HUP), TcpEvent::Fin),
    (EventFlags::OUT.union(EventFlags::HUP), TcpEvent::Writable),
];

impl EventSource {
    /// Tells what happened, one by one.
    fn each(&self, mut tell: impl FnMut(TcpEvent)) {
        match self {
            EventSource::Epoll(flags) => {
                for (flag, event) in EPOLL {
                    if flags.intersects(flag) {
                        tell(event);
                    }
                }
            }
            EventSource::TcpInfo(sample) => tell(TcpEvent::Sample(*sample)),
            EventSource::SocketError | EventSource::PromiseBroken => tell(TcpEvent::Reset),
        }
    }
}

impl Worker {
    /// The door. Nothing else in the shell makes a [`TcpEvent`].
    pub(super) fn tcp_event(&mut self, conn: ConnId, source: &EventSource, now: Instant) {
        source.each(|event| {
            if event == TcpEvent::Reset {
                tracing::debug!(?conn, "the connection is dead, by {source:?}");
            }
            self.decider.on(In::Tcp { conn, event }, now);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: &EventSource) -> Vec<TcpEvent> {
        let mut events = Vec::new();
        source.each(|event| events.push(event));
        events
    }

    #[test]
    fn flags_of_epoll_become_events_and_a_reset_comes_first() {
        use TcpEvent::{Fin, Readable, Reset, Writable};
        let (input, output, hup) = (EventFlags::IN, EventFlags::OUT, EventFlags::HUP);
        for (flags, events) in [
            (EventFlags::empty(), vec![]),
            (input, vec![Readable]),
            (output, vec![Writable]),
            (EventFlags::RDHUP, vec![Fin]),
            (input | EventFlags::RDHUP, vec![Readable, Fin]),
            (hup, vec![Fin, Writable]), // both directions are shut: what can't be sent is found out by trying
            (
                input | output | hup | EventFlags::ERR,
                vec![Reset, Readable, Fin, Writable],
            ),
            (EventFlags::PRI, vec![]),
        ] {
            assert_eq!(told(&EventSource::Epoll(flags)), events, "{flags:?}");
        }
    }

    #[test]
    fn a_reading_is_told_as_it_is_and_a_dead_socket_as_a_reset() {
        let sample = TcpSample {
            unacked_bytes: 7,
            ..TcpSample::default()
        };
        let reading = told(&EventSource::TcpInfo(sample));
        assert_eq!(reading, [TcpEvent::Sample(sample)]);
        for source in [EventSource::SocketError, EventSource::PromiseBroken] {
            assert_eq!(told(&source), [TcpEvent::Reset], "{source:?}");
        }
    }
}
