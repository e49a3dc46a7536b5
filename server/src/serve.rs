//! From options to a running server.

use crate::failure::Failure;
use crate::options::ServeOptions;

/// Whether what the options name can be served on this machine.
///
/// # Errors
/// A root that is not there.
pub fn check(options: &ServeOptions) -> Result<(), Failure> {
    match std::fs::metadata(&options.root) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::operator(format!("{}: {error}", options.root.display()))),
    }
}

/// Serves until a signal stops it.
///
/// # Errors
/// What [`check`] finds, and whatever ends the server early.
pub fn run(options: ServeOptions) -> Result<(), Failure> {
    check(&options)?;
    Err(Failure::runtime("the serving part is not built yet"))
}
