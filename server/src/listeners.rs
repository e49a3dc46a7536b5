//! Listening sockets: binds addresses and unix sockets, takes inherited ones, or returns an error that says what to do.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};

use crate::config::Layer;
use crate::descriptors;
use crate::failure::Failure;
use crate::limits::{BACKLOG, BIND_WAIT_MAX};
use crate::options::{CongestionControl, Listen, MetricsAt, UnixMode, shown_path};
use crate::socket_file::{SocketFile, is_stale};
use crate::tcp;

/// How often it tries.
const BIND_EACH: std::time::Duration = std::time::Duration::from_millis(20);

/// Why a listener could not be made. The text begins with the value; the option stands before it.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ListenError {
    text: String,
    /// The key of the option whose value is wrong.
    pub option: &'static str,
    /// A later start may do: the system refuses what is well written, such as an address that is not there yet.
    pub may_pass: bool,
}

impl ListenError {
    fn wrong(text: String) -> ListenError {
        ListenError {
            text,
            option: "listen",
            may_pass: false,
        }
    }

    /// The failure to start because of it.
    pub fn failure(&self, given: &Layer) -> Failure {
        match self.may_pass {
            true => Failure::value_now(given, self.option, self),
            false => Failure::value(given, self.option, self),
        }
    }

    /// One that the system refuses now.
    fn now(text: String) -> ListenError {
        ListenError {
            may_pass: true,
            ..ListenError::wrong(text)
        }
    }

    fn control(text: String) -> ListenError {
        ListenError {
            option: "congestion_control",
            ..ListenError::wrong(text)
        }
    }

    fn twice(fd: RawFd) -> ListenError {
        ListenError::wrong(format!(
            "fd:{fd} stands there twice; name each descriptor once"
        ))
    }
}

/// A listening socket of a worker.
#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    /// The other nodes of the cluster ask here, and nobody else.
    pub is_of_nodes: bool,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The listening sockets of all workers.
#[derive(Debug)]
pub struct Listeners {
    /// For each worker, its sockets: own ones for TCP, so that the kernel spreads the connections, shared ones
    /// otherwise.
    pub by_worker: Vec<Vec<Listener>>,
    /// For people: `http://127.0.0.1:8080`.
    pub urls: Vec<String>,
    pub unix: Vec<SocketFile>,
}

impl Listeners {
    /// Binds all addresses, or none: after an error no socket is left behind.
    pub fn bind(
        listens: &[Listen],
        workers: u16,
        controls: &[CongestionControl],
        unix_mode: UnixMode,
    ) -> Result<Listeners, ListenError> {
        check_controls(listens, controls)?;
        let mut by_worker: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        let mut all = Listeners {
            by_worker: Vec::new(),
            urls: Vec::new(),
            unix: Vec::new(),
        };
        // First of all: later the same number may be a socket of ours.
        let mut inherited = inherit_all(listens)?;
        for wanted in listens {
            let refused = |error: Errno| refuse(wanted, error);
            match wanted {
                Listen::Tcp {
                    addr,
                    all: any,
                    zone,
                } => {
                    let bound = bind_tcp(*addr, *any, zone.as_deref(), workers).map_err(refused)?;
                    for socket in &bound {
                        set_congestion_control(socket, wanted, controls)?;
                    }
                    all.urls.push(url(wanted, &bound[0]).map_err(refused)?);
                    add(&mut by_worker, bound, false);
                }
                Listen::Unix(path) => {
                    let socket = bind_unix(path, unix_mode, wanted)?;
                    all.unix.extend(SocketFile::bound_at(path));
                    all.urls.push(format!("unix:{}", shown_path(path)));
                    share(&mut by_worker, socket).map_err(refused)?;
                }
                Listen::Fd(fd) => {
                    let twice = || ListenError::twice(*fd);
                    let socket = inherited.remove(fd).ok_or_else(twice)?;
                    set_congestion_control(&socket, wanted, controls)?;
                    let url = local_address(&socket)
                        .map_or(format!("fd:{fd}"), |local| format!("http://{local}"));
                    all.urls.push(url);
                    share(&mut by_worker, socket).map_err(refused)?;
                }
            }
        }
        all.by_worker = by_worker;
        Ok(all)
    }

    /// Binds addresses for NFS: for each of as many threads as there are workers its sockets, and the addresses that they have.
    pub fn bind_nfs(
        listens: &[Listen],
        workers: u16,
    ) -> Result<(Vec<Vec<Listener>>, Vec<SocketAddr>), ListenError> {
        let mut by_thread = (0..workers).map(|_| Vec::new()).collect::<Vec<_>>();
        let mut addrs = Vec::new();
        for wanted in listens {
            let Listen::Tcp { addr, all, zone } = wanted else {
                continue; // the option takes no other
            };
            let refused = |error: Errno| ListenError {
                option: "nfs",
                ..refuse(wanted, error)
            };
            let bound = bind_tcp(*addr, *all, zone.as_deref(), workers).map_err(refused)?;
            bound.iter().for_each(tcp::keep_alive);
            addrs.push(local_address(&bound[0]).map_err(refused)?);
            add(&mut by_thread, bound, false);
        }
        Ok((by_thread, addrs))
    }

    /// Binds the port at which the other nodes of the cluster ask for files.
    pub fn bind_of_nodes(&mut self, addr: SocketAddr) -> Result<(), ListenError> {
        let workers = self.by_worker.len() as u16; // at most 64
        let bound = bind_tcp(addr, false, None, workers);
        let bound = bound.map_err(|error| of_cluster(addr, error))?;
        add(&mut self.by_worker, bound, true);
        Ok(())
    }
}

/// Checks what can be checked of listeners without listening: whether the kernel takes the congestion controls. Inherited
/// sockets are left out.
pub fn check(listens: &[Listen], controls: &[CongestionControl]) -> Result<(), ListenError> {
    check_controls(listens, controls)?;
    for listen in listens {
        let Listen::Tcp { .. } = listen else { continue };
        let socket = stream_socket(AddressFamily::INET).map_err(|error| refuse(listen, error))?;
        set_congestion_control(&socket, listen, controls)?;
    }
    Ok(())
}

fn check_controls(listens: &[Listen], controls: &[CongestionControl]) -> Result<(), ListenError> {
    let has = |control: &CongestionControl| match &control.listen {
        Some(listen) => listens.contains(listen),
        None => true,
    };
    match controls.iter().find(|control| !has(control)) {
        Some(lost) => Err(ListenError::control(format!(
            "{lost}: there is no --listen of this address"
        ))),
        None => Ok(()),
    }
}

/// A socket for metrics, and the URL that people write for it; `None`: they are off.
pub fn bind_metrics(at: &MetricsAt) -> Result<Option<(OwnedFd, String)>, ListenError> {
    let MetricsAt::Tcp(wanted @ Listen::Tcp { addr, all, zone }) = at else {
        return Ok(None); // the option takes no other
    };
    let bound = bind_tcp(*addr, *all, zone.as_deref(), 1).and_then(|mut sockets| {
        let socket = sockets.pop().ok_or(Errno::INVAL)?;
        let url = url(wanted, &socket)?;
        Ok(Some((socket, url + "/metrics")))
    });
    bound.map_err(|error| refuse(wanted, error))
}

/// A socket at which the other nodes of the cluster open their streams.
pub fn bind_cluster(addr: SocketAddr) -> Result<OwnedFd, ListenError> {
    let bound = bind_tcp(addr, false, None, 1);
    let socket = bound.and_then(|mut sockets| sockets.pop().ok_or(Errno::INVAL));
    socket.map_err(|error| of_cluster(addr, error))
}

fn of_cluster(addr: SocketAddr, error: Errno) -> ListenError {
    ListenError {
        option: "cluster_listen",
        ..refuse(&Listen::at(addr), error)
    }
}

/// The address of a socket, as people write it for a browser.
fn url(wanted: &Listen, socket: &OwnedFd) -> rustix::io::Result<String> {
    let local = local_address(socket)?;
    Ok(match wanted {
        Listen::Tcp { all: true, .. } => format!("http://{}", localhost(local)),
        // RFC 6874, section 2: the percent sign of a zone is written as %25.
        Listen::Tcp {
            zone: Some(zone), ..
        } => {
            format!("http://[{}%25{zone}]:{}", local.ip(), local.port())
        }
        _ => format!("http://{local}"),
    })
}

fn refuse(listen: &Listen, error: Errno) -> ListenError {
    let is_unix = matches!(listen, Listen::Unix(_));
    let cure = match error {
        Errno::NOENT | Errno::NOTDIR if is_unix => {
            "; make its folder first (RuntimeDirectory= in the unit makes one below /run)"
        }
        Errno::ACCESS | Errno::PERM if is_unix => {
            "; name a path in a folder that this user may write (RuntimeDirectory= in the unit makes one below /run)"
        }
        Errno::ADDRINUSE => "; another server listens there: stop it or choose another port",
        Errno::ACCESS => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one or, for HTTP, pass the socket as fd:3"
        }
        Errno::ADDRNOTAVAIL => "; this machine does not have that address (see `ip address`)",
        Errno::NODEV => "; this machine does not have that interface (see `ip address`)",
        Errno::INVAL if is_link_local(listen) => {
            "; a link-local address needs its interface: write it as [fe80::1%eth0]:8080"
        }
        error => descriptors::cure(Some(error.raw_os_error())),
    };
    ListenError::now(format!("{listen}: {}{cure}", io::Error::from(error)))
}

fn is_link_local(listen: &Listen) -> bool {
    let Listen::Tcp { addr, .. } = listen else {
        return false;
    };
    matches!(addr.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The address in the zone of the interface with this name.
fn in_zone(
    socket: &OwnedFd,
    mut addr: SocketAddr,
    zone: Option<&str>,
) -> rustix::io::Result<SocketAddr> {
    if let (SocketAddr::V6(addr), Some(zone)) = (&mut addr, zone) {
        addr.set_scope_id(name_to_index(socket, zone)?);
    }
    Ok(addr)
}

/// One socket for each worker. Sockets can share an address only by SO_REUSEPORT; with that, a second server of the
/// same user would quietly take half of the clients. So the address is tried without it first.
fn bind_tcp(
    addr: SocketAddr,
    any: bool,
    zone: Option<&str>,
    workers: u16,
) -> rustix::io::Result<Vec<OwnedFd>> {
    let one = |addr: SocketAddr, shared: bool| {
        let family = if addr.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket = stream_socket(family)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, shared)?;
        sockopt::set_tcp_nodelay(&socket, true)?; // inherited by accepted sockets
        if addr.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, !any)?;
        }
        bind(&socket, &in_zone(&socket, addr, zone)?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let until = Instant::now() + BIND_WAIT_MAX;
    let mut first = one(addr, false);
    // A server that was told to stop may have the port for a moment yet.
    while matches!(first, Err(Errno::ADDRINUSE)) && Instant::now() < until {
        thread::sleep(BIND_EACH);
        first = one(addr, false);
    }
    let first = match first {
        // A machine without IPv6: all of its addresses are IPv4.
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if any => {
            let addr = SocketAddr::from(([0, 0, 0, 0], addr.port()));
            return bind_tcp(addr, false, None, workers);
        }
        first => first?,
    };
    if workers == 1 {
        return Ok(vec![first]);
    }
    let addr = local_address(&first)?; // the port, if any was asked for
    drop(first);
    (0..workers).map(|_| one(addr, true)).collect()
}

/// Gives a listener the congestion control that was asked for, its own or that of all; accepted sockets inherit it.
fn set_congestion_control(
    socket: &OwnedFd,
    listen: &Listen,
    controls: &[CongestionControl],
) -> Result<(), ListenError> {
    let own = controls
        .iter()
        .rev()
        .find(|control| control.listen.as_ref() == Some(listen));
    let common = || {
        controls
            .iter()
            .rev()
            .find(|control| control.listen.is_none())
    };
    let Some(control) = own.or_else(common) else {
        return Ok(());
    };
    // An inherited socket that is not TCP has none.
    if local_address(socket).is_err() && own.is_none() {
        return Ok(());
    }
    let set = sockopt::set_tcp_congestion(socket, &control.name)
        .and_then(|()| sockopt::tcp_congestion(socket));
    let error = match set {
        Ok(name) if name == control.name => return Ok(()),
        Ok(_) => Errno::NOTSUP,
        Err(error) => error,
    };
    let sysctl = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}_congestion_control"));
        text.map_or("?".into(), |text| {
            text.split_whitespace().collect::<Vec<_>>().join(", ")
        })
    };
    Err(ListenError::control(format!(
        "{control}: {}; the kernel has {}, of which ordinary users may use {} \
         (sysctl net.ipv4.tcp_available_congestion_control, net.ipv4.tcp_allowed_congestion_control; modprobe tcp_NAME)",
        io::Error::from(error),
        sysctl("available"),
        sysctl("allowed"),
    )))
}

fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

fn bind_unix(path: &Path, mode: UnixMode, wanted: &Listen) -> Result<OwnedFd, ListenError> {
    let refused = |error: Errno| refuse(wanted, error);
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(ListenError::wrong(format!(
                "{wanted}: the path exists and is not a socket; name another path or remove it"
            )));
        }
        if !is_stale(path) {
            return Err(ListenError::now(format!(
                "{wanted}: another server listens there; stop it or name another path"
            )));
        }
        fs::remove_file(path).map_err(|error| ListenError::now(format!("{wanted}: {error}")))?;
    }
    let socket = stream_socket(AddressFamily::UNIX).map_err(refused)?;
    bind(&socket, &address).map_err(refused)?;
    if let UnixMode::Mode(mode) = mode {
        // Nobody can connect yet. The mode of the socket itself would lose what the umask takes.
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(refused)?;
    }
    listen(&socket, BACKLOG).map_err(refused)?;
    Ok(socket)
}

fn inherit_all(listens: &[Listen]) -> Result<HashMap<RawFd, OwnedFd>, ListenError> {
    let mut inherited = HashMap::new();
    for listen in listens {
        let Listen::Fd(fd) = listen else { continue };
        if inherited.contains_key(fd) {
            return Err(ListenError::twice(*fd));
        }
        inherited.insert(*fd, inherit(*fd)?);
    }
    Ok(inherited)
}

fn inherit(fd: RawFd) -> Result<OwnedFd, ListenError> {
    let problem = |problem: &str| {
        ListenError::wrong(format!(
            "fd:{fd}: {problem}; pass a listening stream socket, as a socket unit of systemd does"
        ))
    };
    if fd < 3 {
        return Err(problem("descriptors below 3 are standard input and output"));
    }
    // SAFETY: the number is only queried; nothing is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match sockopt::socket_type(borrowed) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return Err(problem("it is a socket of another type")),
        Err(Errno::NOTSOCK) => return Err(problem("it is not a socket")),
        Err(_) => return Err(problem("it is not open")),
    }
    if !sockopt::socket_acceptconn(borrowed).unwrap_or(false) {
        return Err(problem("it does not listen"));
    }
    // SAFETY: the operator passed this descriptor by `fd:`; nothing else in the process knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let ready = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
        .and_then(|()| rustix::io::ioctl_fionbio(&socket, true));
    ready.map_err(|error| problem(&error.to_string()))?;
    let _ = sockopt::set_tcp_nodelay(&socket, true); // not for unix sockets
    // A close would wait for it, and accepted sockets inherit it.
    sockopt::set_socket_linger(&socket, None).map_err(|error| problem(&error.to_string()))?;
    Ok(socket)
}

fn share(by_worker: &mut [Vec<Listener>], socket: OwnedFd) -> rustix::io::Result<()> {
    for worker in by_worker {
        worker.push(Listener {
            socket: rustix::io::fcntl_dupfd_cloexec(&socket, 3)?,
            is_of_nodes: false,
        });
    }
    Ok(())
}

/// Gives each worker its socket.
fn add(by_worker: &mut [Vec<Listener>], bound: Vec<OwnedFd>, is_of_nodes: bool) {
    for (worker, socket) in by_worker.iter_mut().zip(bound) {
        worker.push(Listener {
            socket,
            is_of_nodes,
        });
    }
}

fn local_address(socket: &impl AsFd) -> rustix::io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket)?)
}

/// An address that a browser on this machine can open, for one that stands for all.
fn localhost(all: SocketAddr) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], all.port()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_second_server_is_told_that_the_address_is_taken() {
        let first = Listeners::bind(&[Listen::local(0)], 2, &[], UnixMode::Umask);
        let first = first.expect("any free port");
        let addr = local_address(&first.by_worker[0][0]).expect("bound");
        assert_eq!(local_address(&first.by_worker[1][0]).expect("bound"), addr);
        let second =
            Listeners::bind(&[Listen::at(addr)], 2, &[], UnixMode::Umask).expect_err("taken");
        assert!(
            second.to_string().contains("another server listens there"),
            "{second}"
        );
    }

    #[test]
    fn a_zone_is_the_interface_of_that_name() {
        let socket = stream_socket(AddressFamily::INET).expect("a descriptor");
        let addr = "[fe80::1]:80".parse().expect("an address");
        let zoned = in_zone(&socket, addr, Some("lo")).map(|addr| addr.to_string());
        assert_eq!(zoned.as_deref(), Ok("[fe80::1%1]:80"));
        assert_eq!(in_zone(&socket, addr, Some("none")), Err(Errno::NODEV));
        let listen = Listen::parse("[fe80::1%none]:80".as_ref()).expect("well written");
        let told = refuse(&listen, Errno::NODEV);
        let text = told.to_string();
        assert!(
            told.may_pass && text.starts_with("[fe80::1%none]:80: "),
            "{text}"
        );
        let told = refuse(&Listen::at(addr), Errno::INVAL).to_string();
        assert!(told.contains("[fe80::1%eth0]:8080"), "{told}");
    }

    #[test]
    fn a_congestion_control_is_set_for_its_listener_or_refused() {
        let parse = |text: &str| CongestionControl::parse(text.as_ref()).expect("well written");
        let listens = [Listen::local(0)];
        let bind = |texts: &[&str]| {
            let controls: Vec<_> = texts.iter().map(|text| parse(text)).collect();
            Listeners::bind(&listens, 1, &controls, UnixMode::Umask)
        };
        let bound = bind(&["nonsense", "127.0.0.1:0=reno"]).expect("reno is always there");
        let name = sockopt::tcp_congestion(&bound.by_worker[0][0]).expect("a listener");
        assert_eq!(name, "reno");
        let refused = bind(&["nonsense"]).expect_err("unknown").to_string();
        assert!(
            refused.contains("nonsense") && refused.contains("reno"),
            "{refused}"
        );
        let lost = bind(&[":9=reno"])
            .expect_err("no such listener")
            .to_string();
        assert_eq!(lost, ":9=reno: there is no --listen of this address");
    }

    #[test]
    fn a_check_refuses_what_a_start_would() {
        let control = |text: &str| [CongestionControl::parse(text.as_ref()).expect("well written")];
        let listens = [Listen::local(0)];
        assert!(check(&listens, &control("reno")).is_ok());
        let refused = check(&listens, &control("nonsense")).expect_err("unknown");
        assert_eq!(refused.option, "congestion_control");
        let refused = check(&listens, &control(":9=reno")).expect_err("no such listener");
        assert_eq!(refused.option, "congestion_control");
    }

    #[test]
    fn a_unix_socket_has_the_mode_that_was_asked_for() {
        use std::os::unix::fs::PermissionsExt;

        let path = std::env::temp_dir().join(format!("ackpace-mode-{}", std::process::id()));
        for mode in [0o666, 0o660, 0o600] {
            let listen = [Listen::Unix(path.clone())];
            let bound =
                Listeners::bind(&listen, 1, &[], UnixMode::Mode(mode)).expect("a fresh path");
            let meta = fs::symlink_metadata(&path).expect("the socket");
            assert_eq!(meta.permissions().mode() & 0o777, mode);
            drop(bound);
        }
    }

    #[test]
    fn an_abandoned_unix_socket_is_replaced_and_a_living_one_is_not() {
        let path = std::env::temp_dir().join(format!("ackpace-unix-{}", std::process::id()));
        let listen = [Listen::Unix(path.clone())];
        let first = Listeners::bind(&listen, 1, &[], UnixMode::Umask).expect("a fresh path");
        let bind = || Listeners::bind(&listen, 1, &[], UnixMode::Umask);
        assert!(bind().expect_err("it lives").may_pass);
        drop(first.by_worker);
        let second = Listeners::bind(&listen, 1, &[], UnixMode::Umask).expect("nobody listens");
        drop(second.unix);
        assert!(!path.exists());
        fs::write(&path, "mine").expect("a file");
        assert!(!bind().expect_err("it is no socket").may_pass);
        fs::remove_file(&path).expect("our own file");
    }

    #[test]
    fn an_inherited_descriptor_must_listen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let mut client = TcpStream::connect(addr).expect("a connection");
        let (server, _) = listener.accept().expect("the client");
        let fd = server.as_raw_fd();
        let refused = inherit(fd).expect_err("a connection is no listener");
        assert!(refused.to_string().contains("does not listen"), "{refused}");
        client
            .write_all(b"still open")
            .expect("the descriptor was not closed");
        assert!(inherit(1).is_err() && inherit(999_999).is_err());
    }
}
