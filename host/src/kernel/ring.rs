//! The ring in which a program for the kernel tells of events: hears them, and keeps them until they are taken.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{ErrorKind, Object, RingBuffer, RingBufferBuilder};

use super::object::failed;
use super::selection;
use crate::failure::Failure;

/// The ring `events` of a program, with what was heard of it.
pub struct Ring<T> {
    ring: RingBuffer<'static>,
    heard: Rc<RefCell<Vec<T>>>,
    beyond: Rc<Cell<u64>>,
}

impl<T: 'static> Ring<T> {
    /// That of this program, of which so many events are taken at once; more are lost, and counted. `parse`: an event, if
    /// these bytes are one.
    ///
    /// # Errors
    /// The program has no such ring, or as bpf(2).
    pub fn of(
        object: &Object,
        most: usize,
        parse: fn(&[u8]) -> Option<T>,
    ) -> Result<Ring<T>, Failure> {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let beyond = Rc::new(Cell::new(0));
        let (into, lost) = (Rc::clone(&heard), Rc::clone(&beyond));
        let hear = move |bytes: &[u8]| {
            let mut into = into.borrow_mut();
            match into.len() < most {
                true => into.extend(parse(bytes)),
                false => lost.set(lost.get() + 1),
            }
            0
        };
        let events = selection::map(object, "events")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&events, hear).map_err(failed)?;
        Ok(Ring {
            ring: builder.build().map_err(failed)?,
            heard,
            beyond,
        })
    }

    /// Waits for events, at most so long, and takes what is there.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn wait(&mut self, most: Duration, events: &mut Vec<T>) -> Result<(), Failure> {
        match self.ring.poll(most) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(Failure::runtime(format!("the ring of events: {error}")));
            }
            _ => {}
        }
        events.append(&mut self.heard.borrow_mut());
        Ok(())
    }

    /// How many were lost, being too many at once.
    pub fn beyond(&self) -> u64 {
        self.beyond.get()
    }
}
