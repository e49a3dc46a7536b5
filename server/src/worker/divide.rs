//! A worker's side of the division of send memory ([`crate::divider`]): it tells of its connections when it is asked,
//! and holds their sockets to their shares ([`ackpace_share::bound`]).

use std::sync::Arc;

use ackpace_core::conn::ConnId;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, Sender};
use ackpace_share::bound::{Bound, Grant};
use ackpace_share::pool;
use ackpace_share::reading::Reading;

use super::Worker;
use super::conns::Conn;
use crate::divider::ShareChange;
use crate::limits::{GRANTS_PER_TURN_MAX, READINGS_PER_TURN_MAX};

impl Worker {
    /// Takes what the divider has for this worker, and answers its question.
    pub(super) fn hear_divider(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let Some(dividing) = &shared.dividing else {
            return;
        };
        let cap_bytes = dividing.start_bytes();
        self.decider.on(In::StartCap { cap_bytes }, now);
        let channel = dividing.channel(self.index);
        let mut grants = 0;
        while let Some(ShareChange { conn, grant }) = channel.take_grant() {
            match grant {
                Some(grant) => self.share(conn, grant, now),
                None => self.unshare(conn, now),
            }
            grants += 1;
            if grants == GRANTS_PER_TURN_MAX {
                self.waker.wake(); // there may be more
                break;
            }
        }
        if let Some(from) = channel.take_question() {
            let senders = self.decider.senders(from);
            let senders: Vec<Sender> = senders.take(READINGS_PER_TURN_MAX).collect();
            let is_full = senders.len() == READINGS_PER_TURN_MAX;
            let last = senders.last().filter(|_| is_full);
            let next = last.map(|sender| sender.conn.index + 1);
            let readings = senders
                .iter()
                .filter_map(|sender| self.reading(*sender, now))
                .collect();
            self.report(pool::In::Sampled {
                worker: self.index as u16,
                from,
                readings,
                next,
            });
        }
    }

    fn report(&self, report: pool::In) {
        if let Some(dividing) = &self.shared.dividing {
            dividing.report(report);
        }
    }

    /// What TCP says of a connection now, and what is believed of it here.
    fn reading(&mut self, sender: Sender, now: Instant) -> Option<Reading> {
        let conn = self.conns.get(sender.conn)?;
        let ip = conn.peer?.ip(); // the machine lets no unix socket share
        let bound = conn.bound.as_mut()?;
        let (sample, counted) = conn.transport.sample_and_count();
        let holding = bound.holding(sample.unacked_bytes);
        Some(Reading {
            conn: sender.conn,
            address: ip.into(),
            is_sending: sender.is_sending,
            sample,
            counted,
            control: *conn.control.get_or_insert_with(|| conn.transport.control()),
            is_own_pace: sender.is_own_pace,
            rate_bytes_per_s: sender.rate_bytes_per_s,
            share_limited_us: bound.take_share_limited_us(now),
            share_bytes: holding.share_bytes,
            division: holding.division,
        })
    }

    /// A response begins, with this cap until the divider has heard of it.
    pub(super) fn join(&mut self, id: ConnId, cap_bytes: u64, now: Instant) {
        if let Some(conn) = self.conns.get(id) {
            hold_to_share(conn, Grant::start(cap_bytes));
            let sender = self.decider.sender(id);
            if let Some(reading) = sender.and_then(|sender| self.reading(sender, now)) {
                let worker = self.index as u16;
                self.report(pool::In::Joined { worker, reading });
            }
        }
    }

    /// A connection has another share. The divider hears what is held when it is smaller.
    fn share(&mut self, id: ConnId, grant: Grant, now: Instant) {
        let Some(conn) = self.conns.get(id).filter(|conn| conn.bound.is_some()) else {
            return; // a late one
        };
        let is_less = hold_to_share(conn, grant);
        let held_bytes = conn.transport.held_bytes().filter(|_| is_less);
        let Some(bound) = conn.bound else { return };
        let cap_bytes = Some(bound.share_bytes());
        self.decider.on(
            In::Cap {
                conn: id,
                cap_bytes,
            },
            now,
        );
        if let Some(held_bytes) = held_bytes {
            self.report(pool::In::Lessened {
                worker: self.index as u16,
                conn: id,
                holding: bound.holding(held_bytes),
            });
        }
    }

    /// A connection has no share any more, since it sent nothing when it was last sampled. It keeps the one that it has if another
    /// response has begun since: the next sample tells of that.
    fn unshare(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get(id).filter(|conn| conn.bound.is_some()) else {
            return; // a late one
        };
        if conn
            .transport
            .held_bytes()
            .is_some_and(|held_bytes| held_bytes > 0)
        {
            return;
        }
        let none = In::Cap {
            conn: id,
            cap_bytes: None,
        };
        self.decider.on(none, now);
        if self.decider.sender(id).is_none() {
            if let Some(conn) = self.conns.get(id) {
                conn.bound = None;
                self.left(id);
            }
        }
    }

    pub(super) fn end_share(&self, conn: &Conn) {
        if conn.bound.is_some() {
            self.left(conn.id);
        }
    }

    fn left(&self, conn: ConnId) {
        let worker = self.index as u16;
        self.report(pool::In::Left { worker, conn });
    }
}

/// Holds a socket to its share. Setting SO_SNDBUF has the kernel check whether it has become writable. Whether the share is
/// smaller than before.
fn hold_to_share(conn: &mut Conn, grant: Grant) -> bool {
    let before_bytes = conn.bound.map(|bound| bound.share_bytes());
    let bound = conn.bound.get_or_insert(Bound::new(grant));
    let is_less = bound.change(grant);
    if before_bytes != Some(bound.share_bytes()) {
        let bytes = bound.share_bytes();
        conn.transport.bound_send_buffer(bytes);
    }
    is_less
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
            match conn.transport.send_slices(&[IoSlice::new(piece)], false) {
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
                hold_to_share(conn, Grant::start(share_bytes));
            }
            epoll::modify(&epoll, &conn.transport, data_of(conn.id), INTEREST).expect("a socket");
        }
        in_vain
    }

    fn sends_all_of_it(seed: u64) {
        let (socket, client) = tcp_pair([1_448, 536, 32_000][seed as usize % 3]);
        let reader = thread::spawn(move || read_badly(client, seed));
        let mut conns = Conns::new(1);
        let client = Accepted { socket, peer: None };
        let id = conns.add(Conn::new(client, None)).expect("a place");
        let conn = conns.get(id).expect("it was added");
        hold_to_share(conn, Grant::start(16 << 10));
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
