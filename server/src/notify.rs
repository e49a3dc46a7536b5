//! Tells the service manager that the server is ready, that it stops (sd_notify(3), `Type=notify` in a unit), and, if asked,
//! that it still runs (sd_watchdog_enabled(3), `WatchdogSec=`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, SocketAddrUnix, sendto};

use crate::limits::{NOTIFY_LATE_MAX, NOTIFY_MAX};
use crate::options::shown;

/// The variable that names the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";
const READY: &str = "READY=1\n";
const STOPPING: &str = "STOPPING=1\n";
const ALIVE: &str = "WATCHDOG=1\n";
/// What the operator can do if the manager does not hear the server.
const CURE: &str = "With Type=exec in the unit it need not be";

/// The program that started the server, if it wants to be told.
pub struct ServiceManager(Option<Arc<ManagerSocket>>);

/// The way to it. The socket is open from the start on: at the end there may be no descriptor left for one.
struct ManagerSocket {
    /// A path, or an abstract name after `@`.
    name: OsString,
    address: SocketAddrUnix,
    socket: UnixDatagram,
    /// Whether the server stops. The lock is held while `STOPPING=1`, or a late `READY=1`, is sent: so the one never
    /// comes after the other.
    stops: Mutex<bool>,
    changed: Condvar,
}

impl ServiceManager {
    /// The one that the environment names.
    pub fn of_environment() -> ServiceManager {
        let name = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        ServiceManager(name.and_then(|name| match ManagerSocket::open(&name) {
            Ok(line) => Some(Arc::new(line)),
            Err(error) => {
                warn(&name, &error, "anything");
                None
            }
        }))
    }

    /// The server takes clients. If the manager's queue is full for [`NOTIFY_MAX`], a thread goes on. From now on the manager
    /// is also told that the server runs, if it wants to know, as long as `hung` finds no thread that hangs.
    pub fn ready(&self, hung: impl Fn() -> Vec<String> + Send + 'static) {
        let late = self.ready_within(NOTIFY_MAX);
        drop(late); // it ends by itself
        let Some(line) = self.0.as_ref().map(Arc::clone) else {
            return;
        };
        let variable = |name| std::env::var(name).ok();
        let Some(each) = watched_each(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID")) else {
            return;
        };
        let thread = thread::Builder::new().name("watchdog".to_owned());
        let watch = move || loop {
            line.watched(&hung(), each);
            thread::sleep(each);
        };
        if let Err(error) = thread.spawn(watch) {
            tracing::warn!(
                "watchdog: {error}; the service manager will end the server. Remove WatchdogSec= or raise TasksMax="
            );
        }
    }

    /// The same for `most`; the thread that goes on.
    fn ready_within(&self, most: Duration) -> Option<JoinHandle<()>> {
        let line = self.0.as_ref()?;
        let error = line.send_within(most, READY).err()?;
        if error.kind() != io::ErrorKind::WouldBlock {
            warn(&line.name, &error, READY);
            return None;
        }
        tracing::warn!(
            "{VARIABLE}={}: the queue of the service manager is full; it is told READY=1 as soon as it has room, within {} s",
            shown(&line.name.to_string_lossy()),
            NOTIFY_LATE_MAX.as_secs(),
        );
        let thread = thread::Builder::new().name("notify".to_owned());
        let late = Arc::clone(line);
        match thread.spawn(move || late.ready_late()) {
            Ok(thread) => Some(thread),
            Err(error) => {
                warn(&line.name, &error, READY);
                None
            }
        }
    }

    /// The server takes no new clients, and ends. Never waits for the manager.
    pub fn stopping(&self) {
        let Some(line) = &self.0 else { return };
        let mut stops = line.stops.lock().unwrap_or_else(PoisonError::into_inner);
        *stops = true;
        line.changed.notify_all();
        if let Err(error) = line.send(STOPPING, SendFlags::DONTWAIT) {
            warn(&line.name, &error, STOPPING);
        }
    }
}

impl ManagerSocket {
    fn open(name: &OsStr) -> io::Result<ManagerSocket> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            [b'/', ..] => SocketAddrUnix::new(name)?,
            _ => {
                return Err(io::Error::other(
                    "neither a path from / on nor a name after @",
                ));
            }
        };
        Ok(ManagerSocket {
            name: name.to_owned(),
            address,
            socket: UnixDatagram::unbound()?,
            stops: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    /// Sends one datagram.
    fn send(&self, state: &str, flags: SendFlags) -> io::Result<()> {
        let sent = sendto(&self.socket, state.as_bytes(), flags, &self.address);
        sent.map(drop).map_err(io::Error::from)
    }

    /// The same; waits `most` for room in the manager's queue.
    fn send_within(&self, most: Duration, state: &str) -> io::Result<()> {
        uninterrupted(most, |left| {
            if left.is_zero() {
                return self.send(state, SendFlags::DONTWAIT);
            }
            self.socket.set_write_timeout(Some(left))?;
            self.send(state, SendFlags::empty())
        })
    }

    /// Says that the server runs, unless threads hang. What the manager has no room for is said the next time.
    fn watched(&self, hung: &[String], each: Duration) {
        if hung.is_empty() {
            let _ = self.send(ALIVE, SendFlags::DONTWAIT);
            return;
        }
        tracing::error!(
            "no turn for {} s: {}; the service manager is not told WATCHDOG=1 until there is one. Please report this",
            each.as_secs_f64(),
            hung.join(", "),
        );
    }

    /// Tries to send `READY=1` every [`NOTIFY_MAX`] until it is sent, the server stops or [`NOTIFY_LATE_MAX`] is over.
    fn ready_late(&self) {
        let tries = NOTIFY_LATE_MAX.as_secs() / NOTIFY_MAX.as_secs().max(1);
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = io::Error::from(io::ErrorKind::WouldBlock);
        for _ in 0..tries {
            let waited = self.changed.wait_timeout_while(stops, NOTIFY_MAX, |s| !*s);
            (stops, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *stops {
                return;
            }
            match self.send(READY, SendFlags::DONTWAIT) {
                Ok(()) => return,
                Err(error) => last = error,
            }
            if last.kind() != io::ErrorKind::WouldBlock {
                break;
            }
        }
        warn(&self.name, &last, READY);
    }
}

/// How often the manager is told that the server runs, by its variables; `None`: it does not want to know. Four times in the
/// time after which it ends the server, so a turn may take three quarters of that.
fn watched_each(usec: Option<String>, pid: Option<String>) -> Option<Duration> {
    let usec = usec.filter(|_| pid.is_none_or(|pid| pid == std::process::id().to_string()))?;
    let us = usec.parse().ok().filter(|us: &u64| *us > 0);
    if us.is_none() {
        tracing::warn!("WATCHDOG_USEC={}: not a time in microseconds", shown(&usec));
    }
    us.map(|us| Duration::from_micros(us).div_f64(4.0))
}

/// Calls `send` again as long as a signal interrupts it, with what is left of `most`.
fn uninterrupted(
    most: Duration,
    mut send: impl FnMut(Duration) -> io::Result<()>,
) -> io::Result<()> {
    let begun = Instant::now();
    let mut left = most;
    loop {
        match send(left) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !left.is_zero() => {
                left = most.saturating_sub(begun.elapsed());
            }
            sent => return sent,
        }
    }
}

fn warn(name: &OsStr, error: &io::Error, state: &str) {
    tracing::warn!(
        "{VARIABLE}={}: {error}; the service manager was not told {}. {CURE}",
        shown(&name.to_string_lossy()),
        state.trim_end(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    fn heard(socket: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let len = socket.recv(&mut text).expect("what was sent is there");
        String::from_utf8_lossy(&text[..len]).into_owned()
    }

    fn manager(name: impl AsRef<OsStr>) -> ServiceManager {
        let line = ManagerSocket::open(name.as_ref()).expect("the name of a socket");
        ServiceManager(Some(Arc::new(line)))
    }

    /// A manager whose queue is full, and how many datagrams are in it.
    fn full(name: &str) -> (UnixDatagram, ServiceManager, usize) {
        let name = format!("ackpace-notify-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let socket = UnixDatagram::bind_addr(&address).expect("a fresh name");
        let filler = UnixDatagram::unbound().expect("a socket");
        filler.set_nonblocking(true).expect("a socket");
        let send = |_: &usize| filler.send_to_addr(b"x", &address).is_ok();
        let count = (0..100_000).take_while(send).count();
        assert!(count < 100_000, "the queue has a bound");
        (socket, manager(format!("@{name}")), count)
    }

    #[test]
    fn a_manager_hears_by_a_path_and_by_an_abstract_name() {
        let name = format!("ackpace-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let by_path = UnixDatagram::bind(&path).expect("a fresh path");
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("a short name");
        let by_name = UnixDatagram::bind_addr(&abstract_name).expect("a fresh name");
        for (socket, name) in [
            (by_path, path.clone().into_os_string()),
            (by_name, format!("@{name}").into()),
        ] {
            socket.set_nonblocking(true).expect("a socket");
            let manager = manager(name);
            manager.ready(Vec::new);
            manager.stopping();
            assert_eq!(heard(&socket), READY);
            assert_eq!(heard(&socket), STOPPING);
        }
        std::fs::remove_file(&path).expect("our own socket");
    }

    #[test]
    fn a_manager_that_is_not_there_is_an_error_and_no_more() {
        for name in ["", "relative", "vsock:2:1234"] {
            assert!(ManagerSocket::open(OsStr::new(name)).is_err(), "{name}");
        }
        for name in ["/nowhere/notify", "@nobody-is-here"] {
            let manager = manager(name);
            let line = manager.0.as_ref().expect("a line");
            assert!(line.send_within(NOTIFY_MAX, READY).is_err(), "{name}");
            assert!(manager.ready_within(NOTIFY_MAX).is_none(), "{name}");
            manager.stopping();
        }
        ServiceManager(None).ready(Vec::new);
        ServiceManager(None).stopping();
    }

    #[test]
    fn a_manager_whose_queue_is_full_hears_later_that_the_server_is_ready() {
        let (socket, manager, count) = full("later");
        let late = manager.ready_within(Duration::ZERO).expect("a thread");
        for _ in 0..count {
            assert_eq!(heard(&socket), "x");
        }
        late.join().expect("no panic");
        assert_eq!(heard(&socket), READY);
    }

    #[test]
    fn a_stop_ends_the_late_thread_and_does_not_wait_for_the_manager() {
        let (socket, manager, count) = full("stop");
        let late = manager.ready_within(Duration::ZERO).expect("a thread");
        manager.stopping();
        late.join().expect("no panic");
        for _ in 0..count {
            assert_eq!(heard(&socket), "x");
        }
        socket.set_nonblocking(true).expect("a socket");
        assert!(socket.recv(&mut [0; 64]).is_err(), "nothing was sent late");
    }

    #[test]
    fn a_manager_that_watches_hears_that_the_server_runs_unless_a_thread_hangs() {
        let own = std::process::id().to_string();
        let each = |usec: &str, pid: &str| {
            let pid = Some(pid.to_owned()).filter(|pid| !pid.is_empty());
            watched_each(Some(usec.to_owned()), pid)
        };
        let half_a_second = Some(Duration::from_millis(500));
        assert_eq!(each("2000000", ""), half_a_second);
        assert_eq!(each("2000000", &own), half_a_second);
        for (usec, pid) in [("2000000", "1"), ("0", ""), ("-1", ""), ("2s", &own)] {
            assert_eq!(each(usec, pid), None, "{usec} {pid}");
        }
        let name = format!("ackpace-notify-watched-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let socket = UnixDatagram::bind_addr(&address).expect("a fresh name");
        let line = manager(format!("@{name}")).0.expect("a line");
        line.watched(&["worker 1".to_owned()], Duration::from_secs(1));
        line.watched(&[], Duration::from_secs(1));
        assert_eq!(heard(&socket), ALIVE);
        socket.set_nonblocking(true).expect("a socket");
        assert!(socket.recv(&mut [0; 64]).is_err(), "once");
    }

    #[test]
    fn a_signal_does_not_end_what_is_being_sent() {
        let interrupted = || Err(io::Error::from(io::ErrorKind::Interrupted));
        let mut calls = 0;
        let sent = uninterrupted(Duration::MAX, |_| {
            calls += 1;
            if calls < 4 { interrupted() } else { Ok(()) }
        });
        assert!(sent.is_ok());
        assert_eq!(calls, 4);
        assert!(
            uninterrupted(Duration::ZERO, |_| interrupted()).is_err(),
            "not beyond the bound"
        );
    }
}
