//! The scheduler in the kernel, and its maps.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramType};

use super::{ExactCounts, ReceiverFilter};
use crate::failure::Failure;
use crate::kernel::object::{self, Aligned, failed, refused};
use crate::kernel::selection;
use crate::limits::CORES_MAX;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/exact.bpf.o")));
const NEEDS: &str = "this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT), or lacks a function that the program uses: it was \
                     run on Linux 7.2; 'receive guard' without --exact needs less";
/// Its `struct sched_ext_ops`.
const SCHEDULER: &str = "exact";
/// Bytes of a `struct exact_settings` (`host/src/bpf/exact.h`).
const SETTINGS_BYTES: usize = 32;

/// The scheduler, in charge as long as this lives.
pub struct ExactProgram {
    _links: Vec<Link>,
    object: Object,
}

impl ExactProgram {
    /// As [`super::Exact::open`].
    pub fn open(
        filter: &ReceiverFilter,
        slice_ns: u64,
        owed_ns: u64,
    ) -> Result<ExactProgram, Failure> {
        let cores = libbpf_rs::num_possible_cpus().map_err(failed)?;
        if cores > CORES_MAX {
            let what = format!(
                "--exact knows {CORES_MAX} cores at most, this machine has {cores}: leave it out"
            );
            return Err(Failure::operator(what));
        }
        let mut object = object::load(OBJECT, NEEDS)?;
        let settings = settings(filter, [slice_ns, owed_ns], cores as u32);
        selection::choose_meant(&object, &filter.ports, &settings)?;
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
        Ok(ExactProgram {
            _links: links,
            object,
        })
    }

    /// As [`super::Exact::counted`].
    pub fn counted(&self) -> Result<ExactCounts, Failure> {
        let counts = selection::map(&self.object, "counts")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed)?;
        let counts = counts.and_then(|bytes| ExactCounts::parse(&bytes));
        counts.ok_or_else(|| Failure::runtime("the scheduler's counts have another form"))
    }
}

/// A `struct exact_settings`, with a slice and what a thread may owe.
fn settings(filter: &ReceiverFilter, times_ns: [u64; 2], cores: u32) -> [u8; SETTINGS_BYTES] {
    let [by_port, pid] = filter.settings();
    let mut bytes = [0; SETTINGS_BYTES];
    let longs = times_ns.map(u64::to_ne_bytes);
    let words = [by_port, pid, cores].map(u32::to_ne_bytes);
    bytes[..16].copy_from_slice(longs.as_flattened());
    bytes[16..28].copy_from_slice(words.as_flattened());
    bytes
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ObjectBuilder;

    use super::*;
    use crate::receive::exact::COUNTS_BYTES;

    /// Opened, but not loaded, so any kernel will do.
    #[test]
    fn what_is_written_and_read_is_as_long_as_in_the_program() {
        let mut builder = ObjectBuilder::default();
        let open = builder.open_memory(&OBJECT.0).expect("it was compiled");
        let bytes = |name: &str| {
            let map = open.maps().find(|map| map.name() == name);
            map.map(|map| map.value_size() as usize)
        };
        assert_eq!(bytes("settings"), Some(SETTINGS_BYTES));
        assert_eq!(bytes("counts"), Some(COUNTS_BYTES));
        assert!(open.maps().any(|map| map.name() == SCHEDULER));
        let tracing = open
            .progs()
            .filter(|part| part.section() == "tp_btf/tcp_rcv_space_adjust");
        assert_eq!(tracing.count(), 1);
    }

    #[test]
    fn settings_stand_in_their_order() {
        let filter = ReceiverFilter {
            ports: vec![80],
            pid: Some(7),
            ..ReceiverFilter::default()
        };
        let bytes = settings(&filter, [1 << 40, 3], 2);
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .filter_map(|word| word.first_chunk().map(|word| u32::from_ne_bytes(*word)))
            .collect();
        let longs = [1u64 << 40, 3].map(|long| long.to_ne_bytes()).concat();
        assert_eq!(bytes[..16], longs);
        assert_eq!(words[4..], [1, 7, 2, 0]);
        let all = settings(&ReceiverFilter::default(), [1, 1], 1);
        assert_eq!(all[16..24], [0; 8], "all ports, all processes");
    }
}
