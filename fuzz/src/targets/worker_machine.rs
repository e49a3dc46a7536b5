//! Any messages to a worker machine: answers to its orders, also late, repeated and wrong ones, and messages about
//! unknown connections.

use ackpace_sim::worlds::hostile;

/// Laws: no order exceeds the response that it is for, and a message causes few orders.
pub fn worker_machine(data: &[u8]) {
    hostile::worker_alone(data);
}
