//! A WAN on one machine: two network namespaces, one for servers and one for clients. TUN devices join them,
//! and a thread between these emulates the links of `ackpace_sim::models::link`.
//!
//! - Programs on the two ends of a network: write a [`Topology`], call [`Wan::up`], then
//!   [`Namespace::enter_before_exec`] of [`Wan::server`] and [`Wan::client`]. The WAN goes down when it is
//!   dropped. It needs root and `/dev/net/tun`, but no kernel module and no qdisc.
//! - A congestion signal while connections run: [`Wan::mark`].
//! - Counts of what was offered, dropped or marked: [`Wan::counters`].
//!
//! `plan.rs` is the meaning of a topology. `packet.rs` cuts the kernel's large frames, `engine.rs` decides, and
//! `emulator.rs` runs it in real time.
//!
//! Nothing has a name in the file system: namespaces and devices disappear with the process that holds them.

mod beside;
mod emulator;
mod engine;
mod namespace;
mod packet;
mod plan;
pub mod topology;
mod tun;

pub use emulator::Counters;
pub use engine::LinkCounters;
pub use namespace::{Namespace, ip, sysctl};
pub use topology::{LinkSpec, Topology};

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::punctual::Awake;
use emulator::{Emulator, Order, Remote};
use engine::Engine;
use plan::Plan;
use std::thread::JoinHandle;
use topology::{MTU_BYTES, SERVER};
use tun::Tun;

/// A running WAN. Dropping it takes it down; processes started inside keep an empty namespace.
pub struct Wan {
    server: Namespace,
    client: Namespace,
    plan: Plan,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
    /// Idle cores poll instead of halting, so the emulator and all other threads wake within a microsecond.
    _awake: Awake,
}

impl Wan {
    /// Builds both namespaces and starts the emulator's thread. Needs root and /dev/net/tun; works in any
    /// namespaces of the caller's own.
    ///
    /// # Errors
    /// [`LabError::Setup`] where the topology or the machine is at fault, otherwise the system call that failed.
    pub fn up(topology: &Topology) -> Result<Wan> {
        let plan = Plan::of(topology).map_err(LabError::Setup)?;
        let (server, server_end) = Namespace::new(|| end(topology, &plan, Side::Server))?;
        let (client, client_end) = Namespace::new(|| end(topology, &plan, Side::Client))?;
        if let Some(address) = topology.beside {
            beside::lay(address, &server, &client)?;
        }
        let grain_ns = u64::from(topology.grain_us) * 1000;
        let engine = Engine::new(plan.clone(), u64::from(topology.run_us) * 1000);
        let (emulator, remote) =
            Emulator::new(engine, [server_end, client_end], grain_ns).doing(|| "eventfd".into())?;
        let thread = std::thread::Builder::new()
            .name("wan".into())
            .spawn(|| emulator.run())
            .doing(|| "starting the emulator's thread".into())?;
        Ok(Wan {
            server,
            client,
            plan,
            remote,
            thread: Some(thread),
            _awake: Awake::keep(),
        })
    }

    /// The namespace for servers.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The namespace for clients. A client binds an address of its path; otherwise it gets the first address of
    /// the first path.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// From now on, marks ECN-capable packets to the client of a path "congestion experienced" (RFC 3168) with this
    /// probability.
    ///
    /// # Errors
    /// [`LabError::Setup`] for an unknown path, or an emulator that has ended.
    pub fn mark(&self, path: &str, probability: f64) -> Result<()> {
        let link = self.plan.link_named(&format!("{path} down"));
        let link = link.ok_or_else(|| LabError::Setup(format!("no path {path:?}")))?;
        match self.remote.tell(Order::Mark(link, probability)) {
            true => Ok(()),
            false => Err(gone()),
        }
    }

    /// A snapshot of all counters.
    ///
    /// # Errors
    /// The emulator's thread has ended.
    pub fn counters(&self) -> Result<Counters> {
        self.remote.count().ok_or_else(gone)
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.remote.tell(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was already printed
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Server,
    Client,
}

/// Configures the namespace of the calling thread: device, addresses, routes, TCP settings.
fn end(topology: &Topology, plan: &Plan, side: Side) -> Result<Tun> {
    let tun = Tun::new()?;
    ip(&addresses_and_routes(plan, side))?;
    let rp_filter = format!("ipv4/conf/{}/rp_filter", tun::NAME);
    let all = [
        ("ipv4/tcp_congestion_control", topology.congestion_control),
        // 2: only where the other end requests it
        ("ipv4/tcp_ecn", if topology.ecn { "1" } else { "2" }),
        ("ipv4/tcp_no_metrics_save", "1"), // a connection must not learn from earlier ones
        ("ipv4/tcp_slow_start_after_idle", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        (&rp_filter, "0"),
    ];
    for (key, value) in all {
        sysctl(key, value)?;
    }
    if let (Some(packets), Side::Server) = (topology.frame_packets_min, side) {
        sysctl("ipv4/tcp_min_tso_segs", &packets.to_string())?;
    }
    if let Some(most) = topology.send_buffer_max_bytes {
        let key = "ipv4/tcp_wmem";
        let old = namespace::read_sysctl(key)?;
        let fields = old.split(' ').filter_map(|field| field.parse().ok());
        let fields = fields.take(2).map(|n: u32| n.min(most).to_string());
        let fields: Vec<String> = fields.chain([most.to_string()]).collect();
        sysctl(key, &fields.join(" "))?;
    }
    Ok(tun)
}

/// Lines for ip(8). Each range of clients is local as a whole, so a thousand clients cost one line.
fn addresses_and_routes(plan: &Plan, side: Side) -> Vec<String> {
    let name = tun::NAME;
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("link set {name} mtu {MTU_BYTES} txqueuelen 10000 up"),
    ];
    match side {
        Side::Server => lines.push(format!("addr add {SERVER}/32 dev {name}")),
        Side::Client => {
            let first = plan.paths.first().map(|path| path.clients.start());
            lines.extend(first.map(|address| format!("addr add {address}/32 dev {name}")));
            for path in &plan.paths {
                for (address, len) in plan::prefixes(&path.clients) {
                    lines.push(format!("route replace local {address}/{len} dev lo"));
                }
            }
        }
    }
    lines.push(format!("route add 0.0.0.0/0 dev {name}"));
    lines
}

fn gone() -> LabError {
    LabError::Setup("the emulator's thread has ended".into())
}

#[cfg(test)]
mod tests;
