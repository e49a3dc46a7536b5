//! Observing a running server: the control thread answers scrapes of metrics and the questions of `ackpace top` and
//! `ackpace why`.
//!
//! Numbers are read where the workers count them ([`crate::tally`]), without their help. The inner state of a worker
//! (connections, decisions) or of a disk comes from its own thread, on demand: the data path pays nothing for it while
//! nobody asks.

mod cached;
mod catalog;
pub mod client;
mod control;
mod device;
mod metric;
pub mod metrics;
mod nodes;
pub mod place;
mod questions;
mod scrape;
mod view;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::answers::Question;
use crate::log::{AccessHandle, Handle};
use crate::mailbox::ThreadWaker;
use crate::tally::Tally;
use crate::worker::Shared;

/// How the control thread reaches a worker.
pub struct WorkerChannel {
    pub tally: Arc<Tally>,
    /// Its queue of questions; the waker is woken afterwards.
    pub questions: Sender<Question>,
    pub waker: Arc<ThreadWaker>,
}

impl WorkerChannel {
    /// A channel to the worker with this waker, and the worker's end of it.
    pub fn new(waker: Arc<ThreadWaker>) -> (WorkerChannel, Receiver<Question>) {
        let (questions, heard) = bounded(1);
        let channel = WorkerChannel {
            tally: Arc::default(),
            questions,
            waker,
        };
        (channel, heard)
    }
}

/// All that the control thread may read.
pub struct Board {
    pub workers: Vec<WorkerChannel>,
    pub shared: Arc<Shared>,
    pub access_log: AccessHandle,
    pub diagnostics: Handle,
    /// When the workers were last asked for a census of their connections.
    pub census_at: Cell<Option<Instant>>,
    /// When the server started, in seconds since 1970.
    pub started_unix_s: u64,
}

impl Board {
    pub fn new(
        workers: Vec<WorkerChannel>,
        shared: Arc<Shared>,
        access_log: AccessHandle,
        diagnostics: Handle,
    ) -> Board {
        Board {
            workers,
            shared,
            access_log,
            diagnostics,
            census_at: Cell::new(None),
            started_unix_s: crate::clock::unix_ms() / 1000,
        }
    }
}

/// Starts the control thread, which lives as long as the process; if nothing is to be served, no thread is started.
pub fn start(board: Board, metrics: Option<OwnedFd>, admin: Option<OwnedFd>) -> io::Result<()> {
    if metrics.is_none() && admin.is_none() {
        return Ok(());
    }
    let control = control::Control::new(board, metrics, admin);
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || control.run())?;
    Ok(())
}
