//! Requests of an open loop. They arrive at their own times, whether or not the server keeps up, and their
//! latency counts from then. A closed loop hides such delays (Tene's "coordinated omission").

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Shard, Worker};
use crate::draw::Dice;
use crate::setup::Setup;
use crate::tally::Fault;
use crate::trace::Trace;
use crate::workload::ArrivalSpread;

/// Most requests that wait for a free connection; further ones count as overrun.
const WAITING_MAX: usize = 1 << 20;
/// Most arrivals of one turn, so that a late thread still reads answers.
const ARRIVALS_PER_TURN: usize = 1024;

/// This thread's part of the offered load of a class.
pub struct OpenLoop {
    dice: Dice,
    source: Source,
    next_us: u64,
    /// Intended times of requests that wait for a connection, with their object if it is given.
    waiting: VecDeque<(u64, Option<u32>)>,
    /// Clients without a request. The one that has waited longest is next, so all connections are in use: a
    /// server with many connections must not look as if it had three.
    free: VecDeque<u32>,
}

enum Source {
    Rate {
        gap_us: f64,
        spread: ArrivalSpread,
    },
    Trace {
        trace: Arc<Trace>,
        row: usize,
        step: usize,
        speed: f64,
    },
}

impl OpenLoop {
    /// This thread's part of a class's open loop, if the class has one.
    pub fn of(setup: &Setup, class: usize, shard: &Shard) -> Option<Self> {
        if !shard.has(setup, class) {
            return None;
        }
        let (thread, threads) = (shard.part, shard.parts);
        let prepared = &setup.classes[class];
        let arrivals = prepared.class.arrivals?;
        let mut dice = Dice::of(setup.seed, class, u32::MAX - 1 - thread as u32);
        let begin_us = crate::setup::us(prepared.class.start.unwrap_or_default().after_s);
        let (source, next_us) = match (arrivals.requests_per_s, prepared.catalog.trace()) {
            (None, Some(trace)) => {
                let source = Source::Trace {
                    trace: trace.clone(),
                    row: thread,
                    step: threads,
                    speed: arrivals.trace_speed.unwrap_or(1.0),
                };
                (source, begin_us)
            }
            (per_s, _) => {
                let gap_us = 1e6 * threads as f64 / per_s.unwrap_or(1.0);
                // Threads start at different fractions of a gap.
                let first_us = begin_us + (gap_us * dice.unit()) as u64;
                let spread = arrivals.spread;
                (Source::Rate { gap_us, spread }, first_us)
            }
        };
        let mut open_loop = Self {
            dice,
            source,
            next_us,
            waiting: VecDeque::new(),
            free: VecDeque::new(),
        };
        if let Source::Trace { .. } = open_loop.source {
            open_loop.next_us = begin_us + open_loop.row_us(thread);
        }
        Some(open_loop)
    }

    /// The time of the next request.
    pub fn next_us(&self) -> u64 {
        self.next_us
    }

    /// Changes the rate of this thread's part. A trace keeps its times.
    pub fn set_rate(&mut self, per_s: f64, now_us: u64) {
        if let Source::Rate { gap_us, .. } = &mut self.source {
            *gap_us = 1e6 / per_s;
            self.next_us = now_us + (1e6 / per_s * self.dice.unit()) as u64;
        }
    }

    /// Takes the due request, with its object if a trace gives it.
    fn take(&mut self) -> (u64, Option<u32>) {
        let due_us = self.next_us;
        match &mut self.source {
            Source::Rate { gap_us, spread } => {
                let gap_us = match spread {
                    ArrivalSpread::Even => *gap_us,
                    ArrivalSpread::Poisson => self.dice.exponential(*gap_us),
                };
                // Fractions of a microsecond are rounded at random, which preserves the rate.
                let whole = gap_us + self.dice.unit();
                self.next_us = due_us + whole as u64;
                (due_us, None)
            }
            Source::Trace {
                trace, row, step, ..
            } => {
                let (now, next) = (*row, *row + *step);
                let object = trace.rows[now % trace.rows.len()].object;
                *row = next;
                self.next_us = due_us + (self.row_us(next) - self.row_us(now));
                (due_us, Some(object))
            }
        }
    }

    /// The due time of a row since the start; after its last row, the log starts again.
    fn row_us(&self, row: usize) -> u64 {
        let Source::Trace { trace, speed, .. } = &self.source else {
            return 0;
        };
        let (rounds, row) = (row / trace.rows.len(), row % trace.rows.len());
        let at_us = rounds as u64 * trace.span_us + trace.rows[row].at_us;
        (at_us as f64 / speed) as u64
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
            let Some((intended_us, object)) = open_loop.waiting.pop_front() else {
                return;
            };
            self.ask(index, object, intended_us, now_us);
            self.schedule(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Arrivals, Class, Objects, Workload};

    fn open_loop(spread: ArrivalSpread, threads: usize) -> OpenLoop {
        let mut class = Class::new("a", 1, Objects::one("/a"));
        class.arrivals = Some(Arrivals {
            requests_per_s: Some(3000.0),
            spread,
            trace_speed: None,
        });
        let workload = Workload {
            seed: 5,
            classes: vec![class],
            ..Workload::default()
        };
        let setup = Setup::new(&workload, "127.0.0.1:80".parse().unwrap()).unwrap();
        OpenLoop::of(&setup, 0, &Shard::all(&setup, threads)[0]).unwrap()
    }

    #[test]
    fn requests_come_at_their_rate() {
        for spread in [ArrivalSpread::Even, ArrivalSpread::Poisson] {
            let mut open_loop = open_loop(spread, 1);
            let first_us = open_loop.next_us();
            (0..30_000).for_each(|_| _ = open_loop.take());
            let took_us = open_loop.next_us() - first_us;
            let off = took_us.abs_diff(10_000_000);
            assert!(off < 200_000, "seed 5: {spread:?}: {took_us} us for 10 s");
        }
        let mut half = open_loop(ArrivalSpread::Even, 2);
        let first_us = half.next_us();
        (0..1500).for_each(|_| _ = half.take());
        assert!((half.next_us() - first_us).abs_diff(1_000_000) < 2000);
    }

    #[test]
    fn a_trace_is_followed_at_its_speed_and_begins_again() {
        let path =
            std::env::temp_dir().join(format!("ackpace-arrivals-{}.tsv", std::process::id()));
        let log = "time\tmethod\turl\tresponse\tbytes\n1\tGET\t/a\t200\t1\n3\tGET\t/b\t200\t1\n";
        std::fs::write(&path, log).unwrap();
        let mut object = Objects::one("/t/{n}");
        object.choice = crate::workload::Choice::Trace;
        object.file = Some(path.clone());
        let mut class = Class::new("a", 1, object);
        class.arrivals = Some(Arrivals {
            trace_speed: Some(10.0),
            ..Arrivals::default()
        });
        let workload = Workload {
            classes: vec![class],
            ..Workload::default()
        };
        let setup = Setup::new(&workload, "127.0.0.1:80".parse().unwrap());
        std::fs::remove_file(&path).unwrap();
        let setup = setup.unwrap();
        let mut open_loop = OpenLoop::of(&setup, 0, &Shard::all(&setup, 1)[0]).unwrap();
        let got = [(); 4].map(|()| open_loop.take());
        let expected = [(0, 0), (200_000, 1), (300_000, 0), (500_000, 1)];
        assert_eq!(got, expected.map(|(at_us, object)| (at_us, Some(object))));
    }
}
