//! The thread that hears `ackpace-host events`: what TCP does to our connections, at once ([`ackpace_core::hints`]).
//!
//! It maps sockets to connections, leaves each hint in its connection's mailbox and wakes the worker, which lets it in by the
//! one door ([`crate::worker`]). Workers note which sockets are meant by a bounded queue. Without the other program, or
//! when it is slow or wrong, everything works as without hints: only the kernel's word counts, and regular samples get it, too.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use ackpace_core::conn::ConnId;
use ackpace_core::hints::{Hint, HintKind, decode};
use ackpace_core::limits::HINT_PACKET_BYTES_MAX;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};

use crate::limits::{
    HINT_NOTES_MAX, HINT_PACKETS_PER_LOOK_MAX, HINT_REST, HINT_RETRY_MAX, HINT_RETRY_MIN,
    HINT_WAIT, THREAD_BYTES,
};
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::options::TcpEventsAt;

/// Where `ackpace-host events` is, unless it is told otherwise.
const PATH: &str = "/run/ackpace-host/events.sock";

/// A hint for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnHint {
    /// Which one, when its socket was noted.
    pub conn: ConnId,
    /// What is said to have happened.
    pub kind: HintKind,
    /// When, by the kernel's monotonic clock, nanoseconds.
    pub at_ns: u64,
}

/// What a worker says of a connection.
#[derive(Clone, Copy, Debug)]
enum Note {
    /// Its socket has this cookie.
    Here {
        worker: u16,
        conn: ConnId,
        cookie: u64,
    },
    /// It is closed.
    Gone { worker: u16, conn: ConnId },
}

struct HintChannel {
    hints: Mailboxes<ConnHint>,
    waker: Arc<ThreadWaker>,
}

/// What the thread and the workers share.
pub struct Hints {
    path: PathBuf,
    /// The operator named the path, and wants to know if nobody is there.
    is_named: bool,
    channels: Vec<HintChannel>,
    is_heard: AtomicBool,
    notes: Sender<Note>,
    noted: Receiver<Note>,
}

/// Memory for each connection: its mailbox, and its places in both tables of `Register`, which are half empty at worst.
pub const PLACE_BYTES: u64 = Mailboxes::<ConnHint>::PLACE_BYTES
    + 2 * (size_of::<(u64, Owner)>() + size_of::<((u16, u32), u64)>() + 2) as u64;

/// Memory besides.
pub const FIXED_BYTES: u64 =
    THREAD_BYTES + (HINT_NOTES_MAX * (size_of::<Note>() + 8) + HINT_PACKET_BYTES_MAX) as u64;

impl Hints {
    /// For workers with these wakers and so many `places` each; `None`: the operator wants none.
    pub fn new(
        at: &TcpEventsAt,
        wakers: impl Iterator<Item = Arc<ThreadWaker>>,
        places: u32,
    ) -> Option<Hints> {
        let (path, is_named) = match at {
            TcpEventsAt::Off => return None,
            TcpEventsAt::Auto => (PathBuf::from(PATH), false),
            TcpEventsAt::Path(path) => (path.clone(), true),
        };
        let channel = |waker| HintChannel {
            hints: Mailboxes::new(places),
            waker,
        };
        let (notes, noted) = bounded(HINT_NOTES_MAX);
        Some(Hints {
            path,
            is_named,
            channels: wakers.map(channel).collect(),
            is_heard: AtomicBool::new(false),
            notes,
            noted,
        })
    }

    /// Whether the other program is there.
    pub fn is_heard(&self) -> bool {
        self.is_heard.load(Relaxed)
    }

    /// A connection's socket has this cookie. Whether that is known from now on.
    pub fn note(&self, worker: usize, conn: ConnId, cookie: u64) -> bool {
        let note = Note::Here {
            worker: worker as u16,
            conn,
            cookie,
        };
        self.notes.try_send(note).is_ok()
    }

    /// A connection that was noted is closed. If there is no room for that, the next one in its place replaces it.
    pub fn forget(&self, worker: usize, conn: ConnId) {
        let worker = worker as u16;
        let _ = self.notes.try_send(Note::Gone { worker, conn });
    }

    /// The next hint for this worker. Only its thread may call this.
    pub fn take(&self, worker: usize) -> Option<ConnHint> {
        self.channels.get(worker)?.hints.take()
    }

    /// Listens until the process ends.
    fn run(&self) {
        let mut register = Register::default();
        let mut pause = HINT_RETRY_MIN;
        let mut is_told = !self.is_named;
        loop {
            match join(&self.path) {
                Ok(socket) => {
                    tracing::info!(
                        "{}: ackpace-host tells of TCP events at once",
                        self.path.display()
                    );
                    self.is_heard.store(true, Relaxed);
                    let mut is_good = false;
                    let why = self.hear(&socket, &mut register, &mut is_good);
                    self.is_heard.store(false, Relaxed);
                    if is_good {
                        pause = HINT_RETRY_MIN;
                    }
                    tracing::warn!(
                        "{}: {why}; TCP events are found by asking again, and it is tried again",
                        self.path.display()
                    );
                }
                Err(why) if !is_told => {
                    is_told = true;
                    tracing::warn!(
                        "--tcp-events {}: {why}; it is tried again",
                        self.path.display()
                    );
                }
                Err(why) => tracing::debug!("{}: {why}", self.path.display()),
            }
            self.heed(&mut register);
            thread::sleep(pause);
            pause = (pause * 2).min(HINT_RETRY_MAX);
        }
    }

    /// Listens until the other end is gone or tells garbage; which it was. `is_good`: a packet was in order.
    fn hear(&self, socket: &OwnedFd, register: &mut Register, is_good: &mut bool) -> String {
        let mut packet = [0; HINT_PACKET_BYTES_MAX + 1];
        loop {
            let mut to_wake = 0u64; // a bit for each of 64 workers
            let mut flags = RecvFlags::empty();
            for _ in 0..HINT_PACKETS_PER_LOOK_MAX {
                let len = match recv(socket, &mut packet, flags) {
                    Ok((0, _)) => return "ackpace-host has ended".to_owned(),
                    Ok((len, _)) => len,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => continue,
                    Err(error) => return error.to_string(),
                };
                flags = RecvFlags::DONTWAIT;
                self.heed(register);
                let Ok(hints) = decode(&packet[..len]) else {
                    return "what it tells is not of this version's ackpace-host".to_owned();
                };
                *is_good = true;
                for hint in hints {
                    if let Some(worker) = self.pass_on(&hint, register) {
                        to_wake |= 1 << worker;
                    }
                }
            }
            self.heed(register);
            for (_, channel) in (0..)
                .zip(&self.channels)
                .filter(|(worker, _)| to_wake & 1 << *worker != 0)
            {
                channel.waker.wake();
            }
            if flags == RecvFlags::DONTWAIT {
                thread::sleep(HINT_REST); // a flood costs no more than this allows
            }
        }
    }

    /// Leaves a hint for its connection. The worker to wake; `None`: nobody here has that socket.
    fn pass_on(&self, hint: &Hint, register: &Register) -> Option<u16> {
        let place = register.find(hint.cookie)?;
        let channel = self.channels.get(usize::from(place.worker))?;
        let told = ConnHint {
            conn: place.conn,
            kind: hint.kind,
            at_ns: hint.at_ns,
        };
        let before = channel.hints.put(place.conn.index, told);
        // Nothing follows a reset.
        if let Some(reset) =
            before.filter(|before| before.kind == HintKind::Reset && before.conn == told.conn)
        {
            channel.hints.put(place.conn.index, reset);
        }
        Some(place.worker)
    }

    /// Takes what workers have noted.
    fn heed(&self, register: &mut Register) {
        for note in self.noted.try_iter().take(HINT_NOTES_MAX) {
            match note {
                Note::Here {
                    worker,
                    conn,
                    cookie,
                } => register.add(cookie, Owner { worker, conn }),
                Note::Gone { worker, conn } => register.remove(Owner { worker, conn }),
            }
        }
    }
}

/// Who has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    worker: u16,
    conn: ConnId,
}

/// Connections by the cookies of their sockets: one for each place of a worker's table at most, since whoever takes a place
/// displaces whoever had it.
#[derive(Debug, Default)]
struct Register {
    places: HashMap<u64, Owner>,
    cookies: HashMap<(u16, u32), u64>,
}

impl Register {
    fn find(&self, cookie: u64) -> Option<Owner> {
        self.places.get(&cookie).copied()
    }

    fn add(&mut self, cookie: u64, place: Owner) {
        let before = self
            .cookies
            .insert((place.worker, place.conn.index), cookie);
        if let Some(before) = before {
            self.places.remove(&before);
        }
        self.places.insert(cookie, place);
    }

    fn remove(&mut self, place: Owner) {
        let key = (place.worker, place.conn.index);
        let Some(cookie) = self.cookies.get(&key).copied() else {
            return;
        };
        if self.find(cookie) == Some(place) {
            self.places.remove(&cookie);
            self.cookies.remove(&key);
        }
    }
}

/// Connects to the other program, if it belongs to root or to the user of this process.
fn join(path: &Path) -> Result<OwnedFd, String> {
    let failed = |error: Errno| error.to_string();
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(failed)?;
    // connect(2) obeys the send timeout; a receive returns now and then to take notes.
    for which in [Timeout::Send, Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, which, Some(HINT_WAIT)).map_err(failed)?;
    }
    connect(&socket, &address).map_err(failed)?;
    let peer = sockopt::socket_peercred(&socket).map_err(failed)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(format!(
            "it belongs to user {}, neither root nor this server's",
            peer.as_raw()
        ));
    }
    Ok(socket)
}

/// Starts the thread, which lives as long as the process.
///
/// # Errors
/// When the thread can't be started.
pub fn start(hints: &Arc<Hints>) -> io::Result<()> {
    let hints = Arc::clone(hints);
    thread::Builder::new()
        .name("tcp-events".to_owned())
        .spawn(move || hints.run())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use ackpace_core::hints::encode;
    use rustix::net::{SendFlags, send, socketpair};

    use super::*;

    fn conn(index: u32, generation: u32) -> ConnId {
        ConnId { index, generation }
    }

    fn hint(cookie: u64, kind: HintKind) -> Hint {
        Hint {
            cookie,
            at_ns: 5,
            kind,
        }
    }

    fn hints() -> Hints {
        let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
        let wakers = [Arc::clone(&waker), waker].into_iter();
        Hints::new(&TcpEventsAt::Auto, wakers, 4).expect("not off")
    }

    /// What is heard of these packets until the other end is gone, and why it ends.
    fn told(hints: &Hints, packets: &[Vec<u8>]) -> String {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.expect("descriptors");
        for packet in packets {
            send(&theirs, packet, SendFlags::empty()).expect("room");
        }
        drop(theirs);
        hints.hear(&ours, &mut Register::default(), &mut false)
    }

    fn packet(hints: &[Hint]) -> Vec<u8> {
        let mut packet = Vec::new();
        encode(hints, &mut packet);
        packet
    }

    #[test]
    fn a_hint_reaches_the_worker_that_has_the_socket_and_no_other() {
        let hints = hints();
        assert!(hints.note(0, conn(3, 1), 70) && hints.note(1, conn(3, 9), 71));
        let (cwr, reset) = (HintKind::Cwr, HintKind::Reset);
        let packets = [
            packet(&[hint(71, cwr), hint(99, reset)]),
            packet(&[hint(71, reset), hint(71, cwr)]),
        ];
        let why = told(&hints, &packets);
        assert!(why.contains("ended"), "{why}");
        let got = hints.take(1).map(|hint| (hint.conn, hint.kind));
        assert_eq!(got, Some((conn(3, 9), reset)), "a reset is the last word");
        assert_eq!((hints.take(0), hints.take(1)), (None, None));
    }

    #[test]
    fn who_is_gone_gets_none_and_a_lost_farewell_does_no_harm() {
        let mut register = Register::default();
        let place = |index, generation| Owner {
            worker: 0,
            conn: conn(index, generation),
        };
        register.add(70, place(0, 1));
        register.remove(place(0, 1));
        assert_eq!(register.find(70), None);
        register.add(71, place(0, 2));
        register.add(72, place(0, 3)); // the farewell of the one before was lost
        assert_eq!(
            (register.find(71), register.find(72)),
            (None, Some(place(0, 3)))
        );
        register.remove(place(0, 2));
        assert_eq!(register.find(72), Some(place(0, 3)), "a late farewell");
        assert_eq!((register.places.len(), register.cookies.len()), (1, 1));
    }

    #[test]
    fn garbage_ends_the_connection_and_nothing_of_it_is_passed_on() {
        let hints = hints();
        assert!(hints.note(0, conn(0, 0), 70));
        let good = packet(&[hint(70, HintKind::Cwr)]);
        let long = vec![b'a'; HINT_PACKET_BYTES_MAX * 2];
        for garbage in [
            vec![0],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            long,
            good[1..].to_vec(),
        ] {
            let why = told(&hints, &[garbage, good.clone()]);
            assert!(why.contains("version"), "{why}");
            assert_eq!(hints.take(0), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_not_queued() {
        let hints = hints();
        let noted = (0..2 * HINT_NOTES_MAX as u64).filter(|n| hints.note(0, conn(0, 0), *n));
        assert_eq!(noted.count(), HINT_NOTES_MAX);
        hints.forget(0, conn(0, 0));
        let mut register = Register::default();
        hints.heed(&mut register);
        assert_eq!(register.places.len(), 1, "one for a place");
        assert!(hints.note(0, conn(0, 0), 1), "there is room again");
    }
}
