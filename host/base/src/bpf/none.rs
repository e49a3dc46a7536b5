//! A build without BPF: nothing can be loaded, so nothing of the rest is ever called.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use super::{Aligned, no_bpf};
use crate::failure::Failure;

/// See the real one.
#[derive(Clone, Copy)]
pub struct Program(Infallible);

/// See the real one.
pub struct Ring<T>(Infallible, PhantomData<T>);

/// See the real one.
///
/// # Errors
/// This binary has no BPF.
pub fn cores() -> Result<usize, Failure> {
    Err(no_bpf())
}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "see the real one")]
impl Program {
    pub fn load(_: &Aligned<[u8]>, _: &'static str) -> Result<Program, Failure> {
        Err(no_bpf())
    }

    pub fn load_pinned(
        _: &Aligned<[u8]>,
        _: &'static str,
        _: &str,
        _: &Path,
    ) -> Result<Program, Failure> {
        Err(no_bpf())
    }

    pub fn attach(&mut self) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn set(&self, _: &str, _: &[u8], _: &[u8]) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn delete(&self, _: &str, _: &[u8]) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn get(&self, _: &str, _: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self.0 {}
    }

    pub fn entries(&self, _: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Failure> {
        match self.0 {}
    }

    pub fn set_all(&self, _: &str, _: &[u8], _: &[u8]) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn delete_all(&self, _: &str, _: &[u8]) -> Result<(), Failure> {
        match self.0 {}
    }

    pub fn iterate(&self) -> Result<io::Empty, Failure> {
        match self.0 {}
    }

    pub fn events<T>(&self, _: fn(&[u8]) -> Option<T>) -> Result<Ring<T>, Failure> {
        match self.0 {}
    }
}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "see the real one")]
impl<T> Ring<T> {
    pub fn wait(&mut self, _: Duration, _: &mut Vec<T>) -> Result<(), Failure> {
        match self.0 {}
    }
}
