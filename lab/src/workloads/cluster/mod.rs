//! Experiments with several nodes: what a connection that moves costs the node that it leaves, and its client.
//!
//! | file | what |
//! |---|---|
//! | [`segment`] | the network: nodes and clients on one bridge |
//! | [`nodes`] | the servers and their brokers, or a peer before single servers |
//! | [`clients`] | who asks |
//! | [`relay`] | objects that another node has: the home's CPU time |
//! | [`drain`] | a node is emptied while it serves; a download that moves again and again |
//! | [`trace`] | four nodes with little memory, and a disk each |
//! | [`window`] | a response after a move, and small ones with loss |

mod clients;
mod drain;
mod nodes;
mod relay;
mod segment;
mod trace;
mod window;

pub use drain::{Drain, Moved};
pub use relay::Relay;
pub use trace::Trace;
pub use window::Window;

use super::{RoundResult, RoundTimes};
use crate::metrics::Values;
use crate::peers::{Contender, Kind};
use crate::testbed::{Lab, Testbed};
use ackpace_lab_base::error::{Doing, Result};
use ackpace_lab_base::stats::percentile;
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};
use clients::{Client, Seen};
use nodes::{Nodes, Start};
use segment::{Receivers, Segment};
use std::path::PathBuf;
use std::time::Duration;

/// What happens to the nodes.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cluster {
    /// Responses by the second node.
    Relay(Relay),
    /// The first node is emptied.
    Drain(Drain),
    /// A download moves again and again.
    Moved(Moved),
    /// Responses behind a path.
    Window(Window),
    /// Four nodes with little memory.
    Trace(Trace),
}

/// A path between clients and the segment.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Path {
    /// Round trip in ms.
    pub rtt_ms: f64,
    /// Probability that a packet is lost, in each direction.
    pub loss: f64,
    /// Rate to the clients.
    pub mbit_per_s: Option<f64>,
}

impl Path {
    fn topology(&self) -> Topology {
        let link = LinkSpec {
            loss: self.loss,
            ..LinkSpec::delay(self.rtt_ms / 2.0)
        };
        let path = PathSpec {
            down: LinkSpec {
                rate_mbit_per_s: self.mbit_per_s,
                queue_ms: self.mbit_per_s.map(|_| self.rtt_ms.max(20.0)),
                ..link.clone()
            },
            up: link,
            ..PathSpec::new("clients", segment::FAR)
        };
        Topology {
            congestion_control: segment::CONGESTION_CONTROL,
            path: vec![path],
            ..Topology::default()
        }
    }
}

impl Cluster {
    /// Clients at once.
    pub fn connections(&self) -> usize {
        match self {
            Self::Relay(_) => relay::CLIENTS,
            Self::Drain(drain) => drain.clients,
            Self::Moved(_) => 1,
            Self::Window(window) => window.clients,
            Self::Trace(_) => trace::CLIENTS,
        }
    }

    /// A round.
    pub fn run(
        &self,
        testbed: &Testbed,
        contender: &Contender,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let scene = Scene { testbed, contender };
        let (values, detail) = match self {
            Self::Relay(relay) => relay.run(&scene)?,
            Self::Drain(drain) => drain.run(&scene)?,
            Self::Moved(moved) => moved.run(&scene, times.window)?,
            Self::Window(window) => window.run(&scene)?,
            Self::Trace(trace) => trace.run(&scene, times)?,
        };
        Ok(RoundResult { values, detail })
    }
}

/// Figures, and what else is kept.
type Told = (Values, serde_json::Value);

/// A round's contender and place.
struct Scene<'a> {
    testbed: &'a Testbed<'a>,
    contender: &'a Contender,
}

impl Scene<'_> {
    fn lab(&self) -> &Lab {
        self.testbed.lab()
    }

    fn is_ours(&self) -> bool {
        self.contender.kind == Kind::Cluster
    }

    fn segment(&self, nodes: usize, path: Option<&Path>) -> Result<Segment> {
        let receivers = Receivers {
            home: self.lab().cores.server_core,
            others: self.lab().cores.load_core,
        };
        let segment = Segment::up(nodes, path.map(Path::topology).as_ref(), receivers)?;
        segment.lead_to(0)?;
        Ok(segment)
    }

    /// The first node has the server's core, all others the clients'.
    fn nodes(&self, segment: &Segment, nodes: usize) -> Result<Nodes> {
        self.nodes_on(segment, nodes, |nth| nth > 0)
    }

    fn nodes_on(
        &self,
        segment: &Segment,
        nodes: usize,
        is_beside_clients: fn(usize) -> bool,
    ) -> Result<Nodes> {
        let roots: [PathBuf; 1] = [self.testbed.root.clone()];
        Nodes::start(&Start {
            lab: self.lab(),
            segment,
            contender: self.contender,
            roots: &roots,
            nodes,
            groups: &[],
            is_beside_clients,
        })
    }

    /// Has one node alone serve these files, so that all know that it has them.
    fn warm(
        &self,
        (segment, nodes): (&Segment, &Nodes),
        node: usize,
        files: &[(String, u64)],
    ) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let ask = || {
            let mut client = Client::connect(None)?;
            files
                .iter()
                .try_for_each(|(path, len_bytes)| client.get(path, *len_bytes).map(drop))
        };
        let warm = || {
            segment
                .node(node)
                .run(|| ask().doing(|| "warming a node".into()))
        };
        nodes.only(node, warm)
    }
}

/// Log lines are written a little later.
const LOGGED_AFTER: Duration = Duration::from_millis(300);

/// Adds the share of responses that did not come from the home, which had sent `before` when they began.
fn add_moved(values: &mut Values, nodes: &Nodes, before: Option<usize>, responses: usize) {
    std::thread::sleep(LOGGED_AFTER);
    let here = nodes.sent_at_home().zip(before);
    let moved = here.map(|(now, before)| responses.saturating_sub(now - before) as f64);
    values.set_some("moved_share", moved.map(|moved| moved / responses as f64));
}

/// Adds how long responses took.
fn add_times(values: &mut Values, seen: &[Seen]) {
    let mut sorted = |key: [&str; 2], of: fn(&Seen) -> u64| {
        let mut all: Vec<u64> = seen.iter().map(of).collect();
        all.sort_unstable();
        for (key, percent) in key.iter().zip([50.0, 99.0]) {
            values.set_some(key, percentile(&all, percent).map(|us| us as f64));
        }
    };
    sorted(["ttfb_p50_us", "ttfb_p99_us"], |seen| seen.first_us);
    sorted(["completion_p50_us", "completion_p99_us"], |seen| {
        seen.whole_us
    });
}
