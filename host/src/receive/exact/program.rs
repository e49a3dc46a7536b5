//! The scheduler in the kernel, and its maps.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramType};

use super::{Chosen, Counts};
use crate::failure::Failure;
use crate::kernel::object::{self, Aligned, failed, refused};
use crate::kernel::selection;
use crate::limits::CORES_MAX;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/exact.bpf.o")));
const NEEDS: &str = "this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT), or lacks a function that the program uses: it was \
                     run on Linux 7.2; 'receive guard' without --exact needs less";
/// Its `struct sched_ext_ops`.
const SCHEDULER: &str = "exact";

/// The scheduler, in charge as long as this lives.
pub struct Program {
    _links: Vec<Link>,
    object: Object,
}

impl Program {
    /// As [`super::Exact::open`].
    pub fn open(chosen: &Chosen, slice_ns: u64, owed_ns: u64) -> Result<Program, Failure> {
        let cores = libbpf_rs::num_possible_cpus().map_err(failed)?;
        if cores > CORES_MAX {
            let what = format!(
                "--exact knows {CORES_MAX} cores at most, this machine has {cores}: leave it out"
            );
            return Err(Failure::operator(what));
        }
        let mut object = object::load(OBJECT, NEEDS)?;
        let words = [
            u32::from(!chosen.ports.is_empty()),
            chosen.pid.unwrap_or(0),
            cores as u32,
            0,
        ];
        let longs = [slice_ns, owed_ns].into_iter().flat_map(u64::to_ne_bytes);
        let settings: Vec<u8> = longs
            .chain(words.into_iter().flat_map(u32::to_ne_bytes))
            .collect();
        let write = |name: &str, key: &[u8], value: &[u8]| {
            let map = selection::map(&object, name)?;
            map.update(key, value, MapFlags::ANY).map_err(failed)
        };
        for port in &chosen.ports {
            write("ports", &port.to_ne_bytes(), &[1])?;
        }
        write("settings", &0u32.to_ne_bytes(), &settings)?;
        let mut links = Vec::new();
        let parts = object
            .progs_mut()
            .filter(|part| part.prog_type() == ProgramType::Tracing);
        for part in parts {
            links.push(part.attach().map_err(|error| refused(&error, NEEDS))?);
        }
        let scheduler = object.maps_mut().find(|map| map.name() == SCHEDULER);
        let mut scheduler =
            scheduler.ok_or_else(|| Failure::runtime("the object file lacks its scheduler"))?;
        links.push(
            scheduler
                .attach_struct_ops()
                .map_err(|error| refused(&error, NEEDS))?,
        );
        Ok(Program {
            _links: links,
            object,
        })
    }

    /// As [`super::Exact::counted`].
    pub fn counted(&self) -> Result<Counts, Failure> {
        let counts = selection::map(&self.object, "counts")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed)?;
        let counts = counts.and_then(|bytes| Counts::parse(&bytes));
        counts.ok_or_else(|| Failure::runtime("the scheduler's counts have another form"))
    }
}
