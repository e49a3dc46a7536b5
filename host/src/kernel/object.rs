//! What all object files for the kernel share: where they lie in the binary, and why the kernel refuses one.

use libbpf_rs::{ErrorKind, Link, Object, ObjectBuilder};

use crate::failure::Failure;

/// An object file for the kernel, on an address as ELF wants it.
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

/// Loads an object file; `needs` as for [`refused`].
///
/// # Errors
/// The kernel refuses; what to do.
pub fn load(file: &Aligned<[u8]>, needs: &str) -> Result<Object, Failure> {
    libbpf_rs::set_print(None); // errors are told here
    let open = ObjectBuilder::default().open_memory(&file.0);
    let object = open.and_then(|open| open.load());
    object.map_err(|error| refused(&error, needs))
}

/// Attaches all programs of an object file, until the links are dropped.
///
/// # Errors
/// As [`load`].
pub fn attach(object: &Object, needs: &str) -> Result<Vec<Link>, Failure> {
    let attached = object.progs_mut().map(|program| program.attach());
    let attached: Result<_, _> = attached.collect();
    attached.map_err(|error| refused(&error, needs))
}

/// A call of bpf(2) failed.
pub fn failed(error: libbpf_rs::Error) -> Failure {
    Failure::runtime(format!("bpf(2): {error}"))
}

/// The kernel does not take a program; `needs` is what it would take to.
pub fn refused(error: &libbpf_rs::Error, needs: &str) -> Failure {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => {
            "it takes CAP_BPF and CAP_PERFMON, which root has outside containers; lockdown may forbid it, too"
        }
        ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidData => needs,
        _ => "ask 'ackpace-host doctor'",
    };
    Failure::operator(format!("the kernel refuses the program ({error}): {cure}"))
}
