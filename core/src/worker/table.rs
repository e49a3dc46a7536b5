//! All connections of a worker, by slot. The shell assigns the slots. An id whose generation is not the one in the slot
//! is a late one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::Conn;
use super::stream::Stream;
use crate::conn::{ConnId, StreamId};
use crate::limits::STREAMS_SPARE_MAX;

/// The table of connections.
#[derive(Default)]
pub(super) struct Table {
    /// The slots; `None`: free.
    places: Vec<Option<Conn>>,
    /// How many are not free.
    open: u32,
    /// Memory of ended streams, for new ones: no response allocates its own.
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Stream>>,
}

impl Table {
    /// Connections that are open.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Number of slots that were ever used.
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }

    /// The connection in this slot.
    pub fn at(&self, index: u32) -> Option<&Conn> {
        self.places.get(index as usize)?.as_ref()
    }

    pub fn at_mut(&mut self, index: u32) -> Option<&mut Conn> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// The connection of this id, if it still has its slot.
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        self.at(id.index).filter(|conn| conn.id == id)
    }

    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.at_mut(id.index).filter(|conn| conn.id == id)
    }

    /// The connection whose current or next response this is.
    pub fn with(&self, id: StreamId) -> Option<&Conn> {
        self.get(id.conn).filter(|conn| conn.nth == id.nth)
    }

    pub fn with_mut(&mut self, id: StreamId) -> Option<&mut Conn> {
        self.get_mut(id.conn).filter(|conn| conn.nth == id.nth)
    }

    /// The response of this id, if it is under way.
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.with(id)?.stream.as_deref()
    }

    pub fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.with_mut(id)?.stream.as_deref_mut()
    }

    /// All connections, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.from(0)
    }

    /// Those from this slot on.
    pub fn from(&self, index: u32) -> impl Iterator<Item = &Conn> {
        self.places.iter().skip(index as usize).flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.places.iter_mut().flatten()
    }

    /// A new connection takes its slot.
    pub fn insert(&mut self, conn: Conn) {
        let index = conn.id.index as usize;
        if index >= self.places.len() {
            self.places.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.places[index].is_none(),
            "the shell hands out free places only"
        );
        self.places[index] = Some(conn);
        self.open += 1;
    }

    /// The connection leaves its slot.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let place = self.places.get_mut(id.index as usize)?;
        let conn = place.take_if(|conn| conn.id == id)?;
        self.open -= 1;
        Some(conn)
    }

    /// Puts a new stream into spare memory, if there is some.
    pub fn boxed(&mut self, stream: Stream) -> Box<Stream> {
        match self.spare.pop() {
            Some(mut place) => {
                *place = stream;
                place
            }
            None => Box::new(stream),
        }
    }

    /// A stream has ended; its memory is kept for another one.
    pub fn spare(&mut self, mut stream: Box<Stream>) {
        if self.spare.len() < STREAMS_SPARE_MAX {
            stream.plan.parts = SmallVec::new(); // free what it holds at once, also the room for thousands of ranges
            self.spare.push(stream);
        }
    }
}
