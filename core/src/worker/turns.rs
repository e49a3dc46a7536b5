//! Whose turn it is: the run queues of connections with something to do, each in a queue at most once
//! ([`super::Conn`]).

use alloc::collections::VecDeque;

use super::Conn;
use crate::limits::SHORT_STEPS_MAX;

/// Two queues: short work, and bodies.
#[derive(Default)]
pub(super) struct Turns {
    short: VecDeque<u32>,
    /// Connections in the middle of a body.
    bulk: VecDeque<u32>,
    /// Short steps since the last one of a body.
    short_steps: u32,
}

impl Turns {
    /// Queue a connection. One that continues what it was doing goes to the front.
    pub fn push(&mut self, conn: &mut Conn, goes_on: bool) {
        if conn.queued {
            return;
        }
        conn.queued = true;
        let line = match conn.is_within_body() {
            true => &mut self.bulk,
            false => &mut self.short,
        };
        match goes_on {
            true => line.push_front(conn.id.index),
            false => line.push_back(conn.id.index),
        }
    }

    /// The slot of the next connection. A new request does not wait for a round of top-ups, and a body does not wait
    /// for ever for requests.
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
