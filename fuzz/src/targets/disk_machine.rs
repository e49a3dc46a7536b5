//! Any messages for a disk machine: wishes of anybody, reads that come back twice, short or broken, memory that never was.

use ackpace_sim::worlds::hostile;

/// Laws: nobody hears of what he did not wish for, reads can be made, and a message has few orders.
pub fn disk_machine(data: &[u8]) {
    hostile::disk_alone(data);
}
