//! `gateway` against tgtd, the target of the distribution: files, kills, restarts, lies. Needs root, FUSE and loop devices.

mod files;
mod kills;
mod server;
mod target;
#[path = "../../../wire/tests/iscsi/tgtd.rs"]
#[allow(dead_code, reason = "the tests of the initiator use more of it")]
mod tgtd;
mod world;
