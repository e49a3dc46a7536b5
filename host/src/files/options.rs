//! The command line of `files`, each option defined once.

use std::path::PathBuf;

use clap::Args;

use crate::handoff::options::{User, user};

/// Where the server asks. Not in the folder of the locks, which is closed to others.
pub const SOCKET: &str = "/run/ackpace-files/files.sock";

/// `files`.
#[derive(Debug, Args)]
pub struct Files {
    /// The folder that the server serves: nothing outside it is touched
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// The user that the server runs as, by name or number; only that user and root may connect
    #[arg(long = "for", alias = "allow-uid", value_name = "USER", value_parser = user)]
    pub user: User,
    /// Unix socket for the server
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Do what root of a client asks, too: for exports with `no_root_squash`. A server that is broken into is root in the folder then
    #[arg(long)]
    pub allow_root: bool,
}
