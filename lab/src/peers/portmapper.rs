//! A portmapper that takes every registration and tells nobody: NFS-Ganesha does not start without one, and clients of the lab know
//! the ports.
//!
//! It listens at the socket of rpcbind(8), in a `/run` of the run's own. The machine's rpcbind, if there is one, is not reached,
//! and keeps what it knows.

use ackpace_lab_base::error::{Doing, Result};
use ackpace_wire::rpc;
use rustix::mount::{MountFlags, mount};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

const RUN_DIR: &str = "/run";
const SOCKET: &str = "/run/rpcbind.sock";
/// Bytes of the longest call: a registration has some 150.
const CALL_BYTES_MAX: usize = 4096;

/// Starts it, once for the run.
///
/// # Errors
/// `/run` can't be mounted.
pub fn provide() -> Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    mount("tmpfs", RUN_DIR, "tmpfs", MountFlags::empty(), None).doing(|| RUN_DIR.into())?;
    let listener = UnixListener::bind(SOCKET).doing(|| SOCKET.into())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A thread each: Ganesha closes its connections late. It has ten.
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(())
}

/// Answers each call by "true", until the caller closes.
fn serve(mut stream: UnixStream) -> io::Result<()> {
    let (mut call, mut reply) = ([0; CALL_BYTES_MAX], Vec::new());
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let len_bytes = (u32::from_be_bytes(mark) & !(1 << 31)) as usize;
        let room = call
            .get_mut(..len_bytes)
            .ok_or(io::ErrorKind::InvalidData)?;
        stream.read_exact(room)?;
        let xid: [u8; 4] = call[..4].try_into().unwrap_or_default();
        reply.clear();
        let start = rpc::begin(u32::from_be_bytes(xid), &mut reply);
        reply.extend(1u32.to_be_bytes());
        rpc::end(start, 0, &mut reply);
        stream.write_all(&reply)?;
    }
}
