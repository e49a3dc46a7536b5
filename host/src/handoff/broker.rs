//! What the broker does at each request: the order of freezing, moving and claiming, which no caller can get wrong.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_host_base::clock::monotonic_ns;
use ackpace_host_base::say;
use ackpace_wire::cluster::Tuple;
use ackpace_wire::cluster::broker::{Connection, Hello, Reply, Request, Tracked};

use super::look::Sockets;
use super::repair::{self, Before};
use super::switch::Switch;
use super::{Refused, checks};

/// Connections that are frozen, restored and not started, or wait for a late acknowledgement, each: four for each of the most
/// peers. More: refused, and a late acknowledgement is left out.
const UNDER_WAY_MAX: usize = 256;
/// One that is under way for so long has been given up by the server, which need not say so.
const GIVEN_UP_NS: u64 = 5_000_000_000;
const NS_PER_US: u64 = 1_000;

/// Connections between two requests, oldest first.
struct UnderWay<T>(Vec<(Tuple, u64, T)>);

impl<T> UnderWay<T> {
    /// Whether there is room for one more.
    fn check(&mut self, tuple: &Tuple) -> Result<(), Refused> {
        let now_ns = monotonic_ns();
        self.0.retain(|(other, since_ns, _)| {
            other != tuple && now_ns.saturating_sub(*since_ns) < GIVEN_UP_NS
        });
        match self.0.len() < UNDER_WAY_MAX {
            true => Ok(()),
            false => Err(Refused::new("too many connections are under way")),
        }
    }

    /// After a check.
    fn add(&mut self, tuple: Tuple, value: T) {
        self.0.push((tuple, monotonic_ns(), value));
    }

    fn get(&self, tuple: &Tuple) -> Option<&T> {
        let found = self.0.iter().find(|(other, ..)| other == tuple);
        found.map(|(_, _, value)| value)
    }

    fn remove(&mut self, tuple: &Tuple) -> Option<T> {
        let at = self.0.iter().position(|(other, ..)| other == tuple)?;
        Some(self.0.remove(at).2)
    }
}

/// A restored connection.
struct Restored {
    epoch: u32,
    connection: Connection,
}

/// An acknowledgement for a connection without timestamps, if the client's own answer to the prime does not come.
struct Late {
    at_ns: u64,
    tuple: Tuple,
    packet: Vec<u8>,
}

/// The broker.
pub struct Broker {
    switch: Switch,
    sockets: Sockets,
    hello: Hello,
    frozen: UnderWay<Before>,
    restored: UnderWay<Restored>,
    late: Vec<Late>,
}

impl Broker {
    /// One that answers with this greeting, and moves what that names.
    pub fn new(switch: Switch, sockets: Sockets, hello: Hello) -> Broker {
        Broker {
            switch,
            sockets,
            hello,
            frozen: UnderWay(Vec::new()),
            restored: UnderWay(Vec::new()),
            late: Vec::new(),
        }
    }

    /// The switch.
    pub fn switch(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// The server has gone, and its sockets with it: what was frozen is silent and forgotten. Entries go on.
    pub fn server_is_gone(&mut self) {
        self.switch.server_is_gone();
        self.frozen.0.clear();
        self.restored.0.clear();
    }

    /// Does what is asked. A socket travels beside the answer [`Reply::Restored`] alone.
    pub fn answer(
        &mut self,
        request: Request,
        socket: Option<OwnedFd>,
    ) -> (Reply, Option<OwnedFd>) {
        if let Request::Restore { epoch, connection } = request {
            return match self.restore(epoch, *connection) {
                Ok(socket) => (Reply::Restored, Some(socket)),
                Err(why) => (failed(why), None),
            };
        }
        let done = match (request.has_socket(), &socket) {
            (true, Some(socket)) => self.with_socket(&request, socket.as_fd()),
            (true, None) => Err(Refused::new("no socket came with this request")),
            (false, _) => self.without_socket(&request),
        };
        (done.unwrap_or_else(failed), None)
    }

    fn with_socket(&mut self, request: &Request, socket: BorrowedFd<'_>) -> Result<Reply, Refused> {
        let tuple = repair::tuple(socket)?;
        self.check(&tuple)?;
        match request {
            Request::Freeze { epoch, una_floor } => self.freeze(&tuple, socket, *epoch, *una_floor),
            Request::Start {
                epoch,
                lease_until_ns,
            } => self.start(&tuple, socket, *epoch, *lease_until_ns),
            _ if !repair::is_frozen(socket)? => Err(Refused::new("this socket is not frozen")),
            Request::Thaw => {
                let before = self.frozen.remove(&tuple);
                self.thaw(&tuple, socket, before)?;
                Ok(Reply::Done)
            }
            Request::Redirect { epoch, peer } => {
                let held = self.switch.redirect(&tuple, (*peer).into(), *epoch)?;
                self.frozen.remove(&tuple);
                Ok(Reply::Redirected { held })
            }
            _ => Err(Refused::new("this request takes no socket")),
        }
    }

    fn without_socket(&mut self, request: &Request) -> Result<Reply, Refused> {
        match request {
            Request::Hello { .. } => Ok(Reply::Hello(self.hello.clone())),
            Request::Lease(leases) => {
                for lease in leases {
                    // One that has gone home meanwhile is no guest, and has no lease.
                    let _ = self.switch.lease(&lease.tuple, lease.epoch, lease.until_ns);
                }
                Ok(Reply::Done)
            }
            Request::Fence { tuple, epoch } => {
                if self.switch.epoch(tuple).is_none() {
                    return Err(Refused::new("nothing is known of this connection"));
                }
                self.switch.fence(tuple, *epoch)?;
                Ok(Reply::Done)
            }
            Request::Track(tuple) => {
                let tracked = self.switch.track(tuple).map(|it| Tracked {
                    ack: it.ack,
                    seq_end: it.seq_end,
                    held_end: it.held_end,
                });
                Ok(Reply::Tracked(tracked))
            }
            Request::Forget(tuple) => {
                self.switch.forget(tuple);
                Ok(Reply::Done)
            }
            _ => Err(Refused::new("this request takes a socket")),
        }
    }

    /// Whether it is a connection of the service.
    fn check(&self, tuple: &Tuple) -> Result<(), Refused> {
        let is_vip = |ip: IpAddr| self.hello.vips.contains(&ip.to_canonical());
        let is_port = self.hello.ports.contains(&tuple.server.port());
        match is_vip(tuple.server.ip()) && is_port {
            true => Ok(()),
            false => Err(Refused::new(format!(
                "{} is not among --vip and --port",
                tuple.server
            ))),
        }
    }

    /// The window is closed first: from the hold on, what the socket sends is dropped, and Linux would take that for
    /// congestion. The state is read when no packet can change it any more.
    fn freeze(
        &mut self,
        tuple: &Tuple,
        socket: BorrowedFd<'_>,
        epoch: u32,
        una_floor: Option<u32>,
    ) -> Result<Reply, Refused> {
        if repair::is_frozen(socket)? {
            return Err(Refused::new("this socket is frozen already"));
        }
        self.frozen.check(tuple)?;
        let before = repair::freeze(socket)?;
        if let Err(why) = self.switch.hold(tuple, epoch) {
            repair::thaw(socket, Some(before))?;
            repair::push(socket)?;
            return Err(why.into());
        }
        match repair::save(&mut self.sockets, socket, before, una_floor) {
            Ok(saved) => {
                self.frozen.add(*tuple, saved.before);
                Ok(Reply::Saved {
                    connection: Box::new(saved.connection),
                    unsent_bytes: saved.unsent_bytes,
                })
            }
            Err(why) => {
                self.thaw(tuple, socket, Some(before))?;
                Err(why)
            }
        }
    }

    /// What the socket has kept back goes out when the switch lets it out.
    fn thaw(
        &mut self,
        tuple: &Tuple,
        socket: BorrowedFd<'_>,
        before: Option<Before>,
    ) -> Result<(), Refused> {
        let thawed = repair::thaw(socket, before);
        self.switch.thaw(tuple);
        thawed.and_then(|()| repair::push(socket))
    }

    fn restore(&mut self, epoch: u32, mut connection: Connection) -> Result<OwnedFd, Refused> {
        let tuple = connection.tuple;
        self.check(&tuple)?;
        self.restored.check(&tuple)?;
        if self.switch.epoch(&tuple).is_some_and(|known| known > epoch) {
            return Err(Refused::new("a later owner has this connection"));
        }
        let socket = repair::restore(&connection).map_err(|why| {
            let taken = checks::takes(tuple.server.ip());
            taken.err().map_or(why, Refused::from)
        })?;
        connection.received = Vec::new(); // in the socket by now
        self.restored.add(tuple, Restored { epoch, connection });
        Ok(socket)
    }

    /// The socket hears the acknowledgement that it is given before any other ([`repair::complete`]), and the client's packets are let
    /// in before it sends, so that no answer to it goes elsewhere.
    fn start(
        &mut self,
        tuple: &Tuple,
        socket: BorrowedFd<'_>,
        epoch: u32,
        lease_until_ns: Option<u64>,
    ) -> Result<Reply, Refused> {
        let restored = self.restored.get(tuple).filter(|it| it.epoch == epoch);
        let Some(Restored { connection, .. }) = restored else {
            return Err(Refused::new("this connection was not restored here"));
        };
        repair::complete(&mut self.sockets, socket, connection)?;
        let packet = repair::acknowledgement(socket, connection)?;
        if connection.tcp.timestamp.is_some() {
            give(&mut self.switch, &packet);
        } else if self.late.len() < UNDER_WAY_MAX {
            let wait_us = u64::from(connection.congestion.srtt_us) * 5 / 4 + 1_000;
            self.late.push(Late {
                at_ns: monotonic_ns() + wait_us * NS_PER_US,
                tuple: *tuple,
                packet,
            });
        }
        let was_fenced = self.switch.is_fenced(tuple);
        self.switch.claim(tuple, epoch, lease_until_ns)?;
        repair::start(socket, was_fenced)?;
        self.restored.remove(tuple);
        Ok(Reply::Done)
    }

    /// When the next late acknowledgement is due, by CLOCK_MONOTONIC.
    pub fn next_ns(&self) -> Option<u64> {
        self.late.iter().map(|late| late.at_ns).min()
    }

    /// Gives late acknowledgements, to connections that still lack a round trip time. One that has moved on would be reset.
    pub fn give_late(&mut self) {
        let now_ns = monotonic_ns();
        let (due, rest) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|late: &Late| late.at_ns <= now_ns);
        self.late = rest;
        for late in due {
            let looked = self.sockets.look(&late.tuple).ok().flatten();
            if looked.is_some_and(|it| it.srtt_us == 0) {
                give(&mut self.switch, &late.packet);
            }
        }
    }
}

/// Without it the connection goes on, with a timeout of three seconds at first.
fn give(switch: &mut Switch, packet: &[u8]) {
    if let Err(why) = switch.inject(packet) {
        say!("handoff: a restored socket did not get its first acknowledgement: {why}");
    }
}

fn failed(why: Refused) -> Reply {
    Reply::Failed {
        errno: why.errno,
        text: why.text,
    }
}
