//! A wire beside the emulator, for clients who time the server: the emulator's work is not in their times.

use super::namespace::{self, Namespace};
use super::{Side, Topology, metrics, plan};
use ackpace_lab_base::error::Result;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The wire's name at both ends.
const NAME: &str = "beside0";
/// The clients' table of routes for what leaves with an address of theirs (ip-rule(8)).
const TABLE: u32 = 7;

/// Lays the wire from these clients to all addresses (IPv4) of the server.
pub fn lay(
    topology: &Topology,
    clients: &RangeInclusive<IpAddr>,
    server: &Namespace,
    client: &Namespace,
) -> Result<()> {
    let prefixes = plan::prefixes(clients);
    let other_end = client.path();
    server.run(|| {
        let pair = format!("link add {NAME} type veth peer name {NAME} netns {other_end}");
        namespace::ip(&[pair])?;
        let metrics = metrics(topology, Side::Server);
        let routes = prefixes.iter();
        let routes =
            routes.map(|(address, len)| format!("route add {address}/{len} dev {NAME}{metrics}"));
        furnish(topology, routes)
    })?;
    client.run(|| {
        let metrics = metrics(topology, Side::Client);
        let own = prefixes.iter().flat_map(|(address, len)| {
            [
                format!("route replace local {address}/{len} dev lo"),
                format!("rule add from {address}/{len} lookup {TABLE}"),
            ]
        });
        let servers = topology.server.iter().filter(|server| server.is_ipv4());
        let routes = servers
            .map(|server| format!("route add {server}/32 dev {NAME} table {TABLE}{metrics}"));
        furnish(topology, own.chain(routes))
    })
}

/// Brings up this end, with these routes. They need not be those of the way back, which a filter would ask for.
fn furnish(topology: &Topology, routes: impl Iterator<Item = String>) -> Result<()> {
    let up = format!("link set {NAME} mtu {} up", topology.mtu_bytes);
    let lines: Vec<String> = [up].into_iter().chain(routes).collect();
    namespace::sysctl(&format!("ipv4/conf/{NAME}/rp_filter"), "0")?;
    namespace::ip(&lines)
}
