//! Files: where they lie, who may see them, whether their bytes are in memory, and how they get there.
//!
//! [`root`] finds a name and [`door`] opens it, [`file`] holds what is open, [`residency`] tells what the page cache has, [`reader`] reads what
//! it lacks, [`device`] and [`leaves`] know the disks below. Past the page cache: [`direct`] opens a file so, [`reader`] and
//! [`ring`] read it in the steps of [`progress`], into memory that [`pool`] lends.

pub mod closing;
pub mod device;
pub mod direct;
pub mod door;
pub mod file;
pub mod leaves;
pub mod pages;
pub mod pool;
pub mod progress;
pub mod reader;
pub mod residency;
pub mod ring;
pub mod root;
