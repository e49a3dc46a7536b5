//! The connections of an NFS thread, by place.

use std::collections::VecDeque;

use ackpace_core::conn::ConnId;
use ackpace_core::units::Instant;

use super::conn::Conn;
use super::hands::Hands;

/// Connections by place. Freed places are used again, the latest first.
pub struct Conns {
    places: Vec<Place>,
    free: Vec<u32>,
    places_max: u32,
    open: u32,
    /// Those that have something to do, in turn.
    due: VecDeque<ConnId>,
}

#[derive(Default)]
struct Place {
    /// How many connections have had it before.
    generation: u32,
    conn: Option<Box<Conn>>,
}

/// Memory of a place.
pub const PLACE_BYTES: u64 = (size_of::<Place>() + 4 + 2 * size_of::<ConnId>()) as u64;

impl Conns {
    /// An empty table of so many places at most.
    pub fn new(places_max: u32) -> Conns {
        Conns {
            places: Vec::new(),
            free: Vec::new(),
            places_max,
            open: 0,
            due: VecDeque::new(),
        }
    }

    pub fn open(&self) -> u32 {
        self.open
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.places.len() as u32 >= self.places_max
    }

    /// Puts a connection into a free place; it closes if there is none.
    pub fn add(&mut self, mut conn: Conn, hands: &Hands, now: Instant) -> Option<ConnId> {
        if self.is_full() {
            return None;
        }
        let index = self.free.pop().unwrap_or(self.places.len() as u32);
        if index as usize == self.places.len() {
            self.places.push(Place::default());
        }
        let place = self.places.get_mut(index as usize)?;
        let id = ConnId {
            index,
            generation: place.generation,
        };
        conn.take_place(id, hands, now);
        place.conn = Some(Box::new(conn));
        self.open += 1;
        Some(id)
    }

    /// The connection of this name, if it is still there.
    pub fn get(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.at(id.index).filter(|conn| conn.id == id)
    }

    /// The connection in this place.
    pub fn at(&mut self, place: u32) -> Option<&mut Conn> {
        let place = self.places.get_mut(place as usize)?;
        place.conn.as_deref_mut()
    }

    pub fn each(&mut self) -> impl Iterator<Item = &mut Conn> {
        let places = self.places.iter_mut();
        places.filter_map(|place| place.conn.as_deref_mut())
    }

    /// The connection that has been idle for longest.
    pub fn idlest(&mut self) -> Option<ConnId> {
        let idle = self.each().filter(|conn| conn.machine.calls() == 0);
        idle.min_by_key(|conn| conn.used_at).map(|conn| conn.id)
    }

    /// A connection has something to do.
    pub fn list(&mut self, id: ConnId) {
        let unlisted = self.get(id).filter(|conn| !conn.is_listed);
        if let Some(conn) = unlisted {
            conn.is_listed = true;
            self.due.push_back(id);
        }
    }

    /// How many have something to do.
    pub fn due(&self) -> usize {
        self.due.len()
    }

    /// The next one that has something to do.
    pub fn next_due(&mut self) -> Option<&mut Conn> {
        while let Some(id) = self.due.pop_front() {
            if let Some(conn) = self.get(id) {
                conn.is_listed = false;
                return self.at(id.index);
            }
        }
        None
    }

    /// Takes a connection off its place; its socket closes.
    pub fn remove(&mut self, id: ConnId) {
        if self.get(id).is_none() {
            return;
        }
        let place = &mut self.places[id.index as usize];
        place.conn = None;
        self.open -= 1;
        // The highest generation's place is given up: a name is never used twice, and some stand for other things in epoll.
        if place.generation < u32::MAX - 2 {
            place.generation += 1;
            self.free.push(id.index);
        }
    }
}
