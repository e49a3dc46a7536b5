//! Whose turn it is: connections with something to do now, each at most once in line ([`super::Conn`]).

use alloc::collections::VecDeque;

use super::Conn;
use crate::limits::SHORT_STEPS_MAX;

/// Two lines: short work, and bodies.
#[derive(Default)]
pub(super) struct Turns {
    short: VecDeque<u32>,
    /// Those that are in the middle of a body.
    bulk: VecDeque<u32>,
    /// Steps of the former since the last of the latter.
    short_steps: u32,
}

impl Turns {
    /// Put a connection in line; one that goes on with what it does comes first.
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

    /// The place of the next one: a new request is not to wait for a round of top-ups, nor a body for ever for requests.
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
