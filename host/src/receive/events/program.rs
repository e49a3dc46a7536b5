//! The program for the kernel, and its ring of events.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};

use super::{Chosen, Event};
use crate::failure::Failure;
use crate::kernel::object::{Aligned, failed, refused};
use crate::kernel::selection;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/guard.bpf.o")));
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint or a function that the program uses: Linux 6.3 or later \
                     has all";

/// The program, attached as long as this lives.
pub struct Program {
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    heard: Rc<RefCell<Vec<Event>>>,
    _object: Object,
}

impl Program {
    /// As [`super::Events::open`].
    pub fn open(chosen: &Chosen) -> Result<Program, Failure> {
        libbpf_rs::set_print(None); // errors are told here
        let open = ObjectBuilder::default().open_memory(&OBJECT.0);
        let object = open
            .and_then(|open| open.load())
            .map_err(|error| refused(&error, NEEDS))?;
        choose(&object, chosen)?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let ring = {
            let events = selection::map(&object, "events")?;
            let (mut builder, into) = (RingBufferBuilder::new(), Rc::clone(&heard));
            let hear = move |bytes: &[u8]| {
                into.borrow_mut().extend(Event::parse(bytes));
                0
            };
            builder.add(&events, hear).map_err(failed)?;
            builder.build().map_err(failed)?
        };
        let mut links = Vec::new();
        for part in object.progs_mut() {
            links.push(part.attach().map_err(|error| refused(&error, NEEDS))?);
        }
        Ok(Program {
            _links: links,
            ring,
            heard,
            _object: object,
        })
    }

    /// As [`super::Events::wait`].
    pub fn wait(&mut self, most: Duration, events: &mut Vec<Event>) -> Result<(), Failure> {
        match self.ring.poll(most) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(Failure::runtime(format!("the ring of events: {error}")));
            }
            _ => {}
        }
        events.append(&mut self.heard.borrow_mut());
        Ok(())
    }
}

/// Writes a `struct guard_settings`, before anything is attached.
fn choose(object: &Object, chosen: &Chosen) -> Result<(), Failure> {
    let write = |name: &str, key: &[u8], value: &[u8]| {
        let map = selection::map(object, name)?;
        map.update(key, value, MapFlags::ANY).map_err(failed)
    };
    for port in &chosen.ports {
        write("ports", &port.to_ne_bytes(), &[1])?;
    }
    let words = [u32::from(!chosen.ports.is_empty()), chosen.pid.unwrap_or(0)];
    let settings: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    write("settings", &0u32.to_ne_bytes(), &settings)
}
