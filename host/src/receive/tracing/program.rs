//! The program for the kernel, and its maps.

use libbpf_rs::{Link, MapCore, MapFlags, Object};

use super::ReceiverFilter;
use crate::clock::monotonic_ns;
use crate::failure::Failure;
use crate::kernel::object::{self, Aligned, failed};
use crate::kernel::selection;
use crate::receive::report::Counted;
use crate::receive::rows::{Row, Sender, Service, Watched, Who};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o")));
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint or a function that the program uses: Linux 5.17 or \
                     later has all";

/// The program, attached as long as this lives.
pub struct ReceiveProgram {
    object: Object,
    _links: Vec<Link>,
}

impl ReceiveProgram {
    /// As [`super::Tracing::open`].
    pub fn open(filter: &ReceiverFilter) -> Result<ReceiveProgram, Failure> {
        let mut program = ReceiveProgram {
            object: object::load(OBJECT, NEEDS)?,
            _links: Vec::new(),
        };
        program.choose(filter)?;
        program._links = object::attach(&program.object, NEEDS)?;
        Ok(program)
    }

    /// Writes a `struct settings`, before anything is attached.
    fn choose(&self, filter: &ReceiverFilter) -> Result<(), Failure> {
        let halves = [filter.ephemeral.0, filter.ephemeral.1];
        let settings: Vec<u8> = filter
            .settings()
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .chain(halves.into_iter().flat_map(u16::to_ne_bytes))
            .collect();
        selection::choose_meant(&self.object, &filter.ports, &settings)
    }

    /// Each entry of a map, but for those that go away meanwhile.
    fn each<T>(&self, name: &str, parse: impl Fn(&[u8], &[u8]) -> T) -> Result<Vec<T>, Failure> {
        let map = selection::map(&self.object, name)?;
        let mut entries = Vec::new();
        // A key that goes away while they are walked makes the walk begin anew: so it has a bound.
        for key in map.keys().take(map.max_entries() as usize) {
            if let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(failed)? {
                entries.push(parse(&key, &value));
            }
        }
        Ok(entries)
    }

    /// As [`super::Tracing::counted`].
    pub fn counted(&self) -> Result<Counted, Failure> {
        let missed =
            selection::map(&self.object, "missed")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let missed = missed.map_err(failed)?.unwrap_or_default();
        let long = |at: usize| {
            let bytes = missed.get(at..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        Ok(Counted {
            rows: self.each("rows", |key, value| (Who::parse(key), Row::parse(value)))?,
            watched: self.each("watched", |_, value| Watched::parse(value, monotonic_ns()))?,
            senders: self.each("senders", |key, value| {
                (Service::parse(key), Sender::parse(value))
            })?,
            missed_rows: long(0),
            missed_connections: long(8),
        })
    }
}
