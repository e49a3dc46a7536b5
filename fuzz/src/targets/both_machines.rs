//! Worker and disk machine with mailboxes between them; the bytes drive clients, sockets, page cache and device.

use ackpace_sim::worlds::hostile;

/// Laws: the right bytes in the right order, from where they are, and no stream stalls for ever (see [`hostile`]).
pub fn both_machines(data: &[u8]) {
    hostile::both(data);
}
