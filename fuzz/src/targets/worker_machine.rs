//! Any messages for a worker machine: answers to its orders, late, doubled and wrong ones, and news of strangers.

use ackpace_sim::worlds::hostile;

/// Laws: no order goes beyond the response that it is for, and a message has few orders.
pub fn worker_machine(data: &[u8]) {
    hostile::worker_alone(data);
}
