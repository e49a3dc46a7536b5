//! The options of NFS.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};

use super::Listen;
use super::value::{ValueError, shown};

/// What NFS clients get, and where.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "NFS")]
pub struct NfsOptions {
    /// Where to serve NFS version 3; repeat it for several
    ///
    /// The same files, to clients that mount them: `mount -o vers=3,tcp,nolock,port=2049,mountport=2049 HOST:/ /mnt`. NFS and MOUNT
    /// share the port; there is no portmapper, no lock manager, no UDP and no NFSv4. Clients can only read. An address is written
    /// as with `--listen`. There are as many threads for NFS as `workers`. Users are told by the numbers that a client claims
    /// (AUTH_SYS), so keep the port in a network that you trust.
    ///
    /// Default: none. Range: at most 256 TCP addresses, all different. Memory: connections and their replies, an eighth of
    /// `memory_max` at most.
    #[arg(long, value_name = "ADDR", help_heading = "NFS",
          value_parser = OsStringValueParser::new().try_map(tcp))]
    pub nfs: Vec<Listen>,
}

fn tcp(text: OsString) -> Result<Listen, ValueError> {
    match Listen::parse(&text)? {
        listen @ Listen::Tcp { .. } => Ok(listen),
        Listen::Unix(_) | Listen::Fd(_) => Err(ValueError::new(format!(
            "{} is no TCP address, such as :2049",
            shown(&text.to_string_lossy())
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nfs_is_served_at_tcp_addresses_only() {
        let all = tcp(":2049".into()).expect("an address");
        assert!(matches!(all, Listen::Tcp { all: true, .. }));
        for wrong in ["unix:/run/nfs", "fd:3", "host"] {
            assert!(tcp(wrong.into()).is_err(), "{wrong}");
        }
    }
}
