//! A worker's side of the division of send memory ([`crate::divider`]): it tells of its connections when it is asked,
//! and holds their sockets to their shares.

use std::sync::Arc;

use ackpace_core::conn::ConnId;
use ackpace_core::limits::READINGS_PER_TURN_MAX;
use ackpace_core::machine::Machine;
use ackpace_core::sndbuf::bound::{Bound, Grant};
use ackpace_core::sndbuf::pool;
use ackpace_core::sndbuf::reading::{Holding, Reading};
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Sender};

use super::Worker;
use super::conns::Conn;
use crate::divider::ShareChange;
use crate::limits::GRANTS_PER_TURN_MAX;

impl Worker {
    /// Takes what the divider has for this worker, and answers its question.
    pub(super) fn hear_divider(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let Some(dividing) = &shared.dividing else {
            return;
        };
        let share_bytes = dividing.start_bytes();
        self.decider.on(In::StartShare { share_bytes }, now);
        let channel = dividing.channel(self.index);
        let mut grants = 0;
        while let Some(ShareChange { conn, grant }) = channel.take_grant() {
            let event = match grant {
                Some(grant) => In::Share { conn, grant },
                None => In::NoShare {
                    conn,
                    held_bytes: self.held_bytes(conn),
                },
            };
            self.decider.on(event, now);
            grants += 1;
            if grants == GRANTS_PER_TURN_MAX {
                self.waker.wake(); // there may be more
                break;
            }
        }
        if let Some(from) = channel.take_question() {
            let senders: Vec<Sender> = self
                .decider
                .senders(from)
                .take(READINGS_PER_TURN_MAX)
                .collect();
            let full = senders
                .last()
                .filter(|_| senders.len() == READINGS_PER_TURN_MAX);
            let next = full.map(|sender| sender.conn.index + 1);
            let readings: Vec<Reading> = senders
                .iter()
                .filter_map(|sender| self.reading(*sender, now))
                .collect();
            dividing.report(pool::In::Sampled {
                worker: self.index as u16,
                from,
                readings,
                next,
            });
        }
    }

    /// What its socket holds, unsent and in flight.
    fn held_bytes(&mut self, id: ConnId) -> u64 {
        let held_bytes = self
            .conns
            .get(id)
            .and_then(|conn| conn.transport.held_bytes());
        held_bytes.unwrap_or(0)
    }

    /// What TCP says of a connection now, and what is believed of it here.
    fn reading(&mut self, sender: Sender, now: Instant) -> Option<Reading> {
        let conn = self.conns.get(sender.conn)?;
        let ip = conn.peer?.ip(); // the machine lets no unix socket share
        let (sample, counted) = conn.transport.sample_and_count();
        let share_limited_us = conn
            .bound
            .as_mut()
            .map(|bound| bound.take_share_limited_us(now));
        let bound = conn.bound.unwrap_or_else(|| Bound::new(Grant::default()));
        Some(Reading {
            conn: sender.conn,
            address: ip.into(),
            is_sending: sender.is_sending,
            sample,
            counted,
            control: *conn.control.get_or_insert_with(|| conn.transport.control()),
            pace: sender.pace,
            rate_bytes_per_s: sender.rate_bytes_per_s,
            share_limited_us: share_limited_us.unwrap_or(0),
            share_bytes: bound.share_bytes(),
            division: bound.division(),
        })
    }

    /// A connection has another share, or none; the divider is told of one that joins, and of what it gets back.
    pub(super) fn change_share(
        &mut self,
        id: ConnId,
        grant: Option<Grant>,
        joins: bool,
        now: Instant,
    ) {
        let worker = self.index as u16;
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let lessened = hold_to_share(conn, grant);
        let sender = self.decider.sender(id);
        let report = match (joins, grant) {
            (true, _) => sender
                .and_then(|sender| self.reading(sender, now))
                .map(|reading| pool::In::Joined { worker, reading }),
            (false, None) if sender.is_none() => Some(pool::In::Left { worker, conn: id }),
            (false, _) => lessened.map(|holding| pool::In::Lessened {
                worker,
                conn: id,
                holding,
            }),
        };
        if let (Some(report), Some(dividing)) = (report, &self.shared.dividing) {
            dividing.report(report);
        }
    }

    /// A connection is closed.
    pub(super) fn end_share(&self, conn: &Conn) {
        if let (Some(dividing), Some(_)) = (&self.shared.dividing, conn.bound) {
            dividing.report(pool::In::Left {
                worker: self.index as u16,
                conn: conn.id,
            });
        }
    }
}

/// Holds a socket to its share. Setting SO_SNDBUF has the kernel check whether it has become writable. What it holds, if the
/// share is smaller than before.
fn hold_to_share(conn: &mut Conn, grant: Option<Grant>) -> Option<Holding> {
    let before = conn.bound;
    match (&mut conn.bound, grant) {
        (Some(bound), Some(grant)) => bound.change(grant),
        (bound, grant) => *bound = grant.map(Bound::new),
    }
    let bound = conn.bound?;
    if before.map(|before| before.send_buffer_bytes()) != Some(bound.send_buffer_bytes()) {
        let bytes = bound.send_buffer_bytes();
        conn.transport.bound_send_buffer(bytes);
    }
    let is_less = before.is_some_and(|before| bound.share_bytes() < before.share_bytes());
    let held_bytes = conn.transport.held_bytes().filter(|_| is_less)?;
    Some(Holding {
        held_bytes,
        share_bytes: bound.share_bytes(),
        division: bound.division(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::thread;
    use std::time::Duration;

    use rustix::event::Timespec;
    use rustix::event::epoll::{self, EventFlags};

    use super::super::conns::Conns;
    use super::super::events::{INTEREST, data_of};
    use super::*;
    use crate::tcp::Accepted;

    const LEN: usize = 4 << 20;
    const SEEDS: u64 = 200;
    const THREADS: u64 = 8;
    const NOW: Instant = Instant { us: 0 };

    fn grant(share_bytes: u64) -> Option<Grant> {
        Some(Grant {
            share_bytes,
            ..Grant::default()
        })
    }

    /// SplitMix64.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % most
        }
    }

    fn byte_at(at: usize) -> u8 {
        (at / 7) as u8
    }

    /// Reads all in pieces of random sizes, now and then after a pause.
    fn read_badly(mut client: TcpStream, seed: u64) {
        let mut rng = Rng(seed);
        let (mut at, mut piece) = (0, vec![0; 64 << 10]);
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        while at < LEN {
            let many = [2_000, 64_000][rng.below(2) as usize];
            let most = 1 + rng.below(many) as usize;
            let read = client
                .read(&mut piece[..most])
                .expect("bytes before the timeout");
            assert!(read > 0, "seed {seed}: it ends at {at}");
            assert!(
                (at..at + read)
                    .zip(&piece)
                    .all(|(at, byte)| *byte == byte_at(at)),
                "seed {seed}: other bytes at {at}"
            );
            at += read;
            if rng.below(100) == 0 {
                thread::sleep(Duration::from_micros(rng.below(3_000)));
            }
        }
    }

    fn tcp_pair(segment_bytes: libc::c_int) -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // SAFETY: the kernel reads one int, which lives here.
        let done = unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&listener),
                libc::IPPROTO_TCP,
                libc::TCP_MAXSEG,
                (&raw const segment_bytes).cast(),
                size_of_val(&segment_bytes) as libc::socklen_t,
            )
        };
        assert_eq!(done, 0, "TCP_MAXSEG");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a client");
        let (server, _) = listener.accept().expect("the client");
        server.set_nonblocking(true).expect("a socket");
        server.set_nodelay(true).expect("a socket");
        (server.into(), client)
    }

    /// Offers what the share allows until it allows no more. Returns how much was taken.
    fn fill(conn: &mut Conn, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let room = conn.room(NOW).expect("it has a share").room_bytes as usize;
            let piece = &bytes[taken..bytes.len().min(taken + room)];
            match conn.transport.send_texts(&[IoSlice::new(piece)], false) {
                _ if room == 0 => break,
                Ok(sent) => taken += sent as usize,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => panic!("{error}"),
            }
        }
        taken
    }

    /// A sender on the kernel's TCP that is held to a share, as a worker does it. Returns how often it was woken in vain.
    fn send_all(conn: &mut Conn, seed: u64) -> u64 {
        let mut rng = Rng(seed ^ 0xabcd);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        epoll::add(&epoll, &conn.transport, data_of(conn.id), INTEREST).expect("a socket");
        let bytes: Vec<u8> = (0..LEN).map(byte_at).collect();
        let (mut at, mut in_vain, mut most) = (0, 0, 16 << 10);
        while at < LEN {
            let timeout = Timespec {
                tv_sec: 10,
                tv_nsec: 0,
            };
            let mut events = Vec::with_capacity(4);
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&epoll, room, Some(&timeout)).expect("epoll");
            assert!(!events.is_empty(), "seed {seed}: a wake-up is lost at {at}");
            let is_called = |event: &epoll::Event| ({ event.flags }).contains(EventFlags::OUT);
            if !events.iter().any(is_called) {
                continue;
            }
            let taken = fill(conn, &bytes[at..]);
            in_vain += u64::from(taken == 0);
            at += taken;
            let held = conn.transport.held_bytes().expect("TCP");
            assert!(held <= most, "seed {seed}: {held} of {most}");
            if rng.below(50) == 0 {
                let share_bytes = [1, 3_000, 5_300, 16 << 10, 60_000][rng.below(5) as usize];
                // What it has stays until it is acknowledged.
                most = share_bytes.max(held).max(2_896);
                hold_to_share(conn, grant(share_bytes));
            }
            epoll::modify(&epoll, &conn.transport, data_of(conn.id), INTEREST).expect("a socket");
        }
        in_vain
    }

    fn sends_all_of_it(seed: u64) {
        let (socket, client) = tcp_pair([1_448, 536, 32_000][seed as usize % 3]);
        let reader = thread::spawn(move || read_badly(client, seed));
        let mut conns = Conns::new(1);
        let client = Accepted {
            socket,
            peer: None,
            listener: 0,
        };
        let id = conns.add(Conn::new(client, None)).expect("a place");
        let conn = conns.get(id).expect("it was added");
        hold_to_share(conn, grant(16 << 10));
        let in_vain = send_all(conn, seed);
        assert!(in_vain < 60, "seed {seed}: woken in vain {in_vain} times");
        reader.join().expect("all bytes");
    }

    #[test]
    fn a_sender_that_its_share_holds_up_loses_no_wake_up() {
        thread::scope(|scope| {
            for nth in 0..THREADS {
                let seeds = (nth..SEEDS).step_by(THREADS as usize);
                scope.spawn(|| seeds.for_each(sends_all_of_it));
            }
        });
    }
}
