//! Programs from the distribution: installs missing ones by apt, without starting them as services.

use crate::error::{Doing, LabError, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const POLICY: &str = "/usr/sbin/policy-rc.d";
const APT: &str = "/usr/bin/apt-get";

/// Installs packages on a machine with apt if we are root; otherwise the error says what to type. `what_for`
/// begins the sentence that tells a person to install them. Needs the machine's own network.
///
/// # Errors
/// [`LabError::Setup`] with the command for a person to type, or with the command that failed.
pub fn install(packages: &[&str], what_for: &str) -> Result<()> {
    let command = format!(
        "apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if !rustix::process::geteuid().is_root() || !Path::new(APT).exists() {
        let what = format!("{what_for} {}: type {command}", packages.join(" and "));
        return Err(LabError::Setup(what));
    }
    eprintln!(
        "installing {} (not started as services)",
        packages.join(" and ")
    );
    let _policy = NoServices::set();
    // An outdated package list names files that are gone. Renew it only then, not every time.
    let install = ["install", "-y", "--no-install-recommends"];
    let installed =
        apt(&install, packages)? || (apt(&["update"], &[])? && apt(&install, packages)?);
    if installed {
        return Ok(());
    }
    Err(LabError::Setup(format!(
        "this failed, see its own words: {command}"
    )))
}

/// True if apt knows the package, and also where apt is missing, so that the advice names the package.
pub fn packaged(package: &str) -> bool {
    let output = Command::new("apt-cache")
        .arg("policy")
        .arg(package)
        .output();
    output.map_or(true, |output| {
        has_candidate(&String::from_utf8_lossy(&output.stdout))
    })
}

fn has_candidate(policy: &str) -> bool {
    let candidate = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate:"));
    candidate.is_some_and(|version| version.trim() != "(none)")
}

fn apt(verb: &[&str], packages: &[&str]) -> Result<bool> {
    let mut command = Command::new(APT);
    command.arg("-qq").args(verb).args(packages);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null());
    Ok(command.status().doing(|| "apt-get".into())?.success())
}

/// Forbids the start of services while it exists (invoke-rc.d(8): exit code 101 of policy-rc.d).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_knows_a_package_that_has_a_candidate() {
        let known = "h2o:\n  Installed: (none)\n  Candidate: 2.2.5\n  Version table:\n";
        assert!(has_candidate(known));
        assert!(!has_candidate(
            "h2o:\n  Installed: (none)\n  Candidate: (none)\n"
        ));
        assert!(!has_candidate(""), "a name that apt never heard of");
    }
}
