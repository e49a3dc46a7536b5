//! A direct link beside the emulator, for clients that time the server: their times exclude the emulator's
//! work.

use super::namespace::{self, Namespace};
use super::{Side, Topology, metrics, plan};
use ackpace_lab_base::error::Result;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The device's name at both ends.
const NAME: &str = "beside0";
/// The clients' routing table for packets that leave with one of their addresses (ip-rule(8)).
const TABLE: u32 = 7;

/// Creates the link from these clients to all IPv4 addresses of the server.
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

/// Brings up this end, with these routes. The emulator's routes may carry the reverse path; rp_filter would
/// then drop packets, so it is off.
fn furnish(topology: &Topology, routes: impl Iterator<Item = String>) -> Result<()> {
    let up = format!("link set {NAME} mtu {} up", topology.mtu_bytes);
    let lines: Vec<String> = [up].into_iter().chain(routes).collect();
    namespace::sysctl(&format!("ipv4/conf/{NAME}/rp_filter"), "0")?;
    namespace::ip(&lines)
}
