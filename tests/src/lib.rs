//! End-to-end tests: the built server, the real kernel, real clients.
//!
//! Each test has its own server on a port that the kernel chose ([`Setup`], [`Server`]) and its own directory
//! ([`Tree`]). It talks to the server byte by byte ([`Conn`]) or through a client that people use (`client`). Tests
//! do not sleep for fixed times: they wait for an event, and fail loudly after [`PATIENCE`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod asker;
mod binary;
mod client;
mod conn;
mod disk;
mod etcd;
mod gateway_program;
mod host;
mod hung;
pub mod hunter;
mod kernel;
mod moto;
pub mod nfs;
pub mod nfs_writes;
mod origin;
mod program;
pub mod segment;
mod server;
mod text;
mod throttle;
mod tls_origin;
mod trap;
mod tree;
mod watched;

pub use asker::{Asker, Fault, Files, Load, Tally};
pub use binary::{host_binary, lab_binary, server_binary};
pub use client::{Outcome, Words, client, command, needs_root, run, skip};
pub use conn::{Conn, Response};
pub use disk::Disk;
pub use etcd::etcd;
pub use gateway_program::{GatewayProgram, SaidUnit};
pub use host::{Cgroup, host, host_can, host_start, host_watch, network_apart};
pub use hung::HungThread;
pub use kernel::{
    Mapped, OpenWatch, allocate, cached_bytes, connect_with, done, forget_cached, has_direct,
    hide_from_child, limit_receive_buffer, lossy, mounts_apart, raise_own_limit, reset_on_drop,
};
pub use moto::moto;
pub use origin::{Answer, Asked, Content, Origin, Step};
pub use program::Program;
pub use server::{Server, Setup, metric};
pub use text::{Rng, pattern};
pub use throttle::Throttle;
pub use tls_origin::{Authority, Certificate, TlsOrigin};
pub use trap::Trap;
pub use tree::{Tree, rested};
pub use watched::Watched;

/// Time limit for anything before a test fails: far more than it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Sets its flag when it is dropped, also by a panic.
pub struct AtTheEnd<'a>(pub &'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls `done` until it returns true, at most for [`PATIENCE`].
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5)); // between two polls
    }
}
