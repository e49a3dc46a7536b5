//! What an experiment needs of the machine, and what of it this machine lacks.

use crate::cgroup;
use crate::experiment::Experiment;
use crate::peers;
use crate::place::Disk;
use crate::sweep::expand;
use std::path::Path;

/// Something that an experiment can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Namespaces, pinning before others, slow disks.
    Root,
    /// A core for the server and one for the clients.
    TwoCores,
    /// A cgroup that throttles reads.
    Throttle,
    /// A loop device with ext4.
    Loop,
}

/// What a machine has.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    root: bool,
    cores: usize,
    throttle: bool,
    loop_device: bool,
}

impl Machine {
    /// This one.
    pub fn look() -> Self {
        Self {
            root: rustix::process::geteuid().is_root(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            throttle: cgroup::can_throttle(),
            loop_device: Path::new("/dev/loop-control").exists()
                && ["/usr/sbin", "/sbin"]
                    .iter()
                    .any(|at| Path::new(at).join("mkfs.ext4").exists()),
        }
    }

    /// What it lacks for an experiment, in words; empty if the experiment can run.
    pub fn lacks(&self, experiment: &Experiment) -> Vec<&'static str> {
        let missing = needs(experiment)
            .into_iter()
            .filter(|need| !self.has(*need));
        missing.map(cure).collect()
    }

    /// Names of those that can run here.
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
        }
    }
}

/// Packages with peers that are not here; a run brings them where apt can.
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
        match (experiment.scene)(&point).place.disk {
            Disk::Memory => {}
            Disk::Throttled { .. } => needs.extend([Need::Throttle, Need::Loop]),
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
        Need::Loop => "a loop device and mkfs.ext4 (package e2fsprogs)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    const ALL: Machine = Machine {
        root: true,
        cores: 2,
        throttle: true,
        loop_device: true,
    };

    #[test]
    fn a_machine_that_lacks_something_says_what_remains() {
        let all = experiments::all();
        assert_eq!(ALL.remaining(&all).len(), all.len());
        let without = Machine {
            throttle: false,
            ..ALL
        };
        let remaining = without.remaining(&all);
        assert!(remaining.contains(&"cached") && !remaining.contains(&"cold-stall"));
        let user = Machine { root: false, ..ALL };
        assert!(user.lacks(&all[0])[0].contains("sudo"));
    }
}
