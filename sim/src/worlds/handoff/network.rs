//! Events in the order of their times, and the streams between nodes.

use std::collections::BTreeMap;

use super::parts::{Event, Letter};
use super::{MS, Run};
use crate::worlds::dice::Dice;

pub(super) struct Network {
    events: BTreeMap<(u64, u64), Event>,
    drawn: u64,
    /// Pairs that are cut off from each other, lower node first.
    cuts: Vec<(usize, usize)>,
    /// When the last letter arrives, by sender and receiver: streams keep the order.
    last_us: Vec<Vec<u64>>,
    path_us: u64,
    jitter_us: u64,
    link_us: u64,
    /// Rarity of a letter that is lost, doubled or late beyond what a stream allows.
    unruly: u64,
}

impl Network {
    pub fn draw(dice: &mut Dice, nodes: usize) -> Network {
        Network {
            events: BTreeMap::new(),
            drawn: 0,
            cuts: Vec::new(),
            last_us: vec![vec![0; nodes]; nodes],
            path_us: dice.pick(&[50, 5 * MS, 20 * MS, 40 * MS]),
            jitter_us: dice.pick(&[1, MS, 10 * MS]),
            link_us: dice.pick(&[50, 200, 2 * MS, 30 * MS]),
            unruly: dice.pick(&[u64::MAX, 100, 10, 4]),
        }
    }

    pub fn at(&mut self, at_us: u64, event: Event) {
        self.drawn += 1;
        self.events.insert((at_us, self.drawn), event);
    }

    pub fn due_us(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn pop(&mut self, now_us: u64) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now_us).then(|| first.remove())
    }

    /// One way between a client and a node.
    pub fn path_us(&self, dice: &mut Dice) -> u64 {
        self.path_us + dice.below(self.jitter_us)
    }

    /// A round trip to a client.
    pub fn rtt_us(&self) -> u64 {
        2 * self.path_us + self.jitter_us
    }

    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }

    pub fn cut(&mut self, a: usize, b: usize) {
        if !self.is_cut(a, b) {
            self.cuts.push((a.min(b), a.max(b)));
        }
    }

    pub fn heal(&mut self, a: usize, b: usize) {
        self.cuts.retain(|cut| *cut != (a.min(b), a.max(b)));
    }

    fn letter(&mut self, letter: Letter, now_us: u64, dice: &mut Dice) {
        let (from, to) = (letter.from, letter.to);
        let mut at = now_us + self.link_us + dice.below(self.link_us);
        if dice.once_in(self.unruly) {
            match dice.below(3) {
                0 => return,
                1 => self.at(at + dice.between(1, 2_000 * MS), Event::Letter(letter)),
                _ => at += dice.between(1, 1_000 * MS),
            }
        } else {
            at = at.max(self.last_us[from][to]);
            self.last_us[from][to] = at;
        }
        self.at(at, Event::Letter(letter));
    }
}

impl Run {
    pub(super) fn post(&mut self, letter: Letter) {
        if !self.network.is_cut(letter.from, letter.to) {
            self.network.letter(letter, self.now_us, &mut self.dice);
        }
    }
}
