//! A run: the front, connections, and what happens next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ackpace_core::place::{How, Load, Response};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::connection::Connection;
use super::counts::Counts;
use super::node::{Device, Node};
use super::routes::{Asked, Route, Step, Way};
use super::views::{News, Views};
use super::workload::Request;
use super::{Knowledge, Mechanism, Outcome, World};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(usize, Device),
    Waited(u32),
    Second,
}

/// A request that is being served. There are never more than the bound of the world.
#[derive(Debug, Default)]
struct Job {
    request: usize,
    route: Route,
}

pub struct Run<'a> {
    world: &'a World<'a>,
    nodes: Vec<Node>,
    views: Views,
    dice: Pcg64Mcg,
    jobs: Vec<Job>,
    free: Vec<u32>,
    /// By their numbers. Those that are closed have nothing left.
    connections: Vec<Connection>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nth_event: u64,
    now_ns: u64,
    next_request: usize,
    measured_from_ns: Option<u64>,
    counts: Counts,
}

impl<'a> Run<'a> {
    pub fn new(world: &'a World<'a>) -> Run<'a> {
        let outstanding = world.outstanding as u32;
        let lengths = &world.workload.lengths;
        let mut connections = vec![Connection::default(); world.workload.connections];
        for request in &world.workload.requests {
            connections[request.connection as usize].left += 1;
        }
        Run {
            world,
            nodes: (0..world.nodes)
                .map(|_| Node::new(lengths, world.cache_bytes))
                .collect(),
            views: Views::new(world),
            dice: Pcg64Mcg::seed_from_u64(world.seed),
            jobs: (0..outstanding).map(|_| Job::default()).collect(),
            free: (0..outstanding).collect(),
            connections,
            events: BinaryHeap::new(),
            nth_event: 0,
            now_ns: 0,
            next_request: 0,
            measured_from_ns: None,
            counts: Counts::default(),
        }
    }

    pub fn until_the_end(mut self) -> Outcome {
        for (node, file) in self.world.warm {
            self.keep(*node, *file);
        }
        self.after(SECOND_NS, Event::Second);
        let all = self.world.workload.requests.len();
        loop {
            while let Some(job) = self.free.pop() {
                if self.next_request == all {
                    return self.outcome();
                }
                if self.measured_from_ns.is_none() && self.next_request >= self.world.uncounted {
                    self.measured_from_ns = Some(self.now_ns);
                    self.counts = Counts::default();
                }
                self.jobs[job as usize].request = self.next_request;
                self.next_request += 1;
                self.arrive(job);
            }
            let Reverse((now_ns, _, event)) = self.events.pop().expect("requests are served");
            self.now_ns = now_ns;
            match event {
                Event::Done(node, device) => {
                    let (job, next_ns) = self.nodes[node].done(device);
                    if let Some(ns) = next_ns {
                        self.after(ns, Event::Done(node, device));
                    }
                    self.step(job);
                }
                Event::Waited(job) => self.step(job),
                Event::Second => {
                    let loads: Vec<Load> = self.nodes.iter().map(Node::load).collect();
                    self.views.second(&loads);
                    self.after(SECOND_NS, Event::Second);
                }
            }
        }
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.nth_event += 1;
        let at = (self.now_ns + ns, self.nth_event, event);
        self.events.push(Reverse(at));
    }

    fn choose(&mut self, at: Option<usize>, file: u32) -> usize {
        let (nodes, random) = (&self.nodes, self.dice.next_u64());
        if self.world.knowledge == Knowledge::EachTold && at.is_none() {
            return (random % nodes.len() as u64) as usize;
        }
        let place = self.views.of(at, |node| nodes[node].load(), nodes.len());
        place
            .choose(at, u64::from(file), random)
            .expect("all nodes are up")
    }

    /// A request comes.
    fn arrive(&mut self, job: u32) {
        let request = self.request(job);
        if request.is_first {
            let home = self.choose(None, request.file);
            self.connection(request).open(home);
        }
        let connection = self.connection(request);
        if connection.is_away {
            connection.waiting.push_back(job);
            self.counts.queued += 1;
        } else {
            self.begin(job);
        }
    }

    /// A request is read by the node that has its connection.
    fn begin(&mut self, job: u32) {
        let request = self.request(job);
        let len_bytes = u64::from(self.world.workload.lengths[request.file as usize]);
        let at = self.connection(request).at;
        let is_placed = request.is_first && self.world.knowledge != Knowledge::EachTold;
        let node = match self.world.mechanism {
            Mechanism::Single => at,
            _ if is_placed => at,
            _ => self.choose(Some(at), request.file),
        };
        let how = self.how(request, at, node, len_bytes);
        let asked = Asked {
            costs: &self.world.costs,
            len_bytes,
            opens: request.is_first,
            closes: request.is_last,
        };
        let mut way = Way::begin(&asked, at);
        let connection = &mut self.connections[request.connection as usize];
        let mechanism = self.world.mechanism;
        let lead = connection.lead(&mut way, mechanism, node, how, &mut self.counts);
        let acks = self.world.costs.acks(len_bytes);
        for forwards in &connection.chain[..lead.forwarders] {
            self.nodes[*forwards].acks_ns += acks * self.world.costs.ack_ns;
            self.counts.acks_forwarded += acks;
        }
        self.counts.peer_bytes += way.peer_bytes;
        self.jobs[job as usize].route = way.end(lead.frees);
        self.step(job);
    }

    /// How the server would decide, where the world asks for that.
    fn how(&mut self, request: Request, at: usize, node: usize, len_bytes: u64) -> How {
        match self.world.mechanism {
            Mechanism::Partial(partial) if partial.by_length => {}
            _ => return How::HandOver,
        }
        let asked = &mut self.nodes[at].asked;
        let response = Response {
            len_bytes,
            may_move: true,
            is_hot_here: asked.has(request.file)
                && len_bytes <= u64::from(self.world.costs.cached_bytes_max),
            moved_before: self.connections[request.connection as usize].moved_before,
        };
        asked.add(request.file, |_| {});
        let nodes = &self.nodes;
        let place = self
            .views
            .of(Some(at), |node| nodes[node].load(), nodes.len());
        place.how(at, node, response)
    }

    /// The next steps of a request, until a device works for it.
    fn step(&mut self, job: u32) {
        while let Some(step) = self.jobs[job as usize].route.pop() {
            match step {
                Step::Work { node, device, ns } => {
                    if let Some(ns) = self.nodes[node].put(device, (job, ns)) {
                        self.after(ns, Event::Done(node, device));
                    }
                    return;
                }
                Step::Wait { ns } => return self.after(ns, Event::Waited(job)),
                Step::Look { node } => {
                    if !self.look(job, node) {
                        return;
                    }
                }
                Step::Read { node } => self.read(job, node),
                Step::Keep { node } => self.keep(node, self.request(job).file),
                Step::Answered => self.counts.answered += 1,
                Step::Free => self.set_free(job),
            }
        }
        let request = self.request(job);
        let connection = self.connection(request);
        connection.left -= 1;
        if connection.left == 0 {
            *connection = Connection::default();
        }
        self.free.push(job);
    }

    /// Whether a file is in memory. If not, the request goes to the disk, or waits for another one that went there.
    fn look(&mut self, job: u32, node: usize) -> bool {
        let file = self.request(job).file;
        let of_node = &mut self.nodes[node];
        self.counts.looks += 1;
        if of_node.cache.has(file) {
            of_node.cache.touch(file);
            self.counts.hits += 1;
            return true;
        }
        if let Some(waiting) = of_node.reading.get_mut(&file) {
            waiting.push(job);
            return false;
        }
        of_node.reading.insert(file, Vec::new());
        let length = u64::from(self.world.workload.lengths[file as usize]);
        let work = Step::Work {
            node,
            device: Device::Disk,
            ns: self.world.costs.read_ns(length),
        };
        let route = &mut self.jobs[job as usize].route;
        route.extend([Step::Read { node }, work]);
        true
    }

    fn read(&mut self, job: u32, node: usize) {
        let file = self.request(job).file;
        self.keep(node, file);
        let waiting = self.nodes[node].reading.remove(&file);
        for job in waiting.unwrap_or_default() {
            self.step(job);
        }
    }

    /// A file comes into memory, if it may.
    fn keep(&mut self, node: usize, file: u32) {
        if self.world.workload.lengths[file as usize] > self.world.costs.cached_bytes_max {
            let came = false;
            return self.views.news(News { node, file, came });
        }
        let views = &mut self.views;
        let mut news = |file, came| views.news(News { node, file, came });
        news(file, true);
        self.nodes[node].cache.add(file, |file| news(file, false));
    }

    /// The connection of a request takes the next one that waits.
    fn set_free(&mut self, job: u32) {
        let connection = self.connection(self.request(job));
        connection.is_away = false;
        let waiting = std::mem::take(&mut connection.waiting);
        let mut waiting = waiting.into_iter();
        for next in waiting.by_ref() {
            self.begin(next);
            if self.connection(self.request(job)).is_away {
                break;
            }
        }
        // Those that came while these began stand behind them.
        let rest: Vec<u32> = waiting.collect();
        let connection = self.connection(self.request(job));
        rest.into_iter()
            .rev()
            .for_each(|job| connection.waiting.push_front(job));
    }

    fn request(&self, job: u32) -> Request {
        self.world.workload.requests[self.jobs[job as usize].request]
    }

    fn connection(&mut self, request: Request) -> &mut Connection {
        &mut self.connections[request.connection as usize]
    }

    fn outcome(self) -> Outcome {
        let from_ns = self.measured_from_ns.unwrap_or(0);
        let seconds = (self.now_ns - from_ns) as f64 / SECOND_NS as f64;
        Outcome {
            faults: self.views.faults(),
            ..self.counts.outcome(seconds)
        }
    }
}
