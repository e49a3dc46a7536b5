//! `handoff`: the broker of connections that move between the nodes of a cluster (DTCP). It has the rights for that, and one
//! server at a time asks it by a socket ([`ackpace_wire::cluster::broker`]); it decides nothing.
//!
//! One process does all that takes rights: freezing is one request instead of three, and no caller can get the order wrong of
//! holding packets, freezing, restoring and claiming ([`broker`]). [`repair`] makes values of a socket and a socket of values,
//! [`look`] what Linux has no option for, and [`switch`] tells the client's packets where to go.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::clock::monotonic_ns;
use ackpace_host_base::failure::Failure;
use ackpace_host_base::{say, signals};
use ackpace_wire::cluster::broker::{self as wire, Hello, Reply, Request};
use ackpace_wire::limits::BROKER_DATAGRAM_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use self::broker::Broker;
use self::door::{Came, Door, Stream};
use self::look::Sockets;
use self::options::Handoff;
use self::switch::{Settings, Switch};

pub mod broker;
pub mod checks;
pub mod door;
pub mod look;
pub mod options;
mod packet;
pub mod repair;
mod socket;
pub mod switch;

/// How often the loop looks for a signal and for entries that have ended.
const LOOK: Duration = Duration::from_millis(100);

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For the operator.
    pub text: String,
    /// errno of the system call, or 0.
    pub errno: i32,
}

impl Refused {
    /// No system call failed.
    pub fn new(text: impl Into<String>) -> Refused {
        Refused {
            text: text.into(),
            errno: 0,
        }
    }

    /// A system call, or option, failed.
    pub fn os(what: &str, error: io::Error) -> Refused {
        Refused {
            text: format!("{what}: {error}"),
            errno: error.raw_os_error().unwrap_or(0),
        }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::new(failure.to_string())
    }
}

/// Answers a server until SIGTERM or SIGINT.
///
/// # Errors
/// The options are wrong, another instance runs, or the kernel refuses.
pub fn run(options: &Handoff) -> Result<(), Failure> {
    if options.clear {
        return Switch::clear();
    }
    let (Some(node), Some(user)) = (&options.node, options.user) else {
        return Err(Failure::operator("--node and --for are missing"));
    };
    options.check()?;
    let settings = Settings {
        vips: options.vip.iter().map(|vip| vip.to_canonical()).collect(),
        ports: options.port.clone(),
        peers: options.peer.iter().map(|peer| peer.address).collect(),
        devices: options.device.clone(),
    };
    settings
        .vips
        .iter()
        .try_for_each(|vip| checks::takes(*vip))?;
    let caught = signals::catch()?;
    let switch = Switch::start(&settings)?;
    let sockets = Sockets::open()?;
    let door = Door::open(&options.socket, user)?;
    // For TCP_REPAIR and its like, and for ports below 1024. What takes more is open by now.
    capabilities::keep_only(CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE)?;
    let stopped = caught.hear()?;
    let hello = Hello {
        version: wire::VERSION,
        node: node.clone(),
        vips: settings.vips,
        ports: settings.ports,
        peers: options.peer.iter().map(|peer| peer.name.clone()).collect(),
    };
    let mut broker = Broker::new(switch, sockets, hello);
    say!(
        "handoff: ready; the server's socket is {}",
        options.socket.display()
    );
    let served = serve(&mut broker, &door, &stopped);
    served.and_then(|()| end(&mut broker, &options.socket))
}

/// Freezes a connection of our own and lets it go on, for `doctor`.
///
/// # Errors
/// What the kernel refuses.
pub fn trial() -> Result<String, Refused> {
    let broken = |error| Refused::os("a connection to itself", error);
    let mut sockets = Sockets::open_as("try")?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(broken)?;
    let address = listener.local_addr().map_err(broken)?;
    let _client = TcpStream::connect(address).map_err(broken)?;
    let (server, _) = listener.accept().map_err(broken)?;
    let before = repair::freeze(server.as_fd())?;
    let saved = repair::save(&mut sockets, server.as_fd(), before, None)?;
    let congestion = &saved.connection.congestion;
    let (cwnd, ssthresh) = (congestion.cwnd_segments, congestion.ssthresh_segments);
    sockets.seed(server.as_fd(), cwnd, ssthresh)?;
    repair::thaw(server.as_fd(), Some(saved.before))?;
    Ok("one of our own froze and went on".to_owned())
}

fn serve(broker: &mut Broker, door: &Door, stopped: &Receiver<()>) -> Result<(), Failure> {
    let mut server: Option<Stream> = None;
    let mut buffer = vec![0; BROKER_DATAGRAM_BYTES_MAX + 1];
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        let (has_held, has_asked) = wait(broker, door, server.as_ref())?;
        if has_held {
            broker.switch().hear();
        }
        broker.give_late();
        match &server {
            None if has_asked => {
                server = door.let_in();
                if server.is_some() {
                    broker.switch().server_has_come();
                }
            }
            Some(stream) if has_asked && !serve_one(broker, stream, &mut buffer) => {
                broker.server_is_gone();
                server = None;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Waits for the switch, and for the server, or one to come. Which of them has something; the switch is heard now and then in any
/// case.
fn wait(
    broker: &mut Broker,
    door: &Door,
    server: Option<&Stream>,
) -> Result<(bool, bool), Failure> {
    let now_ns = monotonic_ns();
    let due = broker.next_ns();
    let due = due.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns)));
    let timeout = due.unwrap_or(LOOK).min(LOOK);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let switch = broker.switch().fd();
    let asks = server.map_or(door.fd(), Stream::fd);
    let mut fds = [
        PollFd::from_borrowed_fd(switch, PollFlags::IN),
        PollFd::from_borrowed_fd(asks, PollFlags::IN),
    ];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Ok((true, false)),
        Ok(_) => Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty())),
        Err(Errno::INTR) => Ok((false, false)),
        Err(error) => Err(Failure::runtime(format!("poll: {error}"))),
    }
}

/// Answers one request; `false`: the server has gone, or does not take its answers.
fn serve_one(broker: &mut Broker, stream: &Stream, buffer: &mut [u8]) -> bool {
    let (len, socket) = match stream.take(buffer) {
        Came::Nothing => return true,
        Came::End => return false,
        Came::Datagram(len, socket) => (len, socket),
    };
    let (id, (reply, socket)) = match (wire::parse_request(&buffer[..len]), socket) {
        // The server goes on with this connection as if it had not asked.
        (Ok((_, Request::Freeze { .. } | Request::Start { .. })), _) if stream.is_given_up() => {
            return false;
        }
        (Ok((id, request)), Ok(socket)) => (id, broker.answer(request, socket)),
        (Ok((id, _)), Err(())) => (id, refusal("more than one descriptor came")),
        (Err((id, bad)), _) => (id, refusal(&format!("this is no request ({bad:?})"))),
    };
    let socket = socket.as_ref().map(AsFd::as_fd);
    stream
        .answer(&wire::encode_reply(id, &reply), socket)
        .is_ok()
}

fn refusal(text: &str) -> (Reply, Option<OwnedFd>) {
    let text = text.to_owned();
    (Reply::Failed { errno: 0, text }, None)
}

/// Connections that are away, or guests, go on without a broker.
fn end(broker: &mut Broker, socket: &Path) -> Result<(), Failure> {
    let entries = broker.switch().entries()?;
    if entries == 0 {
        return Switch::clear();
    }
    say!(
        "handoff: {entries} moved connections go on, by programs that stay on the devices. \
         The next start at {} takes them over; 'ackpace-host handoff --clear' ends them",
        socket.display()
    );
    Ok(())
}
