//! End-to-end tests: the built server, the real kernel, real clients.
//!
//! Each test has a server of its own on a port that the kernel chose ([`Setup`], [`Server`]), a
//! directory of its own ([`Tree`]), and speaks to it byte by byte ([`Conn`]) or through a client that
//! people use ([`client`]). Nothing here waits for time to pass: it waits for something to happen, and
//! gives up loudly after [`PATIENCE`].

use std::time::{Duration, Instant};

mod binary;
mod client;
mod conn;
mod disk;
pub mod hunter;
mod kernel;
mod server;
mod text;
mod throttle;
mod tree;

pub use binary::{lab_binary, server_binary};
pub use client::{Outcome, client, command, needs_root, run, skip};
pub use conn::{Conn, Response};
pub use disk::Disk;
pub use kernel::{
    Cached, Mapped, OpenWatch, allocate, cached_bytes, connect_with_buffer, forget_cached,
    has_direct, limit_receive_buffer, mount_for_child, raise_own_limit, reset_on_drop,
};
pub use server::{Server, Setup};
pub use text::{Rng, pattern};
pub use throttle::Throttle;
pub use tree::{Tree, rested};

/// How long anything may take before a test fails: far more than it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until `done` says yes, at most for [`PATIENCE`].
///
/// # Panics
/// When it never does; `what` says what was waited for.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5)); // between two looks
    }
}
