//! HTTP: what a client asks for, and the plan of its response.
//!
//! [`http`] turns bytes into requests, and plans their responses (by way of `wire::http`). [`site`] finds what a path
//! means. [`listing`] makes a directory's page slice by slice, from the names that [`names`] holds and [`shelf`] keeps
//! between two slices.

pub mod charge;
pub mod fetching;
pub mod http;
pub mod listing;
pub mod names;
pub mod plain;
pub mod planning;
pub mod shelf;
pub mod site;
