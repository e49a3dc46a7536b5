//! Which sockets a program for the kernel means: fills the maps of `host/src/bpf/matching.h`.

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
        for port in &matching.ports {
            self.by |= BY_PORT;
            put(object, "ports", &port.to_ne_bytes())?;
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
