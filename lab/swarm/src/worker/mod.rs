//! A thread of the swarm: its clients, an epoll set and a timer wheel.
//!
//! `client.rs` is the state of a client, `life.rs` its timed actions,
//! `pace.rs` its rate of reading, and `playback.rs` a player's film. `exchange.rs` talks to the server, and
//! `request.rs` writes requests. `arrivals.rs` is the open loop, and `transport.rs` the sockets. A turn of the
//! loop handles orders, arrivals, timers, the report of a second, and events.

mod arrivals;
mod client;
mod exchange;
mod life;
mod pace;
mod playback;
mod request;
mod transport;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use self::arrivals::OpenLoop;
use self::client::{Client, Interest, State};
use self::playback::Playback;
use super::draw::Dice;
use super::histogram::Histogram;
use super::setup::{NEVER_US, Setup};
use super::tally::{Fairness, Fault, Share, Tally};
use super::wheel::Wheel;
use super::workload::Kind;
use ackpace_lab_base::error::{Doing, Result};

/// Most events taken by one wait.
const EVENTS: usize = 512;
/// Most bytes taken by one receive: small enough to be in the second-level cache when they are checked.
const RECEIVE_BYTES: usize = 256 << 10;
/// Error texts that a thread reports for a class; further errors are only counted.
const TEXTS_MAX: u32 = 8;
/// Event data of the wake-up descriptor.
const WAKE: u64 = u64::MAX;
/// A reset may be this late, and the window that began with it still counts.
const WINDOW_SLACK_US: u64 = 50_000;

/// An order to a thread.
#[derive(Clone, Debug)]
pub enum Order {
    /// All clients of a class reset their connections and never return.
    Leave {
        /// Number of the class.
        class: usize,
        /// Dropped when they have done so.
        _left: Sender<()>,
    },
    /// The figures start again from zero.
    Reset,
    /// Report and end.
    Stop,
}

/// A report of a thread. Times are in run time.
#[derive(Debug)]
pub enum Report {
    /// The end of a second.
    Second {
        /// Number of the thread.
        thread: usize,
        /// Number of the second, starting with 1.
        second: u64,
        /// Counts of each class since the last report.
        tallies: Vec<Tally>,
        /// State of each class at this moment.
        moments: Vec<Moment>,
    },
    /// The figures start again; these belong to the time before.
    Reset {
        /// Number of the thread.
        thread: usize,
        /// Counts of each class since the last report.
        tallies: Vec<Tally>,
    },
    /// A failed request.
    Fault {
        /// Number of the class.
        class: usize,
        /// Kind of the failure.
        fault: Fault,
        /// Details, such as request and offset.
        text: String,
    },
    /// The end of the thread.
    End {
        /// Number of the thread.
        thread: usize,
        /// Counts of each class since the last report.
        tallies: Vec<Tally>,
        /// Shares of each class and client since the last reset.
        shares: Vec<Vec<Share>>,
        /// CPU time since the last reset.
        cpu_us: u64,
        /// Lateness of timers since the last reset.
        lateness: Histogram,
        /// Why it ended, if it was not ordered to.
        failure: Option<String>,
    },
}

/// The clients of a class at a moment, and the fairness among them over the last two seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Clients with a connection.
    pub connected: u64,
    /// Clients that want data.
    pub active: u64,
    /// Sums over the clients that wanted data throughout the last two seconds.
    pub fairness: Fairness,
}

/// The handle that controls a thread.
#[derive(Debug)]
pub struct Remote {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
}

impl Remote {
    /// Sends an order; it is lost if the thread has ended.
    pub fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            // This fails only if 2^64 orders are waiting.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// The state of a thread.
pub struct Worker {
    setup: Arc<Setup>,
    thread: usize,
    set: OwnedFd,
    wake: Arc<OwnedFd>,
    orders: Receiver<Order>,
    reports: Sender<Report>,
    wheel: Wheel,
    clients: Vec<Client>,
    tallies: Vec<Tally>,
    open_loops: Vec<Option<OpenLoop>>,
    texts: Vec<u32>,
    buffer: Vec<u8>,
    request: Vec<u8>,
    lateness: Histogram,
    measured_from_us: u64,
    cpu_before_us: u64,
    second: u64,
    stop: bool,
}

impl Worker {
    /// Creates the state of a thread with these classes, and the handle that controls it.
    pub fn new(
        setup: Arc<Setup>,
        (thread, classes): (usize, &[usize]),
        reports: Sender<Report>,
    ) -> Result<(Self, Remote)> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).doing(|| "epoll_create".into())?;
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wake = Arc::new(eventfd(0, flags).doing(|| "eventfd".into())?);
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&set, &*wake, data, epoll::EventFlags::IN).doing(|| "epoll_ctl".into())?;
        let (sender, orders) = std::sync::mpsc::channel();
        let remote = Remote {
            orders: sender,
            wake: wake.clone(),
        };
        let now_us = setup.now_us();
        let count = setup.classes.len();
        let mut worker = Self {
            thread,
            set,
            wake,
            orders,
            reports,
            wheel: Wheel::new(now_us),
            clients: Vec::new(),
            tallies: vec![Tally::default(); count],
            open_loops: (0..count)
                .map(|class| {
                    let here = classes.contains(&class);
                    here.then(|| OpenLoop::of(&setup, class)).flatten()
                })
                .collect(),
            texts: vec![0; count],
            buffer: vec![0; RECEIVE_BYTES],
            request: Vec::new(),
            lateness: Histogram::default(),
            measured_from_us: 0,
            cpu_before_us: 0,
            second: 1,
            stop: false,
            setup,
        };
        worker.enlist(classes);
        Ok((worker, remote))
    }

    /// Runs until ordered to stop. Reports the reason if it cannot continue.
    pub fn run(mut self) {
        let failure = self.turns().err().map(|error| error.to_string());
        let now_us = self.setup.now_us();
        let shares = self.shares(now_us);
        let end = Report::End {
            thread: self.thread,
            tallies: std::mem::take(&mut self.tallies),
            shares,
            cpu_us: cpu_us() - self.cpu_before_us,
            lateness: self.lateness,
            failure,
        };
        let _ = self.reports.send(end); // fails if the reporter is gone
    }

    fn enlist(&mut self, classes: &[usize]) {
        let setup = self.setup.clone();
        for &class in classes {
            let prepared = &setup.classes[class];
            let rate_bytes_per_s = prepared.rate_bytes_per_s();
            for (number, begin_us) in (0..).zip(&prepared.begins_us) {
                let dice = Dice::of(setup.seed, class, number);
                let mut client = Client::new(class, number, dice, *begin_us);
                client.set_pace(prepared.reading(), prepared.receive_buffer_bytes(), 0);
                if let Kind::Player { film_s, .. } = prepared.class.kind {
                    client.playback = Some(Playback::new(rate_bytes_per_s, film_s));
                }
                self.clients.push(client);
                self.schedule(self.clients.len() - 1);
            }
        }
    }

    fn turns(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.stop {
            let now_us = self.setup.now_us();
            self.fire(now_us);
            self.arrive(now_us);
            if now_us >= self.second * 1_000_000 {
                self.end_of_second(now_us);
            }
            let wait = self.wait_us(self.setup.now_us());
            let timeout = Timespec {
                tv_sec: (wait / 1_000_000) as i64,
                tv_nsec: (wait % 1_000_000 * 1000) as i64,
            };
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.set, room, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing(|| "epoll_wait".into()),
            }
            for event in &events {
                self.event(event.data.u64());
            }
        }
        Ok(())
    }

    fn event(&mut self, data: u64) {
        if data == WAKE {
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order);
            }
            return;
        }
        let (index, generation) = (data as u32 as usize, (data >> 32) as u32);
        if self.clients[index].generation != generation {
            return; // the connection was closed earlier in this turn
        }
        let now_us = self.setup.now_us();
        match self.clients[index].state {
            State::Off => {}
            State::Connecting => self.connected(index, now_us),
            State::Free | State::Head | State::Body => self.readable(index, now_us),
        }
        self.schedule(index);
    }

    fn wait_us(&self, now_us: u64) -> u64 {
        let arrivals = self.open_loops.iter().flatten().map(OpenLoop::next_us);
        let next_us = arrivals
            .chain(self.wheel.next_us())
            .min()
            .unwrap_or(NEVER_US)
            .min(self.second * 1_000_000);
        next_us.saturating_sub(now_us)
    }

    fn obey(&mut self, order: Order) {
        let now_us = self.setup.now_us();
        match order {
            Order::Leave { class, .. } => self.leave_all(class, now_us),
            Order::Reset => self.reset(now_us),
            Order::Stop => self.stop = true,
        }
    }

    fn reset(&mut self, now_us: u64) {
        let fresh = vec![Tally::default(); self.tallies.len()];
        let report = Report::Reset {
            thread: self.thread,
            tallies: std::mem::replace(&mut self.tallies, fresh),
        };
        let _ = self.reports.send(report);
        for client in &mut self.clients {
            client.settle(now_us);
            client.share = Share::default();
        }
        self.measured_from_us = now_us;
        self.cpu_before_us = cpu_us();
        self.lateness = Histogram::default();
    }

    fn end_of_second(&mut self, now_us: u64) {
        self.give_up_waiting(now_us);
        let mut moments = vec![Moment::default(); self.tallies.len()];
        let window_us = 2_000_000;
        let begin_us = (self.second * 1_000_000).saturating_sub(window_us);
        let measured = self.second >= 2 && begin_us + WINDOW_SLACK_US >= self.measured_from_us;
        for client in &mut self.clients {
            let moment = &mut moments[client.class];
            moment.connected += u64::from(!matches!(client.state, State::Off | State::Connecting));
            moment.active += u64::from(client.active_since_us != NEVER_US);
            if measured && client.active_since_us <= begin_us + WINDOW_SLACK_US {
                let bytes = client.seconds_bytes.iter().sum();
                moment.fairness.add(bytes);
            }
            client.seconds_bytes = [0, client.seconds_bytes[0]];
        }
        let fresh = vec![Tally::default(); self.tallies.len()];
        let report = Report::Second {
            thread: self.thread,
            second: self.second,
            tallies: std::mem::replace(&mut self.tallies, fresh),
            moments,
        };
        let _ = self.reports.send(report);
        self.second = now_us / 1_000_000 + 1;
    }

    fn shares(&mut self, now_us: u64) -> Vec<Vec<Share>> {
        let mut shares = vec![Vec::new(); self.setup.classes.len()];
        for index in 0..self.clients.len() {
            self.stall_at_the_end(index, now_us);
            let client = &mut self.clients[index];
            client.settle(now_us);
            shares[client.class].push(client.share);
        }
        shares
    }

    /// Reports a failed request in words, the first few times.
    fn tell(&mut self, class: usize, fault: Fault, text: impl FnOnce() -> String) {
        self.tallies[class].fault(fault);
        if self.texts[class] < TEXTS_MAX {
            self.texts[class] += 1;
            let report = Report::Fault {
                class,
                fault,
                text: text(),
            };
            let _ = self.reports.send(report);
        }
    }

    fn watch(&mut self, index: usize, interest: Interest) {
        let client = &mut self.clients[index];
        let watched = transport::watch(&self.set, index as u32, client, interest);
        // Only fs.epoll.max_user_watches bounds the memory of the set.
        watched.expect("epoll takes a socket that is open, once");
    }
}

fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
