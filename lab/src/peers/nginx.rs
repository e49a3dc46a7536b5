//! nginx: the distribution's settings for files, one worker.

use super::{Site, fill, write_config};
use crate::error::Result;
use crate::world::World;
use std::path::Path;
use std::process::Command;

/// Where Debian puts it.
pub const PROGRAM: &str = "/usr/sbin/nginx";
/// Its configuration.
pub const TEMPLATE: &str = include_str!("../../peers/nginx.conf");

/// The command that serves the site; `aio`: reads of files go to a pool of threads.
pub fn command(world: &World, site: &Site, port: u16, aio: bool) -> Result<Command> {
    let path = site.scratch.join("nginx.conf");
    let (root, scratch) = (site.root.to_string_lossy(), site.scratch.to_string_lossy());
    let port = port.to_string();
    let places = [("ROOT", &*root), ("SCRATCH", &*scratch), ("PORT", &port)];
    write_config(&path, &config(aio), &places)?;
    let mut command = world.command(Path::new(PROGRAM), site.cgroup);
    command
        .args(["-e", "stderr", "-p"])
        .arg(site.scratch)
        .arg("-c")
        .arg(&path);
    Ok(command)
}

/// The configuration with its places for root, port and scratch left open.
pub fn config(aio: bool) -> String {
    fill(TEMPLATE, &[("AIO", if aio { "aio threads;" } else { "" })])
}
