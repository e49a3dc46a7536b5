//! Whether somebody still waits for a job.

use std::sync::{Arc, Weak};

/// Who has it wants a job done. A job that nobody wants any more is skipped, so departed clients leave no work.
#[derive(Debug)]
pub struct JobInterest {
    _wanted: Arc<()>,
}

impl JobInterest {
    /// An interest, and what tells whether it is still there.
    pub(crate) fn new() -> (JobInterest, Weak<()>) {
        let wanted = Arc::new(());
        let held = Arc::downgrade(&wanted);
        (JobInterest { _wanted: wanted }, held)
    }
}
