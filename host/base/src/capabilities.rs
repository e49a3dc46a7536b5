//! The rights of this process: what it has, and giving up all that it does not use any more.

use std::fs;
use std::io;

use crate::failure::Failure;

/// The capabilities that matter here (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// May load programs and make maps.
    Bpf,
    /// May load programs that read the kernel's memory.
    Perfmon,
    /// May mount the BPF file system.
    SysAdmin,
    /// May raise other tasks.
    SysNice,
}

impl Capability {
    /// Its number (linux/capability.h).
    pub fn number(self) -> u32 {
        match self {
            Capability::SysAdmin => 21,
            Capability::SysNice => 23,
            Capability::Perfmon => 38,
            Capability::Bpf => 39,
        }
    }
}

/// The effective capabilities of this thread, a bit for each.
pub fn effective() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

/// Whether this thread has it.
pub fn has(capability: Capability) -> bool {
    effective() & 1 << capability.number() != 0
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps these of the capabilities that the thread has, and nothing else, also for programs that it would start. To be
/// called before other threads start, since each has its own.
///
/// # Errors
/// As capset(2) and prctl(2).
pub fn keep_only(kept: &[Capability]) -> Result<(), Failure> {
    let bits = kept
        .iter()
        .fold(0u64, |bits, capability| bits | 1 << capability.number())
        & effective();
    let half = |bits: u64| Data {
        effective: bits as u32,
        permitted: bits as u32,
        inheritable: 0,
    };
    let data = [half(bits & 0xffff_ffff), half(bits >> 32)];
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    // SAFETY: plain numbers.
    let sealed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: header and data are as version 3 says, and live through the call.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    match sealed == 0 && set == 0 {
        true => Ok(()),
        false => {
            let error = io::Error::last_os_error();
            Err(Failure::runtime(format!("capabilities: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_is_given_up_is_gone() {
        // A thread of its own: the others keep what they have.
        let left = thread::spawn(|| keep_only(&[Capability::Bpf]).map(|()| effective()));
        let left = left
            .join()
            .expect("no panic")
            .expect("giving up is always allowed");
        assert_eq!(left & !(1 << Capability::Bpf.number()), 0);
    }
}
