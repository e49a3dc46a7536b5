//! What is known where requests are placed.

use ackpace_core::place::{Faults, Load, Place, Settings};

use super::{Knowledge, World};

/// A file came into the memory of a node, or went out of it.
#[derive(Clone, Copy, Debug)]
pub struct News {
    pub node: usize,
    pub file: u32,
    pub came: bool,
}

/// One view of the front, or one of each node.
#[derive(Debug)]
pub struct Views {
    knowledge: Knowledge,
    places: Vec<Place>,
    /// What is told at the end of the second.
    untold: Vec<News>,
}

impl Views {
    pub fn new(world: &World) -> Views {
        let settings = Settings {
            policy: world.policy,
            threshold: world.threshold,
            break_even_bytes: world.costs.break_even_bytes,
            objects: world.workload.lengths.len() * 8,
        };
        let names: Vec<u64> = (0..world.nodes as u64).collect();
        let views = match world.knowledge {
            Knowledge::Exact | Knowledge::Told => 1,
            Knowledge::EachTold => world.nodes,
        };
        Views {
            knowledge: world.knowledge,
            places: (0..views).map(|_| Place::new(&names, settings)).collect(),
            untold: Vec::new(),
        }
    }

    pub fn news(&mut self, news: News) {
        match self.knowledge {
            Knowledge::Exact => tell(&mut self.places[0], news),
            Knowledge::Told => self.untold.push(news),
            Knowledge::EachTold => {
                tell(&mut self.places[news.node], news);
                self.untold.push(news);
            }
        }
    }

    /// A second is over.
    pub fn second(&mut self, loads: &[Load]) {
        let untold = std::mem::take(&mut self.untold);
        for place in &mut self.places {
            untold.iter().for_each(|news| tell(place, *news));
            (0..loads.len()).for_each(|node| place.told(node, loads[node]));
        }
    }

    /// The view by which a request is placed that `at` has, or the front.
    pub fn of(
        &mut self,
        at: Option<usize>,
        load: impl Fn(usize) -> Load,
        nodes: usize,
    ) -> &mut Place {
        match (self.knowledge, at) {
            (Knowledge::EachTold, Some(at)) => {
                self.places[at].told(at, load(at));
                &mut self.places[at]
            }
            (Knowledge::Exact, _) => {
                (0..nodes).for_each(|node| self.places[0].told(node, load(node)));
                &mut self.places[0]
            }
            _ => &mut self.places[0],
        }
    }

    pub fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        for place in &self.places {
            faults.loops += place.faults().loops;
            faults.undefined += place.faults().undefined;
        }
        faults
    }
}

fn tell(place: &mut Place, news: News) {
    match news.came {
        true => place.came(news.node, u64::from(news.file)),
        false => place.went(news.node, u64::from(news.file)),
    }
}
