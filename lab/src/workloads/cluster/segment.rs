//! The network of a cluster: nodes and clients on one Ethernet segment, each in a network namespace of its own. With a WAN the
//! clients are behind it, and a router stands where they would be.

use crate::testbed::receive_on;
use ackpace_lab_base::error::Result;
use ackpace_lab_wan::{Namespace, Topology, Wan, ip, sysctl};
use std::net::{Ipv4Addr, SocketAddr};

/// The address that all nodes have on their loopback; clients reach it by way of the first node.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 80);
/// Of the clients, or of the router before them.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Of a router before the clients, and of the clients behind it.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const BEHIND: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// Congestion control of nodes and clients.
pub const CONGESTION_CONTROL: &str = "cubic";
/// Addresses of clients behind a WAN.
pub const FAR: &str = "10.1.0.1-10.1.0.250";

/// Where the clients' requests go.
pub fn vip() -> SocketAddr {
    SocketAddr::from((VIP, 80))
}

/// A node's own address.
pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 11 + node as u8) // few nodes
}

/// The cores that process what devices receive: a node's own work runs on its core, what others cause does not.
#[derive(Clone, Copy)]
pub struct Receivers {
    /// Of the first node.
    pub home: usize,
    /// Of all others.
    pub others: usize,
}

/// Nodes, a bridge and clients. It goes down when it is dropped.
pub struct Segment {
    nodes: Vec<Namespace>,
    clients: Clients,
    /// Where the clients are, if there is a router between.
    behind: Option<Namespace>,
    _bridge: Namespace,
}

enum Clients {
    Near(Namespace),
    Far(Wan),
}

impl Clients {
    /// Where the segment's end is.
    fn end(&self) -> &Namespace {
        match self {
            Self::Near(clients) => clients,
            Self::Far(wan) => wan.server(),
        }
    }
}

impl Segment {
    /// Builds it for so many nodes.
    ///
    /// # Errors
    /// A missing prerequisite: root, ip(8), or what the WAN needs.
    pub fn up(nodes: usize, topology: Option<&Topology>, cores: Receivers) -> Result<Self> {
        let up = [
            "link set lo up",
            "link add br0 type bridge",
            "link set br0 up",
        ];
        let (bridge, ()) = Namespace::new(|| ip(&up.map(str::to_owned)))?;
        let clients = match topology {
            Some(topology) => Clients::Far(Wan::up(topology)?),
            None => Clients::Near(Namespace::new(|| Ok(()))?.0),
        };
        plug(&bridge, "clients", clients.end())?;
        let is_far = matches!(clients, Clients::Far(_));
        clients
            .end()
            .run(|| furnish_clients(is_far, cores.others))?;
        let mut all = Vec::new();
        for nth in 0..nodes {
            let (node, ()) = Namespace::new(|| Ok(()))?;
            plug(&bridge, &format!("node{nth}"), &node)?;
            let core = if nth == 0 { cores.home } else { cores.others };
            node.run(|| furnish_node(nth, core))?;
            all.push(node);
        }
        bridge.run(|| receive_on(cores.others))?;
        Ok(Self {
            nodes: all,
            clients,
            behind: None,
            _bridge: bridge,
        })
    }

    /// Puts a router between the clients and the segment. A host that has several equal ways itself sends the last ACK and RST, which
    /// belong to no socket, by another one than the rest of a connection.
    ///
    /// # Errors
    /// As [`Segment::up`].
    pub fn add_router(&mut self, core: usize) -> Result<()> {
        let (clients, ()) = Namespace::new(|| Ok(()))?;
        let to = clients.path();
        self.clients.end().run(|| {
            sysctl("ipv4/ip_forward", "1")?;
            ip(&[
                format!("link add behind type veth peer name eth0 netns {to}"),
                format!("addr add {ROUTER}/24 dev behind"),
                "link set behind up".into(),
            ])?;
            receive_on(core)
        })?;
        clients.run(|| {
            tcp()?;
            ip(&[
                "link set lo up".into(),
                format!("addr add {BEHIND}/24 dev eth0"),
                "link set eth0 up".into(),
                format!("route add default via {ROUTER}"),
            ])?;
            receive_on(core)
        })?;
        self.behind = Some(clients);
        Ok(())
    }

    /// The network of a node.
    pub fn node(&self, nth: usize) -> &Namespace {
        &self.nodes[nth]
    }

    /// The clients' network.
    pub fn clients(&self) -> &Namespace {
        match (&self.behind, &self.clients) {
            (Some(clients), _) | (None, Clients::Near(clients)) => clients,
            (None, Clients::Far(wan)) => wan.client(),
        }
    }

    /// New connections go to this node from now on.
    pub fn lead_to(&self, node: usize) -> Result<()> {
        let (mac, via) = (mac(node), VIP);
        let line = format!("neigh replace {via} lladdr {mac} dev eth0 nud permanent");
        self.clients.end().run(|| ip(&[line]))
    }

    /// New connections go to any node from now on, as a router with several equal ways has it.
    pub fn lead_to_all(&self) -> Result<()> {
        let via = |nth| format!(" nexthop via {}", address(nth));
        let ways: String = (0..self.nodes.len()).map(via).collect();
        self.clients.end().run(|| {
            sysctl("ipv4/fib_multipath_hash_policy", "1")?; // ports count
            ip(&[format!("route replace {VIP}/32{ways}")])
        })
    }
}

fn mac(node: usize) -> String {
    format!("02:77:00:00:00:{:02x}", 11 + node)
}

/// Lays a wire from the bridge to a namespace, where it is called eth0.
fn plug(bridge: &Namespace, name: &str, to: &Namespace) -> Result<()> {
    let path = to.path();
    let lines = [
        format!("link add {name} type veth peer name eth0 netns {path}"),
        format!("link set {name} master br0 up"),
    ];
    bridge.run(|| ip(&lines))
}

fn furnish_clients(is_far: bool, core: usize) -> Result<()> {
    sysctl("ipv4/conf/eth0/rp_filter", "0")?;
    ip(&[
        format!("addr add {CLIENT}/24 dev eth0"),
        "link set eth0 up".into(),
    ])?;
    if is_far {
        sysctl("ipv4/ip_forward", "1")?;
    } else {
        ip(&["link set lo up".into()])?;
        tcp()?;
    }
    receive_on(core)
}

fn furnish_node(nth: usize, core: usize) -> Result<()> {
    for (key, value) in [
        ("ipv4/conf/all/arp_ignore", "1"),
        ("ipv4/conf/all/arp_announce", "2"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/eth0/rp_filter", "0"),
    ] {
        sysctl(key, value)?;
    }
    tcp()?;
    ip(&[
        "link set lo up".into(),
        format!("link set eth0 address {}", mac(nth)),
        format!("addr add {}/24 dev eth0", address(nth)),
        "link set eth0 up".into(),
        format!("addr add {VIP}/32 dev lo"),
        format!("route add default via {CLIENT}"),
    ])?;
    receive_on(core)
}

fn tcp() -> Result<()> {
    sysctl("ipv4/tcp_congestion_control", CONGESTION_CONTROL)?;
    sysctl("ipv4/tcp_no_metrics_save", "1")
}
