//! How the thread of a device starts.

use std::io;
use std::sync::Arc;
use std::thread;

use ackpace_core::disk::{Disk, Settings};
use ackpace_core::limits::{READS_IN_FLIGHT_MAX, SLOT_BYTES};
use crossbeam_channel::bounded;

use super::budget::Budget;
use super::readers::Readers;
use super::tally::DeviceTally;
use super::wanted::Wanted;
use super::{Context, DiskHandle, Shell};
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::sched;
use crate::store::pool::Pool;
use crate::store::ring::{self, Ring};

/// Starts the thread of a device and its readers. They live as long as the process, since a read that hangs in the
/// kernel can't be cancelled.
///
/// # Errors
/// When threads, descriptors or address space are lacking.
pub fn start(index: u16, context: &Context) -> io::Result<Arc<DiskHandle>> {
    let device = context.devices.get(index).ok_or(io::ErrorKind::NotFound)?;
    let settings = Settings {
        rotational: device.rotational,
        spindles: device.spindles() as u32,
        ..context.settings
    };
    let waker = Arc::new(ThreadWaker::new()?);
    let slots = u32::try_from(context.pool_bytes / SLOT_BYTES).unwrap_or(u32::MAX);
    // None of it is ours until it is claimed from the ledger.
    let pool = Arc::new(Pool::retired(slots, Arc::clone(&waker))?);
    let (questions, asked) = bounded(1);
    let handle = Arc::new(DiskHandle {
        questions,
        asks: context
            .channels
            .iter()
            .map(|_| Mailboxes::new(context.places))
            .collect(),
        pool,
        waker: Arc::clone(&waker),
        tally: DeviceTally::default(),
    });
    let ring = match Ring::new(READS_IN_FLIGHT_MAX as u32) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::warn!("{}", ring::refusal(&error));
            None
        }
    };
    let readers = Readers::start(index, Arc::clone(&handle.waker), context)?;
    let shell = Shell {
        disk: Disk::new(settings),
        files: Wanted::new(settings.cancel),
        landed: None,
        handle: Arc::clone(&handle),
        questions: asked,
        channels: Arc::clone(&context.channels),
        readers,
        ring,
        clock: context.clock,
        devices: Arc::clone(&context.devices),
        index,
        budget: Budget::new(Arc::clone(&context.ledger)),
        indirect: !settings.direct,
    };
    thread::Builder::new()
        .name(format!("disk-{index}"))
        .spawn(move || {
            sched::give_way();
            shell.run();
        })?;
    // Behind all that may fail: nobody would give it back.
    context.ledger.take(context.device_bytes);
    context.ledger.enter(usize::from(index), waker);
    Ok(handle)
}
