//! What befalls the nodes, and what is asked of them.

use ackpace_core::handoff::In;

use super::node::Machines;
use super::parts::{Event, Key, Letter};
use super::{FAULTS_END_US, MS, Run, Sabotage};

impl Run {
    pub(super) fn act(&mut self) {
        match self.dice.below(40) {
            0..=19 => self.ask_move(),
            20..=29 => self.ask_return(),
            30..=32 => self.hang(),
            33..=35 => self.cut(),
            36 => self.drain(),
            37..=38 if self.deadly => self.die(),
            _ => {}
        }
        let next = self.now_us + self.dice.between(MS, 100 * MS);
        if next < FAULTS_END_US {
            self.network.at(next, Event::Act);
        }
    }

    fn any_node(&mut self) -> usize {
        self.dice.below(self.nodes.len() as u64) as usize
    }

    fn keys(&self, node: usize, homes: bool) -> Vec<Key> {
        let ends = self.nodes[node].ends.iter();
        ends.filter(|(_, end)| matches!(end.machine, Machines::Home(_)) == homes)
            .map(|(key, _)| *key)
            .collect()
    }

    fn ask_move(&mut self) {
        let to = self.any_node();
        let conn = self.dice.below(self.clients.len() as u64) as usize;
        for node in 0..self.nodes.len() {
            if !self.nodes[node].runs() {
                continue;
            }
            for key in self.keys(node, true) {
                if key.conn != conn {
                    continue;
                }
                let event = In::Move {
                    to: to as u16,
                    draining: self.nodes[to].draining,
                    reachable: !self.network.is_cut(node, to),
                };
                self.tell(node, key, event);
            }
        }
    }

    fn ask_return(&mut self) {
        let node = self.any_node();
        if self.nodes[node].runs() {
            for key in self.keys(node, false) {
                self.tell(node, key, In::Return);
            }
        }
    }

    fn hang(&mut self) {
        let node = self.any_node();
        if self.nodes[node].runs() {
            self.nodes[node].hung = true;
            let us = self.dice.between(MS, 2_000 * MS);
            self.network.at(self.now_us + us, Event::Wake { node });
        }
    }

    pub(super) fn wake(&mut self, node: usize) {
        self.nodes[node].hung = false;
        for event in std::mem::take(&mut self.nodes[node].inbox) {
            self.process_event(event);
        }
    }

    fn cut(&mut self) {
        let (a, b) = (self.any_node(), self.any_node());
        if a == b || self.network.is_cut(a, b) {
            return;
        }
        self.network.cut(a, b);
        let us = self.dice.between(MS, 2_000 * MS);
        self.network.at(self.now_us + us, Event::Heal { a, b });
        if self.dice.once_in(2) {
            for (node, of) in [(a, b), (b, a)] {
                self.network.at(self.now_us, Event::Broken { node, of });
            }
        }
    }

    fn drain(&mut self) {
        let node = self.any_node();
        self.nodes[node].draining ^= true;
    }

    fn die(&mut self) {
        let node = self.any_node();
        self.network.at(self.now_us, Event::Die { node });
    }

    pub(super) fn ends(&mut self, node: usize) {
        if !self.nodes[node].alive {
            return;
        }
        for (key, end) in self.nodes.iter().flat_map(|node| node.ends.iter()) {
            let here = self.nodes[node].ends.contains_key(key);
            if here || end.peer() == node || key.home == node {
                self.clients[key.conn].lost = true;
            }
        }
        let boot = self.nodes[node].boot;
        self.nodes[node].alive = false;
        self.nodes[node].ends.clear();
        self.nodes[node].inbox.clear();
        for other in 0..self.nodes.len() {
            if other != node && self.dice.once_in(2) {
                let us = self.dice.between(MS, 20 * MS);
                let proof = Event::Proof {
                    node: other,
                    of: node,
                    boot,
                };
                self.network.at(self.now_us + us, proof);
            }
        }
        if !self.dice.once_in(3) {
            let us = self.dice.between(100 * MS, 3_000 * MS);
            self.network.at(self.now_us + us, Event::Restart { node });
        }
    }

    pub(super) fn restart(&mut self, node: usize) {
        let boots: Vec<u32> = self.nodes.iter().map(|other| other.boot).collect();
        let starts = &mut self.nodes[node];
        starts.known = boots;
        (starts.alive, starts.hung, starts.draining) = (true, false, false);
        starts.boot += 1;
    }

    /// What reaches a process: it has to be alive, and hears it when it does not hang.
    pub(super) fn process_event(&mut self, event: Event) {
        let (Event::Answer { node, .. }
        | Event::Proof { node, .. }
        | Event::Broken { node, .. }
        | Event::Letter(Letter { to: node, .. })) = event
        else {
            return;
        };
        if !self.nodes[node].alive {
            return;
        }
        if self.nodes[node].hung {
            self.nodes[node].inbox.push(event);
            return;
        }
        match event {
            Event::Answer {
                boot, key, answer, ..
            } if boot == self.nodes[node].boot => self.tell(node, key, answer),
            Event::Proof { of, boot, .. } if !self.network.is_cut(node, of) => {
                self.learn(node, of, boot + 1);
            }
            Event::Broken { of, .. } => {
                let event = match self.world.sabotage {
                    Sabotage::SilenceIsProof => In::Died(of as u16),
                    _ => In::Unreachable(of as u16),
                };
                self.tell_all(node, event);
            }
            Event::Letter(letter) => self.letter(letter),
            _ => {}
        }
    }

    /// A node hears of a start of another; the one before has ended.
    pub(super) fn learn(&mut self, node: usize, of: usize, boot: u32) {
        if boot > self.nodes[node].known[of] {
            self.nodes[node].known[of] = boot;
            self.tell_all(node, In::Died(of as u16));
        }
    }

    fn tell_all(&mut self, node: usize, event: In) {
        let keys: Vec<Key> = self.nodes[node].ends.keys().copied().collect();
        for key in keys {
            self.tell(node, key, event);
        }
    }
}
