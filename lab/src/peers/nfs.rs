//! Servers of NFS beside ours: NFS-Ganesha, and the lab's own plain one.

use super::{Kind, Site, bare, fill, says, says_of, write_config};
use ackpace_lab_base::error::{Doing, Result};
use std::path::PathBuf;
use std::process::Command;

const GANESHA_PACKAGE: &str = "nfs-ganesha-vfs";
const GANESHA_CONFIG: &str = include_str!("../../peers/ganesha.conf");

/// Ganesha's files.
struct Ganesha {
    program: PathBuf,
    /// Its modules for file systems; `None`: where they were built to be.
    plugins: Option<PathBuf>,
    /// Where its libraries are, if not where the loader looks.
    libraries: Option<PathBuf>,
}

impl Ganesha {
    /// That which `scripts/lib.sh` (`ensure_ganesha`) unpacks beside what is built, or the installed one.
    fn find() -> Self {
        Self::unpacked().unwrap_or_else(|| Self {
            program: "/usr/bin/ganesha.nfsd".into(),
            plugins: None,
            libraries: None,
        })
    }

    fn unpacked() -> Option<Self> {
        // TARGET_DIR/PROFILE/ackpace-lab
        let own = std::env::current_exe().ok()?;
        let unpacked = own.ancestors().nth(2)?.join("tools/ganesha/usr");
        let program = unpacked.join("bin/ganesha.nfsd");
        let folders = std::fs::read_dir(unpacked.join("lib")).ok()?;
        let mut folders = folders.flatten().map(|entry| entry.path().join("ganesha"));
        Some(Self {
            program: program.exists().then_some(program)?,
            plugins: Some(folders.find(|folder| folder.join("libfsalvfs.so").exists())?),
            libraries: Some(unpacked.join("lib/ganesha")),
        })
    }

    fn command(&self) -> Command {
        let mut command = bare(&self.program.to_string_lossy());
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// The package that provides Ganesha, if it is missing.
pub fn ganesha_lacking() -> Option<&'static str> {
    let is_there = Ganesha::find().program.exists();
    (!is_there).then_some(GANESHA_PACKAGE)
}

/// Version and configuration, with its places left open.
///
/// # Errors
/// It does not run.
pub fn identity(kind: Kind) -> Result<(String, String)> {
    match kind {
        Kind::Ganesha => {
            let mut command = Ganesha::find().command();
            command.arg("-v");
            Ok((says_of(command)?, GANESHA_CONFIG.to_owned()))
        }
        _ => {
            let version = says(&own_program()?, "--version")?;
            let config = "ackpace-lab plain-nfs --address @IP@:@PORT@ --root @ROOT@";
            Ok((version, config.to_owned()))
        }
    }
}

/// The command that serves a site.
///
/// # Errors
/// Its configuration can't be written.
pub fn command(site: &Site, kind: Kind) -> Result<Command> {
    match kind {
        Kind::Ganesha => {
            let ganesha = Ganesha::find();
            let plugins = ganesha.plugins.as_ref().map_or_else(String::new, |folder| {
                format!("Plugins_Dir = \"{}\";", folder.display())
            });
            let config = fill(GANESHA_CONFIG, &[("PLUGINS", plugins)]);
            let config = write_config(site, "ganesha.conf", &config)?;
            let mut command = ganesha.command();
            command.args(["-F", "-L", "/dev/stderr", "-f"]).arg(config);
            command.arg("-p").arg(site.scratch.join("ganesha.pid"));
            Ok(command)
        }
        _ => {
            let mut command = bare(&own_program()?.to_string_lossy());
            command.args(["plain-nfs", "--address", &site.address.to_string()]);
            command.arg("--root").arg(site.root);
            Ok(command)
        }
    }
}

fn own_program() -> Result<PathBuf> {
    std::env::current_exe().doing(|| "our own program".into())
}
