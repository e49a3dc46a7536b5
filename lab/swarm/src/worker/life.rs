//! Timed actions of clients (start, pause, leave, seek, give up), and what follows a request.

use super::client::{Plan, State};
use super::{Worker, transport};
use crate::objects::chosen;
use crate::setup::{NEVER_US, Reading, us};
use crate::tally::Fault;
use crate::wheel::Timer;
use crate::workload::{Afterwards, Leave, PartChoice};

/// Shares of a class start at different clients, so that the clients that pause are not exactly those that leave.
const PAUSE_PHASE: f64 = 0.5;
const CHANGE_PHASE: f64 = 0.25;
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

    /// Decides, before a client starts, which actions of its class it will take.
    pub(super) fn choose_actions(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let prepared = &self.setup.classes[client.class];
        let abort = prepared.class.abort.as_ref();
        client.aborts = abort.is_some_and(|abort| chosen(client.number, abort.share, 0.0));
        if let Some(pause) = &prepared.class.pause {
            if chosen(client.number, pause.share, PAUSE_PHASE) {
                let begin_us = prepared.begins_us[client.number as usize];
                client.plan(Plan::Pause, begin_us + us(pause.at_s));
            }
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
            Plan::Abort if answering => drop(self.abort(index, now_us)),
            Plan::Seek if answering => self.seek(index, now_us),
            Plan::Begin => self.begin(index, now_us),
            Plan::Pause => self.pause_or_resume(index, now_us),
            Plan::Read | Plan::Abort | Plan::Seek => {}
        }
    }

    fn begin(&mut self, index: usize, now_us: u64) {
        let client = &self.clients[index];
        if self.open_loops[client.class].is_none() {
            self.ask(index, None, now_us, now_us);
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
            self.ask(index, None, now_us, now_us);
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

    /// Ends a client that has no more requests.
    pub(super) fn retire(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        client.set_active(false, now_us);
        let afterwards = self.setup.classes[client.class].class.afterwards;
        let idles = afterwards == Afterwards::Idle && client.state == State::Free;
        if !idles && !client.gone {
            drop(transport::take(client));
            client.state = State::Off;
            client.gone = true;
            client.plans_us = [NEVER_US; Plan::ALL.len()];
            self.alive -= 1;
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

    /// Plans a client's timed departure or seek.
    pub(super) fn plan_departure(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let class = &self.setup.classes[client.class].class;
        let abort = class.abort.as_ref().filter(|_| client.aborts);
        if let Some(after_s) = abort.and_then(|abort| abort.after_s) {
            client.plan(Plan::Abort, now_us + us(after_s));
        }
        let part = class.part.unwrap_or_default();
        if let (PartChoice::Seeks, Some(every_s)) = (part.choice, part.every_s) {
            client.plan(Plan::Seek, now_us + us(every_s));
        }
    }

    /// Lets the client leave within an answer; returns true if it still receives that answer.
    pub(super) fn abort(&mut self, index: usize, now_us: u64) -> bool {
        let client = &mut self.clients[index];
        let Some(abort) = self.setup.classes[client.class].class.abort else {
            return true;
        };
        self.tallies[client.class].aborted += 1;
        if abort.how == Leave::HalfClose {
            client.half_closed = true;
            if let Some(socket) = &client.socket {
                transport::half_close(socket);
            }
            return true;
        }
        self.depart(index, abort.how, now_us);
        if abort.come_back {
            self.next(index, now_us);
        } else {
            self.retire(index, now_us);
        }
        false
    }

    /// Resets the connections of all clients of a class, one right after the other, for good.
    pub(super) fn leave_all(&mut self, class: usize, now_us: u64) {
        for index in 0..self.clients.len() {
            if self.clients[index].class != class || self.clients[index].gone {
                continue;
            }
            if self.clients[index].socket.is_some() {
                self.tallies[class].aborted += 1;
                self.depart(index, Leave::Rst, now_us);
            }
            self.retire(index, now_us);
            self.schedule(index);
        }
    }

    fn seek(&mut self, index: usize, now_us: u64) {
        let object = self.clients[index].object;
        self.tallies[self.clients[index].class].seeks += 1;
        let served = self.clients[index].served;
        self.depart(index, Leave::Rst, now_us);
        self.clients[index].served = served; // the same request, at another place
        self.ask(index, Some(object), now_us, now_us);
    }

    fn depart(&mut self, index: usize, how: Leave, now_us: u64) {
        self.stall_that_lasts(index, now_us);
        let client = &mut self.clients[index];
        if let Some(socket) = transport::take(client) {
            transport::leave(socket, how);
        }
        client.state = State::Off;
        client.head = Vec::new();
        self.over(index);
    }

    fn pause_or_resume(&mut self, index: usize, now_us: u64) {
        if self.clients[index].paused {
            return self.resume(index, now_us);
        }
        let pause = &self.setup.classes[self.clients[index].class].class.pause;
        if let Some(pause) = pause {
            self.pause(index, us(pause.for_s), now_us);
        }
    }

    /// Pauses all clients of a class that are not paused already.
    pub(super) fn pause_all(&mut self, class: usize, for_us: u64, now_us: u64) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if client.class == class && !client.paused && !client.gone {
                self.pause(index, for_us, now_us);
                self.schedule(index);
            }
        }
    }

    fn pause(&mut self, index: usize, for_us: u64, now_us: u64) {
        self.stall_that_lasts(index, now_us);
        let client = &mut self.clients[index];
        self.tallies[client.class].pauses += 1;
        client.paused = true;
        client.starved_us = NEVER_US;
        client.set_active(false, now_us);
        client.plan(Plan::Pause, now_us + for_us);
        if matches!(client.state, State::Head | State::Body) {
            self.await_bytes(index, now_us);
        }
    }

    fn resume(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        client.paused = false;
        client.set_active(client.asked, now_us);
        let pause = self.setup.classes[client.class].class.pause;
        let again = pause.and_then(|pause| Some(us(pause.every_s? - pause.for_s)));
        if let Some(after_us) = again {
            client.plan(Plan::Pause, now_us + after_us);
        }
        if matches!(client.state, State::Head | State::Body) {
            self.await_bytes(index, now_us);
            self.readable(index, now_us); // reads the buffer, or starts to wait
        }
    }

    /// Changes the pace of a share of a class.
    pub(super) fn change_rate(&mut self, class: usize, bytes_per_s: u64, share: f64, now_us: u64) {
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let is_one = client.class == class && chosen(client.number, share, CHANGE_PHASE);
            if !is_one {
                continue;
            }
            let buffer = self.setup.classes[class].receive_buffer_bytes(bytes_per_s);
            client.set_pace(Reading::Steady(bytes_per_s), buffer, now_us);
            if matches!(client.state, State::Head | State::Body) {
                self.await_bytes(index, now_us);
                self.schedule(index);
            }
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
        let prepared = &self.setup.classes[client.class];
        let since_us = client.starved_us.max(self.measured_from_us);
        let waited_us = now_us.saturating_sub(since_us);
        if client.starved_us != NEVER_US && waited_us > prepared.stall_us {
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
