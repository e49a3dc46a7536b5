//! The requirements of an experiment, and those that this machine does not meet.

use crate::cgroup;
use crate::experiment::Experiment;
use crate::peers;
use crate::place::{Disk, Network};
use crate::sweep::expand;
use crate::workloads::{Workload, profile};
use std::path::Path;

/// Congestion controls that a new network namespace may use.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// What this machine has. Each field is false for a thing that it lacks.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    root: bool,
    two_cores: bool,
    throttle: bool,
    loop_device: bool,
    fuse: bool,
    tun: bool,
    perf: bool,
    cubic: bool,
}

impl Capabilities {
    /// Inspects this machine.
    pub fn inspect() -> Self {
        let there = |path: &str| Path::new(path).exists();
        Self {
            root: rustix::process::geteuid().is_root(),
            two_cores: std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2),
            throttle: cgroup::can_throttle(),
            loop_device: there("/dev/loop-control")
                && (there("/usr/sbin/mkfs.ext4") || there("/sbin/mkfs.ext4")),
            fuse: there("/dev/fuse"),
            tun: there("/dev/net/tun") && (there("/usr/sbin/ip") || there("/sbin/ip")),
            perf: there(profile::PROGRAM),
            cubic: std::fs::read_to_string(ALLOWED)
                .is_ok_and(|names| names.split_whitespace().any(|name| name == "cubic")),
        }
    }

    /// The requirements of an experiment that it does not meet, in words; empty if the experiment can run.
    pub fn lacks(&self, experiment: &Experiment) -> Vec<&'static str> {
        let (mut throttled, mut emulated, mut wan, mut cubic, mut perf) =
            (false, false, false, false, false);
        for point in expand(&experiment.sweep, false) {
            let scenario = (experiment.scenario)(&point);
            throttled |= matches!(scenario.place.disk, Disk::Throttled { .. });
            emulated |= matches!(scenario.place.disk, Disk::Emulated { .. });
            if let Network::Wan { topology, .. } = &scenario.place.network {
                wan = true;
                cubic |= topology.congestion_control == "cubic";
            }
            perf |= matches!(&scenario.workload, Workload::Swarm(swarm) if swarm.profile);
        }
        let needs = [
            (
                true,
                self.root,
                "root (namespaces, pinned servers): the same with sudo",
            ),
            (
                true,
                self.two_cores,
                "a second core: one for the server, one for the clients",
            ),
            (
                throttled,
                self.throttle,
                "a cgroup that throttles reads (io of v2 or blkio of v1)",
            ),
            (
                throttled || emulated,
                self.loop_device,
                "a loop device and mkfs.ext4 (package e2fsprogs)",
            ),
            (
                emulated,
                self.fuse,
                "/dev/fuse (modprobe fuse; in a container: give it the device)",
            ),
            (
                wan,
                self.tun,
                "/dev/net/tun (modprobe tun) and ip (package iproute2)",
            ),
            (
                cubic,
                self.cubic,
                "cubic in net.ipv4.tcp_allowed_congestion_control (add it with sysctl -w)",
            ),
            (perf, self.perf, "perf (package linux-perf)"),
        ];
        let missing = needs.into_iter().filter(|(needed, has, _)| *needed && !has);
        missing.map(|(_, _, cure)| cure).collect()
    }

    /// Names of the experiments that can run here.
    pub fn remaining<'a>(&self, all: &'a [Experiment]) -> Vec<&'a str> {
        let runnable = all
            .iter()
            .filter(|experiment| self.lacks(experiment).is_empty());
        runnable.map(|experiment| experiment.name).collect()
    }
}

/// Packages of missing peers; a run installs them where apt can.
pub fn packages(experiment: &Experiment) -> Vec<&'static str> {
    let contenders = experiment.contenders.iter();
    let mut packages: Vec<&str> = contenders.filter_map(peers::lacking).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    const ALL: Capabilities = Capabilities {
        root: true,
        two_cores: true,
        throttle: true,
        loop_device: true,
        fuse: true,
        tun: true,
        perf: true,
        cubic: true,
    };

    #[test]
    fn a_machine_that_lacks_something_says_what_remains() {
        let all = experiments::all();
        assert_eq!(ALL.remaining(&all).len(), all.len());
        let without = Capabilities {
            throttle: false,
            ..ALL
        };
        let remaining = without.remaining(&all);
        assert!(remaining.contains(&"cached") && !remaining.contains(&"cold-stall"));
        let user = Capabilities { root: false, ..ALL };
        assert!(user.lacks(&all[0])[0].contains("sudo"));
    }
}
