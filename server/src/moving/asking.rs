//! What the broker of this machine is asked, and what follows if it is not there.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::units::{Instant, US_PER_S};
use ackpace_wire::cluster::broker::Connection;
use ackpace_wire::cluster::{Handoff, Tuple};

use super::broker::{Broker, Failed};
use super::prepare::Ready;
use super::{Moving, state};
use crate::cluster::Movable;
use crate::transport::Transport;
use crate::worker::{Flow, Handed};

/// How often a broker is looked for that is not there.
const BROKER_EACH_US: u64 = US_PER_S;

impl Moving {
    /// The broker, if it is there. It is looked for from time to time.
    pub(super) fn meet_broker(&mut self, now: Instant) {
        if self.broker.is_some() || now < self.broker_at {
            return;
        }
        self.broker_at = now.plus_us(BROKER_EACH_US);
        match Broker::connect(&self.path) {
            Ok(broker) => {
                let movable = Self::movable(&broker);
                tracing::info!(
                    "cluster: connections to {} move between nodes, by {}",
                    movable,
                    self.path.display()
                );
                self.cluster.can_move(Some(movable));
                self.broker = Some(broker);
                self.redirect_all_left();
                self.thaw_all_left();
                (std::mem::take(&mut self.to_forget).into_iter()).for_each(|it| self.forget(it));
            }
            Err(why) => self.cluster.tell_no_broker(&self.path, &why),
        }
    }

    /// Whether the broker has gone, and left this connection frozen.
    pub(super) fn is_left_frozen(&self, handed: &Handed) -> bool {
        self.broker.is_none() && handed.conn.transport.is_frozen()
    }

    /// A broker has come: what the one before has left frozen goes on.
    fn thaw_all_left(&mut self) {
        let mut left = std::mem::take(&mut self.left_frozen);
        for stay in self.guests.values_mut() {
            left.extend(stay.left_frozen().map(|it| *it));
        }
        for handed in left {
            self.ask_broker(|broker| broker.thaw(handed.conn.transport.as_fd()));
            self.leave_to_worker(Box::new(handed));
        }
    }

    /// What this broker moves.
    fn movable(broker: &Broker) -> Movable {
        Movable {
            addresses: broker.hello.vips.clone(),
            ports: broker.hello.ports.clone(),
            nodes: broker.hello.peers.clone(),
        }
    }

    /// Asks the broker. `None`: it is not there, does not answer, or refuses, which is told.
    pub(super) fn ask_broker<T>(
        &mut self,
        ask: impl FnOnce(&mut Broker) -> Result<T, Failed>,
    ) -> Option<T> {
        let broker = self.broker.as_mut()?;
        match ask(broker) {
            Ok(answer) => Some(answer),
            Err(Failed::Refused(why)) => {
                tracing::debug!("cluster: the broker refuses: {why}");
                self.cluster.tally.broker_refused.fetch_add(1, Relaxed);
                None
            }
            Err(why @ Failed::Gone(_)) => {
                tracing::warn!(
                    "cluster: ackpace-host handoff at {}: {why}; requests are relayed until it answers again",
                    self.path.display()
                );
                self.broker = None;
                self.cluster.can_move(None);
                None
            }
        }
    }

    /// The connection is over, or here and this node's own.
    pub(super) fn forget(&mut self, tuple: Tuple) {
        let forgotten = self.ask_broker(|broker| broker.forget(tuple));
        if forgotten.is_none() && self.broker.is_none() {
            self.to_forget.push(tuple);
        }
    }

    /// Sends the client's packets of a frozen connection to another node from now on, and those first that came meanwhile.
    pub(super) fn send_on(&mut self, frozen: &Handed, epoch: u32, to: usize) -> bool {
        let name = self.cluster.nodes().get(to).cloned().unwrap_or_default();
        let fd = frozen.conn.transport.as_fd();
        let redirected = self.ask_broker(|broker| {
            let at = broker.hello.peers.iter().position(|peer| *peer == name);
            broker.redirect(fd, epoch, at.unwrap_or(usize::MAX) as u16)
        });
        redirected.is_some()
    }

    /// Restores a connection: its socket stands, sends, and holds what the client has not acknowledged.
    pub(super) fn restore(
        &mut self,
        state: &Handoff,
        file: Option<&Ready>,
        flow: Flow,
        lease_until_ns: Option<u64>,
    ) -> Option<Box<Handed>> {
        let (epoch, vip) = (flow.epoch, state.tuple.server.ip());
        let file = file.filter(|file| state::is_of(state, file));
        let connection = Connection {
            tuple: state.tuple,
            tcp: state.tcp,
            congestion: state.congestion.clone(),
            received: state.received.clone(),
        };
        if !self.shared.ledger.claim(self.shared.connection_bytes) {
            return None;
        }
        let socket = self.ask_broker(|broker| broker.restore(epoch, connection));
        self.tell_of_vip(vip, socket.is_some());
        let started = socket.and_then(|socket| {
            let transport = Transport::new(socket);
            transport.send_short_segments();
            let filled = state::fill(&transport, state, file);
            let fd = transport.as_fd();
            filled
                .then(|| self.ask_broker(|broker| broker.start(fd, epoch, lease_until_ns)))
                .flatten()?;
            state::unpack(state, transport.0, file, flow)
        });
        match started {
            Some(_) => self.shared.nodes.took(),
            None => self.shared.ledger.give(self.shared.connection_bytes),
        }
        started
    }

    /// Says once that a VIP is missing: all that comes to it is refused. `stands`: a connection to it was restored.
    fn tell_of_vip(&mut self, vip: IpAddr, stands: bool) {
        let lacks = !stands && is_missing(vip);
        if lacks && !self.lacks_vip {
            tracing::warn!(
                "cluster: connections to {vip} can't come here, since it is on no device of this node: ip addr add {vip} dev lo"
            );
        }
        self.lacks_vip = lacks || (self.lacks_vip && !stands);
    }
}

/// Whether no socket of this machine can have this address.
fn is_missing(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}
