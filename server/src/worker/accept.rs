//! How connections come and go: taken from the listeners, until the worker drains.

use ackpace_core::balance::{self, WorkerLoad};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::worker::In;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::Worker;
use super::conns::Conn;
use super::events::LISTENER;
use super::handover::{HandOver, Handed};
use crate::log::Topic;
use crate::tcp;

impl Worker {
    /// Accepts up to so many clients, while there are places, here or in other workers, and memory for them.
    pub(super) fn accept(&mut self, most: u32, now: Instant) {
        let (mut left, mut is_full) = (most, false);
        // At the limit each listener begins in turn, or the first one would take every free place.
        self.first_listener = (self.first_listener + 1) % self.listeners.len().max(1);
        'backlogs: for nth in 0..self.listeners.len() {
            let listener = (self.first_listener + nth) % self.listeners.len();
            while left > 0 {
                let Some(to) = self.claim_place() else {
                    is_full = true;
                    break 'backlogs;
                };
                if !self.shared.ledger.claim(self.shared.connection_bytes) {
                    // Reading ahead gives some back, or connections end.
                    self.shared.handovers[to].closed();
                    tracing::debug!("accepting pauses: no memory is left for a connection");
                    self.tally.accept_errors.add(1);
                    return self.decider.on(In::AcceptFailed, now);
                }
                let accepted = self.accept_at(listener);
                if accepted.is_err() {
                    self.shared.handovers[to].closed();
                    self.shared.ledger.give(self.shared.connection_bytes);
                }
                match accepted {
                    Ok(conn) => {
                        left -= 1;
                        match to == self.index {
                            true => self.adopt(conn, None, now),
                            false => self.hand(Handed::accepted(conn), to, now),
                        }
                    }
                    Err(Errno::AGAIN) => break,
                    // Shut down by another process that has it. epoll would report it for ever.
                    Err(Errno::INVAL) => {
                        if epoll::delete(&self.epoll, &self.listeners[listener]).is_ok() {
                            tracing::error!(
                                "a listening socket was shut down by another process that has it; restart the server to listen there again"
                            );
                        }
                        break;
                    }
                    // The client was gone before it was accepted, or sent us a network error (accept(2)).
                    Err(Errno::CONNABORTED | Errno::PROTO | Errno::PERM | Errno::INTR) => left -= 1,
                    Err(error) => {
                        self.tally.accept_errors.add(1);
                        let text = format_args!(
                            "accept: {error}; trying again in a tenth of a second. Raise LimitNOFILE if descriptors are short"
                        );
                        self.shared.seldom.tell(Topic::Accept, None, text, now);
                        self.response_cache.shed(); // it may be what holds the descriptors
                        self.decider.on(In::AcceptFailed, now);
                        return;
                    }
                }
            }
        }
        if self.draining && left > 0 && !is_full {
            self.close_listeners(); // nobody waits there
        }
        self.tell_places_elsewhere(now);
    }

    /// Takes the next client of a listener.
    fn accept_at(&self, listener: usize) -> rustix::io::Result<Conn> {
        let from = &self.listeners[listener];
        let client = tcp::accept(&from.socket)?;
        if from.is_of_nodes && !self.shared.has_node_at(client.peer) {
            return Err(Errno::PERM); // a stranger
        }
        Ok(Conn {
            is_of_node: from.is_of_nodes,
            ..Conn::new(client, self.lowat_bytes)
        })
    }

    /// Takes a place for the next client: with us, or with another worker if we are full. Returns whose place it is. `None`: no
    /// worker has one.
    fn claim_place(&self) -> Option<usize> {
        let (me, handovers) = (self.index, &self.shared.handovers);
        let places = u64::from(self.decider.connections_max());
        let is_alone = handovers.len() == 1 || self.draining;
        let loads = handovers.iter().map(HandOver::load);
        let loads: SmallVec<[WorkerLoad; 16]> = loads.take_while(|_| !is_alone).collect();
        let to = balance::place(me, &loads, places);
        let given = to.filter(|to| *to != me && handovers[*to].claim_to_hand(places));
        given.or_else(|| handovers[me].claim(places).then_some(me))
    }

    /// Where no place is left for a client, tells the machine whether another worker has one that may be given away. A full worker has a turn every
    /// [`IDLE_LOOK_US`](ackpace_core::limits::IDLE_LOOK_US) at least, so it learns soon of a place that comes free.
    pub(super) fn tell_places_elsewhere(&mut self, now: Instant) {
        if self.room() > 0 {
            return;
        }
        let places = u64::from(self.decider.connections_max());
        let has_place = |handover: &HandOver| handover.load().connections < places;
        let elsewhere = !self.draining && self.shared.handovers.iter().any(has_place);
        self.decider.on(In::PlacesElsewhere(elsewhere), now);
    }

    /// Connections that may still be taken: a place is free when it is so for the machine and in our table. What the machine has
    /// closed keeps its place until the order to close it was executed.
    pub(super) fn room(&self) -> u32 {
        self.decider.room().min(self.conns.room())
    }

    /// A connection that was accepted is no more.
    pub(super) fn closed(&self) {
        self.shared.handovers[self.index].closed();
        self.shared.ledger.give(self.shared.connection_bytes);
    }

    /// Has epoll report the listeners, or not.
    pub(super) fn listen(&mut self, on: bool, now: Instant) {
        if !on && !self.draining && self.room() == 0 {
            let text = format_args!(
                "no worker has a place left: new clients wait in the backlogs until a connection ends. Raise {} if this lasts",
                self.shared.places_bound
            );
            self.shared.seldom.tell(Topic::Full, None, text, now);
        }
        for listener in &self.listeners {
            let data = EventData::new_u64(LISTENER);
            let _ = match on {
                true => epoll::add(&self.epoll, listener, data, EventFlags::IN),
                false => epoll::delete(&self.epoll, listener),
            };
        }
    }

    /// Whether connections that others accepted wait in the hand-over queue.
    pub(super) fn has_accepted_waiting(&self) -> bool {
        !self.shared.handovers[self.index].is_empty()
    }

    /// The worker is told to stop. To close the listeners now would reset those who wait there.
    pub(super) fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.decider.on(In::Drain, now);
    }

    /// While it drains, clients count as waiting until an accept finds none.
    pub(super) fn empty_backlogs(&mut self, now: Instant) {
        if !self.decider.accepts() {
            self.close_listeners();
        } else if self.draining && !self.listeners.is_empty() {
            self.decider.on(In::Incoming, now);
        }
    }

    /// Accepts no more clients, and resets those who wait.
    fn close_listeners(&mut self) {
        for listener in self.listeners.drain(..) {
            let _ = epoll::delete(&self.epoll, &listener);
        }
    }
}
