//! The requirements of an experiment, and those that this machine does not meet.

use crate::cgroup;
use crate::experiment::Experiment;
use crate::peers;
use crate::place::{Disk, Network};
use crate::sweep::expand;
use crate::workloads::{Cluster, Workload, profile};
use std::path::Path;

/// Congestion controls that a new network namespace may use.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// What the scenarios of an experiment use.
#[derive(Default)]
struct Used {
    throttled: bool,
    emulated: bool,
    target: bool,
    wan: bool,
    cubic: bool,
    perf: bool,
    origin: bool,
}

impl Used {
    fn by(experiment: &Experiment) -> Self {
        let mut used = Self::default();
        for point in expand(&experiment.sweep, false) {
            let scenario = (experiment.scenario)(&point);
            used.origin |= scenario.place.origin.is_some();
            used.throttled |= matches!(scenario.place.disk, Disk::Throttled { .. });
            used.emulated |= matches!(scenario.place.disk, Disk::Emulated { .. });
            used.target |= matches!(scenario.place.disk, Disk::Target { .. });
            if let Network::Wan { topology, .. } = &scenario.place.network {
                used.wan = true;
                used.cubic |= topology.congestion_control == "cubic";
            }
            if let Workload::Cluster(cluster) = &scenario.workload {
                (used.wan, used.cubic) = (true, true);
                used.emulated |= matches!(cluster, Cluster::Trace(_));
            }
            used.perf |= matches!(&scenario.workload, Workload::Swarm(swarm) if swarm.profile);
        }
        used
    }
}

/// The requirements of an experiment that this machine does not meet, in words; empty if the experiment can run.
pub fn lacks(experiment: &Experiment) -> Vec<&'static str> {
    let used = Used::by(experiment);
    let there = |path: &str| Path::new(path).exists();
    let sbin = |name: &str| there(&format!("/usr/sbin/{name}")) || there(&format!("/sbin/{name}"));
    let root = rustix::process::geteuid().is_root();
    let two_cores = std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2);
    let allowed = std::fs::read_to_string(ALLOWED).unwrap_or_default();
    let has_cubic = allowed.split_whitespace().any(|name| name == "cubic");
    let needs = [
        (
            true,
            root,
            "root (namespaces, pinned servers): the same with sudo",
        ),
        (
            true,
            two_cores,
            "a second core: one for the server, one for the clients",
        ),
        (
            used.throttled,
            cgroup::can_throttle(),
            "a cgroup that throttles reads (io of v2 or blkio of v1)",
        ),
        (
            used.throttled || used.emulated || used.target,
            there("/dev/loop-control") && sbin("mkfs.ext4"),
            "a loop device and mkfs.ext4 (package e2fsprogs)",
        ),
        (
            used.emulated || used.target,
            there("/dev/fuse"),
            "/dev/fuse (modprobe fuse; in a container: give it the device)",
        ),
        (
            used.wan,
            there("/dev/net/tun") && sbin("ip"),
            "/dev/net/tun (modprobe tun) and ip (package iproute2)",
        ),
        (
            used.cubic,
            has_cubic,
            "cubic in net.ipv4.tcp_allowed_congestion_control (add it with sysctl -w)",
        ),
        (
            used.origin,
            sbin("nginx"),
            "nginx, which is the origin (package nginx)",
        ),
        (
            used.target,
            crate::target::is_there(),
            "tgtd (make lab unpacks it; or package tgt)",
        ),
        (
            used.perf,
            there(profile::PROGRAM),
            "perf (package linux-perf)",
        ),
    ];
    let missing = needs.into_iter().filter(|(needed, has, _)| *needed && !has);
    missing.map(|(_, _, cure)| cure).collect()
}

/// Packages of missing peers; a run installs them where apt can.
pub fn packages(experiment: &Experiment) -> Vec<&'static str> {
    let contenders = experiment.contenders.iter();
    let mut packages: Vec<&str> = contenders.filter_map(peers::lacking).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}
