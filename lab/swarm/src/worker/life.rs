//! Timed actions of clients (start, leave, give up), and what follows a request.

use super::client::{Plan, State};
use super::exchange::STALL_US;
use super::{Worker, transport};
use crate::setup::{NEVER_US, us};
use crate::tally::Fault;
use crate::wheel::Timer;

/// Shape of the distribution of think times.
const THINK_SHAPE: f64 = 1.5;

impl Worker {
    /// Adds a timer for the client's next plan.
    pub(super) fn schedule(&mut self, index: usize) {
        if let Some(due_us) = self.clients[index].timer() {
            self.wheel.add(Timer {
                who: index as u32,
                due_us,
            });
        }
    }

    /// Performs the due actions.
    pub(super) fn fire(&mut self, now_us: u64) {
        let timers = self.wheel.fire(now_us);
        for timer in &timers {
            let index = timer.who as usize;
            if !self.clients[index].takes_timer(timer.due_us) {
                continue;
            }
            self.lateness.add(now_us - timer.due_us);
            for plan in Plan::ALL {
                let due = &mut self.clients[index].plans_us[plan as usize];
                if *due <= now_us {
                    *due = NEVER_US;
                    self.act(index, plan, now_us);
                }
            }
            self.schedule(index);
        }
        self.wheel.keep(timers);
    }

    fn act(&mut self, index: usize, plan: Plan, now_us: u64) {
        let answering = matches!(self.clients[index].state, State::Head | State::Body);
        match plan {
            Plan::Read if answering => self.readable(index, now_us),
            Plan::Leave if answering => self.leave(index, now_us),
            Plan::Begin => self.begin(index, now_us),
            Plan::Read | Plan::Leave => {}
        }
    }

    fn begin(&mut self, index: usize, now_us: u64) {
        let client = &self.clients[index];
        if self.open_loops[client.class].is_none() {
            self.ask(index, now_us, now_us);
        } else if client.state == State::Off {
            self.open(index, now_us);
        }
    }

    /// Continues after a successful request.
    pub(super) fn next(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let class = &self.setup.classes[client.class].class;
        let (think_s, think_max_s) = (class.think_s, class.think_max_s);
        if self.open_loops[client.class].is_some() {
            client.set_active(false, now_us);
            self.set_free(index, now_us);
        } else if self.is_last(index) {
            self.retire(index, now_us);
        } else if let Some(due_us) = self.due_us(index, now_us) {
            let client = &mut self.clients[index];
            client.set_active(false, now_us);
            client.plan(Plan::Begin, due_us);
        } else if think_s > 0.0 {
            let client = &mut self.clients[index];
            client.set_active(false, now_us);
            let drawn = think_max_s.map(|max_s| client.dice.pareto(THINK_SHAPE, think_s, max_s));
            client.plan(Plan::Begin, now_us + us(drawn.unwrap_or(think_s)));
        } else {
            self.ask(index, now_us, now_us);
        }
    }

    /// The time at which a player's next segment is due, if that is in the future.
    fn due_us(&self, index: usize, now_us: u64) -> Option<u64> {
        let film = self.clients[index].playback?;
        (film.due_us() > now_us).then_some(film.due_us())
    }

    /// True if the client has made all its requests.
    pub(super) fn is_last(&self, index: usize) -> bool {
        let client = &self.clients[index];
        let each = self.setup.classes[client.class].class.requests_each;
        each.is_some_and(|each| client.served >= each)
    }

    /// Ends a client that has no more requests; one that has a connection keeps it.
    pub(super) fn retire(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        client.set_active(false, now_us);
        if client.state != State::Free && !client.gone {
            drop(transport::take(client));
            client.state = State::Off;
            client.gone = true;
            client.plans_us = [NEVER_US; Plan::ALL.len()];
        }
    }

    /// Handles a server that closed a connection without a request.
    pub(super) fn left_alone(&mut self, index: usize) {
        let client = &mut self.clients[index];
        drop(transport::take(client));
        client.state = State::Off;
        if self.open_loops[client.class].is_none() && self.is_last(index) {
            self.retire(index, self.setup.now_us());
        }
    }

    /// Plans a client's timed departure.
    pub(super) fn plan_departure(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        if let Some(after_s) = self.setup.classes[client.class].class.leaves_after_s {
            client.plan(Plan::Leave, now_us + us(after_s));
        }
    }

    /// Resets the client's connection, for good.
    fn leave(&mut self, index: usize, now_us: u64) {
        if self.clients[index].socket.is_some() {
            self.stall_that_lasts(index, now_us);
            let client = &mut self.clients[index];
            self.tallies[client.class].aborted += 1;
            if let Some(socket) = transport::take(client) {
                transport::reset(&socket);
            }
            client.state = State::Off;
            client.head = Vec::new();
            self.over(index);
        }
        self.retire(index, now_us);
    }

    /// Resets the connections of all clients of a class, one right after the other, for good.
    pub(super) fn leave_all(&mut self, class: usize, now_us: u64) {
        for index in 0..self.clients.len() {
            if self.clients[index].class != class || self.clients[index].gone {
                continue;
            }
            self.leave(index, now_us);
            self.schedule(index);
        }
    }

    /// Fails the requests of clients that have waited too long.
    pub(super) fn give_up_waiting(&mut self, now_us: u64) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            let timeout_us = self.setup.classes[client.class].timeout_us;
            let waited_us = now_us.saturating_sub(client.starved_us);
            if waited_us >= timeout_us && !matches!(client.state, State::Off | State::Free) {
                let text = format!("no byte for {} ms", waited_us / 1000);
                let fault = match client.state {
                    State::Connecting => Fault::Connect,
                    _ => Fault::Timeout,
                };
                self.fault(index, fault, text, now_us);
                self.schedule(index);
            }
        }
    }

    /// Counts a wait that ends without a byte, or with the run. For a player, the arrival of the segment
    /// decides.
    pub(super) fn stall_that_lasts(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        if client.playback.is_some() {
            return;
        }
        let since_us = client.starved_us.max(self.measured_from_us);
        let waited_us = now_us.saturating_sub(since_us);
        if client.starved_us != NEVER_US && waited_us > STALL_US {
            let tally = &mut self.tallies[client.class];
            tally.stalls += 1;
            tally.stalled_us += waited_us;
        }
    }

    /// Counts a wait, or a stalled film, that ends with the run.
    pub(super) fn stall_at_the_end(&mut self, index: usize, now_us: u64) {
        self.stall_that_lasts(index, now_us);
        let client = &self.clients[index];
        let film = client.playback.filter(|_| client.asked);
        if let Some(since_us) = film.and_then(|film| film.stands_still_us(now_us)) {
            let tally = &mut self.tallies[client.class];
            tally.stalls += 1;
            tally.stalled_us += now_us.saturating_sub(since_us.max(self.measured_from_us));
        }
    }
}
