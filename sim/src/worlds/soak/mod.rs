//! Everything that the simulator can do to the machines, drawn by a seed. Each seed stands for some inputs of the hostile
//! worlds, for thirty worlds of connections that move between nodes, and for four worlds of downloads: one without faults, and three with disks that hang or fail, files that
//! change, pages that are dropped and pools that shrink.
//!
//! `cargo xtask soak --seeds N` runs as many seeds in a row; `sim/tests/soak.rs` runs a few.

mod draw;

use std::fmt;

use super::delivery::{Ending, Kept, Outcome, World};
use super::dice::Dice;
use super::{handoff, hostile};

/// Inputs of the hostile world of both machines, and of each machine alone, of one seed.
const INPUTS: [usize; 3] = [80, 20, 20];
/// Inputs have up to this many bytes.
const INPUT_BYTES_MAX: u64 = 6_000;
/// Worlds of connections that move between nodes, of one seed.
const HANDOFFS: u64 = 30;
/// The seeds that are multiples of this run their worlds of downloads twice, and compare.
const COMPARED_EACH: u64 = 16;

/// A world of the hostile kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// [`hostile::both`].
    Both,
    /// [`hostile::worker_alone`].
    Worker,
    /// [`hostile::disk_alone`].
    Disk,
}

/// One run of a seed. `Display` says which.
#[derive(Clone, Debug)]
pub enum Part {
    /// A hostile world.
    Hostile {
        /// Which.
        world: Hostile,
        /// Seed of its input.
        seed: u64,
        /// Length of its input.
        len_bytes: usize,
    },
    /// A world of connections that move between nodes.
    Handoff(handoff::World),
    /// A world of downloads.
    Downloads {
        /// The world.
        world: Box<World>,
        /// Runs again and compares.
        twice: bool,
    },
}

/// What happened in some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Inputs of hostile worlds.
    pub inputs: u64,
    /// Downloads of which all bytes were sent.
    pub whole: u64,
    /// Downloads that ended before that, for a reason.
    pub early: u64,
    /// Reads.
    pub reads: u64,
    /// Moves of connections between nodes, take-overs included.
    pub moves: u64,
}

impl Tally {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: Tally) {
        self.inputs += other.inputs;
        self.whole += other.whole;
        self.early += other.early;
        self.reads += other.reads;
        self.moves += other.moves;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            inputs,
            whole,
            early,
            reads,
            moves,
        } = self;
        write!(
            f,
            "{inputs} hostile inputs, {whole} downloads whole, {early} ended early, {reads} reads, {moves} moves"
        )
    }
}

/// The runs of a seed.
pub fn parts(seed: u64) -> Vec<Part> {
    let mut dice = Dice::new(seed);
    let mut parts = Vec::new();
    let worlds = [Hostile::Both, Hostile::Worker, Hostile::Disk];
    for (world, count) in worlds.into_iter().zip(INPUTS) {
        for _ in 0..count {
            parts.push(Part::Hostile {
                world,
                seed: dice.any(),
                len_bytes: dice.between(50, INPUT_BYTES_MAX) as usize,
            });
        }
    }
    for faulty in [false, true, true, true] {
        parts.push(Part::Downloads {
            world: Box::new(draw::world(&mut dice, faulty)),
            twice: seed % COMPARED_EACH == 0,
        });
    }
    for _ in 0..HANDOFFS {
        parts.push(Part::Handoff(handoff::World::of(dice.any())));
    }
    parts
}

impl Part {
    /// Runs it.
    ///
    /// # Panics
    /// When a law is broken.
    pub fn run(&self) -> Tally {
        match self {
            Part::Hostile {
                world,
                seed,
                len_bytes,
            } => {
                let input = hostile::random_input(*seed, *len_bytes);
                match world {
                    Hostile::Both => hostile::both(&input),
                    Hostile::Worker => hostile::worker_alone(&input),
                    Hostile::Disk => hostile::disk_alone(&input),
                }
                Tally {
                    inputs: 1,
                    ..Tally::default()
                }
            }
            Part::Handoff(world) => {
                let outcome = world.run().unwrap_or_else(|law| panic!("{law}"));
                Tally {
                    moves: outcome.moved + outcome.returned + outcome.took_over,
                    ..Tally::default()
                }
            }
            Part::Downloads { world, twice } => {
                let outcome = world.run();
                if *twice {
                    assert_eq!(outcome, world.run(), "the same world runs in two ways");
                }
                judge(&outcome)
            }
        }
    }
}

/// The laws of a world that has come to its end.
fn judge(outcome: &Outcome) -> Tally {
    let count = |of| outcome.endings.iter().filter(move |ending| **ending == of);
    assert_eq!(
        count(Ending::Open).count(),
        0,
        "downloads that never end: {:?}",
        outcome.endings
    );
    assert_eq!(outcome.kept, Kept::default(), "something is kept");
    Tally {
        whole: count(Ending::Whole).count() as u64,
        early: count(Ending::Early).count() as u64,
        reads: outcome.reads,
        ..Tally::default()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Hostile {
                world,
                seed,
                len_bytes,
            } => write!(
                f,
                "hostile world {world:?}, {len_bytes} bytes of input seed {seed}"
            ),
            Part::Handoff(world) => write!(f, "{world:?}"),
            Part::Downloads { world, .. } => write!(f, "{world:#?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_seed_always_draws_the_same() {
        let drawn = |seed| format!("{:?}", parts(seed));
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn an_end_that_leaves_something_is_found() {
        let good = Outcome {
            endings: vec![Ending::Whole, Ending::Early],
            ..Outcome::default()
        };
        assert_eq!(judge(&good).whole, 1);
        let mut open = good.clone();
        open.endings.push(Ending::Open);
        let mut leak = good.clone();
        leak.kept.slots = 1;
        for bad in [open, leak] {
            assert!(catch_unwind(|| judge(&bad)).is_err(), "{bad:?}");
        }
    }
}
