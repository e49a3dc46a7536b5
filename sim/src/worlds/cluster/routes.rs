//! What a request does, one step after the other, by each mechanism.

use smallvec::SmallVec;

use super::costs::Costs;
use super::node::Device;

/// A step of a request.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A device works for it.
    Work {
        node: usize,
        device: Device,
        ns: u64,
    },
    /// Nothing works for it.
    Wait { ns: u64 },
    /// It finds its file in memory, or has it read.
    Look { node: usize },
    /// The disk has read its file.
    Read { node: usize },
    /// The node keeps the file that it passed on.
    Keep { node: usize },
    /// The client has its response.
    Answered,
    /// Its connection takes the next request.
    Free,
}

/// The steps of a request, the last one first.
pub type Route = SmallVec<[Step; 24]>;

/// A request and what it costs.
pub struct Asked<'a> {
    pub costs: &'a Costs,
    pub len_bytes: u64,
    pub opens: bool,
    pub closes: bool,
}

/// Builds a route from its first step on.
pub struct Way<'a> {
    asked: &'a Asked<'a>,
    steps: Route,
    /// What it sends from node to node.
    pub peer_bytes: u64,
}

impl<'a> Way<'a> {
    /// The request is read by the node that has the connection.
    pub fn begin(asked: &'a Asked<'a>, at: usize) -> Way<'a> {
        let mut way = Way {
            asked,
            steps: Route::new(),
            peer_bytes: 0,
        };
        way.adaptor(at, Device::InFromClients, asked.costs.request_bytes);
        way.cpu(at, u64::from(asked.opens) * asked.costs.connection_ns);
        way
    }

    pub fn end(mut self, frees: bool) -> Route {
        if frees {
            self.steps.push(Step::Free);
        }
        self.steps.reverse();
        self.steps
    }

    /// Of the response.
    pub fn len_bytes(&self) -> u64 {
        self.asked.len_bytes
    }

    fn cpu(&mut self, node: usize, ns: u64) {
        let device = Device::Cpu;
        if ns > 0 {
            self.steps.push(Step::Work { node, device, ns });
        }
    }

    fn adaptor(&mut self, node: usize, device: Device, bytes: u64) {
        let ns = bytes * self.asked.costs.adaptor_ns_per_byte;
        self.steps.push(Step::Work { node, device, ns });
    }

    /// From node to node.
    fn across(&mut self, from: usize, to: usize, bytes: u64) {
        self.peer_bytes += bytes;
        self.adaptor(from, Device::OutToNodes, bytes);
        self.adaptor(to, Device::InFromNodes, bytes);
    }

    /// A node answers its client.
    pub fn serve(&mut self, node: usize) {
        let closing_ns = u64::from(self.asked.closes) * self.asked.costs.connection_ns;
        let sending_ns = self.asked.costs.send_ns(self.asked.len_bytes);
        self.steps.push(Step::Look { node });
        self.cpu(node, sending_ns + closing_ns);
        self.adaptor(node, Device::OutToClients, self.asked.len_bytes);
        self.steps.push(Step::Answered);
    }

    /// A node answers another one, which answers its client and is charged twice.
    pub fn relay(&mut self, home: usize, node: usize, keeps: bool) {
        let closing_ns = u64::from(self.asked.closes) * self.asked.costs.connection_ns;
        let sending_ns = self.asked.costs.send_ns(self.asked.len_bytes);
        self.across(home, node, self.asked.costs.request_bytes);
        self.steps.push(Step::Look { node });
        self.cpu(node, sending_ns);
        self.across(node, home, self.asked.len_bytes);
        self.cpu(home, 2 * sending_ns + closing_ns);
        if keeps {
            self.steps.push(Step::Keep { node: home });
        }
        self.adaptor(home, Device::OutToClients, self.asked.len_bytes);
        self.steps.push(Step::Answered);
    }

    /// The connection moves, with a request or without one.
    pub fn hand_over(&mut self, from: usize, to: usize, costs: bool, with_request: bool) {
        let request_bytes = u64::from(with_request) * self.asked.costs.request_bytes;
        let end_ns = u64::from(costs) * self.asked.costs.move_end_ns;
        self.cpu(from, end_ns);
        if costs {
            let ns = self.asked.costs.move_latency_ns;
            self.steps.push(Step::Wait { ns });
        }
        self.across(from, to, self.asked.costs.state_bytes + request_bytes);
        self.cpu(to, end_ns);
    }
}
