//! The command line, each option defined once.

use std::net::IpAddr;
use std::path::PathBuf;

use ackpace_core::send::CAP_BYTES_MIN;
use ackpace_share::SEND_POOL_BYTES_MAX;
use ackpace_share::eatbt::Need;
use clap::{Args, Parser, Subcommand, ValueEnum};

use ackpace_receive::options::{Receive, port};

use crate::files::options::Files;
use crate::gateway::options::{Gateway, Stack};
use crate::handoff::options::Handoff;
use crate::matching::{Matching, Prefix};

/// Local ports of `--port`. More: refused.
const PORTS_MAX: usize = 64;
/// Prefixes of `--address` (`PREFIXES_MAX`). More: refused.
const PREFIXES_MAX: usize = 64;

/// What ackpace does for other programs of this machine
#[derive(Debug, Parser)]
#[command(name = "ackpace-host", version, max_term_width = 100)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what this kernel and these rights allow, what is lost, and how to get it
    Doctor {
        /// Look only at what this command needs
        about: Option<About>,
        /// A JSON object a line
        #[arg(long)]
        json: bool,
        /// Check what connections to these addresses need to move
        #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
        vip: Vec<IpAddr>,
        /// And to move to these nodes
        #[arg(long, value_name = "ADDRESS", value_delimiter = ',', requires = "vip")]
        peer: Vec<IpAddr>,
        /// And to arrive on these devices; without it, all Ethernet devices that are up
        #[arg(long, value_name = "DEVICE", requires = "vip")]
        device: Vec<String>,
    },
    /// Divide a fixed amount of send memory among TCP connections of any program, until stopped
    #[command(args_conflicts_with_subcommands = true)]
    Tune(Tune),
    /// Make passes over sockets for `tune`, which starts it
    #[command(hide = true)]
    Passes,
    /// Move a server's connections between nodes at its request, until stopped
    Handoff(Handoff),
    /// Mount the ext4 of an iSCSI target so that a server can read its payload past it, until stopped
    Gateway(Box<Gateway>),
    /// Answer the kernel for `gateway`, which starts it
    #[command(hide = true)]
    GatewayAnswer {
        /// The process that starts it
        supervisor: u32,
    },
    /// Mount or unmount for `gateway`, which starts it
    #[command(hide = true)]
    GatewayStep(Stack),
    /// Change files with the rights of NFS clients' users at a server's request, until stopped
    Files(Files),
    /// Show how long TCP segments wait for the programs that receive them, and what bears on it
    #[command(subcommand)]
    Receive(Receive),
}

/// What `doctor` looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum About {
    /// What `tune` needs
    Tune,
    /// What `receive` needs
    Receive,
    /// What `handoff` needs
    Handoff,
}

/// `tune`.
#[derive(Debug, Default, Args)]
pub struct Tune {
    /// What to ask of an instance that runs.
    #[command(subcommand)]
    pub ask: Option<Ask>,
    /// Memory for all sockets that match, unsent and in flight, such as 256MiB
    #[arg(long, value_name = "SIZE", value_parser = size, required_unless_present = "restore", allow_hyphen_values = true)]
    pub budget: Option<u64>,
    /// Only sockets with these local ports, such as 80,443
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = port)]
    pub port: Vec<u16>,
    /// Only sockets with these local addresses or prefixes, such as 10.0.0.0/8
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub address: Vec<Prefix>,
    /// Only sockets of this cgroup (version 2) and those below it, such as system.slice/nginx.service
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// How it is divided
    #[arg(long, value_enum, default_value_t = Policy::ByNeed)]
    pub policy: Policy,
    /// Change nothing, and print what would be changed
    #[arg(long)]
    pub dry_run: bool,
    /// Divide twice, a second apart, print the result, undo it and exit
    #[arg(long)]
    pub once: bool,
    /// Undo what a killed instance has left, and exit
    #[arg(long, conflicts_with_all = ["budget", "dry_run", "once"])]
    pub restore: bool,
    /// Print changes as JSON objects, one a line, on standard output
    #[arg(long)]
    pub json: bool,
    /// Print no line for each change
    #[arg(long)]
    pub quiet: bool,
}

/// What to ask of an instance that runs.
#[derive(Debug, Subcommand)]
pub enum Ask {
    /// Show the state of the running instance
    Status {
        /// As a JSON object
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// In the text format of Prometheus
        #[arg(long)]
        metrics: bool,
    },
}

/// How send memory is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// By what each connection can use (SSBT's E-ATBT)
    #[default]
    ByNeed,
    /// By the present congestion window (ATBT)
    Window,
    /// The same for all
    Equal,
}

impl Policy {
    /// For the division.
    pub fn chosen(self) -> ackpace_share::Policy {
        match self {
            Policy::ByNeed => ackpace_share::Policy::ByNeed(Need::Law),
            Policy::Window => ackpace_share::Policy::Window,
            Policy::Equal => ackpace_share::Policy::Equal,
        }
    }

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Policy::ByNeed => "by-need",
            Policy::Window => "window",
            Policy::Equal => "equal",
        }
    }
}

impl Tune {
    /// Whose sockets are meant.
    ///
    /// # Errors
    /// More is listed than there is room for.
    pub fn matching(&self) -> Result<Matching, String> {
        if self.port.len() > PORTS_MAX || self.address.len() > PREFIXES_MAX {
            return Err(format!(
                "--port takes {PORTS_MAX} ports at most, and --address {PREFIXES_MAX} prefixes: use --cgroup for more"
            ));
        }
        Ok(Matching {
            ports: self.port.clone(),
            prefixes: self.address.clone(),
            cgroup: self.cgroup.clone(),
        })
    }
}

/// Bytes: `65536`, `64K`, `64KiB`, `256MiB`, `2G`.
fn size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|sign: char| !sign.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        "t" | "ti" | "tib" => 40,
        "kb" | "mb" | "gb" | "tb" => {
            return Err("not a size: units are powers of 1024, written KiB, MiB or GiB".to_owned());
        }
        _ => return Err("not a size: write 64KiB, 256MiB or 2GiB".to_owned()),
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if (CAP_BYTES_MIN..=SEND_POOL_BYTES_MAX).contains(&bytes) => Ok(bytes),
        Some(_) => Err(format!(
            "out of range: {CAP_BYTES_MIN} bytes to 1TiB, and three segments for each connection that sends"
        )),
        None => Err("not a size: write 64KiB, 256MiB or 2GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn a_budget_has_a_size_and_wrong_ones_are_named() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64K", 65_536),
            ("256MiB", 256 << 20),
            ("2g", 2 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "12x", "-1", "1kb", "99999999999TiB", "100", "2TiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for line in [
            "x tune",
            "x tune --budget 1MiB --restore",
            "x tune --budget 1MiB status",
            "x tune --budget 1MiB --port 70000",
            "x tune --budget 1MiB --address here",
            "x tune --budget 1MiB --port 0",
            "x tune --budget 1MiB --port 80-90",
            "x tune --budget -5MiB",
            "x tune status --json --metrics",
            "x tune --budget 1MiB --policy kernel",
            "x receive",
            "x receive watch --once --for 3",
            "x receive watch --for 0",
            "x receive watch --pid 0",
            "x receive guard --exact",
            "x handoff",
            "x handoff --vip 10.9.9.9 --port 80 --node a",
            "x handoff --vip 10.9.9.9 --port 80 --node a --for 0 --peer 10.0.0.1",
            "x handoff --vip 10.9.9.9 --port 0 --node a --for 0",
            "x handoff --clear --node a",
            "x doctor handoff --peer 10.0.0.2",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        for line in [
            "x doctor --json",
            "x doctor tune",
            "x doctor handoff --vip 10.9.9.9,fd00::9 --peer 10.0.0.2 --device eth0",
            "x tune --restore",
            "x handoff --clear",
            "x handoff --vip 10.9.9.9,fd00::9 --port 80,443 --node a --for 0 --peer b=10.0.0.2 --peer c=10.0.0.3 --device lo",
            "x tune --budget 1MiB --port=80,443 --quiet",
            "x tune status --metrics",
            "x receive guard --port 80 --pid 7 --json",
            "x receive advise --pid 7 --json",
            "x receive watch --port 80,443 --pid 7 --for 3 --json",
            "x tune --budget 1MiB --port 80,443 --address ::1,10.0.0.0/8 --policy window --once --dry-run --json",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
    }
}
