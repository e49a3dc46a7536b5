//! Hears from `ackpace-host gateway` what is mounted, for as long as the process lives: a thread of its own, which connects, takes
//! one hello and waits for the end of the connection.

use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ackpace_wire::gateway::{HELLO_BYTES, Hello};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, socket_with,
};

use crate::unit::{Counters, Unit};

/// How often the program is looked for. Longer: READs go through the mount for so long after it has come.
const LOOKS_EACH: Duration = Duration::from_secs(1);
/// How long `ackpace doctor` waits for its hello, which it says at once.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Starts the thread.
pub fn listen(unit: &Arc<Unit>, socket: PathBuf) -> io::Result<()> {
    let unit = Arc::clone(unit);
    let run = move || {
        let mut told = String::new();
        loop {
            let why = match meet(&unit, &socket) {
                Ok(()) => "it has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            unit.unmounted();
            if told != why {
                let (url, socket) = (&unit.url, socket.display());
                tracing::warn!(
                    "{url}: ackpace-host gateway at {socket}: {why}; READs go through the mount, if there is one, until it answers"
                );
                told = why;
            }
            thread::sleep(LOOKS_EACH);
        }
    };
    let thread = thread::Builder::new().name("lun-gateway".to_owned());
    thread.spawn(run).map(|_| ())
}

/// Hears one instance of the program to its end.
fn meet(unit: &Unit, socket: &Path) -> io::Result<()> {
    let connection = call(socket)?;
    let (hello, counters) = hear(&connection)?;
    unit.mounted(&hello, counters);
    let mut more = [0; 1];
    loop {
        // A signal ends nothing here, and further messages are not known.
        match recvmsg(
            &connection,
            &mut [IoSliceMut::new(&mut more)],
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::empty(),
        ) {
            Ok(received) if received.bytes == 0 => return Ok(()),
            Ok(_) => return Err(bad("it says more than this program understands")),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What the program at this socket has mounted.
pub fn ask(socket: &Path) -> io::Result<Hello> {
    let connection = call(socket)?;
    set_socket_timeout(&connection, Timeout::Recv, Some(ANSWER_MAX))?;
    hear(&connection).map(|(hello, _)| hello)
}

fn call(socket: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(socket)?;
    let kind = SocketType::SEQPACKET;
    let connection = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    connect(&connection, &address)?;
    Ok(connection)
}

/// The hello, with the counters beside it.
fn hear(connection: &OwnedFd) -> io::Result<(Hello, Counters)> {
    let mut bytes = [0; HELLO_BYTES + 1];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            connection,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    if received == 0 {
        return Err(bad("it has nothing mounted"));
    }
    let hello = Hello::parse(&bytes[..received]).map_err(|why| bad(&why.to_string()))?;
    let memory = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let memory = memory.ok_or_else(|| bad("it gives no counters"))?;
    Ok((hello, Counters::map(&memory)?))
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}
