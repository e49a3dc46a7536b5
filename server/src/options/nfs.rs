//! The options of NFS: what is exported, and to whom.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ackpace_wire::limits::NFS_MOUNT_PATH_BYTES_MAX;
use clap::ValueHint;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::value::{ValueError, shown};
use super::{Listen, names};

/// The user and the group that squashed users become: `nobody` on every system.
const NOBODY: u32 = 65_534;
/// Networks of one export. More: it is refused; `*` or wider networks say the same.
const CLIENTS_MAX: usize = 64;

/// The options of NFS.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "NFS")]
pub struct NfsOptions {
    /// Where to serve NFS; repeat it for several
    ///
    /// The same files by NFS version 3, to clients that mount them: `mount -o vers=3,tcp,nolock,port=2049,mountport=2049 HOST:/ /mnt`. NFS and MOUNT
    /// share the port; there is no portmapper, no lock manager, no UDP and no NFSv4. Clients can only read, unless an export is `rw`. An address is
    /// written as with `--listen`. There are as many threads for NFS as `workers`. Users are told by the numbers that clients
    /// claim (AUTH_SYS), so keep the port in a network that you trust.
    ///
    /// Default: none. Range: at most 256 TCP addresses, all different. Memory: an eighth of `memory_max` at most for connections and
    /// their replies, and some 60 MiB for what is known of files (`ackpace limits`).
    #[arg(long, value_name = "ADDR", help_heading = "NFS",
          value_parser = OsStringValueParser::new().try_map(Listen::parse_tcp))]
    pub nfs: Vec<Listen>,

    /// Folder for NFS clients, as PATH=CLIENTS
    ///
    /// `/pub=192.0.2.0/24,2001:db8::1` exports the folder `pub` of the served directory, or of the origin, to these networks and hosts, and `/=*`
    /// everything to everybody. Repeat the option for several. Where one path is given twice, the first that has a client's address
    /// holds. Options stand behind the clients: `ro` (read-only, as by default), `rw` (clients may
    /// change it: this takes a broker, `nfs_broker`), `root_squash` (root of a
    /// client is `anonuid` here; this holds by default), `no_root_squash`, `all_squash` (every user is), `anonuid=N` and `anongid=N`
    /// (65534 by default). Clients are known by their address only, and their users by what a client says, so export to networks that
    /// you trust. The mode of a file decides what a user may do with it; access control lists are not read. In the environment a
    /// comma ends a value, so use another source.
    ///
    /// Default: none, which exports everything to this machine if `nfs` is an address of it alone; with any other address the server
    /// does not start. Range: at most 256 paths that begin with `/`, each with 1 to 64 networks.
    #[arg(long, value_name = "PATH=CLIENTS", help_heading = "NFS", value_parser = ExportSpec::parse)]
    pub nfs_export: Vec<ExportSpec>,

    /// File with the key of NFS file handles
    ///
    /// Clients keep handles for as long as a file system is mounted, and this key proves that the server made them. With another
    /// key, clients get ESTALE and must mount again. A missing file is made, with mode 600. All servers that serve the same
    /// files to the same clients share a key.
    ///
    /// Default: `auto`, which is `nfs.key` in the folder that systemd gives (StateDirectory), or else in
    /// $XDG_STATE_HOME/ackpace or ~/.local/state/ackpace. Without such a folder the key ends with the process, and the log says so.
    /// Range: a file of this user that nobody else may read. Or auto.
    #[arg(long, value_name = "FILE", default_value = "auto", value_hint = ValueHint::FilePath, help_heading = "NFS",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub nfs_key: PathBuf,

    /// Socket of the broker that changes files for NFS clients
    ///
    /// The server has not the rights of the clients' users, and never gets them: `ackpace-host files --root DIR --for USER`, which runs as
    /// root, changes files with the rights of each user, and passes open files to the server. It is needed where an export is `rw`.
    ///
    /// Default: `/run/ackpace-files/files.sock`. Range: a path of at most 107 bytes.
    #[arg(long, value_name = "SOCKET", default_value = "/run/ackpace-files/files.sock", value_hint = ValueHint::FilePath, help_heading = "NFS",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub nfs_broker: PathBuf,
}

impl NfsOptions {
    /// Whether clients may change something.
    pub fn is_writable(&self) -> bool {
        let mut exports = self.nfs_export.iter();
        !self.nfs.is_empty() && exports.any(|export| export.is_writable)
    }
}

/// An exported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSpec {
    /// Begins with a slash and ends with none, except `/` itself.
    pub path: String,
    /// Who may mount it; at least one.
    pub clients: Vec<Network>,
    /// Which users of a client are made `anonuid`.
    pub squash: Squash,
    /// The user that these become.
    pub anonuid: u32,
    /// And the group.
    pub anongid: u32,
    /// Clients may change it (`rw`).
    pub is_writable: bool,
}

/// Which users of a client become the anonymous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squash {
    /// Root.
    Root,
    /// None.
    None,
    /// All.
    All,
}

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Every address.
    Any,
    /// Those that have these bits of this address.
    Of {
        /// The others are 0.
        addr: IpAddr,
        /// 0 to 32 or 128.
        bits: u8,
    },
}

impl Network {
    /// Reads `*`, an address or `ADDR/BITS`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr, Some(bits)),
            None => (text, None),
        };
        let refused = |why: &str| {
            let text = shown(text);
            ValueError::new(format!("{text} {why}"))
        };
        let Ok(addr) = addr.parse::<IpAddr>() else {
            return Err(refused(
                "is no network, such as 192.0.2.0/24, 2001:db8::1 or *, and no option of an export (names of hosts are not looked up, and every export is sync)",
            ));
        };
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let bits = match bits.map(str::parse::<u8>) {
            None => most,
            Some(Ok(bits)) if bits <= most => bits,
            Some(_) => {
                return Err(refused(
                    "has no number of bits behind its slash; options follow commas, without parentheses",
                ));
            }
        };
        let network = Self::Of { addr, bits };
        if masked(addr, bits) != addr {
            let right = masked(addr, bits);
            return Err(refused(&format!(
                "has bits behind its network: write {right}/{bits}"
            )));
        }
        Ok(network)
    }

    /// Whether an address belongs to it. An IPv4 address that came by an IPv6 socket is one of IPv4.
    pub fn has(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match *self {
            Self::Any => true,
            Self::Of { addr, bits } => {
                addr.is_ipv4() == client.is_ipv4() && masked(client, bits) == addr
            }
        }
    }
}

/// The first bits of an address.
fn masked(addr: IpAddr, bits: u8) -> IpAddr {
    match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from_bits(addr.to_bits() & mask).into()
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from_bits(addr.to_bits() & mask).into()
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Of { addr, bits } if *bits == if addr.is_ipv4() { 32 } else { 128 } => {
                addr.fmt(f)
            }
            Self::Of { addr, bits } => write!(f, "{addr}/{bits}"),
        }
    }
}

impl ExportSpec {
    /// A folder for these clients, with the options that hold by default.
    pub fn new(path: &str, clients: Vec<Network>) -> Self {
        Self {
            path: path.to_owned(),
            clients,
            squash: Squash::Root,
            anonuid: NOBODY,
            anongid: NOBODY,
            is_writable: false,
        }
    }

    /// Reads `/a=10.0.0.0/8,192.0.2.1,ro,root_squash`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let Some((path, rest)) = text.split_once('=') else {
            return Err(ValueError::new(format!(
                "{} names no clients; write it like /pub=192.0.2.0/24, or /pub=* for everybody",
                shown(text)
            )));
        };
        let mut spec = Self::new(&path_of(path)?, Vec::new());
        for word in rest.split(',') {
            spec.word(word)?;
        }
        match spec.clients.len() {
            1..=CLIENTS_MAX => Ok(spec),
            0 => Err(ValueError::new(format!(
                "{} names no clients; write * for everybody",
                shown(text)
            ))),
            many => Err(ValueError::new(format!(
                "{}: {many} networks are too many: {CLIENTS_MAX} at most",
                shown(path)
            ))),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), ValueError> {
        match word {
            "ro" => self.is_writable = false,
            "rw" => self.is_writable = true,
            "root_squash" => self.squash = Squash::Root,
            "no_root_squash" => self.squash = Squash::None,
            "all_squash" => self.squash = Squash::All,
            word => match word.split_once('=') {
                Some(("anonuid", id)) => self.anonuid = user(id)?,
                Some(("anongid", id)) => self.anongid = user(id)?,
                _ => self.clients.push(Network::parse(word)?),
            },
        }
        Ok(())
    }
}

/// The number of a user or group. The highest one means "none" to the kernel.
fn user(text: &str) -> Result<u32, ValueError> {
    let id = super::value::whole(text, 0..=u64::from(u32::MAX) - 1)?;
    Ok(id as u32)
}

fn path_of(text: &str) -> Result<String, ValueError> {
    let refused = |why: &str| ValueError::new(format!("{} {why}", shown(text)));
    let Some(rest) = text.strip_prefix('/') else {
        return Err(refused(
            "does not begin with /, which is all that is served",
        ));
    };
    let names: Vec<&str> = rest.split('/').filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| matches!(*name, "." | "..")) || text.contains('\0') {
        return Err(refused("has a part that is no name"));
    }
    let path = format!("/{}", names.join("/"));
    match path.len() {
        1..=NFS_MOUNT_PATH_BYTES_MAX => Ok(path),
        _ => Err(refused("is longer than clients can ask for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_has_a_path_clients_and_options() {
        let spec = ExportSpec::parse(
            "//a//b/=10.0.0.0/8,192.0.2.1,2001:db8::/32,*,ro,all_squash,anonuid=7,anongid=8",
        );
        let spec = spec.expect("a good one");
        let clients: Vec<String> = spec.clients.iter().map(ToString::to_string).collect();
        assert_eq!(
            clients,
            ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "*"].map(str::to_owned)
        );
        assert_eq!(
            (&*spec.path, spec.squash, spec.anonuid, spec.anongid),
            ("/a/b", Squash::All, 7, 8)
        );
        let plain = ExportSpec::parse("/=::1").expect("a good one");
        let loopback = Network::Of {
            addr: Ipv6Addr::LOCALHOST.into(),
            bits: 128,
        };
        assert_eq!(plain, ExportSpec::new("/", vec![loopback]));
        assert_eq!((plain.squash, plain.anonuid), (Squash::Root, NOBODY));
    }

    #[test]
    fn what_is_no_export_is_refused_with_the_reason() {
        let many = format!("/a={}", vec!["*"; CLIENTS_MAX + 1].join(","));
        for (bad, why) in [
            ("/a", "names no clients"),
            ("/a=ro", "names no clients"),
            ("/a=", "is no network"),
            ("a=*", "does not begin with /"),
            ("/a/../b=*", "no name"),
            ("/a=host.example", "is no network"),
            ("/a=10.0.0.1/8", "write 10.0.0.0/8"),
            ("/a=10.0.0.0/33", "no number of bits"),
            ("/a=2001:db8::/129", "no number of bits"),
            ("/a=*,anonuid=-1", "is not a whole number"),
            ("/a=*,anonuid=4294967295", "out of range"),
            (&many, "too many"),
        ] {
            let error = ExportSpec::parse(bad).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let has = |network: &str, client: &str| {
            let network = Network::parse(network).expect("a network");
            network.has(client.parse().expect("an address"))
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && has("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!has("10.0.0.0/8", "11.0.0.1") && !has("10.0.0.0/8", "a00::"));
        assert!(has("0.0.0.0/0", "192.0.2.1") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "2001:db8::1") && has("*", "::1"));
        assert!(has("2001:db8::/33", "2001:db8::1") && !has("2001:db8::/33", "2001:db8:8000::"));
    }
}
