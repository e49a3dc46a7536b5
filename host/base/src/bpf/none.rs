//! A build without BPF: nothing can be loaded, so nothing of the rest is ever called.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use super::{Aligned, Entry, Side, no_bpf};
use crate::failure::Failure;

/// See the real one.
#[derive(Clone, Copy)]
pub struct Program(Infallible);

/// See the real one.
///
/// # Errors
/// This binary has no BPF.
pub fn cores() -> Result<usize, Failure> {
    Err(no_bpf())
}

/// Methods that are never called.
macro_rules! never {
    ($($name:ident($($argument:ty),*) -> $told:ty;)*) => {
        #[expect(missing_docs, clippy::missing_errors_doc, reason = "see the real one")]
        impl Program {
            $(pub fn $name(&self, $(_: $argument),*) -> Result<$told, Failure> {
                match self.0 {}
            })*
        }
    };
}

never! {
    set(&str, &[u8], &[u8]) -> ();
    set_all(&str, &[u8], &[u8]) -> ();
    delete(&str, &[u8]) -> ();
    delete_all(&str, &[u8]) -> ();
    get(&str, &[u8]) -> Option<Vec<u8>>;
    entries(&str) -> Vec<Entry>;
    iterate() -> io::Empty;
    attach_pinned(&str, u32, Side, &Path) -> bool;
    ring(&str) -> Ring;
    test_run(&str, &[u8], u32) -> (i32, Duration);
}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "see the real one")]
impl Program {
    pub fn load(
        _: &Aligned<[u8]>,
        _: &'static str,
        _: Option<(&str, &Path)>,
    ) -> Result<Program, Failure> {
        Err(no_bpf())
    }

    pub fn load_named(
        _: &Aligned<[u8]>,
        _: &'static str,
        _: &str,
        _: &str,
    ) -> Result<Program, Failure> {
        Err(no_bpf())
    }

    pub fn attach_structures(&mut self) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn run(&mut self, _: &str, _: &mut [u8]) -> Result<u32, Failure> {
        match self.0 {}
    }

    pub fn load_pinned(_: &Aligned<[u8]>, _: &'static str, _: &Path) -> Result<Program, Failure> {
        Err(no_bpf())
    }

    pub fn attach(&mut self) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn attach_to(&mut self, _: &Path) -> Result<(), Failure> {
        match self.0 {}
    }
}

/// See the real one.
pub struct Ring(Infallible);

#[expect(missing_docs, clippy::missing_errors_doc, reason = "see the real one")]
impl Ring {
    pub fn take(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        match self.0 {}
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
