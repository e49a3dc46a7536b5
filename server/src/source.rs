//! Where the bytes of a body come from: a file, its blocks on a unit, or an object of an origin.

use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Span};

use crate::gateway::Object;
use crate::store::file::File;
use crate::unit::Blocks;

/// A file or an object, open as long as somebody has it.
#[derive(Clone, Debug)]
pub enum Source {
    File(Arc<File>),
    Object(Arc<Object>),
    /// A file past its file system: NFS alone.
    Blocks(Arc<Blocks>),
}

/// What has a name in the machines.
pub trait Named {
    fn name(&self) -> ObjectId;
}

impl Named for File {
    fn name(&self) -> ObjectId {
        self.id
    }
}

impl Named for Object {
    fn name(&self) -> ObjectId {
        self.id
    }
}

impl Named for Blocks {
    fn name(&self) -> ObjectId {
        self.id()
    }
}

impl Source {
    /// Its name in the machines.
    pub fn id(&self) -> ObjectId {
        match self {
            Source::File(file) => file.id,
            Source::Object(object) => object.id,
            Source::Blocks(blocks) => blocks.id(),
        }
    }

    pub fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Source::Object(object) => Some(object),
            Source::File(_) | Source::Blocks(_) => None,
        }
    }

    /// Whether all of the span is in memory, or may be taken to be ([`File::is_resident`]).
    pub fn is_resident(&self, span: Span) -> bool {
        match self {
            Source::File(file) => file.is_resident(span),
            Source::Object(object) => object.is_resident(span),
            Source::Blocks(blocks) => blocks.is_resident(span),
        }
    }
}
