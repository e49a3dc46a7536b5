//! Rounds of samples of the connections of all workers, a worker's in pieces by their slots.
//!
//! A round ends when all have answered, or after [`DIVIDE_WAIT_US`]. A worker that has not shown all by then goes on in the
//! next round where it stopped, so every slot is reached, however long that takes. When it has, its connections that were
//! not among them have left.

use alloc::vec::Vec;

use ackpace_core::units::{Instant, US_PER_S};

use super::Out;

/// How often send memory is divided anew, with a look at each connection that sends.
pub const DIVIDE_EACH_US: u64 = US_PER_S;
/// How long a division waits for workers. A worker that hangs longer: its connections keep their shares.
const DIVIDE_WAIT_US: u64 = 300_000;

/// How far the samples of one worker are.
#[derive(Clone, Copy, Debug, Default)]
struct WorkerPass {
    /// Which pass through its slots, counted when it begins.
    number: u64,
    /// The slot that it is asked for, or will be next.
    from: u32,
    /// It has not answered yet.
    asked: bool,
    /// It has not shown all in this round.
    open: bool,
}

/// What follows from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// Nothing: it is late, or the next question waits for the next round.
    Nothing,
    /// The next question.
    Ask(Out),
    /// Its slots have all been shown, in this pass.
    Passed(u64),
}

/// The rounds.
#[derive(Clone, Debug)]
pub(super) struct SamplingRounds {
    /// The passes of the workers, by their numbers.
    workers: Vec<WorkerPass>,
    /// A round is under way.
    asking: bool,
    /// When the round ends, or the next one begins.
    at: Instant,
}

impl SamplingRounds {
    pub fn new(workers: u16, now: Instant) -> SamplingRounds {
        SamplingRounds {
            workers: (0..workers).map(|_| WorkerPass::default()).collect(),
            asking: false,
            at: now.plus_us(DIVIDE_EACH_US),
        }
    }

    /// The pass through the slots of this worker that is under way, or the last one.
    pub fn pass(&self, worker: u16) -> u64 {
        let pass = self.workers.get(usize::from(worker));
        pass.map_or(0, |pass| pass.number)
    }

    /// Whether a round is under way.
    pub fn is_asking(&self) -> bool {
        self.asking
    }

    /// When the round is over, or the next one begins.
    pub fn due_at(&self) -> Instant {
        let over = self.asking && !self.workers.iter().any(|pass| pass.open);
        if over { Instant { us: 0 } } else { self.at }
    }

    /// A round begins: the questions.
    pub fn begin(&mut self, now: Instant) -> impl Iterator<Item = Out> {
        (self.asking, self.at) = (true, now.plus_us(DIVIDE_WAIT_US));
        self.workers.iter_mut().zip(0..).map(|(pass, worker)| {
            pass.number += u64::from(pass.from == 0 && !pass.asked);
            (pass.asked, pass.open) = (true, true);
            let from = pass.from;
            Out::Sample { worker, from }
        })
    }

    /// The round is over.
    pub fn end(&mut self, now: Instant) {
        (self.asking, self.at) = (false, now.plus_us(DIVIDE_EACH_US));
    }

    /// A worker has answered the question `from` a slot, and has more to show from `next` on.
    pub fn answered(&mut self, worker: u16, from: u32, next: Option<u32>) -> Answered {
        let pass = self.workers.get_mut(usize::from(worker));
        let Some(pass) = pass.filter(|pass| pass.asked && pass.from == from) else {
            return Answered::Nothing;
        };
        pass.from = next.unwrap_or(0);
        pass.asked = next.is_some() && self.asking;
        match next {
            Some(from) if self.asking => Answered::Ask(Out::Sample { worker, from }),
            Some(_) => Answered::Nothing,
            None => {
                pass.open = false;
                Answered::Passed(pass.number)
            }
        }
    }
}
