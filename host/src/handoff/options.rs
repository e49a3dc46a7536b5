//! The command line of `handoff`, each option defined once.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use ackpace_host_base::failure::Failure;
use ackpace_receive::options::port;
use ackpace_wire::limits::CLUSTER_NAME_BYTES_MAX;
use clap::Args;

/// Where the server asks.
pub const SOCKET: &str = "/run/ackpace-handoff/handoff.sock";

/// `handoff`.
#[derive(Debug, Default, Args)]
pub struct Handoff {
    /// Addresses of the service, on lo of every node, such as 192.0.2.80,2001:db8::80; required, like --port, --node and --for
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', required_unless_present = "clear")]
    pub vip: Vec<IpAddr>,
    /// Ports of the service, such as 80,443
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = port, required_unless_present = "clear")]
    pub port: Vec<u16>,
    /// This node's name, as in --peer of the others
    #[arg(long, value_name = "NAME", value_parser = name, required_unless_present = "clear")]
    pub node: Option<String>,
    /// Another node and its own address on the same segment, such as b=10.0.0.12; once for each
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = peer)]
    pub peer: Vec<Peer>,
    /// The user that the server runs as, by name or number; only that user and root may connect
    #[arg(long = "for", value_name = "USER", value_parser = user, required_unless_present = "clear")]
    pub user: Option<User>,
    /// Unix socket for the server
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Devices that receive clients' packets, such as eth0,eth1; without it, all Ethernet devices that are up
    #[arg(long, value_name = "DEVICE", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Remove the programs from all devices, break the connections that have moved, and exit
    #[arg(long, conflicts_with_all = ["vip", "port", "node", "peer", "user", "device"])]
    pub clear: bool,
}

impl Handoff {
    /// Whether every peer takes what comes to every VIP.
    ///
    /// # Errors
    /// A peer that does not. A connection that moved there would be cut.
    pub fn check(&self) -> Result<(), Failure> {
        let six = self.vip.iter().find(|vip| vip.to_canonical().is_ipv6());
        let four = self
            .peer
            .iter()
            .find(|peer| peer.address.to_canonical().is_ipv4());
        match (six, four) {
            (Some(vip), Some(peer)) => Err(Failure::operator(format!(
                "--peer {}={}: an IPv4 address takes no IPv6 packets, such as those for {vip}: give the peer's IPv6 address, which \
                 takes both",
                peer.name, peer.address
            ))),
            _ => Ok(()),
        }
    }
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where packets for it go.
    pub address: IpAddr,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// That of its first group, which the socket gets.
    pub gid: u32,
}

fn name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty()
        && text.len() <= CLUSTER_NAME_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_name {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "not a name: write 1 to {CLUSTER_NAME_BYTES_MAX} letters, digits and signs without spaces"
        )),
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    let parts = text.split_once('=');
    let peer = parts.and_then(|(of, address)| {
        Some(Peer {
            name: name(of).ok()?,
            address: address.parse().ok()?,
        })
    });
    peer.ok_or_else(|| "not a peer: write its name and its address, such as b=10.0.0.12".to_owned())
}

/// Reads a user's name or number.
///
/// # Errors
/// It is neither.
pub fn user(text: &str) -> Result<User, String> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_in(text, &passwd).ok_or_else(|| {
        "no such user in /etc/passwd: write its name or number; for a user of another directory, both numbers, as USER:GROUP \
         (1000:1000)"
            .to_owned()
    })
}

/// By the lines of /etc/passwd. Numbers need none there if both are given.
fn user_in(text: &str, passwd: &str) -> Option<User> {
    if let Some((uid, gid)) = text.split_once(':') {
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        return Some(User { uid, gid });
    }
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (uid, gid) = (fields.nth(1)?, fields.next()?);
        let is_meant = text == name || text == uid;
        is_meant.then_some(User {
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_or_a_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:34::/:/bin/false\n";
        let web = Some(User { uid: 33, gid: 34 });
        assert_eq!(user_in("web", passwd), web);
        assert_eq!(user_in("33", passwd), web);
        assert_eq!(user_in("7:8", passwd), Some(User { uid: 7, gid: 8 }));
        for wrong in ["", "broken", "34", "7:", "x"] {
            assert_eq!(user_in(wrong, passwd), None, "{wrong}");
        }
    }

    #[test]
    fn peers_of_ipv4_are_for_addresses_of_ipv4() {
        let refused = |vips: [&str; 2], of: &str| {
            let vip = vips.map(|vip| vip.parse().expect("an address"));
            let options = Handoff {
                vip: vip.into(),
                peer: vec![peer("b=fd00::2").expect("one"), peer(of).expect("one")],
                ..Handoff::default()
            };
            options.check().err().map(|why| why.to_string())
        };
        assert_eq!(refused(["10.0.0.9", "fd00::9"], "c=fd00::3"), None);
        assert_eq!(refused(["10.0.0.9", "::ffff:10.0.0.8"], "c=10.0.0.3"), None);
        let why = refused(["10.0.0.9", "fd00::9"], "c=10.0.0.3").expect("one");
        assert!(
            why.contains("--peer c=10.0.0.3: ") && why.contains("fd00::9"),
            "{why}"
        );
    }

    #[test]
    fn a_peer_has_a_name_and_an_address() {
        let b = peer("b=10.0.0.12").expect("it has both");
        assert_eq!((b.name.as_str(), b.address.is_ipv4()), ("b", true));
        assert!(peer("c=fd00::1").is_ok());
        for wrong in ["b", "b=", "=10.0.0.1", "b=10.0.0.1:80", "a b=10.0.0.1"] {
            assert!(peer(wrong).is_err(), "{wrong}");
        }
    }
}
