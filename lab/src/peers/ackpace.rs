//! ackpace: one worker, as the peers have, no access log, defaults otherwise.

use super::Site;
use crate::world::World;
use std::process::Command;

/// Arguments beside root and address. At this level the server prints its turn lengths when it ends.
const ARGS: [&str; 6] = [
    "--workers",
    "1",
    "--access-log",
    "off",
    "--log-level",
    "debug",
];

/// The command that serves the site.
pub fn command(world: &World, site: &Site, port: u16) -> Command {
    let mut command = world.command(site.ackpace, site.cgroup);
    command
        .arg("serve")
        .arg(site.root)
        .arg("--listen")
        .arg(format!("127.0.0.1:{port}"));
    command.args(ARGS);
    command
}

/// The arguments, for the record.
pub fn config() -> String {
    format!(
        "ackpace serve @ROOT@ --listen 127.0.0.1:@PORT@ {}",
        ARGS.join(" ")
    )
}
