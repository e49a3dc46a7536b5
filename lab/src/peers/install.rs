//! Brings missing peers from the distribution, without starting them as services.

use super::{Contender, lighttpd, nginx};
use crate::error::{Doing, LabError, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Makes sure that all contenders are on this machine; installs those that are not, if this is a
/// machine with apt and we are root, else says what to type. Needs the machine's own network.
pub fn provide(contenders: &[Contender]) -> Result<()> {
    let missing: Vec<&str> = contenders.iter().copied().filter_map(missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing, "the bench measures beside")?;
    match contenders.iter().copied().find_map(self::missing) {
        None => Ok(()),
        Some(package) => Err(LabError::Setup(format!(
            "{package} was installed but is not there"
        ))),
    }
}

/// Makes sure that a program is there, which `package` brings; `what_for` begins the sentence that
/// tells a person to install it ("the check measures with").
pub fn provide_program(program: &str, package: &str, what_for: &str) -> Result<()> {
    if Path::new(program).exists() {
        return Ok(());
    }
    install(&[package], what_for)
}

fn install(missing: &[&str], what_for: &str) -> Result<()> {
    let mut packages = missing.to_vec();
    packages.dedup();
    let command = format!(
        "apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    let root = rustix::process::geteuid().is_root();
    if !root || !Path::new("/usr/bin/apt-get").exists() {
        let what = format!("{what_for} {}: type {command}", packages.join(" and "));
        return Err(LabError::Setup(what));
    }
    eprintln!(
        "installing {} (not started as services)",
        packages.join(" and ")
    );
    let _policy = NoServices::set();
    // A list of packages that is too old names files that are gone: renew it then, not always.
    let install = ["install", "-y", "--no-install-recommends"];
    let installed =
        apt(&install, &packages)? || (apt(&["update"], &[])? && apt(&install, &packages)?);
    if installed {
        return Ok(());
    }
    Err(LabError::Setup(format!(
        "this failed, see its own words: {command}"
    )))
}

/// The package that a contender needs and that is not there.
fn missing(contender: Contender) -> Option<&'static str> {
    let (program, package) = match contender {
        Contender::Ackpace => return None,
        Contender::Nginx | Contender::NginxAio => (nginx::PROGRAM, "nginx"),
        Contender::Lighttpd => (lighttpd::PROGRAM, "lighttpd"),
    };
    (!Path::new(program).exists()).then_some(package)
}

fn apt(verb: &[&str], packages: &[&str]) -> Result<bool> {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(verb).args(packages);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null());
    Ok(command.status().doing(|| "apt-get".into())?.success())
}

/// Forbids the start of services while it lives (invoke-rc.d(8): exit code 101 of policy-rc.d).
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn set() -> Self {
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(POLICY);
        let ours = file.is_ok_and(|mut file| {
            std::io::Write::write_all(&mut file, b"#!/bin/sh\nexit 101\n").is_ok()
        });
        Self { ours }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(POLICY);
        }
    }
}
