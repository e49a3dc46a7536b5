//! Events of sockets: what epoll(7) reports, and the [`TcpEvent`]s that the worker's machine is told of it. Whoever
//! notices something of a connection makes an [`EventSource`] of it, and all of them pass through
//! [`Worker::tcp_event`](super::Worker::tcp_event).

use ackpace_core::conn::{ConnId, TcpEvent, TcpSample};
use rustix::event::epoll::{EventData, EventFlags};

/// Who noticed something of a connection, and what. A new source (the error queue of a socket) is one more variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EventSource {
    /// epoll(7) reports the socket.
    Epoll(EventFlags),
    /// TCP_INFO was read, when the machine's timer or its evidence asked for it (`Out::Sample`).
    TcpInfo(TcpSample),
    /// A call on the socket failed: the connection is dead.
    SocketError,
}

/// What epoll's flags say, in the order in which the machine is told. HUP means that both directions are shut: a receive
/// finds the FIN, a send finds the error.
const EPOLL: [(EventFlags, TcpEvent); 4] = [
    (EventFlags::ERR, TcpEvent::Reset),
    (EventFlags::IN, TcpEvent::Readable),
    (EventFlags::RDHUP.union(EventFlags::HUP), TcpEvent::Fin),
    (EventFlags::OUT.union(EventFlags::HUP), TcpEvent::Writable),
];

impl EventSource {
    /// Tells what happened, one by one.
    pub(crate) fn each(&self, mut tell: impl FnMut(TcpEvent)) {
        match self {
            EventSource::Epoll(flags) => {
                for (flag, event) in &EPOLL {
                    if flags.intersects(*flag) {
                        tell(*event);
                    }
                }
            }
            EventSource::TcpInfo(sample) => tell(TcpEvent::Sample(*sample)),
            EventSource::SocketError => tell(TcpEvent::Reset),
        }
    }
}

// User data of epoll events that are not about a connection. Ids of connections are below these, since no slot has the
// highest generation (`Conns::remove`).
/// The worker's waker ([`crate::mailbox::ThreadWaker`]).
pub(crate) const WAKER: u64 = u64::MAX;
/// A listening socket.
pub(crate) const LISTENER: u64 = u64::MAX - 1;

/// The connection that an event is about: the inverse of [`data_of`].
pub(crate) fn conn_of(data: u64) -> ConnId {
    ConnId {
        index: data as u32,
        generation: (data >> 32) as u32,
    }
}

/// The events that epoll reports of a connection's socket. Edge-triggered (ET): the machine remembers that a socket is
/// readable or writable until a call says EAGAIN, so one report for each change is enough, and no call to epoll_ctl(2) is
/// needed to stop further ones.
pub(crate) const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// The user data of a connection's events: its generation above its slot.
pub(crate) fn data_of(conn: ConnId) -> EventData {
    EventData::new_u64((u64::from(conn.generation) << 32) | u64::from(conn.index))
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
        assert_eq!(told(&EventSource::SocketError), [TcpEvent::Reset]);
    }
}
