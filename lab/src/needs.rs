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

/// A requirement of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Namespaces, priority over other processes, slow disks.
    Root,
    /// A core for the server and one for the clients.
    TwoCores,
    /// A cgroup that throttles reads.
    Throttle,
    /// A loop device with ext4.
    Loop,
    /// FUSE, for an emulated disk.
    Fuse,
    /// TUN and iproute2, for an emulated network.
    Tun,
    /// perf(1).
    Perf,
    /// cubic, allowed in network namespaces.
    Cubic,
}

/// The capabilities of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    root: bool,
    cores: usize,
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
            cores: std::thread::available_parallelism().map_or(1, usize::from),
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
        let missing = needs(experiment)
            .into_iter()
            .filter(|need| !self.has(*need));
        missing.map(cure).collect()
    }

    /// Names of the experiments that can run here.
    pub fn remaining<'a>(&self, all: &'a [Experiment]) -> Vec<&'a str> {
        let runnable = all
            .iter()
            .filter(|experiment| self.lacks(experiment).is_empty());
        runnable.map(|experiment| experiment.name).collect()
    }

    fn has(&self, need: Need) -> bool {
        match need {
            Need::Root => self.root,
            Need::TwoCores => self.cores >= 2,
            Need::Throttle => self.throttle,
            Need::Loop => self.loop_device,
            Need::Fuse => self.fuse,
            Need::Tun => self.tun,
            Need::Perf => self.perf,
            Need::Cubic => self.cubic,
        }
    }
}

/// Packages of missing peers; a run installs them where apt can.
pub fn packages(experiment: &Experiment) -> Vec<&'static str> {
    let mut packages: Vec<&str> = experiment
        .contenders
        .iter()
        .filter_map(peers::lacking)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn needs(experiment: &Experiment) -> Vec<Need> {
    let mut needs = vec![Need::Root, Need::TwoCores];
    for point in expand(&experiment.sweep, false) {
        let scenario = (experiment.scenario)(&point);
        match scenario.place.disk {
            Disk::Memory => {}
            Disk::Throttled { .. } => needs.extend([Need::Throttle, Need::Loop]),
            Disk::Emulated { .. } => needs.extend([Need::Fuse, Need::Loop]),
        }
        if let Network::Wan { topology, .. } = &scenario.place.network {
            needs.push(Need::Tun);
            if topology.congestion_control == "cubic" {
                needs.push(Need::Cubic);
            }
        }
        if matches!(&scenario.workload, Workload::Swarm(swarm) if swarm.profile) {
            needs.push(Need::Perf);
        }
    }
    needs.sort_unstable();
    needs.dedup();
    needs
}

fn cure(need: Need) -> &'static str {
    match need {
        Need::Root => "root (namespaces, pinned servers): the same with sudo",
        Need::TwoCores => "a second core: one for the server, one for the clients",
        Need::Throttle => "a cgroup that throttles reads (io of v2 or blkio of v1)",
        Need::Fuse => "/dev/fuse (modprobe fuse; in a container: give it the device)",
        Need::Tun => "/dev/net/tun (modprobe tun) and ip (package iproute2)",
        Need::Cubic => "cubic in net.ipv4.tcp_allowed_congestion_control (add it with sysctl -w)",
        Need::Perf => "perf (package linux-perf)",
        Need::Loop => "a loop device and mkfs.ext4 (package e2fsprogs)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    const ALL: Capabilities = Capabilities {
        root: true,
        cores: 2,
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
