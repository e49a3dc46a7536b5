//! What one TCP connection brings over the same path: from the clients' side of an emulated network to the servers' side.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_wan::Wan;
use rustix::net::{RecvFlags, recv};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

/// Bytes written and discarded by one call.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes a second of a connection that brings so many bytes from `from`, its begin included.
///
/// # Errors
/// It can't be made, or breaks.
pub fn rate_bytes_per_s(wan: &Wan, from: Ipv4Addr, bytes: u64) -> Result<f64> {
    let what = || "the connection that readers are compared with".to_owned();
    let listener = wan
        .client()
        .run(|| TcpListener::bind(SocketAddr::from((from, 0))).doing(what))?;
    let address = listener.local_addr().doing(what)?;
    let sender = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut socket, _) = listener.accept()?;
        let (piece, mut left) = (vec![0; PIECE_BYTES], bytes);
        while left > 0 {
            let len = left.min(PIECE_BYTES as u64);
            socket.write_all(&piece[..len as usize])?;
            left -= len;
        }
        Ok(())
    });
    let start = Instant::now();
    let socket = wan
        .server()
        .run(|| TcpStream::connect(address).doing(what))?;
    let (mut piece, mut got) = (vec![0; PIECE_BYTES], 0);
    while got < bytes {
        let (came, _) = recv(&socket, &mut piece, RecvFlags::TRUNC).doing(what)?;
        if came == 0 {
            return Err(LabError::Setup("a connection that broke".into()));
        }
        got += came as u64;
    }
    let elapsed_s = start.elapsed().as_secs_f64();
    drop(socket);
    let _ = sender.join(); // it has sent all
    Ok(got as f64 / elapsed_s)
}
