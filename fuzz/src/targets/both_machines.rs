//! Worker and disk machine with mailboxes between them, and clients, sockets, page cache and device as the bytes say.

use ackpace_sim::worlds::hostile;

/// Laws: the right bytes in the right order from where they are, and nobody stands still for ever (see [`hostile`]).
pub fn both_machines(data: &[u8]) {
    hostile::both(data);
}
