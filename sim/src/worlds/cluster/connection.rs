//! A connection: which node has it, and which way its requests go.

use std::collections::VecDeque;

use ackpace_core::place::How;

use super::counts::Counts;
use super::routes::Way;
use super::{Mechanism, Partial};

#[derive(Clone, Debug, Default)]
pub struct Connection {
    home: usize,
    /// The node that has it.
    pub at: usize,
    /// The nodes that it has come through, the last one being that which serves it.
    pub chain: Vec<usize>,
    /// It moved for its last response.
    pub moved_before: bool,
    /// It is on its way, or has to come back: the next request waits.
    pub is_away: bool,
    /// Jobs that wait; no more than are outstanding.
    pub waiting: VecDeque<u32>,
    /// Requests that are left on it.
    pub left: u32,
}

/// What a route does not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lead {
    /// The connection takes other requests only after its last step.
    pub frees: bool,
    /// So many nodes of the chain forward the ACKs of the response.
    pub forwarders: usize,
}

impl Connection {
    /// A front gives it to this node.
    pub fn open(&mut self, home: usize) {
        (self.home, self.at) = (home, home);
        self.chain = vec![home];
    }

    /// Leads a request from the node that has the connection to `node`, and its response to the client.
    pub fn lead(
        &mut self,
        way: &mut Way,
        mechanism: Mechanism,
        node: usize,
        how: How,
        counts: &mut Counts,
    ) -> Lead {
        let mut lead = Lead::default();
        let at = self.at;
        let mut stacks = 1;
        match mechanism {
            Mechanism::Single => way.serve(at),
            Mechanism::Multiple => {
                if node != at {
                    self.move_to(way, node, false, true, counts);
                    self.chain.push(node);
                }
                lead.forwarders = self.chain.len() - 1;
                way.serve(node);
            }
            Mechanism::Partial(partial) if node == at => {
                lead.forwarders = usize::from(partial.active_layer && at != self.home);
                way.serve(at);
            }
            _ if node == at => way.serve(at),
            Mechanism::Relay { keeps } => {
                way.relay(at, node, keeps);
                stacks = 3;
            }
            Mechanism::Partial(partial) => {
                match how {
                    How::Relay | How::Fetch if partial.by_length => {
                        way.relay(at, node, how == How::Fetch);
                        stacks = 3;
                    }
                    _ => lead = self.hand_over(way, partial, node, counts),
                }
                self.moved_before = stacks == 1;
            }
        }
        counts.led += 1;
        counts.body_bytes += way.len_bytes();
        counts.stack_bytes += stacks * way.len_bytes();
        counts.elsewhere += u64::from(node != at);
        counts.chain += self.chain.len() as u64;
        lead
    }

    /// DTCP: away, and back now or when another node is asked for.
    fn hand_over(
        &mut self,
        way: &mut Way,
        partial: Partial,
        node: usize,
        counts: &mut Counts,
    ) -> Lead {
        if self.at != self.home {
            self.move_to(way, self.home, partial.costs, true, counts);
        }
        if node != self.home {
            self.move_to(way, node, partial.costs, true, counts);
        }
        way.serve(node);
        if !partial.lazy {
            self.move_to(way, self.home, partial.costs, false, counts);
        }
        // The paper's simulator gives no cost for this, and lets nothing wait.
        self.is_away = partial.costs;
        Lead {
            frees: partial.costs,
            forwarders: usize::from(partial.active_layer),
        }
    }

    fn move_to(&mut self, way: &mut Way, to: usize, costs: bool, asks: bool, counts: &mut Counts) {
        way.hand_over(self.at, to, costs, asks);
        counts.moves += 1;
        self.at = to;
    }
}
