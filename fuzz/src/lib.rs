//! Fuzz targets: plain functions of bytes that panic when a law of the parsers or of the machines is broken.
//!
//! There are one list ([`TARGETS`]) and two drivers. The stable driver ([`driver`]) replays `corpus/<target>/*` and
//! then mutates it from a fixed seed: it takes seconds, inside `cargo test -p ackpace-fuzz`. libFuzzer, guided by
//! coverage, runs as long as you like: `fuzz/run.sh`. To add a target, write `src/targets/<name>.rs`, add its line to
//! [`TARGETS`] and put seeds into `corpus/<name>/`.
#![forbid(unsafe_code)]

pub mod driver;
pub mod targets;

/// A function that must survive any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which its module, its corpus folder and its function share.
    pub name: &'static str,
    /// Panics if a law does not hold for these bytes.
    pub run: fn(&[u8]),
}

/// Every target, one per line.
pub const TARGETS: &[Target] = &[
    target("request_head", targets::request_head::request_head),
    target("target", targets::target::target),
    target("ranges", targets::ranges::ranges),
    target("conditionals", targets::conditionals::conditionals),
    target("config", targets::config::config),
    target("accept_encoding", targets::accept_encoding::accept_encoding),
    target("body_skip", targets::body_skip::body_skip),
    target("worker_machine", targets::worker_machine::worker_machine),
    target("disk_machine", targets::disk_machine::disk_machine),
    target("both_machines", targets::both_machines::both_machines),
];

/// A target that is broken on purpose, to prove that a driver catches findings.
pub const CANARY: Target = target("canary", canary);

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// The target of this name.
pub fn find(name: &str) -> Option<Target> {
    let mut all = TARGETS.iter().chain([&CANARY]);
    all.find(|target| target.name == name).copied()
}

fn canary(data: &[u8]) {
    let sings = data.windows(4).any(|four| four == b"\r\n\r\n");
    assert!(!sings, "the canary was found");
}
