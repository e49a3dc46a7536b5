//! The cost of serving as a whole: what the cores do beside idling, the clients and the target. A mount on a target is served by
//! threads of the kernel, which run on any core and belong to no process.

use crate::cpu::{self, Usage};
use crate::environment::Cores;
use crate::testbed::Testbed;
use ackpace_lab_base::error::Result;
use std::time::Instant;

/// An open window.
pub struct Serving<'a> {
    testbed: &'a Testbed<'a>,
    start: Instant,
    before: Reading,
}

struct Reading {
    unused_s: f64,
    lab: Usage,
    target: Usage,
}

impl<'a> Serving<'a> {
    /// Opens the window.
    pub fn begin(testbed: &'a Testbed<'a>) -> Result<Self> {
        let before = Reading::take(testbed)?;
        Ok(Self {
            testbed,
            start: Instant::now(),
            before,
        })
    }

    /// Closes it: seconds per 10^9 bytes that clients got; `None` if they got none.
    pub fn end(self, body_bytes: u64) -> Result<Option<f64>> {
        let elapsed_s = self.start.elapsed().as_secs_f64();
        let (now, before) = (Reading::take(self.testbed)?, &self.before);
        let busy_s = 2.0 * elapsed_s - (now.unused_s - before.unused_s);
        let others_s = now.lab.since(&before.lab).used_s + now.target.since(&before.target).used_s;
        let gb = body_bytes as f64 / 1e9;
        Ok((body_bytes > 0).then_some((busy_s - others_s).max(0.0) / gb))
    }
}

impl Reading {
    fn take(testbed: &Testbed) -> Result<Self> {
        let Cores {
            server_core,
            load_core,
        } = testbed.lab().cores;
        let target = &testbed.instruments.target;
        let target = target.as_ref().map(|target| cpu::usage(target.pid()));
        Ok(Self {
            unused_s: cpu::unused_s(server_core)? + cpu::unused_s(load_core)?,
            lab: cpu::own_usage()?,
            target: target.transpose()?.unwrap_or_default(),
        })
    }
}
