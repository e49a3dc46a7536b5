//! Caddy: its file server, plain HTTP, no admin endpoint.

use super::{Site, bare, fill, write_config};
use ackpace_lab_base::error::Result;
use std::process::Command;

/// Path in Debian's package.
pub const PROGRAM: &str = "/usr/bin/caddy";
const TEMPLATE: &str = include_str!("../../peers/caddy.conf");

/// The command that serves the site.
pub fn command(site: &Site, options: &[String]) -> Result<Command> {
    let path = write_config(site, "caddy.conf", &config(options))?;
    let mut command = bare(PROGRAM);
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(&path)
        .env("HOME", site.scratch)
        .env("GOMAXPROCS", "1");
    Ok(command)
}

/// The configuration, with its placeholders unfilled.
pub fn config(options: &[String]) -> String {
    fill(TEMPLATE, &[("LINES", &options.join("\n"))])
}
