//! Which sockets a program for the kernel means: fills the maps of `host/src/bpf/ports.h` and `host/src/bpf/matching.h`.

use std::collections::BTreeMap;

use libbpf_rs::{Map, MapCore, MapFlags, Object};

use super::object::failed;
use crate::failure::Failure;
use crate::matching::Matching;

const BY_PORT: u32 = 1;
const BY_CGROUP: u32 = 2;
const BY_ADDRESS: u32 = 4;

/// What the maps of a program have.
#[derive(Debug, Default)]
pub struct Selection {
    by: u32,
    cgroups: Vec<u64>,
}

impl Selection {
    /// By what sockets are matched: `BY_PORT` and so on, as the program is told.
    pub fn by(&self) -> u32 {
        self.by
    }

    /// From now on these match. To be called once.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn choose(&mut self, object: &Object, matching: &Matching) -> Result<(), Failure> {
        self.by = 0;
        if !matching.ports.is_empty() {
            self.by |= BY_PORT;
            choose_ports(object, &matching.ports)?;
        }
        for prefix in &matching.prefixes {
            self.by |= BY_ADDRESS;
            let bits = prefix.bits.to_ne_bytes().into_iter();
            let key: Vec<u8> = bits.chain(prefix.octets).collect();
            put(object, "prefixes", &key)?;
        }
        if matching.cgroup.is_some() {
            self.by |= BY_CGROUP;
        }
        Ok(())
    }

    /// From now on the sockets of these cgroups match, of those that match otherwise.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn choose_cgroups(&mut self, object: &Object, ids: &[u64]) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.cgroups, ids.to_vec());
        for id in before.iter().filter(|id| !ids.contains(id)) {
            let cgroups = map(object, "cgroups")?;
            cgroups.delete(&id.to_ne_bytes()).map_err(failed)?;
        }
        for id in ids.iter().filter(|id| !before.contains(id)) {
            put(object, "cgroups", &id.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// Sets the bits of these ports, in an object whose map has none yet.
///
/// # Errors
/// As bpf(2).
fn choose_ports(object: &Object, ports: &[u16]) -> Result<(), Failure> {
    let bits = map(object, "ports")?;
    for (word, ports) in port_words(ports) {
        bits.update(&word.to_ne_bytes(), &ports.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed)?;
    }
    Ok(())
}

/// Tells a program of `receive` what it is about, before anything is attached: these ports, and its map `settings`.
///
/// # Errors
/// As bpf(2).
pub fn choose_meant(object: &Object, ports: &[u16], settings: &[u8]) -> Result<(), Failure> {
    choose_ports(object, ports)?;
    map(object, "settings")?
        .update(&0u32.to_ne_bytes(), settings, MapFlags::ANY)
        .map_err(failed)
}

/// A bit for each port, in words by their number.
fn port_words(ports: &[u16]) -> BTreeMap<u32, u64> {
    let mut words = BTreeMap::new();
    for port in ports {
        *words.entry(u32::from(port / 64)).or_default() |= 1 << (port % 64);
    }
    words
}

/// The map of this name.
///
/// # Errors
/// There is none.
pub fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Failure> {
    let map = object.maps().find(|map| map.name() == name);
    map.ok_or_else(|| Failure::runtime(format!("the object file lacks its map {name}")))
}

fn put(object: &Object, name: &str, key: &[u8]) -> Result<(), Failure> {
    let map = map(object, name)?;
    map.update(key, &[1], MapFlags::ANY).map_err(failed)
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
