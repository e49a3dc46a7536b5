//! Who is told: whoever connects to the unix socket hears of the sockets of its own user, and of no other's.
//!
//! Nobody is waited for: what does not fit into a listener's socket is lost for it, and counted.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use ackpace_core::hints::{Hint, encode};
use ackpace_core::limits::HINTS_PER_PACKET_MAX;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with, sockopt,
};

use super::event::TcpEvent;
use crate::limits::{LISTENERS_MAX, LISTENERS_OF_A_USER_MAX};
use crate::status::SocketFile;

/// The listeners.
pub struct Audience {
    door: OwnedFd,
    _file: SocketFile,
    listeners: Vec<Listener>,
    hints: Vec<Hint>,
    packet: Vec<u8>,
    /// Events that were told, counted for each listener.
    pub told: u64,
    /// Those that were lost, since a listener was slow.
    pub lost: u64,
}

struct Listener {
    socket: OwnedFd,
    uid: u32,
}

impl Audience {
    /// Listens at `path`. A socket that a killed instance left there is replaced: the caller has the lock.
    ///
    /// # Errors
    /// As bind(2); or there is something else.
    pub fn gather(path: &Path) -> io::Result<Audience> {
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::other("there is a file that is no socket")),
            Err(_) => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let door = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&door, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile::of(path);
        // Listeners are told apart by their credentials.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        listen(&door, LISTENERS_MAX as i32)?;
        Ok(Audience {
            door,
            _file: file,
            listeners: Vec::new(),
            hints: Vec::new(),
            packet: Vec::new(),
            told: 0,
            lost: 0,
        })
    }

    /// Lets in who waits, and forgets who has left. One beyond the bounds is turned away.
    pub fn admit(&mut self) {
        // One that says anything is no listener.
        self.listeners.retain(|listener| {
            let said = recv(&listener.socket, &mut [0; 1], RecvFlags::DONTWAIT);
            said.map(|_| ()) == Err(Errno::AGAIN)
        });
        for _ in 0..LISTENERS_MAX {
            let Ok(socket) = accept_with(&self.door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            else {
                return;
            };
            let Ok(peer) = sockopt::socket_peercred(&socket) else {
                continue;
            };
            let uid = peer.uid.as_raw();
            let of_user = self.listeners.iter().filter(|other| other.uid == uid);
            if self.listeners.len() < LISTENERS_MAX && of_user.count() < LISTENERS_OF_A_USER_MAX {
                self.listeners.push(Listener { socket, uid });
            }
        }
    }

    /// Tells each of what is its own.
    pub fn tell(&mut self, events: &[TcpEvent]) {
        let (hints, packet) = (&mut self.hints, &mut self.packet);
        let (told, lost) = (&mut self.told, &mut self.lost);
        self.listeners.retain(|listener| {
            hints.clear();
            let own = events.iter().filter(|event| event.uid == listener.uid);
            hints.extend(own.map(|event| event.hint));
            for part in hints.chunks(HINTS_PER_PACKET_MAX) {
                encode(part, packet);
                match send(
                    &listener.socket,
                    packet,
                    SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                ) {
                    Ok(_) => *told += part.len() as u64,
                    Err(Errno::AGAIN | Errno::NOBUFS) => *lost += part.len() as u64,
                    Err(_) => return false,
                }
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use ackpace_core::hints::{HintKind, decode};
    use ackpace_core::limits::HINT_PACKET_BYTES_MAX;
    use rustix::net::connect;

    use super::*;

    fn path(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("ackpace-host-{test}-{}.sock", std::process::id()))
    }

    fn join(path: &Path) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a descriptor");
        connect(&socket, &SocketAddrUnix::new(path).expect("short")).expect("it listens");
        socket
    }

    fn hint(cookie: u64) -> Hint {
        Hint {
            cookie,
            at_ns: 1,
            kind: HintKind::Recovery,
        }
    }

    fn event(cookie: u64, uid: u32) -> TcpEvent {
        TcpEvent {
            hint: hint(cookie),
            uid,
        }
    }

    fn heard(socket: &OwnedFd) -> Vec<Hint> {
        let mut packet = [0; HINT_PACKET_BYTES_MAX];
        let mut hints = Vec::new();
        while let Ok((_, len)) = recv(socket, &mut packet, RecvFlags::DONTWAIT) {
            hints.extend(decode(&packet[..len]).expect("a packet"));
        }
        hints
    }

    #[test]
    fn each_is_told_of_its_own_sockets_and_of_no_other() {
        let path = path("own");
        let mut audience = Audience::gather(&path).expect("a free path");
        let listener = join(&path);
        audience.admit();
        let own = rustix::process::geteuid().as_raw();
        audience.tell(&[event(1, own), event(2, own ^ 1), event(3, own)]);
        assert_eq!(heard(&listener), [hint(1), hint(3)]);
        let many: Vec<TcpEvent> = (0..300).map(|cookie| event(cookie, own)).collect();
        audience.tell(&many);
        assert_eq!(heard(&listener).len(), 300, "by several packets");
        assert_eq!((audience.told, audience.lost), (302, 0));
        drop(audience);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_does_not_listen_loses_and_holds_up_nobody() {
        let path = path("slow");
        let mut audience = Audience::gather(&path).expect("a free path");
        let (slow, quick) = (join(&path), join(&path));
        audience.admit();
        let own = rustix::process::geteuid().as_raw();
        let many: Vec<TcpEvent> = (0..128).map(|cookie| event(cookie, own)).collect();
        let mut rounds = 0;
        while audience.lost == 0 {
            audience.tell(&many);
            rounds += 1;
            assert_eq!(heard(&quick).len(), 128);
            assert!(rounds < 10_000, "a socket has a bound");
        }
        assert_eq!(
            heard(&slow).len(),
            (rounds - 1) * 128,
            "what it had room for"
        );
    }

    #[test]
    fn who_leaves_or_talks_is_forgotten_and_one_too_many_turned_away() {
        let path = path("many");
        let mut audience = Audience::gather(&path).expect("a free path");
        let mut listeners: Vec<OwnedFd> = (0..LISTENERS_OF_A_USER_MAX + 1)
            .map(|_| join(&path))
            .collect();
        audience.admit();
        assert_eq!(audience.listeners.len(), LISTENERS_OF_A_USER_MAX);
        let turned_away = listeners.pop().expect("the last one");
        let end = recv(&turned_away, &mut [0; 1], RecvFlags::DONTWAIT).map(|(_, len)| len);
        assert_eq!(end, Ok(0), "its connection has ended");
        drop(listeners.pop());
        send(&listeners[0], b"x", SendFlags::NOSIGNAL).expect("room for a byte");
        audience.admit();
        assert_eq!(audience.listeners.len(), LISTENERS_OF_A_USER_MAX - 2);
        drop(audience);
        fs::write(&path, "mine").expect("a file");
        assert!(Audience::gather(&path).is_err(), "no socket of ours");
        fs::remove_file(&path).expect("our own");
    }
}
