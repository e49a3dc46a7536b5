//! The program for the kernel, and its ring of events.

use std::time::Duration;

use libbpf_rs::{Link, Object};

use super::{GuardEvent, ReceiverFilter};
use crate::failure::Failure;
use crate::kernel::object::{self, Aligned};
use crate::kernel::ring::Ring;
use crate::kernel::selection;
use crate::limits::EVENTS_MAX;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/guard.bpf.o")));
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint or a function that the program uses: Linux 6.3 or later \
                     has all";

/// The program, attached as long as this lives.
pub struct GuardProgram {
    _links: Vec<Link>,
    ring: Ring<GuardEvent>,
    _object: Object,
}

impl GuardProgram {
    /// As [`super::GuardEvents::open`].
    pub fn open(filter: &ReceiverFilter) -> Result<GuardProgram, Failure> {
        let object = object::load(OBJECT, NEEDS)?;
        let settings = filter.settings().map(u32::to_ne_bytes).concat();
        selection::choose_meant(&object, &filter.ports, &settings)?;
        let ring = Ring::of(&object, EVENTS_MAX, GuardEvent::parse)?;
        let links = object::attach(&object, NEEDS)?;
        Ok(GuardProgram {
            _links: links,
            ring,
            _object: object,
        })
    }

    /// As [`super::GuardEvents::wait`].
    pub fn wait(&mut self, most: Duration, events: &mut Vec<GuardEvent>) -> Result<(), Failure> {
        self.ring.wait(most, events)
    }
}
