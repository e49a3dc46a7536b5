//! What a switch is to do, and whether it can.

use std::net::{IpAddr, UdpSocket};

use ackpace_host_base::failure::Failure;

use super::entry::NextHop;
use super::routes;
use super::wires::{self, Device};

/// VIPs (`VIPS_MAX`): more than a service has, by far. More: refused.
const VIPS_MAX: usize = 16;
/// Ports, as of `tune --port`. More: refused.
const PORTS_MAX: usize = 64;
/// Peers: as many as a list on a command line may have. More: refused.
const PEERS_MAX: usize = 64;
/// What a switch is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The addresses that every node has on lo.
    pub vips: Vec<IpAddr>,
    /// Their ports.
    pub ports: Vec<u16>,
    /// The other nodes, by their own addresses on this segment. One of IPv6 takes clients of both kinds, one of IPv4 only those of
    /// IPv4.
    pub peers: Vec<IpAddr>,
    /// The devices on which clients' packets come. None: all Ethernet devices that are up.
    pub devices: Vec<String>,
}

impl Settings {
    /// Whether there are neither too few nor too many.
    ///
    /// # Errors
    /// What there is too much of.
    pub fn check(&self) -> Result<(), Failure> {
        let bounds = [
            ("VIP", self.vips.len(), 1, VIPS_MAX),
            ("port", self.ports.len(), 1, PORTS_MAX),
            ("peer", self.peers.len(), 0, PEERS_MAX),
        ];
        for (what, count, least, most) in bounds {
            if !(least..=most).contains(&count) {
                return Err(Failure::operator(format!(
                    "{count} {what}s: {least} to {most} are allowed"
                )));
            }
        }
        Ok(())
    }

    /// The devices that are meant.
    ///
    /// # Errors
    /// One of them is not there, or not up.
    pub fn devices(&self) -> Result<Vec<Device>, Failure> {
        let all = wires::ethernet()
            .map_err(|error| Failure::runtime(format!("the list of devices: {error}")))?;
        for name in &self.devices {
            if !all.iter().any(|device| device.name == *name) {
                return Err(Failure::operator(format!(
                    "{name} is not an Ethernet device that is up"
                )));
            }
        }
        if all.is_empty() {
            return Err(Failure::operator("no Ethernet device is up"));
        }
        let is_meant =
            |device: &Device| self.devices.is_empty() || self.devices.contains(&device.name);
        Ok(all.into_iter().filter(is_meant).collect())
    }

    /// The way to each peer.
    ///
    /// # Errors
    /// A peer is this node, or on no segment of it.
    pub fn next_hops(&self) -> Result<Vec<NextHop>, Failure> {
        let all = wires::ethernet()
            .map_err(|error| Failure::runtime(format!("the list of devices: {error}")))?;
        let one = |address: &IpAddr| {
            let address = address.to_canonical();
            if UdpSocket::bind((address, 0)).is_ok() {
                return Err(Failure::operator(format!(
                    "peer {address} is this node itself"
                )));
            }
            let route = routes::to(address).filter(|route| !route.has_gateway);
            let device = route.and_then(|route| all.iter().find(|it| it.name == route.device));
            match device {
                Some(device) => {
                    ask_for_mac(address);
                    Ok(NextHop {
                        device: device.index,
                        address,
                    })
                }
                None => Err(Failure::operator(format!(
                    "peer {address} is not on an Ethernet segment of this node, as it has to be: see 'ackpace-host doctor handoff'"
                ))),
            }
        };
        self.peers.iter().map(one).collect()
    }
}

/// Has the kernel ask for a peer's MAC, so that no packet waits for it. While there is none, only some ninety may wait.
fn ask_for_mac(address: IpAddr) {
    /// "discard": nobody listens there, and it does not matter.
    const PORT: u16 = 9;
    let own = match address {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let _ = UdpSocket::bind((own, 0)).and_then(|socket| socket.send_to(&[], (address, PORT)));
}
