//! Requests of an open loop. They arrive at their own times, whether or not the server keeps up, and their
//! latency counts from then. A closed loop hides such delays (Tene's "coordinated omission").

use std::collections::VecDeque;

use super::Worker;
use crate::draw::Dice;
use crate::setup::Setup;
use crate::tally::Fault;

/// Most requests that wait for a free connection; further ones count as overrun.
const WAITING_MAX: usize = 1 << 20;
/// Most arrivals of one turn, so that a late thread still reads answers.
const ARRIVALS_PER_TURN: usize = 1024;

/// This thread's part of the offered load of a class.
pub struct OpenLoop {
    dice: Dice,
    gap_us: f64,
    next_us: u64,
    /// Intended times of requests that wait for a connection.
    waiting: VecDeque<u64>,
    /// Clients without a request. The one that has waited longest is next, so all connections are in use: a
    /// server with many connections must not look as if it had three.
    free: VecDeque<u32>,
}

impl OpenLoop {
    /// A class's open loop, if the class has one.
    pub fn of(setup: &Setup, class: usize) -> Option<Self> {
        let prepared = &setup.classes[class];
        let gap_us = 1e6 / prepared.class.arrivals_per_s?;
        let mut dice = Dice::of(setup.seed, class, u32::MAX - 1);
        let begin_us = crate::setup::us(prepared.class.start.after_s);
        Some(Self {
            next_us: begin_us + (gap_us * dice.unit()) as u64,
            dice,
            gap_us,
            waiting: VecDeque::new(),
            free: VecDeque::new(),
        })
    }

    /// The time of the next request.
    pub fn next_us(&self) -> u64 {
        self.next_us
    }

    /// Takes the due request.
    fn take(&mut self) -> u64 {
        let due_us = self.next_us;
        // Fractions of a microsecond are rounded at random, which preserves the rate.
        let gap_us = self.dice.exponential(self.gap_us) + self.dice.unit();
        self.next_us = due_us + gap_us as u64;
        due_us
    }
}

impl Worker {
    /// Dispatches the requests that are due.
    pub(super) fn arrive(&mut self, now_us: u64) {
        for class in 0..self.open_loops.len() {
            let mut overruns = 0;
            let Some(open_loop) = &mut self.open_loops[class] else {
                continue;
            };
            for _ in 0..ARRIVALS_PER_TURN {
                if open_loop.next_us > now_us {
                    break;
                }
                let request = open_loop.take();
                match open_loop.waiting.len() {
                    0..WAITING_MAX => open_loop.waiting.push_back(request),
                    _ => overruns += 1,
                }
            }
            for _ in 0..overruns {
                let text = || format!("{WAITING_MAX} requests wait for a free connection");
                self.tell(class, Fault::Overrun, text);
            }
            self.dispatch(class, now_us);
        }
    }

    /// A client of an open loop becomes free: it takes the next request or waits for one.
    pub(super) fn set_free(&mut self, index: usize, now_us: u64) {
        let class = self.clients[index].class;
        if let Some(open_loop) = &mut self.open_loops[class] {
            open_loop.free.push_back(index as u32);
            self.dispatch(class, now_us);
        }
    }

    fn dispatch(&mut self, class: usize, now_us: u64) {
        while let Some(open_loop) = &mut self.open_loops[class] {
            if open_loop.waiting.is_empty() {
                return;
            }
            let Some(index) = open_loop.free.pop_front() else {
                return;
            };
            let index = index as usize;
            if self.clients[index].asked || self.clients[index].gone {
                continue; // it failed while it was free, and is listed twice
            }
            let Some(intended_us) = open_loop.waiting.pop_front() else {
                return;
            };
            self.ask(index, intended_us, now_us);
            self.schedule(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Class, Objects, Workload};

    #[test]
    fn requests_come_at_their_rate() {
        let mut class = Class::new("a", 1, Objects::one("a"));
        class.arrivals_per_s = Some(3000.0);
        let workload = Workload {
            seed: 5,
            classes: vec![class],
        };
        let setup = Setup::new(&workload, "127.0.0.1:80".parse().unwrap()).unwrap();
        let mut open_loop = OpenLoop::of(&setup, 0).unwrap();
        let first_us = open_loop.next_us();
        (0..30_000).for_each(|_| _ = open_loop.take());
        let took_us = open_loop.next_us() - first_us;
        let off = took_us.abs_diff(10_000_000);
        assert!(off < 200_000, "seed 5: {took_us} us for 10 s");
    }
}
