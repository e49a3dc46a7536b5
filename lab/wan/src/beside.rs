//! A direct link beside the emulator, for clients that time the server: their times exclude the emulator's
//! work.

use super::namespace::{self, Namespace};
use super::topology::{MTU_BYTES, SERVER};
use ackpace_lab_base::error::Result;

/// The device's name at both ends.
const NAME: &str = "beside0";
/// The clients' routing table for packets that leave with their address (ip-rule(8)).
const TABLE: u32 = 7;

/// Creates the link from this client to the server.
pub fn lay(address: &str, server: &Namespace, client: &Namespace) -> Result<()> {
    let other_end = client.path();
    server.run(|| {
        let pair = format!("link add {NAME} type veth peer name {NAME} netns {other_end}");
        namespace::ip(&[pair])?;
        furnish([format!("route add {address}/32 dev {NAME}")])
    })?;
    client.run(|| {
        furnish([
            format!("route replace local {address}/32 dev lo"),
            format!("rule add from {address}/32 lookup {TABLE}"),
            format!("route add {SERVER}/32 dev {NAME} table {TABLE}"),
        ])
    })
}

/// Brings up this end, with these routes. The emulator's routes may carry the reverse path; rp_filter would
/// then drop packets, so it is off.
fn furnish<const N: usize>(routes: [String; N]) -> Result<()> {
    let up = format!("link set {NAME} mtu {MTU_BYTES} up");
    let lines: Vec<String> = [up].into_iter().chain(routes).collect();
    namespace::sysctl(&format!("ipv4/conf/{NAME}/rp_filter"), "0")?;
    namespace::ip(&lines)
}
