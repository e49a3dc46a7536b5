//! The kernel's side of a node: sockets, the lease that lets them send, and the ways of packets. It goes on while the
//! process of its node hangs.

use ackpace_core::handoff::In;
use ackpace_core::units::Instant;

use super::node::{End, Entry, Machines};
use super::parts::{Event, Key, Packet, Segment, content};
use super::{MS, Run, Sabotage};

/// A turn of sending.
const PUMP_US: u64 = 10 * MS;
/// Units sent in one turn, and in flight.
const BURST: u64 = 8;
const WINDOW: u64 = 40;
/// Without progress, the first unit is sent again.
const RTO_US: u64 = 250 * MS;

impl Run {
    /// What the node's kernel lets out.
    pub(super) fn may_send(&self, node: usize, end: &End) -> bool {
        let Some(socket) = &end.socket else {
            return false;
        };
        let leased = match &end.machine {
            Machines::Home(_) => true,
            Machines::Guest(_) => {
                let now = Instant {
                    us: self.nodes[node].clock_us(self.now_us),
                };
                now < end.lease_until || self.world.sabotage == Sabotage::LeaseIgnored
            }
        };
        self.nodes[node].alive && socket.started && !socket.frozen && leased
    }

    pub(super) fn pump(&mut self, node: usize) {
        let keys: Vec<Key> = self.nodes[node].ends.keys().copied().collect();
        for key in keys {
            if self.may_send(node, &self.nodes[node].ends[&key]) {
                self.send_some(node, key);
            }
        }
        if self.now_us < super::END_US {
            let next = self.now_us + PUMP_US;
            self.network.at(next, Event::Pump { node });
        }
    }

    fn send_some(&mut self, node: usize, key: Key) {
        let now_us = self.now_us;
        let Some(end) = self.nodes[node].ends.get_mut(&key) else {
            return;
        };
        let Some(socket) = &mut end.socket else {
            return;
        };
        let available = self.clients[key.conn].available(socket.tcp.rcv);
        let mut send = Vec::new();
        if now_us >= socket.moved_us + RTO_US || !socket.probed {
            socket.moved_us = now_us;
            socket.probed = true;
            match socket.tcp.una < socket.tcp.nxt {
                true => send.push(Some(socket.tcp.una)),
                false => send.push(None),
            }
        }
        for _ in 0..BURST {
            let tcp = &mut socket.tcp;
            if tcp.nxt < available.min(tcp.una + WINDOW) {
                send.push(Some(tcp.nxt));
                tcp.nxt += 1;
            }
        }
        let tcp = socket.tcp;
        for at in send {
            let content = at.map(|at| content(key.conn, tcp.unit + (at - tcp.una)));
            self.send_client(Segment {
                conn: key.conn,
                at: at.unwrap_or(tcp.una),
                content,
                acked: tcp.rcv,
                rst: false,
            });
        }
    }

    fn send_client(&mut self, segment: Segment) {
        if segment.rst || !self.dice.once_in(self.loss) {
            let at = self.now_us + self.network.path_us(&mut self.dice);
            self.network.at(at, Event::Segment(segment));
        }
    }

    pub(super) fn reset_client(&mut self, conn: usize) {
        self.send_client(Segment {
            conn,
            at: 0,
            content: None,
            acked: 0,
            rst: true,
        });
    }

    /// A client's packet reaches the flow switch, or a node to which another passed it on.
    pub(super) fn packet(&mut self, packet: Packet) {
        let switch = &mut self.clients[packet.conn].switch;
        switch.ack = switch.ack.max(packet.ack);
        switch.sent = switch.sent.max(packet.to);
        let mut node = switch.node;
        if self.dice.once_in(20) {
            node = self.dice.below(self.nodes.len() as u64) as usize;
        }
        self.packet_at(node, packet);
    }

    pub(super) fn packet_at(&mut self, node: usize, packet: Packet) {
        if !self.nodes[node].alive || packet.hops > 2 {
            return;
        }
        let Some(key) = self.nodes[node].entry_of(packet.conn) else {
            return;
        };
        let Some(end) = self.nodes[node].ends.get_mut(&key) else {
            return;
        };
        match end.entry {
            Entry::Drop => {}
            Entry::Hold => {
                if end.held.len() < 64 {
                    end.held.push(packet);
                }
            }
            Entry::To(other) => {
                let hops = packet.hops + 1;
                self.packet_at(other, Packet { hops, ..packet });
            }
            Entry::Here => self.arrives(node, key, packet),
        }
    }

    /// A packet reaches a socket.
    fn arrives(&mut self, node: usize, key: Key, packet: Packet) {
        let now_us = self.now_us;
        let served = self.clients[key.conn].available(packet.to);
        let node_now = &mut self.nodes[node];
        let Some(end) = node_now.ends.get_mut(&key) else {
            return;
        };
        let Some(socket) = end.socket.as_mut().filter(|socket| socket.started) else {
            return;
        };
        let tcp = &mut socket.tcp;
        let hole = packet.from > tcp.rcv;
        if !hole {
            tcp.rcv = tcp.rcv.max(packet.to);
        }
        // Linux refuses what acknowledges more than was sent.
        if packet.ack <= tcp.nxt && !hole && packet.ack > tcp.una {
            tcp.unit += packet.ack - tcp.una;
            tcp.una = packet.ack;
            (socket.acked, socket.moved_us) = (true, now_us);
        }
        let closes = packet.fin && packet.ack == served && tcp.una == served;
        if packet.rst || closes {
            self.clients[key.conn].fin_is_acked();
            self.answer(node, key, In::ClientGone, 0);
        }
    }
}
