//! A node: its clock, its machines, and what it knows of the others.

use std::collections::BTreeMap;

use ackpace_core::Machine;
use ackpace_core::handoff::{Guest, Home, In, Out};
use ackpace_core::units::Instant;

use super::parts::{Event, Key, Packet, Saved, Socket};
use crate::worlds::dice::Dice;

pub(super) enum Machines {
    Home(Home),
    Guest(Guest),
}

/// Where a node's flow entry sends the client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Here,
    Hold,
    To(usize),
    Drop,
}

/// One end of a connection.
pub(super) struct End {
    pub machine: Machines,
    pub socket: Option<Socket>,
    pub saved: Option<Saved>,
    /// What came with the last message.
    pub offered: Option<Saved>,
    pub entry: Entry,
    pub held: Vec<Packet>,
    pub lease_until: Instant,
}

impl End {
    pub fn new(machine: Machines) -> End {
        End {
            machine,
            socket: None,
            saved: None,
            offered: None,
            entry: Entry::Drop,
            held: Vec::new(),
            lease_until: Instant::default(),
        }
    }

    pub fn on(&mut self, event: In, now: Instant) {
        match &mut self.machine {
            Machines::Home(home) => home.on(event, now),
            Machines::Guest(guest) => guest.on(event, now),
        }
    }

    pub fn poll(&mut self, now: Instant) -> Option<Out> {
        match &mut self.machine {
            Machines::Home(home) => home.poll(now),
            Machines::Guest(guest) => guest.poll(now),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.machine {
            Machines::Home(home) => home.deadline(),
            Machines::Guest(guest) => guest.deadline(),
        }
    }

    pub fn is_over(&self) -> bool {
        match &self.machine {
            Machines::Home(home) => home.is_over(),
            Machines::Guest(guest) => guest.is_over(),
        }
    }

    pub fn peer(&self) -> usize {
        match &self.machine {
            Machines::Home(home) => home.peer().into(),
            Machines::Guest(guest) => guest.peer().into(),
        }
    }

    pub fn epoch(&self) -> u32 {
        match &self.machine {
            Machines::Home(home) => home.epoch(),
            Machines::Guest(guest) => guest.epoch(),
        }
    }

    pub fn name(&self) -> String {
        let kind = match &self.machine {
            Machines::Home(_) => "home",
            Machines::Guest(_) => "guest",
        };
        format!("{kind} of epoch {}, {:?}", self.epoch(), self.entry)
    }
}

pub(super) struct Node {
    pub alive: bool,
    /// Its process stands still; its kernel does not.
    pub hung: bool,
    pub draining: bool,
    pub boot: u32,
    /// The starts of the others that it knows.
    pub known: Vec<u32>,
    pub ends: BTreeMap<Key, End>,
    /// What happened while it hung.
    pub inbox: Vec<Event>,
    offset_us: u64,
    /// Its clock runs faster by this much.
    drift_ppm: u64,
}

impl Node {
    pub fn draw(dice: &mut Dice, nodes: usize) -> Node {
        Node {
            alive: true,
            hung: false,
            draining: false,
            boot: 1,
            known: vec![1; nodes],
            ends: BTreeMap::new(),
            inbox: Vec::new(),
            offset_us: dice.below(60_000_000),
            drift_ppm: dice.below(50_000),
        }
    }

    pub fn runs(&self) -> bool {
        self.alive && !self.hung
    }

    /// What its clock shows.
    pub fn clock_us(&self, now_us: u64) -> u64 {
        self.offset_us + now_us + now_us * self.drift_ppm / 1_000_000
    }

    /// When one of its machines has something to do.
    pub fn due_us(&self) -> Option<u64> {
        let deadlines = self.ends.values().filter_map(End::deadline);
        let first = deadlines.min().filter(|_| self.runs())?;
        let run_us = u128::from(first.us.saturating_sub(self.offset_us));
        Some((run_us * 1_000_000 / u128::from(1_000_000 + self.drift_ppm)) as u64 + 1)
    }

    /// The end that gets a client's packets here.
    pub fn entry_of(&self, conn: usize) -> Option<Key> {
        let ends = self.ends.iter().filter(|(key, _)| key.conn == conn);
        let rank = |end: &End| match end.entry {
            Entry::Here => 3,
            Entry::Hold => 2,
            Entry::To(_) => 1,
            Entry::Drop => 0,
        };
        let best = ends.max_by_key(|(_, end)| (rank(end), end.epoch()));
        best.map(|(key, _)| *key)
    }
}
