//! Programs for the kernel: loads an object file, attaches what is in it, and reads and writes its maps by their names. In a
//! build without BPF, loading fails and says so.

use std::collections::BTreeMap;

use crate::failure::Failure;

#[cfg(feature = "bpf")]
mod devices;
#[cfg(not(feature = "bpf"))]
mod none;
#[cfg(feature = "bpf")]
mod program;
#[cfg(feature = "bpf")]
pub use devices::Ring;
#[cfg(not(feature = "bpf"))]
pub use none::{Program, Ring, cores};
#[cfg(feature = "bpf")]
pub use program::{Program, cores};

/// An object file for the kernel, on an address as ELF wants it; empty in a build without BPF.
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

/// A key of a map, and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// On which side of a device a program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where packets come in.
    In,
    /// Where they leave.
    Out,
}

/// The object file of `src/bpf/NAME.bpf.c`.
#[macro_export]
macro_rules! object {
    ($name:literal) => {
        &$crate::bpf::Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/",
            $name,
            ".bpf.o"
        )))
    };
}

/// What a binary without BPF says.
fn no_bpf() -> Failure {
    Failure::operator(
        "this ackpace-host was built without BPF: install clang-14, libbpf-dev, libelf-dev, zlib1g-dev, pkg-config \
         and make, and build it by 'cargo build --release -p ackpace-host --features bpf'",
    )
}

impl Program {
    /// Sets the bits of these ports, in a map that has none yet (`host/base/bpf/ports.h`).
    ///
    /// # Errors
    /// As bpf(2).
    pub fn choose_ports(&self, ports: &[u16]) -> Result<(), Failure> {
        for (word, ports) in port_words(ports) {
            self.set("ports", &word.to_ne_bytes(), &ports.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Writes the only value of a map.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn set_only(&self, map: &str, value: &[u8]) -> Result<(), Failure> {
        self.set(map, &0u32.to_ne_bytes(), value)
    }

    /// The only value of a map.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn only(&self, map: &str) -> Result<Vec<u8>, Failure> {
        Ok(self.get(map, &0u32.to_ne_bytes())?.unwrap_or_default())
    }
}

/// A bit for each port, in words by their number.
fn port_words(ports: &[u16]) -> BTreeMap<u32, u64> {
    let mut words = BTreeMap::new();
    for port in ports {
        *words.entry(u32::from(port / 64)).or_default() |= 1 << (port % 64);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_bit() {
        let words = port_words(&[0, 63, 64, 80, 65_535, 80]);
        let expected = [(0, 1 << 63 | 1), (1, 1 << 16 | 1), (1_023, 1 << 63)];
        assert_eq!(words, BTreeMap::from(expected));
    }
}
