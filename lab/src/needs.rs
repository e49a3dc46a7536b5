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

/// The requirements of an experiment that this machine does not meet, in words; empty if the experiment can run.
pub fn lacks(experiment: &Experiment) -> Vec<&'static str> {
    let (mut throttled, mut emulated, mut wan, mut cubic, mut perf, mut origin) =
        (false, false, false, false, false, false);
    for point in expand(&experiment.sweep, false) {
        let scenario = (experiment.scenario)(&point);
        origin |= scenario.place.origin.is_some();
        throttled |= matches!(scenario.place.disk, Disk::Throttled { .. });
        emulated |= matches!(scenario.place.disk, Disk::Emulated { .. });
        if let Network::Wan { topology, .. } = &scenario.place.network {
            wan = true;
            cubic |= topology.congestion_control == "cubic";
        }
        if let Workload::Cluster(cluster) = &scenario.workload {
            (wan, cubic) = (true, true);
            emulated |= matches!(cluster, Cluster::Trace(_));
        }
        perf |= matches!(&scenario.workload, Workload::Swarm(swarm) if swarm.profile);
    }
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
            throttled,
            cgroup::can_throttle(),
            "a cgroup that throttles reads (io of v2 or blkio of v1)",
        ),
        (
            throttled || emulated,
            there("/dev/loop-control") && sbin("mkfs.ext4"),
            "a loop device and mkfs.ext4 (package e2fsprogs)",
        ),
        (
            emulated,
            there("/dev/fuse"),
            "/dev/fuse (modprobe fuse; in a container: give it the device)",
        ),
        (
            wan,
            there("/dev/net/tun") && sbin("ip"),
            "/dev/net/tun (modprobe tun) and ip (package iproute2)",
        ),
        (
            cubic,
            has_cubic,
            "cubic in net.ipv4.tcp_allowed_congestion_control (add it with sysctl -w)",
        ),
        (
            origin,
            sbin("nginx"),
            "nginx, which is the origin (package nginx)",
        ),
        (perf, there(profile::PROGRAM), "perf (package linux-perf)"),
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
