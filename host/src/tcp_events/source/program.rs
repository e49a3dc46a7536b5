//! The program for the kernel, and its ring of events.

use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object};

use super::TcpEvent;
use crate::failure::Failure;
use crate::kernel::object::{self, Aligned, failed};
use crate::kernel::ring::Ring;
use crate::kernel::selection::{self, Selection};
use crate::limits::TCP_EVENTS_MAX;
use crate::matching::Matching;

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/events.bpf.o")));
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint that the program uses: Linux 5.16 or later has all";

/// The program, attached as long as this lives.
pub struct EventsProgram {
    _links: Vec<Link>,
    ring: Ring<TcpEvent>,
    selection: Selection,
    object: Object,
}

impl EventsProgram {
    /// As [`super::Source::open`].
    pub fn open(matching: &Matching) -> Result<EventsProgram, Failure> {
        let object = object::load(OBJECT, NEEDS)?;
        let mut selection = Selection::default();
        selection.choose(&object, matching)?;
        let by = selection.by().to_ne_bytes();
        selection::map(&object, "settings")?
            .update(&0u32.to_ne_bytes(), &by, MapFlags::ANY)
            .map_err(failed)?;
        let ring = Ring::of(&object, TCP_EVENTS_MAX, TcpEvent::parse)?;
        let links = object::attach(&object, NEEDS)?;
        Ok(EventsProgram {
            _links: links,
            ring,
            selection,
            object,
        })
    }

    /// As [`super::Source::select_cgroups`].
    pub fn select_cgroups(&mut self, ids: &[u64]) -> Result<(), Failure> {
        self.selection.choose_cgroups(&self.object, ids)
    }

    /// As [`super::Source::wait`].
    pub fn wait(&mut self, most: Duration, events: &mut Vec<TcpEvent>) -> Result<(), Failure> {
        self.ring.wait(most, events)
    }

    /// As [`super::Source::missed`].
    pub fn missed(&self) -> u64 {
        let count = selection::map(&self.object, "missed")
            .ok()
            .and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?);
        let in_kernel = count.and_then(|bytes| Some(u64::from_ne_bytes(*bytes.first_chunk()?)));
        in_kernel.unwrap_or(0) + self.ring.beyond()
    }
}
