//! Whose turn it is: the run queues of connections that have something to do. A connection stands in one of them at most, and
//! once ([`super::Conn::queued`]). [`super::Worker::wake`] puts it there, and [`super::Worker::conn_step`] takes the next one.

use alloc::collections::VecDeque;

use super::Conn;
use crate::limits::SHORT_STEPS_MAX;

/// At which end of its queue a connection enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueEnd {
    /// It is next: it continues what it was doing.
    Front,
    /// After those that wait already.
    Back,
}

/// Two queues: short work, and bodies, which are long work.
#[derive(Default)]
pub(super) struct Turns {
    /// Connections with any other work: requests, heads, ends. Slots of the table, as below.
    short: VecDeque<u32>,
    /// Connections in the middle of a body.
    bulk: VecDeque<u32>,
    /// Short steps since the last one of a body.
    short_steps: u32,
}

impl Turns {
    /// Queues a connection, unless it is queued already: then it keeps its place.
    pub fn push(&mut self, conn: &mut Conn, end: QueueEnd) {
        if conn.queued {
            return;
        }
        conn.queued = true;
        let queue = match conn.is_within_body() {
            true => &mut self.bulk,
            false => &mut self.short,
        };
        match end {
            QueueEnd::Front => queue.push_front(conn.id.index),
            QueueEnd::Back => queue.push_back(conn.id.index),
        }
    }

    /// The slot of the next connection: short work first, so that a new request does not wait for a round of top-ups. After
    /// [`SHORT_STEPS_MAX`] short steps a body has its turn, so that it does not wait for ever.
    pub fn pop(&mut self) -> Option<u32> {
        let bulk_due = self.short_steps >= SHORT_STEPS_MAX || self.short.is_empty();
        let bulk = if bulk_due {
            self.bulk.pop_front()
        } else {
            None
        };
        if bulk.is_some() {
            self.short_steps = 0;
            return bulk;
        }
        self.short_steps = self.short_steps.saturating_add(1);
        self.short.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.bulk.is_empty()
    }
}
