//! Fuzz targets: plain functions of bytes that panic when a law of the parsers or of the machines is broken.
//!
//! There are one list ([`TARGETS`]) and two drivers. The stable driver ([`driver`]) replays `corpus/<target>/*` and
//! then mutates it from a fixed seed: it takes seconds, inside `cargo test -p ackpace-fuzz`. libFuzzer, guided by
//! coverage, runs as long as you like: `fuzz/run.sh`. To add a target, write `src/targets/<name>.rs`, add its line to
//! [`TARGETS`] and put seeds into `corpus/<name>/`.
#![forbid(unsafe_code)]

pub mod driver;
pub mod targets;

use ackpace_sim::worlds::hostile;

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
    target("response_head", targets::response_head::response_head),
    target("response_body", targets::response_body::response_body),
    target("caching", targets::caching::caching),
    target("bucket", targets::bucket::bucket),
    target("listing", targets::listing::listing),
    target("cluster", targets::cluster::cluster),
    target("broker", targets::broker::broker),
    target("etcd", targets::etcd::etcd),
    target("fuse", targets::fuse::fuse),
    target("gateway_hello", targets::gateway_hello::gateway_hello),
    target("files", targets::files::files),
    target("trace", targets::trace::trace),
    target("nfs3", targets::nfs3::nfs3),
    target("iscsi_address", targets::iscsi_address::iscsi_address),
    target("iscsi_login", targets::iscsi_login::iscsi_login),
    target("iscsi_session", targets::iscsi_session::iscsi_session),
    // Answers to orders, also late, repeated and wrong ones, and messages about unknown connections and streams. No order
    // exceeds what it is for, and a message causes few orders.
    target("worker_machine", hostile::worker_alone),
    target("disk_machine", hostile::disk_alone),
    // With mailboxes between them: the right bytes in the right order, and no stream stalls for ever.
    target("both_machines", hostile::both),
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
