//! The options that make a server a node of a cluster.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use ackpace_wire::base64;
use ackpace_wire::cluster::etcd::is_name;
use ackpace_wire::limits::CLUSTER_NAME_BYTES_MAX;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ValueEnum, ValueHint};
use url::{Host, Url};

use super::names;
use super::value::{ValueError, shown};

/// Bytes of the path that names a cluster. Longer: it is refused.
const PREFIX_BYTES_MAX: usize = 200;

/// Bytes of a node's public key (Ed25519, RFC 8032).
pub const KEY_BYTES: usize = 32;

/// The options of a node. All of them are given, or none.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterOptions {
    /// Name of this node; off: no cluster
    ///
    /// Several servers with the same files form a cluster, in which the best node serves each request: docs/cluster.md. A node needs
    /// all of `node`, `peer` or `cluster_etcd`, `cluster_listen` and `cluster_key`. All nodes use the same names for each other.
    ///
    /// Default: `off`, since one server needs no other. Range: 1 to 63 letters, digits, `-`, `_` and `.`. Or off.
    #[arg(long, value_name = "NAME", default_value = "off", help_heading = "Cluster", value_parser = node)]
    pub node: String,

    /// Another node, as NAME=ADDR,KEY
    ///
    /// Its name, the IP address and port of its `cluster_listen`, and its public key as `ackpace cluster key` prints it: only a node
    /// with that key is accepted under this name. Repeat the option for each other node. In the environment a comma ends a value, so
    /// use another source.
    ///
    /// Default: none. Range: at most 12 nodes, all different.
    #[arg(long, value_name = "NAME=ADDR,KEY", help_heading = "Cluster", value_parser = Peer::parse)]
    pub peer: Vec<Peer>,

    /// etcd that lists the nodes, as URL/NAME
    ///
    /// Instead of `peer`, or beside it: while it runs, each node lists its name, address and public key there, and accepts the nodes
    /// that it finds there. They come and go without a restart. Drains are kept there, too. Anyone who can write there can add a node.
    /// For a node that is also in `peer`, `peer` wins. The URL is that of etcd's client port, and its path names the cluster.
    ///
    /// Default: `off`. Range: `http://HOST:PORT/NAME` or `https://...`, without user, password and query. Or off.
    #[arg(long, value_name = "URL", default_value = "off", help_heading = "Cluster", value_parser = EtcdAt::parse)]
    pub cluster_etcd: EtcdAt,

    /// Where the other nodes reach this one
    ///
    /// An IP address of this machine and a port, for messages between the nodes (TLS 1.3). The next port serves HTTP to the other
    /// nodes, without TLS or access log, and refuses clients from other addresses. Keep both in a network that you trust.
    ///
    /// Default: `off`. Range: an IP address, not that of all (`0.0.0.0`), and a port of 1 to 65534. Or off.
    #[arg(long, value_name = "ADDR", default_value = "off", help_heading = "Cluster", value_parser = ClusterAt::parse)]
    pub cluster_listen: ClusterAt,

    /// File with the private key of this node
    ///
    /// `ackpace cluster key --out FILE` makes one. The server's user, and nobody else, must be able to read it
    /// (`chown`, `chmod 600`).
    ///
    /// Default: `off`. Range: a file with an Ed25519 key in PEM (PKCS#8). Or off.
    #[arg(long, value_name = "FILE", default_value = "off", value_hint = ValueHint::FilePath, help_heading = "Cluster",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub cluster_key: PathBuf,

    /// How another node serves a request
    ///
    /// `auto` moves the connection there where that pays, and relays the response otherwise; `relay` always relays; `off` serves
    /// every request on the node where it arrives.
    ///
    /// Default: `auto`. Range: auto, relay or off.
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "Cluster")]
    pub hand_off: HandOff,

    /// Socket of `ackpace-host handoff`
    ///
    /// That program has the privileges to move connections. If it does not answer, requests are relayed.
    ///
    /// Default: `/run/ackpace-handoff/handoff.sock`. Range: the path of a unix socket.
    #[arg(long, value_name = "FILE", default_value = "/run/ackpace-handoff/handoff.sock", value_hint = ValueHint::FilePath,
          help_heading = "Cluster", value_parser = OsStringValueParser::new().try_map(names::path))]
    pub hand_off_socket: PathBuf,
}

impl ClusterOptions {
    /// How many other nodes there can be, of a server with so many slots for devices: each node takes one, and files need some.
    pub fn others_max(&self, devices: usize) -> usize {
        match self.cluster_etcd {
            EtcdAt::Off => self.peer.len(),
            EtcdAt::At(_) => self.peer.len().max(devices * 3 / 4).max(1),
        }
    }

    /// Whether this server is to be a node of a cluster.
    pub fn is_on(&self) -> bool {
        self.node != "off"
    }

    /// The options that a node needs: each with its key, and whether it was given.
    pub fn needed(&self) -> [(&'static str, bool); 4] {
        [
            ("node", self.node != "off"),
            (
                "peer",
                !self.peer.is_empty() || self.cluster_etcd != EtcdAt::Off,
            ),
            ("cluster_listen", self.cluster_listen != ClusterAt::Off),
            ("cluster_key", self.cluster_key.as_os_str() != "off"),
        ]
    }
}

/// How a request is served that is better served by another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HandOff {
    /// The connection moves there where that pays; otherwise the response is relayed.
    Auto,
    /// The response is relayed.
    Relay,
    /// It is not.
    Off,
}

/// Where a node listens for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterAt {
    /// Nowhere.
    Off,
    /// At this address; HTTP for the others is at the next port.
    Tcp(SocketAddr),
}

impl ClusterAt {
    /// Reads `off` or `IP:PORT`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self::Off),
            text => address(text).map(Self::Tcp),
        }
    }
}

impl fmt::Display for ClusterAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Tcp(addr) => addr.fmt(f),
        }
    }
}

/// The etcd that lists the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdAt {
    /// None does.
    Off,
    /// This one.
    At(EtcdUrl),
}

/// Where an etcd is, and where in it a cluster stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdUrl {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// What all keys of the cluster begin with, without a slash at the end.
    pub prefix: String,
}

impl EtcdAt {
    /// Reads `off` or `http://HOST:PORT/NAME`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let refused = |why: &str| {
            let text = shown(text);
            ValueError::new(format!(
                "{text} {why}; write it like http://127.0.0.1:2379/media"
            ))
        };
        if text == "off" {
            return Ok(Self::Off);
        }
        let url = Url::parse(text).map_err(|error| refused(&format!("is no URL ({error})")))?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(refused("begins with neither http:// nor https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(
                "has a user or a password, which would end up in logs",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("has a query or a fragment"));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            None => return Err(refused("has no host")),
        };
        let prefix = url.path().trim_end_matches('/').to_owned();
        let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if !(2..=PREFIX_BYTES_MAX).contains(&prefix.len()) || !prefix.bytes().all(is_sign) {
            return Err(refused(
                "has no path that names a cluster, of letters, digits, -, _, . and /",
            ));
        }
        Ok(Self::At(EtcdUrl {
            host,
            port: url.port_or_known_default().unwrap_or(443),
            tls,
            prefix,
        }))
    }
}

impl fmt::Display for EtcdAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(url) => url.fmt(f),
        }
    }
}

impl EtcdUrl {
    /// Host and port, as in a URL.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    /// Its `cluster_listen`.
    pub addr: SocketAddr,
    /// Its public key.
    pub key: [u8; KEY_BYTES],
}

impl Peer {
    /// Reads `NAME=IP:PORT,KEY`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let parts = text.split_once('=');
        let parts = parts.and_then(|(name, rest)| Some((name, rest.split_once(',')?)));
        let Some((name, (addr, key))) = parts else {
            return Err(ValueError::new(format!(
                "{} is not NAME=ADDR,KEY, such as b=192.0.2.2:7800,KEY with what `ackpace cluster key` printed there",
                shown(text)
            )));
        };
        if name == "off" {
            return Err(no_name(name));
        }
        Ok(Self {
            name: node(name)?,
            addr: address(addr)?,
            key: public_key(key)?,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, addr, key) = (&self.name, self.addr, shown_key(&self.key));
        write!(f, "{name}={addr},{key}")
    }
}

fn node(text: &str) -> Result<String, ValueError> {
    match is_name(text) || text == "off" {
        true => Ok(text.to_owned()),
        false => Err(no_name(text)),
    }
}

fn no_name(text: &str) -> ValueError {
    ValueError::new(format!(
        "{} is no name of a node: 1 to {CLUSTER_NAME_BYTES_MAX} letters, digits, -, _ and ., and not off",
        shown(text)
    ))
}

/// An address that others can connect to, with a port after it.
fn address(text: &str) -> Result<SocketAddr, ValueError> {
    let refused = |why| ValueError::new(format!("{} {why}", shown(text)));
    let Ok(addr) = text.parse::<SocketAddr>() else {
        return Err(refused(
            "is no IP address with a port, such as 192.0.2.1:7800",
        ));
    };
    if addr.ip().is_unspecified() {
        return Err(refused(
            "stands for all addresses: name the one that the other nodes connect to",
        ));
    }
    if !(1..u16::MAX).contains(&addr.port()) {
        return Err(refused(
            "needs a port of 1 to 65534, as the one after it is used, too",
        ));
    }
    Ok(addr)
}

fn public_key(text: &str) -> Result<[u8; KEY_BYTES], ValueError> {
    let key = base64::decode(text, KEY_BYTES).and_then(|bytes| bytes.try_into().ok());
    key.ok_or_else(|| {
        let why = "is no public key: 44 characters, as `ackpace cluster key` prints them";
        ValueError::new(format!("{} {why}", shown(text)))
    })
}

/// A public key as people pass it on: base64 of its 32 bytes.
pub fn shown_key(key: &[u8; KEY_BYTES]) -> String {
    base64::encode(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_name_address_and_key() {
        let key = shown_key(&[7; KEY_BYTES]);
        for good in ["b=192.0.2.1:7800", "node-2.a_b=[2001:db8::1]:65534"] {
            let text = format!("{good},{key}");
            assert_eq!(Peer::parse(&text).map(|p| p.to_string()), Ok(text));
        }
        for (bad, why) in [
            ("b".to_owned(), "is not NAME=ADDR,KEY"),
            ("b=192.0.2.1:7800".to_owned(), "is not NAME=ADDR,KEY"),
            (format!("=192.0.2.1:1,{key}"), "is no name of a node"),
            (format!("off=192.0.2.1:1,{key}"), "is no name of a node"),
            (format!("b c=192.0.2.1:1,{key}"), "is no name of a node"),
            (
                format!("{}=192.0.2.1:1,{key}", "x".repeat(64)),
                "is no name",
            ),
            (format!("b=other.example:1,{key}"), "is no IP address"),
            (format!("b=0.0.0.0:1,{key}"), "stands for all addresses"),
            (format!("b=192.0.2.1:0,{key}"), "needs a port"),
            (format!("b=192.0.2.1:65535,{key}"), "needs a port"),
            ("b=192.0.2.1:1,AAAA".to_owned(), "is no public key"),
            (format!("b=192.0.2.1:1,{key}A"), "is no public key"),
        ] {
            let error = Peer::parse(&bad).expect_err(&bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn an_etcd_has_a_path_that_names_the_cluster() {
        for (good, shown) in [
            ("off", "off"),
            (
                "http://127.0.0.1:2379/ackpace/media/",
                "http://127.0.0.1:2379/ackpace/media",
            ),
            ("https://etcd.example/m", "https://etcd.example:443/m"),
            ("http://[::1]:1/m", "http://[::1]:1/m"),
        ] {
            assert_eq!(
                EtcdAt::parse(good).map(|at| at.to_string()),
                Ok(shown.into())
            );
        }
        for (bad, why) in [
            ("127.0.0.1:2379", "is no URL"),
            ("unix:///m", "begins with neither"),
            ("http://127.0.0.1:2379/", "has no path"),
            ("http://127.0.0.1:2379/a%20b", "has no path"),
            ("http://u:p@127.0.0.1/m", "a user or a password"),
            ("http://127.0.0.1/m?x", "a query"),
        ] {
            let error = EtcdAt::parse(bad).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_node_listens_at_one_address_or_not_at_all() {
        for good in ["off", "192.0.2.1:7800", "[::1]:1"] {
            assert_eq!(
                ClusterAt::parse(good).map(|at| at.to_string()),
                Ok(good.into())
            );
        }
        assert!(ClusterAt::parse("[::]:7800").is_err());
        assert!(ClusterAt::parse("7800").is_err());
    }
}
