//! The first page of a file of the tier: of what it is a window, and the checksum of its bytes, which follow.
//!
//! Where bytes are read there is nothing to be parsed: a page is right if it is what it would be made anew with the same checksum.

use super::Window;

/// Its length: the bytes behind it begin at a page, too.
pub const LEN: usize = 4096;
/// The first bytes; the last one is the version of the format. Another one: the file is not ours, and is removed.
const MAGIC: [u8; 8] = *b"ackpace\x01";
const CHECKSUM: std::ops::Range<usize> = 8..12;
const FIXED: usize = 12 + 3 * 8;
/// Bytes of an identity that have room in it.
pub const ROOM_BYTES: usize = LEN - FIXED;

/// The page for this window with this checksum (CRC-32). A longer identity than there is room for is cut off.
pub fn page(window: &Window, checksum: u32) -> [u8; LEN] {
    let mut page = [0; LEN];
    page[..MAGIC.len()].copy_from_slice(&MAGIC);
    page[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    let identity = &window.identity[..window.identity.len().min(ROOM_BYTES)];
    let numbers = [
        window.object_len_bytes,
        window.number,
        identity.len() as u64,
    ];
    page[CHECKSUM.end..FIXED].copy_from_slice(numbers.map(u64::to_le_bytes).as_flattened());
    page[FIXED..FIXED + identity.len()].copy_from_slice(identity);
    page
}

/// The identity that a page tells, whatever window it is of; `None`: it is no page.
pub fn identity(bytes: &[u8; LEN]) -> Option<&[u8]> {
    let len = bytes[FIXED - 8..FIXED].try_into().map(u64::from_le_bytes);
    let end = usize::try_from(len.ok()?).ok()?.checked_add(FIXED)?;
    let is_ours = bytes.starts_with(&MAGIC);
    bytes.get(FIXED..end).filter(|_| is_ours)
}

/// The checksum that a page tells if it is one for this window.
pub fn checksum(bytes: &[u8; LEN], window: &Window) -> Option<u32> {
    let told = bytes[CHECKSUM].try_into().ok()?;
    let checksum = u32::from_le_bytes(told);
    (*bytes == page(window, checksum)).then_some(checksum)
}
