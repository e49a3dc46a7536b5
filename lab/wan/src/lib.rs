//! A WAN on one machine: two network namespaces, one for servers and one for clients. TUN devices join them,
//! and a thread between these emulates the links of `ackpace_sim::models::link`.
//!
//! - Programs on the two ends of a network: write a [`Topology`] (TOML or in code), call [`Wan::up`], then
//!   [`Namespace::enter_before_exec`] of [`Wan::server`] and [`Wan::client`]. The WAN goes down when it is
//!   dropped. It needs root and `/dev/net/tun`, but no kernel module and no qdisc.
//! - Changes to a link while connections run: [`Wan::set_path`], [`Wan::set_link`].
//! - Counts of what arrived, was dropped, marked or late: [`Wan::counters`].
//! - The same from a shell: [`run`], the subcommand `wan` of a program that includes [`Args`]. It starts that
//!   program again as `wan serve` for the background process.
//!
//! `topology.rs` is the file format, and `plan.rs` its meaning. `packet.rs` cuts the kernel's large frames,
//! `engine.rs` decides, and `emulator.rs` runs it in real time. `command.rs` and `daemon.rs` are the command
//! line.
//!
//! Nothing has a name in the file system: namespaces and devices disappear with the process that holds them.

mod beside;
mod command;
pub mod counters;
mod daemon;
mod emulator;
mod engine;
mod namespace;
mod packet;
mod plan;
mod table;
pub mod topology;
mod tun;

pub use command::{Args, run};
pub use counters::Counters;
pub use namespace::Namespace;
pub use plan::Direction;
pub use topology::{LinkSpec, Topology};

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::punctual::Awake;
use emulator::{Emulator, Order, Remote};
use engine::Engine;
use plan::{LinkId, Plan};
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread::JoinHandle;
use topology::{Ecn, Mode};
use tun::Tun;

/// A running WAN. Dropping it takes it down; processes started inside keep an empty namespace.
pub struct Wan {
    server: Namespace,
    client: Namespace,
    server_addresses: Vec<IpAddr>,
    path_names: Vec<String>,
    /// Name and current state of every link.
    links: Mutex<Vec<(String, LinkSpec)>>,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
    _awake: Option<Awake>,
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
        if let Some(clients) = &plan.beside {
            beside::lay(topology, clients, &server, &client)?;
        }
        let path_names = plan.paths.iter().map(|path| path.name.clone()).collect();
        let links = plan.links.iter();
        let links = links.map(|link| (link.name.clone(), link.spec.clone()));
        let links = Mutex::new(links.collect());
        let run_ns = match topology.mode {
            Mode::Runs => Some(u64::from(topology.run_us) * 1000),
            Mode::Packets => None,
        };
        let grain_ns = u64::from(topology.grain_us) * 1000;
        let engine = Engine::new(plan, run_ns);
        let (emulator, remote) =
            Emulator::new(engine, [server_end, client_end], grain_ns).doing(|| "eventfd".into())?;
        let thread = std::thread::Builder::new()
            .name("wan".into())
            .spawn(|| emulator.run())
            .doing(|| "starting the emulator's thread".into())?;
        Ok(Wan {
            server,
            client,
            server_addresses: topology.server.clone(),
            path_names,
            links,
            remote,
            thread: Some(thread),
            _awake: topology.awake.then(Awake::keep),
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

    /// Addresses of the server.
    pub fn server_addresses(&self) -> &[IpAddr] {
        &self.server_addresses
    }

    /// Changes the own link of a path (NAME, or NAME/ADDRESS of a client) while it runs. Keys that the change
    /// does not name stay; queued packets go out at the new rate.
    ///
    /// # Errors
    /// As [`Wan::set_link`].
    pub fn set_path(&self, path: &str, direction: Direction, change: &LinkSpec) -> Result<()> {
        let way = match direction {
            Direction::Down => "down",
            Direction::Up => "up",
        };
        self.set_link(&format!("{path} {way}"), change)
    }

    /// Changes a link by its name: a shared one, or `PATH down`, `PATH up`.
    ///
    /// # Errors
    /// [`LabError::Setup`] for an unknown link, a value out of its range, or an emulator that has ended.
    pub fn set_link(&self, name: &str, change: &LinkSpec) -> Result<()> {
        let mut links = match self.links.lock() {
            Ok(links) => links,
            Err(poisoned) => poisoned.into_inner(), // a spec is replaced whole or not at all
        };
        let Some(nth) = links.iter().position(|(known, _)| known == name) else {
            let known: Vec<&str> = links
                .iter()
                .take(8)
                .map(|(name, _)| name.as_str())
                .collect();
            let what = format!("no link {name:?}; there are {} ...", known.join(", "));
            return Err(LabError::Setup(what));
        };
        let spec = links[nth].1.changed(change);
        let profile =
            plan::profile(&spec).map_err(|why| LabError::Setup(format!("link {name:?}: {why}")))?;
        links[nth].1 = spec;
        match self.remote.tell(Order::Set(LinkId(nth), profile)) {
            true => Ok(()),
            false => Err(gone()),
        }
    }

    /// A snapshot of all counters.
    ///
    /// # Errors
    /// The emulator's thread has ended.
    pub fn counters(&self) -> Result<Counters> {
        let mut counters = self.remote.count().ok_or_else(gone)?;
        for (path, name) in counters.paths.iter_mut().zip(&self.path_names) {
            path.name.clone_from(name);
        }
        if let Ok(links) = self.links.lock() {
            for (link, (name, _)) in counters.links.iter_mut().zip(links.iter()) {
                link.name.clone_from(name);
            }
        }
        Ok(counters)
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
    let has_v6 = topology.server.iter().any(IpAddr::is_ipv6);
    let disable_v6 = format!("ipv6/conf/{}/disable_ipv6", tun::NAME);
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        namespace::sysctl(&disable_v6, if has_v6 { "0" } else { "1" })?;
    }
    namespace::ip(&addresses_and_routes(topology, plan, side))?;
    let ecn = match topology.ecn {
        Ecn::Off => "0",
        Ecn::On => "1",
        Ecn::Passive => "2",
    };
    let restart = if topology.slow_start_after_idle {
        "1"
    } else {
        "0"
    };
    let rp_filter = format!("ipv4/conf/{}/rp_filter", tun::NAME);
    let all = [
        (
            "ipv4/tcp_congestion_control",
            topology.congestion_control.as_str(),
        ),
        ("ipv4/tcp_ecn", ecn),
        ("ipv4/tcp_no_metrics_save", "1"), // a connection must not learn from earlier ones
        ("ipv4/tcp_slow_start_after_idle", restart),
        ("ipv4/conf/all/rp_filter", "0"),
        (&rp_filter, "0"),
    ];
    for (key, value) in all {
        namespace::sysctl(key, value)?;
    }
    if let (Some(packets), Side::Server) = (topology.frame_packets_min, side) {
        namespace::sysctl("ipv4/tcp_min_tso_segs", &packets.to_string())?;
    }
    if has_v6 && side == Side::Client {
        namespace::sysctl("ipv6/ip_nonlocal_bind", "1")?; // otherwise only single addresses can be bound
    }
    let sizes = [
        ("ipv4/tcp_wmem", topology.send_buffer_max_bytes),
        ("ipv4/tcp_rmem", topology.receive_buffer_max_bytes),
    ];
    for (key, most) in sizes {
        let Some(most) = most else {
            continue;
        };
        let old = namespace::read_sysctl(key)?;
        let fields = old.split(' ').filter_map(|field| field.parse().ok());
        let fields: Vec<String> = fields
            .take(2)
            .map(|n: u32| n.min(most).to_string())
            .collect();
        namespace::sysctl(key, &format!("{} {most}", fields.join(" ")))?;
    }
    Ok(tun)
}

/// Lines for ip(8). Each range of clients is local as a whole, so a thousand clients cost one line.
fn addresses_and_routes(topology: &Topology, plan: &Plan, side: Side) -> Vec<String> {
    let name = tun::NAME;
    let mtu = topology.mtu_bytes;
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("link set {name} mtu {mtu} txqueuelen 10000 up"),
    ];
    let own = |address: &IpAddr| match address {
        IpAddr::V4(_) => format!("addr add {address}/32 dev {name}"),
        IpAddr::V6(_) => format!("addr add {address}/128 dev {name} nodad"),
    };
    let of_family = |v4: bool| {
        plan.paths
            .iter()
            .find(|path| path.clients.start().is_ipv4() == v4)
    };
    match side {
        Side::Server => lines.extend(topology.server.iter().map(own)),
        Side::Client => {
            let firsts = [of_family(true), of_family(false)].into_iter().flatten();
            lines.extend(firsts.map(|path| own(path.clients.start())));
            for path in &plan.paths {
                for (address, len) in plan::prefixes(&path.clients) {
                    lines.push(format!("route replace local {address}/{len} dev lo"));
                }
            }
        }
    }
    let metrics = metrics(topology, side);
    for (v4, everywhere) in [(true, "0.0.0.0/0"), (false, "::/0")] {
        if topology.server.iter().any(|server| server.is_ipv4() == v4) {
            lines.push(format!("route add {everywhere} dev {name}{metrics}"));
        }
    }
    lines
}

/// The route metrics of connections on this side, for ip(8).
fn metrics(topology: &Topology, side: Side) -> String {
    let mut metrics = String::new();
    if let Some(packets) = topology.initcwnd_packets {
        metrics += &format!(" initcwnd {packets}");
    }
    if topology.quickack && side == Side::Client {
        metrics += " quickack 1";
    }
    metrics
}

fn gone() -> LabError {
    LabError::Setup("the emulator's thread has ended".into())
}

#[cfg(test)]
mod tests;
