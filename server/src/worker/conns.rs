//! The shell's table of connections: sockets and what is held for their clients.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use ackpace_core::conn::{ConnId, Version};
use ackpace_core::limits::FETCHED_MAX;
use ackpace_core::units::Instant;
use ackpace_share::Control;
use ackpace_share::bound::Bound;
use ackpace_wire::access_log::Remote;
use ackpace_wire::cluster::FlowId;
use ackpace_wire::listing::Format;

use super::flow::Flow;
use super::pins::Pins;
use crate::cluster::Placing;
use crate::disk::SlotBytes;
use crate::front::http::Front;
use crate::front::listing::Listing;
use crate::gateway::Pass;
use crate::resolver::JobInterest;
use crate::source::Source;
use crate::store::file::File;
use crate::tcp::Accepted;
use crate::transport::Transport;

/// A connection as the shell sees it.
pub struct Conn {
    /// Its id, by which the machine knows it.
    pub id: ConnId,
    pub transport: Transport,
    /// Its client; `None` on a unix socket.
    pub peer: Option<SocketAddr>,
    /// Its client is another node of the cluster: its requests are served here, and have no line in the access log.
    pub is_of_node: bool,
    /// Its input and what was made of it.
    pub front: Front,
    pub from_response_cache: bool,
    /// The body that is being sent.
    pub body: Body,
    /// The listing that is being sent.
    pub listing: ListingSlices,
    /// The job of a resolver that it waits for, or waited for last; without it the job is skipped.
    pub job: Option<JobInterest>,
    /// The socket keeps back a last small segment until the response ends (TCP_CORK).
    pub corked: bool,
    /// Bytes of the response under way that its head promises and the socket has not taken; `None`: only its end tells.
    pub owed_bytes: Option<u64>,
    /// TCP_NOTSENT_LOWAT of the socket as far as we know.
    pub lowat_bytes: Option<u32>,
    /// Its share of the send memory, where that is divided.
    pub bound: Option<Bound>,
    /// Its congestion control, once that was asked for.
    pub control: Option<Control>,
    /// Pieces of the slab that its packets refer to.
    pub pins: Pins,
    /// How it has moved between the nodes of the cluster; `None`: never.
    pub flow: Option<Box<Flow>>,
    /// How its response was placed among the nodes of the cluster; `None`: that was not asked.
    pub placing: Option<Box<Placing>>,
    /// Its next response is sent from here: another node did not take it.
    pub stays: bool,
    /// When it is next tried to give it to another node, while this one is being emptied.
    pub empties_at: Instant,
    /// The device whose disk thread may hold a want of the present stream: a want that is repeated is answered twice, so
    /// only the order to forget clears it.
    pub asked: Option<u16>,
}

/// What a body is of, and what is known of it.
#[derive(Default)]
pub struct Body {
    /// `None`: no body is being sent.
    pub source: Option<Source>,
    /// The file of this node with the same bytes, if the source is an object of another node.
    pub here: Option<(Arc<File>, Version)>,
    /// What was read for its client past the page cache and is not sent yet, in the order of the file.
    pub pieces: VecDeque<SlotBytes>,
    /// Some went by sendfile(2). So the socket may still refer to pages of the file, and whoever writes to it changes bytes
    /// that are on their way.
    pub used_sendfile: bool,
}

#[derive(Default)]
pub struct ListingSlices {
    pub format: Format,
    pub rest: Option<Box<Listing>>,
    /// The response of an origin that passes through, in place of a listing.
    pub pass: Option<Arc<Pass>>,
    /// The slice that is being sent.
    pub slice: Vec<u8>,
}

/// What a socket with a share of the send memory holds, and may be offered.
#[derive(Clone, Copy)]
pub struct Room {
    /// What it holds, unsent and in flight.
    pub held_bytes: u64,
    /// How much more it may hold.
    pub room_bytes: u64,
}

/// Connections by place. Freed places are used again, the latest first: their memory is hot.
///
/// This table owns the places: all other tables have as many, and a place is given out again only after its connection was
/// taken off it.
pub struct Conns {
    places: Vec<Slot>,
    /// Places without a connection, the one that was freed last at the end.
    free: Vec<u32>,
    places_max: u32,
}

/// What a place costs, with the pieces that may wait there.
pub const PLACE_BYTES: u64 =
    (size_of::<Slot>() + size_of::<Placing>() + 4 + 2 * FETCHED_MAX * size_of::<SlotBytes>() + 64)
        as u64;

#[derive(Default)]
struct Slot {
    /// How many connections have had this place before.
    generation: u32,
    conn: Option<Conn>,
}

impl Conn {
    /// Whether another node accepted it, and this one serves it for a time.
    pub fn is_guest(&self) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.home.is_some())
    }

    /// A connection that was accepted, without a place yet.
    pub fn new(client: Accepted, lowat_bytes: Option<u32>) -> Conn {
        Conn {
            id: ConnId::default(),
            transport: Transport::new(client.socket),
            peer: client.peer,
            is_of_node: false,
            front: Front::default(),
            from_response_cache: false,
            body: Body::default(),
            listing: ListingSlices::default(),
            job: None,
            corked: false,
            owed_bytes: Some(0),
            lowat_bytes,
            bound: None,
            control: None,
            pins: Pins::default(),
            flow: None,
            placing: None,
            stays: false,
            empties_at: Instant::default(),
            asked: None,
        }
    }

    pub fn remote(&self) -> Remote {
        self.peer.map_or(Remote::Unix, |peer| Remote::Ip(peer.ip()))
    }

    /// How often it has moved between nodes of the cluster.
    pub fn moves(&self) -> u32 {
        self.flow.as_ref().map_or(0, |flow| flow.moves)
    }

    /// The socket keeps back a last small segment from now on.
    pub fn cork(&mut self) {
        if !self.corked {
            self.transport.cork(true);
            self.corked = true;
        }
    }

    pub fn uncork(&mut self) {
        if self.corked {
            self.transport.cork(false);
            self.corked = false;
        }
    }

    /// How much its socket may be offered now, by its share of the send memory; `None`: that memory is not divided.
    pub fn room(&mut self, now: Instant) -> Option<Room> {
        let bound = self.bound.as_mut()?;
        let held_bytes = self.transport.held_bytes()?;
        Some(Room {
            held_bytes,
            room_bytes: bound.offer_bytes(held_bytes, now),
        })
    }

    /// Gives the socket this TCP_NOTSENT_LOWAT: it takes that much unsent, and is writable below half of it. One that knows no
    /// such option, such as a unix socket, goes without.
    pub fn set_lowat(&mut self, bytes: u32) {
        if self.lowat_bytes != Some(bytes) {
            self.transport.set_lowat(bytes);
            self.lowat_bytes = Some(bytes);
        }
    }

    /// The same without a refill: the socket takes as much as the kernel lets it, whatever it was told while it was watched.
    pub fn unset_lowat(&mut self) {
        if self.lowat_bytes.take().is_some() {
            self.transport.set_lowat(0); // the system's (tcp(7))
        }
    }
}

impl Conns {
    /// An empty table of so many places at most.
    pub fn new(places_max: u32) -> Conns {
        Conns {
            places: Vec::new(),
            free: Vec::new(),
            places_max,
        }
    }

    pub fn room(&self) -> u32 {
        let unused = self.places_max.saturating_sub(self.places.len() as u32);
        unused.saturating_add(self.free.len() as u32)
    }

    /// Puts a connection into a free place; `None`, and its socket closes, if there is none.
    pub fn add(&mut self, conn: Conn) -> Option<ConnId> {
        if self.room() == 0 {
            return None;
        }
        let index = self.free.pop().unwrap_or(self.places.len() as u32);
        if index as usize == self.places.len() {
            self.places.push(Slot::default());
        }
        let place = self.places.get_mut(index as usize)?;
        let id = ConnId {
            index,
            generation: place.generation,
        };
        place.conn = Some(Conn { id, ..conn });
        Some(id)
    }

    /// The connection of this name, if it is still there.
    pub fn get(&mut self, id: ConnId) -> Option<&mut Conn> {
        let place = self.places.get_mut(id.index as usize)?;
        place.conn.as_mut().filter(|conn| conn.id == id)
    }

    /// Gives up the pieces of the slab that clients have acknowledged. Returns whether some are left.
    pub fn release_pins(&mut self) -> bool {
        let mut left = false;
        for conn in self
            .places
            .iter_mut()
            .filter_map(|place| place.conn.as_mut())
        {
            left |= conn.pins.release(&conn.transport);
        }
        left
    }

    /// A connection like this.
    pub fn some(&self, like: impl Fn(&Conn) -> bool) -> Option<ConnId> {
        let conns = self.places.iter().filter_map(|place| place.conn.as_ref());
        conns.filter(|conn| like(conn)).map(|conn| conn.id).next()
    }

    /// The connection of this name in the cluster, if it is there.
    pub fn of_flow(&self, id: FlowId) -> Option<ConnId> {
        self.some(|conn| conn.flow.as_ref().is_some_and(|flow| flow.id == id))
    }

    /// The connection of a client, if it is there.
    pub fn of_peer(&self, peer: SocketAddr) -> Option<ConnId> {
        self.some(|conn| conn.peer == Some(peer))
    }

    /// Takes a connection off its place.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        self.get(id)?;
        let place = &mut self.places[id.index as usize];
        // The highest generation's place is given up: a name is never used twice.
        if let Some(next) = place
            .generation
            .checked_add(1)
            .filter(|next| *next < u32::MAX)
        {
            place.generation = next;
            self.free.push(id.index);
        }
        place.conn.take()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;

    fn added(conns: &mut Conns, socket: OwnedFd) -> Option<ConnId> {
        let client = Accepted { socket, peer: None };
        conns.add(Conn::new(client, None))
    }

    fn device() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("a device").into()
    }

    #[test]
    fn a_place_is_used_again_under_another_name() {
        let mut conns = Conns::new(1);
        let first = added(&mut conns, device()).expect("a place");
        assert!(conns.remove(first).is_some());
        let second = added(&mut conns, device()).expect("a place");
        assert_eq!(
            (first.index, first.generation + 1),
            (second.index, second.generation)
        );
        assert!(conns.get(first).is_none() && conns.remove(first).is_none());
        assert!(conns.get(second).is_some());
        assert!(
            added(&mut conns, device()).is_none(),
            "the only place is taken"
        );
        assert_eq!((conns.room(), second.index), (0, 0));
    }

    #[test]
    fn a_watched_socket_without_refills_takes_all_again() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let asked = socket.try_clone().expect("a descriptor");
        let lowat = || {
            let (mut bytes, mut len) = (0u32, 4);
            // SAFETY: both pointers lead to integers of that size, which live until the call returns.
            let result = unsafe {
                libc::getsockopt(
                    asked.as_raw_fd(),
                    libc::IPPROTO_TCP,
                    libc::TCP_NOTSENT_LOWAT,
                    (&raw mut bytes).cast(),
                    &raw mut len,
                )
            };
            assert_eq!(result, 0, "Linux has it");
            bytes
        };
        let mut conns = Conns::new(1);
        let id = added(&mut conns, socket.into());
        let conn = conns.get(id.expect("a place")).expect("it is there");
        conn.set_lowat(4096);
        assert_eq!(lowat(), 4096);
        conn.unset_lowat();
        assert_eq!(lowat(), 0);
        conn.set_lowat(4096);
        assert_eq!(lowat(), 4096, "it is told again");
    }
}
