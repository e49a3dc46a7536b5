//! The addresses of an origin's name. getaddrinfo(3) may wait for seconds, so a thread of its own asks for them.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::gateway::Address;

/// How long the answer of the name service is believed. Longer: an origin that moved is missed for so long.
const BELIEVED: Duration = Duration::from_secs(60);
/// Addresses of a name that are tried. More: the first ones.
const ADDRESSES_MAX: usize = 16;

/// What is known of one name.
pub struct Names {
    known: Arc<Mutex<Known>>,
    again: Sender<()>,
    next: usize,
}

struct Known {
    addresses: Vec<SocketAddr>,
    error: String,
}

impl Names {
    /// No name, and no thread that asks for it.
    pub fn none() -> Names {
        let known = Known {
            addresses: Vec::new(),
            error: String::new(),
        };
        Names {
            known: Arc::new(Mutex::new(known)),
            again: bounded(0).0,
            next: 0,
        }
    }

    /// Asks for the addresses of an origin now, and again from time to time.
    pub fn of(origin: &Address) -> io::Result<Names> {
        Names::of_place((origin.host.clone(), origin.port))
    }

    /// The same of a host and a port.
    pub fn of_place(place: (String, u16)) -> io::Result<Names> {
        let (again, asked) = bounded(1);
        let known = Arc::new(Mutex::new(look_up(&place)));
        let told = Arc::clone(&known);
        let keep = move || keep(&place, &told, &asked);
        thread::Builder::new()
            .name("names".to_owned())
            .spawn(keep)?;
        Ok(Names {
            known,
            again,
            next: 0,
        })
    }

    /// The address to connect to next; each in turn.
    /// Errors: What the name service said last.
    pub fn next(&mut self) -> Result<SocketAddr, String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = self.next.checked_rem(known.addresses.len()).unwrap_or(0);
        match known.addresses.get(nth) {
            Some(address) => Ok(*address),
            None => Err(known.error.clone()),
        }
    }

    /// That address does not answer: another one is next, and the name is looked up again.
    pub fn failed(&mut self) {
        self.next = self.next.wrapping_add(1);
        let _ = self.again.try_send(()); // it is being asked already
    }
}

/// Keeps the addresses up to date for as long as somebody uses them.
fn keep(place: &(String, u16), told: &Mutex<Known>, asked: &Receiver<()>) {
    loop {
        match asked.recv_timeout(BELIEVED) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let known = look_up(place);
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.addresses.is_empty() || told.addresses.is_empty() {
            *told = known; // a name service that fails takes nothing away
        }
        drop(told);
        thread::sleep(Duration::from_secs(1)); // a name that fails is not asked for all the time
    }
}

fn look_up((host, port): &(String, u16)) -> Known {
    match (host.as_str(), *port).to_socket_addrs() {
        Ok(addresses) => Known {
            addresses: addresses.take(ADDRESSES_MAX).collect(),
            error: format!("{host} has no address"),
        },
        Err(error) => Known {
            addresses: Vec::new(),
            error: format!("{host}: {error}"),
        },
    }
}
