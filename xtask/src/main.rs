//! Chores of the tree: tidy and docs.

fn main() {}
