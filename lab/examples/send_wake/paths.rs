//! The paths of the case, and the clients at their ends.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command};

use ackpace_lab_base::error::{Doing, Result};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

use super::{
    FAST_MBIT_PER_S, FAST_SHARE_BYTES, MSS_BYTES, PORT, RTT_MS, SERVER, SLOW, SLOW_MBIT_PER_S,
    SLOW_SHARE_BYTES,
};

/// The clients, which end with their input.
pub struct Sink(pub Child);

impl Sink {
    pub fn end(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn topology() -> Topology {
    let delay = LinkSpec {
        delay_ms: Some(RTT_MS / 2.0),
        ..LinkSpec::default()
    };
    let slow = LinkSpec {
        rate_mbit_per_s: Some(SLOW_MBIT_PER_S),
        queue_ms: Some(100.0),
        ..LinkSpec::default()
    };
    let fast = LinkSpec {
        rate_mbit_per_s: Some(FAST_MBIT_PER_S),
        queue_ms: Some(20.0),
        ..delay.clone()
    };
    Topology {
        seed: 17,
        congestion_control: "cubic".into(),
        server: vec![SERVER],
        link: [("ethernet".to_owned(), slow)].into(),
        path: vec![
            PathSpec {
                down: fast,
                up: delay.clone(),
                ..PathSpec::new("fast", "10.1.0.1")
            },
            PathSpec {
                down: delay.clone(),
                up: delay,
                down_through: vec!["ethernet".into()],
                ..PathSpec::new("slow", &format!("10.2.0.1-10.2.0.{SLOW}"))
            },
        ],
        ..Topology::default()
    }
}

/// Bounds cwnd on the way to each client, as `ackpace-host` could do for one socket.
pub fn clamp_routes(in_flight: f64) -> Result<()> {
    let kept = "/proc/sys/net/ipv4/tcp_no_metrics_save";
    std::fs::write(kept, "0").doing(|| kept.into())?;
    for (prefix, share_bytes) in [
        ("10.1.0.0/16", FAST_SHARE_BYTES),
        ("10.2.0.0/16", SLOW_SHARE_BYTES),
    ] {
        let segments = ((share_bytes as f64 * in_flight) as u64 / MSS_BYTES).max(2);
        let line = format!("-4 route add {prefix} dev wan0 cwnd lock {segments}");
        let done = Command::new("ip").args(line.split_whitespace()).status();
        assert!(done.doing(|| line.clone())?.success(), "ip {line}");
    }
    Ok(())
}

/// Connects as each client and reads all that comes. The first connections close at once.
pub fn sink() -> Result<()> {
    let clients = || {
        let slow = (1..=SLOW).map(|nth| Ipv4Addr::new(10, 2, 0, nth));
        std::iter::once(Ipv4Addr::new(10, 1, 0, 1)).chain(slow)
    };
    for client in clients() {
        let _ = connect(client)?.read(&mut [0]);
    }
    for client in clients() {
        let mut stream = connect(client)?;
        std::thread::spawn(move || {
            let mut buffer = vec![0; 256 * 1024];
            while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
    }
    let _ = io::stdin().read(&mut [0]); // its end is ours
    Ok(())
}

fn connect(from: Ipv4Addr) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let what = || format!("connecting from {from}");
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)
        .map_err(io::Error::from)
        .doing(what)?;
    bind(&socket, &SocketAddr::from((from, 0)))
        .map_err(io::Error::from)
        .doing(what)?;
    connect(&socket, &SocketAddr::new(SERVER, PORT))
        .map_err(io::Error::from)
        .doing(what)?;
    Ok(socket.into())
}
