//! lighttpd with its defaults.

use super::{Site, bare, fill, write_config};
use ackpace_lab_base::error::Result;
use std::process::Command;

/// Path in Debian's package.
pub const PROGRAM: &str = "/usr/sbin/lighttpd";
const TEMPLATE: &str = include_str!("../../peers/lighttpd.conf");

/// The command that serves the site.
pub fn command(site: &Site, options: &[String]) -> Result<Command> {
    let path = write_config(site, "lighttpd.conf", &config(options))?;
    let mut command = bare(PROGRAM);
    command.arg("-D").arg("-f").arg(&path);
    Ok(command)
}

/// The configuration, with its placeholders unfilled.
pub fn config(options: &[String]) -> String {
    fill(TEMPLATE, &[("LINES", &options.join("\n"))])
}
