//! Installs missing peers from the distribution, without starting them as services.

use super::program::Program;
use super::{Contender, missing};
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_base::packages::{install, packaged};
use std::path::Path;

/// The package that provides a contender's program, if that is missing on this machine.
pub fn lacking(contender: &Contender) -> Option<&'static str> {
    let program = Program::of(contender.kind)?;
    (!Path::new(program.path).exists()).then_some(program.package)
}

/// Ensures that all contenders are installed. On a machine with apt and as root it installs missing ones;
/// otherwise the error says what to type. Needs the machine's own network.
///
/// # Errors
/// Names a contender that is missing and can't be installed, with a remedy.
pub fn provide(contenders: &[Contender]) -> Result<()> {
    let lacks = |contender: &&Contender| lacking(contender).is_some();
    if !contenders.iter().any(|who| lacks(&who)) {
        return Ok(());
    }
    let mut packages: Vec<&str> = contenders.iter().filter_map(lacking).collect();
    packages.sort_unstable();
    packages.dedup();
    let without = "or leave it out with --contenders";
    if let Some(package) = packages.iter().find(|package| !packaged(package)) {
        let who = contenders.iter().find(|who| lacking(who) == Some(package));
        let who = who.map_or(*package, |who| who.name.as_str());
        return Err(missing(
            who,
            &format!("not packaged here; install it yourself, {without}"),
        ));
    }
    install(&packages, "these experiments measure beside").map_err(|error| match error {
        LabError::Setup(what) => LabError::Setup(format!("{what}; {without}")),
        other => other,
    })?;
    match contenders.iter().find(lacks) {
        None => Ok(()),
        Some(who) => Err(missing(
            &who.name,
            "its package was installed and it is not there",
        )),
    }
}
