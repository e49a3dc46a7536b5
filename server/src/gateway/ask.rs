//! What workers ask of an origin, and what passes through.

use std::sync::Arc;

/// The bytes that a request is about first: an origin that is asked what it has at a target sends them along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// From this byte to that one, both included, or as far as it goes.
    Span(u64, u64),
    /// So many at the end.
    Last(u64),
    /// None: only the head is asked for.
    Head,
}

/// A question to an origin.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The target below the address of the origin, in its one spelling: it begins with a slash.
    pub target: Box<[u8]>,
    /// The bytes that are wanted first.
    pub hint: Hint,
    /// The head of the client's request: passed on if the response is for this client alone. Empty: of a response that is no object,
    /// status and fields are enough.
    pub head: Box<[u8]>,
    /// It is for this client alone in any case, since its request says more than what it wants.
    pub private: bool,
    /// The client wants it only if no origin has to be asked (RFC 9111 section 5.2.1.7).
    pub only_if_cached: bool,
    /// A body without a length goes out in chunks.
    pub chunked: bool,
    /// The target is that of an index file of this folder of a bucket.
    pub index_of: Option<Index>,
    /// Of a folder of a bucket, the listing is wanted: no index file, and also where clients of HTTP get none.
    pub lists: bool,
}

/// An index file that is looked for.
#[derive(Clone, Debug)]
pub struct Index {
    /// The target of the folder, which ends with a slash.
    pub folder: Box<[u8]>,
    /// Which of the names it is.
    pub nth: usize,
}

impl Asked {
    /// Memory that it takes.
    pub fn held_bytes(&self) -> u64 {
        let folder = self.index_of.as_ref().map_or(0, |index| index.folder.len());
        (self.target.len() + self.head.len() + folder) as u64
    }
}

/// A response that passes through, by a number that is never used twice. The response is read on while somebody has this.
#[derive(Debug)]
pub struct Pass(pub u64);

/// The head of a response that passes through.
#[derive(Clone, Debug)]
pub struct Through {
    /// Its status.
    pub status: u16,
    /// Its end-to-end fields, each with its CRLF.
    pub fields: Box<[u8]>,
    /// Its length; `None`: only its end tells.
    pub len_bytes: Option<u64>,
    /// What its bytes are asked for by.
    pub pass: Arc<Pass>,
}
