//! h2o with one thread.

use super::{Site, bare, fill, write_config};
use ackpace_lab_base::error::Result;
use std::process::Command;

/// Path in Debian's package.
pub const PROGRAM: &str = "/usr/bin/h2o";
const TEMPLATE: &str = include_str!("../../peers/h2o.conf");

/// The command that serves the site.
pub fn command(site: &Site, options: &[String]) -> Result<Command> {
    let path = write_config(site, "h2o.conf", &config(options))?;
    let mut command = bare(PROGRAM);
    command.arg("-m").arg("worker").arg("-c").arg(&path);
    Ok(command)
}

/// The configuration, with its placeholders unfilled.
pub fn config(options: &[String]) -> String {
    fill(TEMPLATE, &[("LINES", &options.join("\n"))])
}
