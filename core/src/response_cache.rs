//! The cache of small responses: what enters, and what leaves.
//!
//! [`Admission`] says which response is worth caching and in which form, and [`SecondChance`] keeps the cache within its
//! bounds. The shell owns the files and the hash table, and checks that a response is still that of its file.

mod admission;
mod second_chance;

pub use admission::{Admission, Candidate, Form};
pub use second_chance::{Cost, Costly, SecondChance, Space};
