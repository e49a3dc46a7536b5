//! Any messages to a disk machine: wants of any stream, reads that complete twice, short or with errors, and returned
//! memory that was never lent.

use ackpace_sim::worlds::hostile;

/// Laws: no stream gets an answer to a want that it did not send, ordered reads are possible, and a message causes few
/// orders.
pub fn disk_machine(data: &[u8]) {
    hostile::disk_alone(data);
}
