//! The same by libbpf.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{
    ErrorKind, Iter, Link, Map, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder,
    OpenMapMut, ProgramInput, ProgramType,
};

use super::{Aligned, Entry, no_bpf};
use crate::failure::Failure;

/// A loaded object file. Dropping it detaches it.
pub struct Program {
    links: Vec<Link>,
    pub(super) object: Object,
    /// What it takes of a kernel.
    pub(super) needs: &'static str,
}

/// How many cores this machine may ever have.
///
/// # Errors
/// /sys is not there.
pub fn cores() -> Result<usize, Failure> {
    libbpf_rs::num_possible_cpus().map_err(failed)
}

impl Program {
    /// Loads an object file. `needs`: what it takes of a kernel, for whoever has not got that. `pin`: a map that is pinned at this
    /// path, or is the one that is pinned there, if it has the same layout.
    ///
    /// # Errors
    /// The kernel refuses; what to do. Or this binary has no BPF.
    pub fn load(
        file: &Aligned<[u8]>,
        needs: &'static str,
        pin: Option<(&str, &Path)>,
    ) -> Result<Program, Failure> {
        Program::load_with(file, needs, |name, map| match pin {
            Some((pinned, path)) if pinned == name => map.set_pin_path(path),
            _ => Ok(()),
        })
    }

    /// Loads an object file with a structure of the kernel's whose first field is its name (`char[16]`), under this name of less
    /// than 16 bytes.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn load_named(
        file: &Aligned<[u8]>,
        needs: &'static str,
        structure: &str,
        name: &str,
    ) -> Result<Program, Failure> {
        let mut field = [0; 16];
        let bytes = name.bytes().take(15);
        field
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = byte);
        Program::load_with(file, needs, |map_name, map| {
            let value = map.initial_value_mut().and_then(|it| it.first_chunk_mut());
            if let Some(value) = value.filter(|_| map_name == structure) {
                *value = field;
            }
            Ok(())
        })
    }

    /// Each map is prepared before all are loaded.
    pub(super) fn load_with(
        file: &Aligned<[u8]>,
        needs: &'static str,
        prepare: impl Fn(&str, &mut OpenMapMut<'_>) -> libbpf_rs::Result<()>,
    ) -> Result<Program, Failure> {
        if file.0.is_empty() {
            return Err(no_bpf());
        }
        libbpf_rs::set_print(None); // errors are told here
        let refused = |error: libbpf_rs::Error| refused(&error, needs);
        let mut open = ObjectBuilder::default()
            .open_memory(&file.0)
            .map_err(refused)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy();
            prepare(&name, &mut map).map_err(refused)?;
        }
        Ok(Program {
            links: Vec::new(),
            object: open.load().map_err(refused)?,
            needs,
        })
    }

    /// Attaches the structures of the kernel's that the object file has, and none of its programs, until this is dropped.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn attach_structures(&mut self) -> Result<(), Failure> {
        for mut map in self.object.maps_mut() {
            if map.map_type() == MapType::StructOps {
                let link = map.attach_struct_ops();
                self.links
                    .push(link.map_err(|error| refused(&error, self.needs))?);
            }
        }
        Ok(())
    }

    /// Runs a program once on this packet, which it may change but not resize. What it returns.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn run(&mut self, name: &str, packet: &mut [u8]) -> Result<u32, Failure> {
        let program = self.program(name)?;
        let asked = packet.to_vec();
        let input = ProgramInput {
            data_in: Some(&asked),
            data_out: Some(packet),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(failed)?;
        Ok(output.return_value)
    }

    /// Attaches all that the object file has, until this is dropped: last a scheduler, if it has one.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn attach(&mut self) -> Result<(), Failure> {
        let refused = |error: libbpf_rs::Error| refused(&error, self.needs);
        for program in self.object.progs_mut() {
            if program.prog_type() != ProgramType::StructOps {
                self.links.push(program.attach().map_err(refused)?);
            }
        }
        for mut map in self.object.maps_mut() {
            if map.map_type() == MapType::StructOps {
                self.links.push(map.attach_struct_ops().map_err(refused)?);
            }
        }
        Ok(())
    }

    /// Attaches the iterator of the object file to the map that is pinned there.
    ///
    /// # Errors
    /// As [`Program::load`]; or nothing is pinned there.
    pub fn attach_to(&mut self, pin: &Path) -> Result<(), Failure> {
        let map = MapHandle::from_pinned_path(pin).map_err(failed)?;
        for program in self.object.progs_mut() {
            let link = program.attach_iter(map.as_fd());
            self.links
                .push(link.map_err(|error| refused(&error, self.needs))?);
        }
        Ok(())
    }

    pub(super) fn map(&self, name: &str) -> Result<Map<'_>, Failure> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| Failure::runtime(format!("the object file lacks its map {name}")))
    }

    /// Writes a value of a map.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn set(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.map(map)?
            .update(key, value, MapFlags::ANY)
            .map_err(failed)
    }

    /// Removes a value from a map.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn delete(&self, map: &str, key: &[u8]) -> Result<(), Failure> {
        self.map(map)?.delete(key).map_err(failed)
    }

    /// Writes values of 64-bit keys, which stand one behind the other, as the values do.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn set_all(&self, map: &str, keys: &[u8], values: &[u8]) -> Result<(), Failure> {
        let (any, count) = (MapFlags::ANY, keys.len() as u32 / 8);
        match count {
            0 => Ok(()),
            _ => self
                .map(map)?
                .update_batch(keys, values, count, any, any)
                .map_err(failed),
        }
    }

    /// Removes the values of 64-bit keys, all of which are there.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn delete_all(&self, map: &str, keys: &[u8]) -> Result<(), Failure> {
        let (any, count) = (MapFlags::ANY, keys.len() as u32 / 8);
        match count {
            0 => Ok(()),
            _ => self
                .map(map)?
                .delete_batch(keys, count, any, any)
                .map_err(failed),
        }
    }

    /// A value of a map.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn get(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.map(map)?.lookup(key, MapFlags::ANY).map_err(failed)
    }

    /// Keys and values of a hash map. Those that come or go meanwhile may be among them, or not.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn entries(&self, map: &str) -> Result<Vec<Entry>, Failure> {
        let map = self.map(map)?;
        // One batch: one that is not full, as most are, would be taken for the last.
        let all = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY);
        Ok(all.map_err(failed)?.collect())
    }

    /// What the attached iterator tells, from its start.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn iterate(&self) -> Result<impl Read + use<>, Failure> {
        let link = self.links.first();
        let link = link.ok_or_else(|| Failure::runtime("the iterator is not attached"))?;
        Iter::new(link).map_err(failed)
    }
}

/// A call of bpf(2) failed.
pub(super) fn failed(error: libbpf_rs::Error) -> Failure {
    Failure::runtime(format!("bpf(2): {error}"))
}

/// The kernel does not take a program; `needs` is what it would take to.
fn refused(error: &libbpf_rs::Error, needs: &str) -> Failure {
    let cure = match error.kind() {
        ErrorKind::PermissionDenied => {
            "it takes CAP_BPF and CAP_PERFMON, which root has outside containers; lockdown may forbid it, too"
        }
        ErrorKind::NotFound | ErrorKind::InvalidInput | ErrorKind::InvalidData => needs,
        _ => "ask 'ackpace-host doctor'",
    };
    Failure::operator(format!("the kernel refuses the program ({error}): {cure}"))
}
