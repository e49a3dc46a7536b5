//! Connections that share the send memory, as `share` divides it: SSBT's experiments without a kernel.
//!
//! Each connection is a reno [`RenoSender`] on a link that it may share. Its share bounds what it has in flight and unsent
//! together. Since it always has more to send, what it may not have in flight by its window lies unsent, so the share
//! bounds the packets in flight. It may always have one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ackpace_core::addresses::Address;
use ackpace_core::units::{Instant, US_PER_S};
use ackpace_share::drain::{self, Drains};
use ackpace_share::estimate::{Estimate, PathSample};
use ackpace_share::law::{Acks, Conditions};
use ackpace_share::{Claim, Control, Demand, Policy, ShareUse, divide};

use crate::models::link::{Link, LinkProfile, Verdict};
use crate::models::tcp::reno::RenoSender;

/// Payload of a packet.
pub const MSS_BYTES: u64 = 1_448;
/// The packet with its headers.
const PACKET_BYTES: u32 = 1_500;
/// Receive window of each client.
const PEER_WINDOW_BYTES: u64 = 6 << 20;

/// One connection.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Index of the link that its packets take.
    pub link: usize,
    /// The network of its client, by a number.
    pub network: u8,
    /// Delay of its ACKs on the way back.
    pub back_us: u64,
    /// When it begins.
    pub starts_at_us: u64,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct World {
    /// The links.
    pub links: Vec<LinkProfile>,
    /// The connections.
    pub flows: Vec<Flow>,
    /// How the pool is divided, each second and when a connection begins.
    pub policy: Policy,
    /// Size of the pool.
    pub pool_bytes: u64,
    /// When measuring begins.
    pub measured_from_us: u64,
    /// When it ends.
    pub ends_at_us: u64,
    /// Seed of the losses on the links.
    pub seed: u64,
}

/// Results of one connection, from `measured_from_us` on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Its goodput.
    pub bytes_per_s: u64,
    /// Mean of its shares, sampled once a second.
    pub share_bytes: u64,
    /// Their standard deviation over their mean: SSBT's stability of B_i.
    pub share_cv: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Measure,
    Start(usize),
    Ack(usize, u64),
    Timer(usize),
    Divide,
    Drained,
}

struct FlowState {
    flow: Flow,
    sender: RenoSender,
    estimate: Estimate,
    share_bytes: u64,
    /// Since when only its share keeps it from sending.
    held_from_us: Option<u64>,
    held_us: u64,
    share_use: ShareUse,
    sampled_at_us: u64,
    sampled_acked: u64,
    /// The fastest second counts by [`Estimate`], this is the last one.
    rate_bytes_per_s: u64,
    timer: bool,
    measured_acked: u64,
    shares: Vec<u64>,
}

struct Run {
    now_us: u64,
    links: Vec<Link>,
    connections: Vec<FlowState>,
    /// Connections that have begun, in the order of the last division.
    begun: Vec<usize>,
    policy: Policy,
    drains: Drains,
    pool_bytes: u64,
    measuring: bool,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
}

impl World {
    /// Runs the world until `ends_at_us`. The outcomes are in the order of `flows`.
    pub fn run(&self) -> Vec<Outcome> {
        let mut run = Run::new(self);
        while let Some(Reverse((at_us, _, event))) = run.events.pop() {
            if at_us >= self.ends_at_us {
                break;
            }
            run.now_us = at_us;
            run.happen(event);
        }
        let us = self.ends_at_us - self.measured_from_us;
        let outcomes = run.connections.iter().map(|one| one.outcome(us));
        outcomes.collect()
    }
}

impl Run {
    fn new(world: &World) -> Run {
        let seeds = world.seed..;
        let links = world.links.iter().zip(seeds);
        let mut run = Run {
            now_us: 0,
            links: links
                .map(|(link, seed)| Link::new(link.clone(), seed))
                .collect(),
            connections: world
                .flows
                .iter()
                .map(|&flow| FlowState::new(flow))
                .collect(),
            begun: Vec::new(),
            policy: world.policy,
            drains: Drains::default(),
            pool_bytes: world.pool_bytes,
            measuring: false,
            events: BinaryHeap::new(),
            scheduled: 0,
        };
        for (nth, flow) in world.flows.iter().enumerate() {
            run.schedule(flow.starts_at_us, Event::Start(nth));
        }
        run.schedule(world.measured_from_us, Event::Measure);
        run.schedule(US_PER_S, Event::Divide);
        run
    }

    fn now(&self) -> Instant {
        Instant { us: self.now_us }
    }

    fn schedule(&mut self, at_us: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at_us, self.scheduled, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Measure => {
                self.measuring = true;
                let all = self.connections.iter_mut();
                all.for_each(|one| one.measured_acked = one.sender.acked());
            }
            Event::Start(nth) => {
                self.begun.push(nth);
                self.connections[nth].sampled_at_us = self.now_us;
                self.divide();
            }
            Event::Ack(nth, number) => {
                self.connections[nth].sender.ack(number, self.now_us);
                self.push(nth);
            }
            Event::Timer(nth) => {
                let one = &mut self.connections[nth];
                one.timer = false;
                if one
                    .sender
                    .timeout_at_us()
                    .is_some_and(|at_us| at_us <= self.now_us)
                {
                    one.sender.time_out();
                }
                self.push(nth);
            }
            Event::Drained => {
                if self.drains.take_over(self.now()) {
                    self.divide();
                }
            }
            Event::Divide => {
                if self.measuring {
                    let all = self.connections.iter_mut();
                    all.for_each(|one| one.shares.push(one.share_bytes));
                }
                for &nth in &self.begun {
                    self.connections[nth].sample(self.now_us);
                }
                let learns = self.claims().iter().any(|claim| claim.learns);
                self.drains.round(learns, self.now());
                self.divide();
                if let Some(at) = self.drains.ends_at() {
                    self.schedule(at.us, Event::Drained);
                }
                self.schedule(self.now_us + US_PER_S, Event::Divide);
            }
        }
    }

    fn claims(&self) -> Vec<Claim> {
        let demands = self.begun.iter().map(|&nth| self.connections[nth].demand());
        demands
            .map(|demand| Claim::of(&demand, self.policy))
            .collect()
    }

    fn divide(&mut self) {
        let claims = self.claims();
        let mut shares = divide(&claims, self.policy, self.pool_bytes);
        if self.drains.is_on(self.now()) {
            drain::lessen(&claims, &mut shares);
        }
        assert!(
            shares.iter().sum::<u64>() <= self.pool_bytes,
            "more than the pool"
        );
        for (at, share_bytes) in shares.into_iter().enumerate() {
            let nth = self.begun[at];
            self.connections[nth].share_bytes = share_bytes;
            self.push(nth);
        }
    }

    /// Sends what its window and its share allow.
    fn push(&mut self, nth: usize) {
        let now_us = self.now_us;
        while self.connections[nth].may_send() {
            let one = &mut self.connections[nth];
            let number = one.sender.send(now_us);
            let back_us = one.flow.back_us;
            let link = &mut self.links[one.flow.link];
            if let Verdict::Deliver { at_ns, .. } = link.offer(now_us * 1_000, PACKET_BYTES, false)
            {
                self.schedule(at_ns / 1_000 + back_us, Event::Ack(nth, number));
            }
        }
        let one = &mut self.connections[nth];
        one.hold(now_us);
        if let Some(at_us) = one.sender.timeout_at_us().filter(|_| !one.timer) {
            one.timer = true;
            self.schedule(at_us.max(now_us), Event::Timer(nth));
        }
    }
}

impl FlowState {
    fn new(flow: Flow) -> FlowState {
        FlowState {
            flow,
            sender: RenoSender::default(),
            estimate: Estimate::default(),
            share_bytes: 0,
            held_from_us: None,
            held_us: 0,
            share_use: ShareUse::default(),
            sampled_at_us: 0,
            sampled_acked: 0,
            rate_bytes_per_s: 0,
            timer: false,
            measured_acked: 0,
            shares: Vec::new(),
        }
    }

    fn fits_share(&self) -> bool {
        let in_flight = self.sender.in_flight();
        in_flight == 0 || (in_flight + 1) * MSS_BYTES <= self.share_bytes
    }

    fn may_send(&self) -> bool {
        self.sender.in_flight() < self.sender.window() && self.fits_share()
    }

    /// Counts the time in which only its share keeps it from sending.
    fn hold(&mut self, now_us: u64) {
        if let Some(from_us) = self.held_from_us.take() {
            self.held_us += now_us - from_us;
        }
        let is_held = self.sender.in_flight() < self.sender.window() && !self.fits_share();
        self.held_from_us = is_held.then_some(now_us);
    }

    fn sample(&mut self, now_us: u64) {
        self.hold(now_us);
        let us = (now_us - self.sampled_at_us).max(1);
        self.share_use = ShareUse {
            share_bytes: self.share_bytes,
            limited_percent: std::mem::take(&mut self.held_us) * 100 / us,
        };
        let bytes = (self.sender.acked() - self.sampled_acked) * MSS_BYTES;
        self.rate_bytes_per_s = bytes * US_PER_S / us;
        (self.sampled_at_us, self.sampled_acked) = (now_us, self.sender.acked());
        let sample = PathSample {
            sent_segments: self.sender.sent() as u32,
            loss_events: self.sender.loss_events(),
            delivered_bytes_per_s: self.rate_bytes_per_s,
            rtt_us: self.sender.rtt_us(),
        };
        self.estimate.sampled(sample, Instant { us: now_us });
    }

    /// Its demand in the next division.
    fn demand(&self) -> Demand {
        Demand {
            network: Address(u64::from(self.flow.network) << 8).network(),
            path: Conditions {
                mss_bytes: MSS_BYTES,
                rtt_us: self.sender.rtt_us(),
                loss: self.estimate.loss(),
                acks: Acks::Each,
            },
            rto_us: self.sender.rto_us(),
            rtt_min_us: self.sender.rtt_min_us(),
            cwnd_bytes: self.sender.window() * MSS_BYTES,
            peer_window_bytes: PEER_WINDOW_BYTES,
            delivered_max_bytes_per_s: self.estimate.delivered_max_bytes_per_s(),
            rate_bytes_per_s: self.rate_bytes_per_s,
            control: Control::Reno,
            is_own_pace: false,
            is_known: self.estimate.is_known(),
            share_use: self.share_use,
        }
    }

    fn outcome(&self, us: u64) -> Outcome {
        let count = self.shares.len().max(1) as f64;
        let mean = self.shares.iter().sum::<u64>() as f64 / count;
        let square = |&share: &u64| (share as f64 - mean) * (share as f64 - mean);
        let variance = self.shares.iter().map(square).sum::<f64>() / count;
        let bytes = (self.sender.acked() - self.measured_acked) * MSS_BYTES;
        Outcome {
            bytes_per_s: bytes * US_PER_S / us,
            share_bytes: mean as u64,
            share_cv: variance.sqrt() / mean.max(1.0),
        }
    }
}
