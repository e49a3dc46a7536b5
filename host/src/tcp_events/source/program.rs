//! The program for the kernel, and its ring of news.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};

use super::News;
use crate::failure::Failure;
use crate::kernel::object::{Aligned, failed, refused};
use crate::kernel::selection::{self, Selection};
use crate::limits::NEWS_MAX;
use crate::matching::Matching;

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/events.bpf.o")));
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint that the program uses: Linux 5.16 or later has all";

/// The program, attached as long as this lives.
pub struct Program {
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    heard: Rc<RefCell<Vec<News>>>,
    /// What was beyond [`NEWS_MAX`].
    beyond: Rc<Cell<u64>>,
    selection: Selection,
    object: Object,
}

impl Program {
    /// As [`super::Source::open`].
    pub fn open(matching: &Matching) -> Result<Program, Failure> {
        libbpf_rs::set_print(None); // errors are told here
        let open = ObjectBuilder::default().open_memory(&OBJECT.0);
        let object = open
            .and_then(|open| open.load())
            .map_err(|error| refused(&error, NEEDS))?;
        let mut selection = Selection::default();
        selection.choose(&object, matching)?;
        let by = selection.by().to_ne_bytes();
        selection::map(&object, "settings")?
            .update(&0u32.to_ne_bytes(), &by, MapFlags::ANY)
            .map_err(failed)?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let beyond = Rc::new(Cell::new(0));
        let ring = {
            let news = selection::map(&object, "news")?;
            let (into, beyond) = (Rc::clone(&heard), Rc::clone(&beyond));
            let hear = move |bytes: &[u8]| {
                let mut into = into.borrow_mut();
                match into.len() < NEWS_MAX {
                    true => into.extend(News::parse(bytes)),
                    false => beyond.set(beyond.get() + 1),
                }
                0
            };
            let mut builder = RingBufferBuilder::new();
            builder.add(&news, hear).map_err(failed)?;
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
            beyond,
            selection,
            object,
        })
    }

    /// As [`super::Source::select_cgroups`].
    pub fn select_cgroups(&mut self, ids: &[u64]) -> Result<(), Failure> {
        self.selection.choose_cgroups(&self.object, ids)
    }

    /// As [`super::Source::wait`].
    pub fn wait(&mut self, most: Duration, news: &mut Vec<News>) -> Result<(), Failure> {
        match self.ring.poll(most) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(Failure::runtime(format!("the ring of news: {error}")));
            }
            _ => {}
        }
        news.append(&mut self.heard.borrow_mut());
        Ok(())
    }

    /// As [`super::Source::missed`].
    pub fn missed(&self) -> u64 {
        let count = selection::map(&self.object, "missed")
            .ok()
            .and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?);
        let in_kernel = count.and_then(|bytes| Some(u64::from_ne_bytes(*bytes.first_chunk()?)));
        in_kernel.unwrap_or(0) + self.beyond.get()
    }
}
