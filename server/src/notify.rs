//! Tells the service manager that the server is ready, that it stops (sd_notify(3), `Type=notify` in a unit), and, if asked,
//! that it still runs (sd_watchdog_enabled(3), `WatchdogSec=`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::{SendFlags, SocketAddrUnix, sendto};

use crate::options::shown;

/// How long a thread waits for room in the service manager's queue. Longer: the manager is not told, and the log says so.
const NOTIFY_MAX: Duration = Duration::from_secs(90);
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

    /// The server takes clients. A thread says so, since the manager's queue may be full. From now on the manager is also told
    /// that the server runs, if it wants to know, as long as `hung` finds no thread that hangs.
    pub fn ready(&self, hung: impl Fn() -> Vec<String> + Send + 'static) {
        let Some(line) = self.0.as_ref().map(Arc::clone) else {
            return;
        };
        let variable = |name| std::env::var(name).ok();
        let each = watched_each(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        let thread = thread::Builder::new().name("notify".to_owned());
        let tell = move || {
            if let Err(error) = line.send(READY, SendFlags::empty()) {
                warn(&line.name, &error, READY);
            }
            while let Some(each) = each {
                line.watched(&hung(), each);
                thread::sleep(each);
            }
        };
        if let Err(error) = thread.spawn(tell) {
            tracing::warn!(
                "{error}: the service manager is told nothing, and may end the server. Raise TasksMax="
            );
        }
    }

    /// The server takes no new clients, and ends. Never waits for the manager.
    pub fn stopping(&self) {
        let Some(line) = &self.0 else { return };
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
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(NOTIFY_MAX))?;
        Ok(ManagerSocket {
            name: name.to_owned(),
            address,
            socket,
        })
    }

    fn send(&self, state: &str, flags: SendFlags) -> io::Result<()> {
        let send = || sendto(&self.socket, state.as_bytes(), flags, &self.address);
        rustix::io::retry_on_intr(send)?;
        Ok(())
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

    #[test]
    fn a_manager_hears_by_a_path_and_by_an_abstract_name_also_when_its_queue_was_full() {
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
            let manager = manager(name);
            let line = manager.0.as_ref().expect("a line");
            let fill = |_: &usize| line.send("x", SendFlags::DONTWAIT).is_ok();
            let count = (0..100_000).take_while(fill).count();
            manager.ready(Vec::new);
            manager.stopping(); // does not wait, and is not heard
            for _ in 0..count {
                assert_eq!(heard(&socket), "x");
            }
            assert_eq!(heard(&socket), READY);
            manager.stopping();
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
            assert!(line.send(READY, SendFlags::empty()).is_err(), "{name}");
            manager.stopping();
        }
        ServiceManager(None).ready(Vec::new);
        ServiceManager(None).stopping();
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
}
