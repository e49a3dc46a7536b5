//! The lab: measures ackpace beside its peers, in one run, as ratios.

fn main() {}
