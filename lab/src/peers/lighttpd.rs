//! lighttpd with its defaults.

use super::{Site, write_config};
use crate::error::Result;
use crate::world::World;
use std::path::Path;
use std::process::Command;

/// Where Debian puts it.
pub const PROGRAM: &str = "/usr/sbin/lighttpd";
/// Its configuration.
pub const TEMPLATE: &str = include_str!("../../peers/lighttpd.conf");

/// The command that serves the site.
pub fn command(world: &World, site: &Site, port: u16) -> Result<Command> {
    let path = site.scratch.join("lighttpd.conf");
    let (root, port) = (site.root.to_string_lossy(), port.to_string());
    write_config(&path, TEMPLATE, &[("ROOT", &*root), ("PORT", &port)])?;
    let mut command = world.command(Path::new(PROGRAM), site.cgroup);
    command.arg("-D").arg("-f").arg(&path);
    Ok(command)
}

/// The configuration with its places left open.
pub fn config() -> String {
    TEMPLATE.to_owned()
}
