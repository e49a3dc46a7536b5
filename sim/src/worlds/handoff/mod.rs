//! Nodes that hand each other live connections (`ackpace_core::handoff`), a network between them that loses, delays,
//! doubles and reorders, and nodes that die, hang, are cut off and start anew.
//!
//! Laws, after each step: no two nodes may send on one connection. Every byte that a client gets is the right one. Few
//! machines exist at a time. At the end: a connection whose nodes lived on has served its client, or has told it RST for
//! a reason, and nothing is left of any connection.

mod client;
mod faults;
mod network;
mod node;
mod parts;
mod shell;
mod socket;

use std::collections::BTreeMap;

use ackpace_core::handoff::Step;

use self::client::Client;
use self::network::Network;
use self::node::Node;
use self::parts::Event;
use super::dice::Dice;

const MS: u64 = 1_000;
/// Faults and moves end then; all that hangs wakes, and all cuts heal.
const FAULTS_END_US: u64 = 3_000 * MS;
/// Everything is over by then.
const END_US: u64 = 60_000 * MS;
/// Machines of one connection at one node. More: something is not let go.
const ENDS_MAX: usize = 12;
/// Events in one run. More: something spins.
const EVENTS_MAX: u64 = 2_000_000;

/// What is broken on purpose, to prove that the laws can fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// The guest's kernel program and its process ignore the end of a lease.
    LeaseIgnored,
    /// A broken stream is taken for the proof that the other node is dead.
    SilenceIsProof,
    /// A take-over begins at the saved state and not at the client's ACK.
    AckIgnored,
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Everything is drawn from it.
    pub seed: u64,
    /// What is broken on purpose.
    pub sabotage: Sabotage,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Connections that served their clients to the end.
    pub whole: u64,
    /// Connections that ended with RST.
    pub reset: u64,
    /// Connections that ended with a node.
    pub died: u64,
    /// Moves to a guest.
    pub moved: u64,
    /// Returns.
    pub returned: u64,
    /// Take-overs.
    pub took_over: u64,
    /// Leases that ended.
    pub lapsed: u64,
    /// Guests that became home.
    pub became_home: u64,
    /// Moves that were refused.
    pub refused: u64,
}

impl Outcome {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: Outcome) {
        self.whole += other.whole;
        self.reset += other.reset;
        self.died += other.died;
        self.moved += other.moved;
        self.returned += other.returned;
        self.took_over += other.took_over;
        self.lapsed += other.lapsed;
        self.became_home += other.became_home;
        self.refused += other.refused;
    }
}

impl World {
    /// The world of a seed.
    pub fn of(seed: u64) -> World {
        World {
            seed,
            sabotage: Sabotage::None,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The law that was broken, and when.
    pub fn run(&self) -> Result<Outcome, String> {
        let mut run = Run::new(*self);
        run.all()
            .map_err(|law| format!("seed {}, {} us: {law}", self.seed, run.now_us))?;
        Ok(run.outcome)
    }
}

/// One execution.
struct Run {
    world: World,
    dice: Dice,
    now_us: u64,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    network: Network,
    outcome: Outcome,
    flows: u64,
    /// Rarity of a lost packet of a client, and of a failed call.
    loss: u64,
    /// Nodes die here.
    deadly: bool,
    broken_law: Option<String>,
    trace: bool,
}

impl Run {
    fn new(world: World) -> Run {
        let mut dice = Dice::new(world.seed);
        let count = 2 + dice.below(2) as usize;
        let nodes = (0..count).map(|_| Node::draw(&mut dice, count)).collect();
        let network = Network::draw(&mut dice, count);
        let mut run = Run {
            world,
            now_us: 0,
            nodes,
            clients: Vec::new(),
            network,
            outcome: Outcome::default(),
            flows: 0,
            loss: dice.pick(&[u64::MAX, 200, 50, 20]),
            deadly: !dice.once_in(3),
            dice,
            broken_law: None,
            trace: std::env::var_os("ACKPACE_TRACE").is_some(),
        };
        for conn in 0..1 + run.dice.below(2) as usize {
            let home = run.dice.below(count as u64) as usize;
            let client = Client::draw(&mut run.dice, home);
            run.clients.push(client);
            run.accept(home, conn);
            run.network.at(0, Event::Client { conn });
        }
        for node in 0..count {
            run.network.at(0, Event::Pump { node });
        }
        run.network.at(0, Event::Act);
        run
    }

    fn all(&mut self) -> Result<(), String> {
        for _ in 0..EVENTS_MAX {
            let due = self.nodes.iter().filter_map(Node::due_us).min();
            let Some(next) = self.network.due_us().into_iter().chain(due).min() else {
                return self.judge();
            };
            if next > END_US || self.is_over() {
                return self.judge();
            }
            self.now_us = self.now_us.max(next);
            while let Some(event) = self.network.pop(self.now_us) {
                self.happens(event);
                self.check()?;
            }
            for node in 0..self.nodes.len() {
                self.poll(node);
                self.check()?;
            }
        }
        Err("it never ends".into())
    }

    fn happens(&mut self, event: Event) {
        if self.trace && !matches!(event, Event::Pump { .. } | Event::Client { .. }) {
            println!("{} {event:?}", self.now_us);
        }
        match event {
            Event::Act => self.act(),
            Event::Client { conn } => self.client_turn(conn),
            Event::Pump { node } => self.pump(node),
            Event::Segment(segment) => self.segment(segment),
            Event::Packet(packet) => self.packet(packet),
            Event::Wake { node } => self.wake(node),
            Event::Die { node } => self.ends(node),
            Event::Restart { node } => self.restart(node),
            Event::Heal { a, b } => self.network.heal(a, b),
            other => self.process_event(other),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        if let Some(law) = self.broken_law.take() {
            return Err(law);
        }
        for conn in 0..self.clients.len() {
            let mut senders = Vec::new();
            for (at, node) in self.nodes.iter().enumerate() {
                let ends = node.ends.iter().filter(|(key, _)| key.conn == conn);
                let mut count = 0;
                for (key, end) in ends {
                    count += 1;
                    if self.may_send(at, end) {
                        senders.push((at, *key));
                    }
                }
                if count > ENDS_MAX {
                    return Err(format!(
                        "{count} machines of connection {conn} at node {at}"
                    ));
                }
            }
            if senders.len() > 1 {
                return Err(format!("two nodes may send: {senders:?}"));
            }
        }
        Ok(())
    }

    /// All connections have ended and nothing is left of them.
    fn is_over(&self) -> bool {
        let left = self.nodes.iter().any(|node| !node.ends.is_empty());
        let mut ended = self.clients.iter();
        let ended = ended.all(|client| client.is_served() || client.reset || client.lost);
        self.now_us > FAULTS_END_US && ended && !left
    }

    fn judge(&mut self) -> Result<(), String> {
        for (conn, client) in self.clients.iter().enumerate() {
            let whole = client.is_served();
            match (whole, client.reset, client.lost) {
                (true, ..) => self.outcome.whole += 1,
                (_, true, _) => self.outcome.reset += 1,
                (.., true) => self.outcome.died += 1,
                _ => return Err(format!("connection {conn} does not end: {client:?}")),
            }
        }
        let left: BTreeMap<usize, Vec<String>> = (self.nodes.iter().enumerate())
            .map(|(at, node)| (at, node.ends.values().map(|end| end.name()).collect()))
            .filter(|(_, ends): &(usize, Vec<String>)| !ends.is_empty())
            .collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("left at the end: {left:?}")),
        }
    }

    fn count(&mut self, step: Step) {
        match step {
            Step::Refused(_) => self.outcome.refused += 1,
            Step::Moved => self.outcome.moved += 1,
            Step::Returned => self.outcome.returned += 1,
            Step::TookOver => self.outcome.took_over += 1,
            Step::Lapsed => self.outcome.lapsed += 1,
        }
    }
}
