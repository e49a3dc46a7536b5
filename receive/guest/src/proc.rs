//! Reads what /proc says of processes, namespaces and the kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

use ackpace_lab_base::error::{Doing, LabError, Result};
use serde::{Deserialize, Serialize};

/// CPU time of a process's main thread, microseconds, to a tick of the scheduler. 0: the process is gone.
pub fn ran_us(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let ns = text.split_whitespace().next();
    ns.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1_000
}

/// The program of iproute2; for a bare name, busybox would run its own.
pub const IP: &str = "/sbin/ip";
const NETSTAT: &str = "/proc/net/netstat";

/// What the senders of a network namespace count (/proc/net/netstat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Senders {
    /// Expired retransmission timers (TCPTimeouts).
    pub timeouts: u64,
    /// Those found needless by F-RTO (TCPSpuriousRTOs).
    pub spurious: u64,
    /// Tail loss probes (TCPLossProbes): they come before the timeout.
    pub probes: u64,
}

impl Senders {
    /// Those of a namespace of `ip netns`.
    ///
    /// # Errors
    /// There is none, or it does not count.
    pub fn of(namespace: &str) -> Result<Senders> {
        let what = || format!("{IP} netns exec {namespace} cat {NETSTAT}");
        let words = ["netns", "exec", namespace, "cat", NETSTAT];
        let output = Command::new(IP).args(words).output().doing(what)?;
        let senders = Senders::parse(&String::from_utf8_lossy(&output.stdout));
        senders.ok_or_else(|| LabError::Setup(format!("{}: no counts of TCP", what())))
    }

    fn parse(text: &str) -> Option<Senders> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let names = lines.next()?.split_whitespace();
        let pairs: Vec<(&str, &str)> = names.zip(lines.next()?.split_whitespace()).collect();
        let value = |wanted| {
            pairs
                .iter()
                .find(|(name, _)| *name == wanted)?
                .1
                .parse()
                .ok()
        };
        Some(Senders {
            timeouts: value("TCPTimeouts")?,
            spurious: value("TCPSpuriousRTOs")?,
            probes: value("TCPLossProbes")?,
        })
    }

    /// What has come since.
    pub fn since(self, before: Senders) -> Senders {
        Senders {
            timeouts: self.timeouts.saturating_sub(before.timeouts),
            spurious: self.spurious.saturating_sub(before.spurious),
            probes: self.probes.saturating_sub(before.probes),
        }
    }
}

/// The first word in brackets of a file such as debugfs' sched/preempt: the chosen one, as `none full (lazy)` has it.
pub fn chosen(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('(')?;
    Some(rest.split_once(')')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_senders_are_found_by_name() {
        let text = "TcpExt: A TCPTimeouts TCPLossProbes TCPSpuriousRTOs\nTcpExt: 1 9 5 2\nIpExt: B\nIpExt: 4\n";
        let seen = Senders::parse(text);
        let all = Senders {
            timeouts: 9,
            spurious: 2,
            probes: 5,
        };
        assert_eq!(seen, Some(all));
        assert_eq!(all.since(all), Senders::default());
        assert_eq!(Senders::parse(""), None);
        assert_eq!(
            Senders::parse("TcpExt: A\nTcpExt: 1\n"),
            None,
            "never 0 for what is not counted"
        );
    }
}
