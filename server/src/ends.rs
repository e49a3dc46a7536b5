//! The channels of workers and NFS threads: both ends of each.

use std::io;
use std::sync::Arc;

use ackpace_core::limits::NFS_CALLS_MAX;

use crate::disk::Channel;
use crate::mailbox::{Mailboxes, ThreadWaker};
use crate::nfs;
use crate::resolver::{Inbox, Return};

/// First those of the workers, then those of NFS. Disks hold `channels`, resolvers `returns`, and the threads `inboxes`.
#[derive(Default)]
pub struct Ends {
    pub channels: Vec<Channel>,
    pub returns: Vec<Return>,
    pub inboxes: Vec<Inbox>,
}

impl Ends {
    /// For workers with so many places each, and threads of NFS with so many connections each.
    pub fn new(
        workers: usize,
        places: u32,
        (threads, connections): (usize, u32),
    ) -> io::Result<Ends> {
        let mut ends = Ends::default();
        for _ in 0..workers {
            ends.add(places, places)?;
        }
        for _ in 0..threads {
            let calls = connections * NFS_CALLS_MAX as u32;
            ends.add(nfs::readers_of(connections), calls)?;
        }
        Ok(ends)
    }

    /// One more, whom the disks answer at so many places, and resolvers for so many jobs.
    fn add(&mut self, places: u32, jobs: u32) -> io::Result<()> {
        let waker = Arc::new(ThreadWaker::new()?);
        let (back, inbox) = Return::new(self.channels.len(), jobs, Arc::clone(&waker));
        self.returns.push(back);
        self.inboxes.push(inbox);
        self.channels.push(Channel {
            completions: Mailboxes::new(places),
            waker,
        });
        Ok(())
    }
}
