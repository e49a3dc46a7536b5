//! Tells the service manager that the server is ready, and that it stops (sd_notify(3), `Type=notify` in a unit).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::limits::NOTIFY_MAX;

/// The variable that names the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The program that started the server, if it wants to be told.
pub struct ServiceManager {
    /// The name of its socket: a path, or an abstract name after `@`.
    socket: Option<OsString>,
}

impl ServiceManager {
    /// The one that the environment names.
    pub fn of_environment() -> ServiceManager {
        let socket = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        ServiceManager { socket }
    }

    /// The server takes clients.
    pub fn ready(&self) {
        self.tell("READY=1\n");
    }

    /// The server takes no new clients, and ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    fn tell(&self, state: &str) {
        let Some(name) = &self.socket else { return };
        if let Err(error) = send(name, state) {
            tracing::warn!(
                "{VARIABLE}={}: {error}; the service manager was not told {}. With Type=exec in the unit it need not be",
                name.to_string_lossy(),
                state.trim_end(),
            );
        }
    }
}

/// Sends one datagram; waits [`NOTIFY_MAX`] at most.
fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            return Err(io::Error::other(
                "neither a path from / on nor a name after @",
            ));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(NOTIFY_MAX))?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let len = socket.recv(&mut text).expect("what was sent is there");
        String::from_utf8_lossy(&text[..len]).into_owned()
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
            let manager = ServiceManager { socket: Some(name) };
            manager.ready();
            manager.stopping();
            assert_eq!(heard(&socket), "READY=1\n");
            assert_eq!(heard(&socket), "STOPPING=1\n");
        }
        std::fs::remove_file(&path).expect("our own socket");
    }

    #[test]
    fn a_manager_that_is_not_there_is_an_error_and_no_more() {
        for name in [
            "",
            "relative",
            "vsock:2:1234",
            "/nowhere/notify",
            "@nobody-is-here",
        ] {
            assert!(send(OsStr::new(name), "READY=1\n").is_err(), "{name}");
            let socket = Some(name.into());
            ServiceManager { socket }.ready();
        }
        ServiceManager { socket: None }.ready();
    }
}
