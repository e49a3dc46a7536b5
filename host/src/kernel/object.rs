//! What all object files for the kernel share: where they lie in the binary, and why the kernel refuses one.

use libbpf_rs::ErrorKind;

use crate::failure::Failure;

/// An object file for the kernel, on an address as ELF wants it.
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

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
