//! A broker that goes when there is no way back.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use ackpace_tests::segment::{Node, vip};

use crate::scene::{A, Scene};

/// The codes of a question and an answer, behind the four bytes of the magic.
const REDIRECT: u8 = 6;
const SAVED: u8 = 18;

/// The other node has started its socket, and home's broker does not hear that the client's packets go there.
#[test]
fn a_broker_is_gone_when_the_other_node_has_started() {
    let Some((mut scene, lost)) = with_a_broker_that_goes(REDIRECT) else {
        return;
    };
    scene.in_the_middle(vip(A), |_, _, _| {});
    assert!(lost.load(Relaxed) > 0, "no connection moved");
    scene.is_well(&[vip(A)]);
}

/// Home's socket is frozen, and nobody tells home.
#[test]
fn a_broker_is_gone_when_it_has_frozen_a_connection() {
    let Some((mut scene, lost)) = with_a_broker_that_goes(SAVED) else {
        return;
    };
    let lasts = Duration::from_secs(6);
    scene.crowd(&[vip(A)], (12, lasts), |_, nodes| {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(500)); // downloads run meanwhile
            nodes[1].drain("a", true);
            nodes[1].drain("a", false);
        }
    });
    assert!(lost.load(Relaxed) > 0, "no connection was to move");
    scene.is_well(&[vip(A)]);
}

/// A stands before its broker with something that goes at these.
fn with_a_broker_that_goes(at: u8) -> Option<(Scene, Arc<AtomicUsize>)> {
    let mut scene = Scene::new()?;
    let mut broker = scene.nodes[A].broker.take();
    scene.nodes[A].server.signal(libc::SIGTERM);
    scene.nodes[A].server.wait();
    let lost = stand_before(&scene.segment.socket(A), at);
    scene.nodes[A] = scene.segment.server(A, broker.take(), &[]);
    scene.nodes.iter().for_each(Node::sees_all_up);
    Some((scene, lost))
}

/// Passes questions and answers on. At the first one of this code, and at each third one behind it, it goes away, and is there again at
/// once. How often it did.
fn stand_before(path: &Path, at: u8) -> Arc<AtomicUsize> {
    let behind = path.with_extension("behind");
    fs::rename(path, &behind).expect("it is there");
    let door = socket();
    let (address, len) = address(path);
    // SAFETY: the kernel reads an address of this length.
    let bound = unsafe { libc::bind(door.as_raw_fd(), (&raw const address).cast(), len) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(door.as_raw_fd(), 4) }, 0);
    let lost = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&lost);
    thread::spawn(move || {
        let mut came = 0;
        loop {
            // SAFETY: no address is asked for.
            let server = unsafe {
                libc::accept(door.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut())
            };
            assert!(server >= 0, "{}", io::Error::last_os_error());
            // SAFETY: it was just opened, and is nobody else's.
            let server = unsafe { OwnedFd::from_raw_fd(server) };
            let broker = socket();
            let (address, len) = self::address(&behind);
            // SAFETY: the kernel reads an address of this length.
            let connected =
                unsafe { libc::connect(broker.as_raw_fd(), (&raw const address).cast(), len) };
            if connected != 0 {
                return; // the test is over
            }
            let mut goes = |code| {
                came += usize::from(code == at);
                let goes = code == at && came % 3 == 1;
                counts.fetch_add(goes.into(), Relaxed);
                goes
            };
            while pass(server.as_raw_fd(), broker.as_raw_fd(), &mut goes)
                && pass(broker.as_raw_fd(), server.as_raw_fd(), &mut goes)
            {}
        }
    });
    lost
}

fn socket() -> OwnedFd {
    // SAFETY: no pointers; the descriptor is new.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(socket)
    }
}

fn address(path: &Path) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: plain numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as libc::c_char;
    }
    (address, size_of_val(&address) as libc::socklen_t)
}

/// One datagram, with the socket beside it. `false`: one of both has gone, or `goes` says so by the datagram's code.
fn pass(from: RawFd, to: RawFd, mut goes: impl FnMut(u8) -> bool) -> bool {
    let (mut bytes, mut beside) = (vec![0u8; 70_000], [0u64; 8]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the message has room for one datagram and some descriptors, which live until the end. What came is passed on as it
    // is, and its descriptor, which is nobody else's, is closed.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = beside.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&beside) as _;
        let count = libc::recvmsg(from, &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if count <= 0 {
            return false;
        }
        part.iov_len = count as usize;
        let goes = goes(*part.iov_base.cast::<u8>().add(4));
        let passed = !goes && libc::sendmsg(to, &raw const message, libc::MSG_NOSIGNAL) >= 0;
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        if !first.is_null() {
            libc::close(libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned());
        }
        passed
    }
}
