//! Broken promises.

/// What kind of promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The process ended, or would not end as it should.
    Abort,
    /// More bytes than were promised.
    Beyond,
    /// Bytes that the file never had there.
    WrongBytes,
    /// Bytes of two versions in one complete answer.
    Mixed,
    /// Two versions under one strong tag.
    Tag,
    /// A head, a part or a chunk is not what it should be.
    Frame,
    /// An answer that this request can't have.
    Status,
    /// An answer that ended early, though nothing was wrong with its file.
    Cut,
    /// An answer that stands still.
    Stall,
    /// A worker that sleeps for a disk (state D).
    Asleep,
    /// More memory than is promised.
    Memory,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Of what kind.
    pub kind: Kind,
    /// What was expected, and what was seen.
    pub text: String,
}

impl Wrong {
    /// One.
    pub fn new(kind: Kind, text: impl Into<String>) -> Wrong {
        let text = text.into();
        Wrong { kind, text }
    }

    /// One, as the end of a function.
    ///
    /// # Errors
    /// Always.
    pub fn err<T>(kind: Kind, text: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong::new(kind, text))
    }
}

/// The first bytes, so that a person can read them.
pub fn shown(bytes: &[u8]) -> String {
    let some = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]);
    format!("{some:?} ({} bytes)", bytes.len())
}
