//! The cache of small responses: what enters, what leaves, and how long a response may be used.
//!
//! Three decisions, each by itself: [`Admission`] says which response is worth caching and in which form,
//! [`SecondChance`] keeps the cache within its bounds, and [`Freshness`] says when a file has to be looked up again.
//! The shell owns the files, the hash table and the watches; it asks these and does what they say.

mod admission;
mod freshness;
mod second_chance;

pub use admission::{Admission, Candidate, Form};
pub use freshness::Freshness;
pub use second_chance::{Cost, Costly, SecondChance, Space};
