//! Tells the service manager that the mount is there (sd_notify(3), `Type=notify` in the unit), so that what comes after it finds it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use ackpace_host_base::say;

/// Says this to the manager that started the program, if one did.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    let told = || {
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?; // a manager that does not listen holds up nothing
        socket.send_to_addr(state.as_bytes(), &address)
    };
    if let Err(error) = told() {
        say!("gateway: the service manager was not told '{state}': {error}");
    }
}
