//! Broken promises.

/// What kind of promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The process ended, or did not end as it should.
    Abort,
    Beyond,
    /// Bytes that the file never had there.
    WrongBytes,
    /// Bytes of two versions in one complete response.
    Mixed,
    /// Two versions under one strong tag.
    Tag,
    /// A head, a part or a chunk is not what it should be.
    Frame,
    /// A response that this request can't have.
    Status,
    /// A response that ended early for no reason.
    Cut,
    Stall,
    /// A worker in uninterruptible sleep (state D), waiting for a disk.
    Asleep,
    Memory,
}

#[derive(Clone, Debug)]
pub struct Wrong {
    pub kind: Kind,
    /// What was expected, and what was seen.
    pub text: String,
}

impl Wrong {
    pub fn new(kind: Kind, text: impl Into<String>) -> Wrong {
        let text = text.into();
        Wrong { kind, text }
    }

    /// A broken promise, as the result of a function.
    pub fn err<T>(kind: Kind, text: impl Into<String>) -> Result<T, Wrong> {
        Err(Wrong::new(kind, text))
    }
}

/// The first bytes, readable.
pub fn shown(bytes: &[u8]) -> String {
    let some = String::from_utf8_lossy(&bytes[..bytes.len().min(64)]);
    format!("{some:?} ({} bytes)", bytes.len())
}
