//! Files: where they are, which may be served, whether their bytes are in memory, and how they get there.
//!
//! [`root`] finds a name below what [`served`] keeps open, and [`door`] opens it; [`mod@file`] is an open file, and [`files`] the table of them; [`attributes`]
//! tell its version. [`residency`] says what the page cache has, [`reader`] reads what it lacks, and [`device`],
//! [`leaves`] and [`magic`] know the disks below. Past the page cache: [`direct`] opens a file with O_DIRECT; [`reader`]
//! and [`ring`] read it in the steps of [`progress`], into memory that [`pool`] lends. [`place`] is where a file lies.
//! What comes from an origin and several clients want is kept in a [`slab`], and on disk in a [`tier`].

pub mod attributes;
pub(crate) mod closing;
pub mod device;
pub mod direct;
pub(crate) mod door;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod latency;
pub(crate) mod leaves;
pub(crate) mod magic;
pub(crate) mod place;
pub mod pool;
pub(crate) mod progress;
pub mod reader;
pub(crate) mod residency;
pub mod ring;
pub mod root;
pub(crate) mod served;
pub mod slab;
pub mod tier;
