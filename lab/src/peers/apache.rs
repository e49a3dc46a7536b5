//! Apache httpd with the event or the prefork MPM, sendfile on, without logs.

use super::{Kind, Site, bare, fill, write_config};
use ackpace_lab_base::error::Result;
use std::path::Path;
use std::process::Command;

/// Path in Debian's package.
pub const PROGRAM: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";
const TEMPLATE: &str = include_str!("../../peers/apache.conf");
/// Threads of one process of the event MPM.
const THREADS: usize = 25;

/// The command that serves the site.
pub fn command(site: &Site, kind: Kind, options: &[String]) -> Result<Command> {
    let workers = site.connections.div_ceil(THREADS).max(8) * THREADS;
    let places = [
        ("WORKERS", workers.to_string()),
        ("THREADS", THREADS.to_string()),
    ];
    let places: Vec<(&str, &str)> = places.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let config = fill(&config(kind, options), &places);
    let path = write_config(site, "apache.conf", &config)?;
    let mut command = bare(PROGRAM);
    command.arg("-DFOREGROUND").arg("-f").arg(&path);
    Ok(command)
}

/// The configuration, with its placeholders unfilled.
pub fn config(kind: Kind, options: &[String]) -> String {
    let mpm = match kind {
        Kind::ApachePrefork => "prefork",
        _ => "event",
    };
    // Compiled in on some distributions, a module on others.
    let modules = ["authz_core", "dir", "mime", "autoindex", "unixd"];
    let modules = modules
        .into_iter()
        .map(|name| (format!("{name}_module"), format!("mod_{name}.so")))
        .chain([(format!("mpm_{mpm}_module"), format!("mod_mpm_{mpm}.so"))]);
    let modules: Vec<String> = modules
        .filter(|(_, file)| Path::new(MODULES).join(file).exists())
        .map(|(name, file)| format!("LoadModule {name} {MODULES}/{file}"))
        .collect();
    fill(
        TEMPLATE,
        &[
            ("MODULES", &modules.join("\n")),
            ("LINES", &options.join("\n")),
        ],
    )
}
