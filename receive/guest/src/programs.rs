//! The programs of a case: a receiver, its sender, and loops that compete for the receiver's core.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ackpace_lab_base::error::{Doing, Result};
use clap::Args;
use rustix::net::sockopt;

/// One write of the sender.
const WRITE_BYTES: usize = 256 << 10;

/// `receive`.
#[derive(Debug, Args)]
pub struct Receive {
    /// Where it listens
    #[arg(long)]
    pub port: u16,
    /// What one call may take; that is how long the socket's lock is owned
    #[arg(long)]
    pub call_bytes: usize,
    /// Its receive buffer
    #[arg(long)]
    pub buffer_bytes: usize,
    /// Gets the number of bytes received so far, after each call
    #[arg(long)]
    pub count: PathBuf,
}

/// `send`.
#[derive(Debug, Args)]
pub struct Send {
    /// The receiver
    #[arg(long)]
    pub to: SocketAddr,
    /// For so long
    #[arg(long)]
    pub seconds: u64,
}

/// Receives until the sender ends. Says `listening` before.
pub fn receive(options: &Receive) -> Result<()> {
    let count = File::create(&options.count).doing(|| options.count.display().to_string())?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, options.port))
        .doing(|| format!("port {}", options.port))?;
    // A connection has it from its listener. The kernel doubles what it is asked for.
    sockopt::set_socket_recv_buffer_size_force(&listener, options.buffer_bytes / 2)
        .doing(|| "SO_RCVBUFFORCE".to_owned())?;
    println!("listening");
    let (mut stream, _) = listener.accept().doing(|| "accept".to_owned())?;
    let mut buffer = vec![0; options.call_bytes];
    let mut got_bytes = 0u64;
    loop {
        let read = stream.read(&mut buffer).doing(|| "recv".to_owned())?;
        if read == 0 {
            return Ok(());
        }
        got_bytes += read as u64;
        count
            .write_at(&got_bytes.to_ne_bytes(), 0)
            .doing(|| options.count.display().to_string())?;
    }
}

/// Sends as fast as the receiver takes it. Ends when the receiver has all.
pub fn send(options: &Send) -> Result<()> {
    let mut stream = TcpStream::connect(options.to).doing(|| options.to.to_string())?;
    let bytes = vec![7; WRITE_BYTES];
    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        stream.write_all(&bytes).doing(|| "send".to_owned())?;
    }
    stream
        .shutdown(std::net::Shutdown::Write)
        .doing(|| "shutdown".to_owned())?;
    let _ = stream.read(&mut [0]); // the receiver closes when it has all
    Ok(())
}

/// Never ends.
pub fn spin() -> Result<()> {
    let mut sum = 0u64;
    loop {
        sum = black_box(sum.wrapping_mul(3).wrapping_add(1));
    }
}
