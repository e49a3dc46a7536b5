//! A node's shell: it carries out orders and hands on what happens.

use ackpace_core::handoff::{
    Facts, Guest, Home, In, Message, Out, Refusal, Tracked, answer_unknown,
};
use ackpace_core::units::Instant;

use super::node::{End, Entry, Machines};
use super::parts::{Event, Key, Letter, Saved, Socket};
use super::{MS, Run, Sabotage};

/// Orders of one machine in a row. More: it spins.
const ORDERS_MAX: u32 = 100;

/// The saved state, as if all before `ack` had been acknowledged and nothing sent since.
fn moved_to(saved: Saved, ack: u64, sabotage: Sabotage) -> Saved {
    let unit = match sabotage {
        Sabotage::AckIgnored => saved.unit,
        _ => saved.unit + (ack - saved.una),
    };
    Saved {
        una: ack,
        nxt: ack,
        unit,
        ..saved
    }
}

impl Run {
    pub(super) fn accept(&mut self, node: usize, conn: usize) {
        let key = self.home_key(node, conn);
        let mut end = End::new(Machines::Home(Home::new(node as u16, 1)));
        let mut socket = Socket::new(
            Saved {
                una: 0,
                nxt: 0,
                rcv: 0,
                unit: 0,
            },
            0,
        );
        (socket.started, socket.acked) = (true, true);
        (end.socket, end.entry) = (Some(socket), Entry::Here);
        self.nodes[node].ends.insert(key, end);
    }

    fn home_key(&mut self, node: usize, conn: usize) -> Key {
        self.flows += 1;
        Key {
            conn,
            flow: self.flows,
            home: node,
            home_boot: self.nodes[node].boot,
            epoch: None,
        }
    }

    pub(super) fn local(&self, node: usize) -> Instant {
        let us = self.nodes[node].clock_us(self.now_us);
        Instant { us }
    }

    /// Tells a machine.
    pub(super) fn tell(&mut self, node: usize, key: Key, event: In) {
        let now = self.local(node);
        if self.trace {
            println!("{} node {node} {:?} <- {event:?}", self.now_us, key.epoch);
        }
        if let Some(end) = self.nodes[node].ends.get_mut(&key) {
            end.on(event, now);
        }
        self.obey(node, key);
    }

    pub(super) fn poll(&mut self, node: usize) {
        let keys: Vec<Key> = self.nodes[node].ends.keys().copied().collect();
        for key in keys {
            self.obey(node, key);
        }
    }

    fn obey(&mut self, node: usize, key: Key) {
        if !self.nodes[node].runs() {
            return;
        }
        let now = self.local(node);
        for _ in 0..ORDERS_MAX {
            let Some(end) = self.nodes[node].ends.get_mut(&key) else {
                return;
            };
            let Some(out) = end.poll(now) else {
                if end.is_over() {
                    self.nodes[node].ends.remove(&key);
                }
                return;
            };
            if self.trace {
                println!("{} node {node} {:?} -> {out:?}", self.now_us, key.epoch);
            }
            self.order(node, key, out);
        }
        self.broken_law = Some(format!("node {node} spins on {key:?}"));
    }

    /// The shell's answer comes after a while.
    pub(super) fn answer(&mut self, node: usize, key: Key, answer: In, after_us: u64) {
        let boot = self.nodes[node].boot;
        let at = self.now_us + after_us;
        self.network.at(
            at,
            Event::Answer {
                node,
                boot,
                key,
                answer,
            },
        );
    }

    fn works(&mut self) -> bool {
        !self.dice.once_in(self.loss.min(1_000))
    }

    fn order(&mut self, node: usize, key: Key, out: Out) {
        let works = self.works();
        match out {
            Out::Send { to, epoch, message } => self.send(node, key, to.into(), epoch, message),
            Out::Prepare => {
                let done = if works { Ok(()) } else { Err(Refusal::Object) };
                let us = self.dice.between(100, 40 * MS);
                self.answer(node, key, In::Prepared(done), us);
            }
            Out::Look => {
                let facts = self.facts(node, key);
                self.answer(node, key, In::Facts(facts), 100);
            }
            Out::Track => {
                let tracked = self.tracked(node, key);
                self.answer(node, key, In::Tracked(tracked), 10);
            }
            Out::BecomeHome { epoch } => self.become_home(node, key, epoch),
            Out::Reset => {
                self.reset_client(key.conn);
                self.socket_order(node, key, Out::Close, works);
            }
            Out::Tell(step) => self.count(step),
            _ => self.socket_order(node, key, out, works),
        }
    }

    fn send(&mut self, node: usize, key: Key, to: usize, epoch: u32, message: Message) {
        let carries = matches!(message, Message::Handoff { .. } | Message::Back { .. });
        let end = self.nodes[node].ends.get(&key);
        let saved = end.and_then(|end| end.saved).filter(|_| carries);
        let epoch = Some(epoch);
        self.post(Letter {
            from: node,
            to,
            boots: [self.nodes[node].boot, self.nodes[node].known[to]],
            key: Key { epoch, ..key },
            message,
            saved,
        });
    }

    fn facts(&mut self, node: usize, key: Key) -> Facts {
        let ends = self.nodes[node].ends.values();
        let frozen = ends.filter(|end| end.socket.is_some_and(|socket| socket.frozen));
        let frozen = frozen.count() as u32;
        let end = self.nodes[node].ends.get(&key);
        let acked = end.and_then(|end| end.socket).is_some_and(|s| s.acked);
        Facts {
            established: true,
            prepared: true,
            frozen,
            rtt_us: self.network.rtt_us(),
            acked,
            retransmits: 0,
            ca_state: if self.dice.once_in(10) { 3 } else { 0 },
            repairing: 0,
            timestamps: true,
        }
    }

    fn tracked(&mut self, node: usize, key: Key) -> Tracked {
        let switch = self.clients[key.conn].switch;
        let end = self.nodes[node].ends.get(&key);
        let has = end.and_then(|end| end.saved).map_or(0, |saved| saved.rcv);
        let sent = end.and_then(|end| end.socket).map(|socket| socket.tcp.nxt);
        Tracked {
            ack: switch.ack as u32,
            hole: switch.sent > has,
            beyond: sent.is_some_and(|sent| switch.ack > sent),
        }
    }

    fn become_home(&mut self, node: usize, key: Key, epoch: u32) {
        self.outcome.became_home += 1;
        let home = Home::new(node as u16, epoch);
        let Some(old) = self.nodes[node].ends.remove(&key) else {
            return;
        };
        let end = End {
            socket: old.socket,
            saved: old.socket.map(|socket| socket.tcp).or(old.saved),
            entry: Entry::Here,
            ..End::new(Machines::Home(home))
        };
        let key = self.home_key(node, key.conn);
        self.nodes[node].ends.insert(key, end);
        self.obey(node, key);
    }

    fn socket_order(&mut self, node: usize, key: Key, out: Out, works: bool) {
        let (now_us, sabotage) = (self.now_us, self.world.sabotage);
        let Some(end) = self.nodes[node].ends.get_mut(&key) else {
            return;
        };
        match out {
            Out::Freeze => {
                if let Some(socket) = &mut end.socket {
                    socket.frozen = true;
                    end.saved = Some(socket.tcp);
                }
                end.entry = Entry::Hold;
                let saved = works && end.socket.is_some();
                self.answer(node, key, In::Froze(saved), MS);
            }
            Out::Thaw => {
                if let Some(socket) = &mut end.socket {
                    socket.frozen = false;
                }
                end.entry = Entry::Here;
                self.release(node, key, node);
            }
            Out::Redirect { to } => {
                end.socket = None;
                end.entry = Entry::To(to.into());
                self.release(node, key, to.into());
            }
            Out::Restore => {
                let socket = end.offered.map(|tcp| Socket::new(tcp, now_us));
                end.saved = end.offered;
                end.socket = socket.filter(|_| works);
                end.entry = Entry::Hold;
                let stands = end.socket.is_some();
                self.answer(node, key, In::Restored(stands), 200);
            }
            Out::TakeOver { ack } => {
                end.saved = end.saved.map(|saved| moved_to(saved, ack.into(), sabotage));
                end.socket = (end.saved.filter(|_| works)).map(|tcp| Socket::new(tcp, now_us));
                let stands = end.socket.is_some();
                self.answer(node, key, In::Restored(stands), 200);
            }
            Out::Claim { epoch } => {
                if let Some(socket) = &mut end.socket {
                    socket.started = true;
                }
                end.entry = Entry::Here;
                let switch = &mut self.clients[key.conn].switch;
                if epoch > switch.epoch {
                    (switch.epoch, switch.node) = (epoch, node);
                }
                self.release(node, key, node);
            }
            Out::Lease { until } => end.lease_until = until,
            Out::Fence => (end.socket, end.entry) = (None, Entry::Drop),
            Out::Close => {
                end.entry = Entry::Drop;
                (end.socket, end.saved) = (None, None);
                end.held.clear();
            }
            _ => {}
        }
    }

    /// Held packets go on.
    fn release(&mut self, node: usize, key: Key, to: usize) {
        let end = self.nodes[node].ends.get_mut(&key);
        let held = end.map(|end| std::mem::take(&mut end.held));
        for packet in held.unwrap_or_default() {
            self.packet_at(to, packet);
        }
    }

    pub(super) fn letter(&mut self, letter: Letter) {
        let (node, from) = (letter.to, letter.from);
        if letter.boots[1] != self.nodes[node].boot {
            // A new stream shows the sender who is there now.
            let (of, boot) = (node, letter.boots[1]);
            let proof = Event::Proof {
                node: from,
                of,
                boot,
            };
            if self.nodes[node].boot > boot {
                self.network.at(self.now_us + 10 * MS, proof);
            }
            return;
        }
        if letter.boots[0] < self.nodes[node].known[from] {
            return;
        }
        self.learn(node, from, letter.boots[0]);
        let mine = letter.key.home == node && letter.key.home_boot == self.nodes[node].boot;
        let key = match mine {
            true => Key {
                epoch: None,
                ..letter.key
            },
            false => letter.key,
        };
        let epoch = letter.key.epoch.unwrap_or_default();
        let message = letter.message;
        if let Some(end) = self.nodes[node].ends.get_mut(&key) {
            if letter.saved.is_some() {
                end.offered = letter.saved;
            }
            return self.tell(node, key, In::Heard { epoch, message });
        }
        if message == Message::Prepare && !mine {
            let (now, draining) = (self.local(node), self.nodes[node].draining);
            let guest = Guest::new(from as u16, epoch, draining, now);
            let end = End::new(Machines::Guest(guest));
            self.nodes[node].ends.insert(key, end);
            return self.obey(node, key);
        }
        if let Some(message) = answer_unknown(message, mine) {
            self.send(node, letter.key, from, epoch, message);
        }
    }
}
