//! The content of the lab's files: each byte is a function of the file's name and the offset. A disk can
//! therefore generate the bytes, a client can verify any range of them, and a wrong byte shows where it came
//! from.
//!
//! A file is a sequence of blocks. A block begins with the file's tag and its own number, little-endian. The
//! words after them count up from a start value mixed from both.

/// Length of a block. A file may have any length; its last block is cut.
pub const BLOCK_LEN_BYTES: usize = 4096;
/// Length of the block header: the tag and the block number.
const HEAD_LEN_BYTES: usize = 16;
/// Mixed into the second word, so that a block of zeros belongs to no file.
const MARK: u64 = 0xac4b_0000_0000_0000;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Identifies the file of a block: FNV-1a of its path below the served root, as "dir/file.bin".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Tag(pub u64);

impl Tag {
    /// The tag of a path below the root, with or without a leading slash.
    pub fn of(path: &str) -> Tag {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let path = path.trim_start_matches('/');
        Tag(path.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
    }
}

/// Writes the file's bytes from `offset_bytes` on into `into`.
pub fn fill(tag: Tag, offset_bytes: u64, into: &mut [u8]) {
    let mut done = 0;
    each_piece(offset_bytes, into.len(), |block, at, len| {
        let piece = &mut into[done..done + len];
        if len == BLOCK_LEN_BYTES {
            write_block(tag, block, piece);
        } else {
            let mut whole = [0; BLOCK_LEN_BYTES];
            write_block(tag, block, &mut whole);
            piece.copy_from_slice(&whole[at..at + len]);
        }
        done += len;
        true
    });
}

/// The offset in the file of the first wrong byte, if any. `bytes` were received as the file's bytes from
/// `offset_bytes` on.
pub fn first_wrong(tag: Tag, offset_bytes: u64, bytes: &[u8]) -> Option<u64> {
    let (mut done, mut wrong) = (0, None);
    each_piece(offset_bytes, bytes.len(), |block, at, len| {
        let piece = &bytes[done..done + len];
        if !is_piece(tag, block, at, piece) {
            wrong = byte_wrong(tag, block, at, piece).map(|nth| offset_bytes + (done + nth) as u64);
        }
        done += len;
        wrong.is_none()
    });
    wrong
}

/// The file and the number of a block; `None` unless the whole block has lab content.
pub fn recognise(block: &[u8]) -> Option<(Tag, u64)> {
    let word = |nth: usize| Some(u64::from_le_bytes(*block.get(nth * 8..)?.first_chunk()?));
    let (tag, number) = (Tag(word(0)?), word(1)? ^ MARK);
    let plausible = block.len() == BLOCK_LEN_BYTES && number >> 48 == 0;
    let ours = plausible && first_wrong(tag, number * BLOCK_LEN_BYTES as u64, block).is_none();
    ours.then_some((tag, number))
}

/// As [`recognise`], for the last block of a file, where zeros follow the file's end. Also returns how many
/// bytes belong to the file. For a whole block that is its length.
pub fn recognise_cut(block: &[u8]) -> Option<(Tag, u64, usize)> {
    if let Some((tag, number)) = recognise(block) {
        return Some((tag, number, BLOCK_LEN_BYTES)); // even if its last bytes happen to be zeros
    }
    let word = |nth: usize| Some(u64::from_le_bytes(*block.get(nth * 8..)?.first_chunk()?));
    let (tag, number) = (Tag(word(0)?), word(1)? ^ MARK);
    let len = block.iter().rposition(|byte| *byte != 0)? + 1;
    let plausible = block.len() == BLOCK_LEN_BYTES && number >> 48 == 0 && len >= 16;
    let at = number.wrapping_mul(BLOCK_LEN_BYTES as u64);
    let ours = plausible && first_wrong(tag, at, &block[..len]).is_none();
    ours.then_some((tag, number, len))
}

fn write_block(tag: Tag, number: u64, into: &mut [u8]) {
    debug_assert_eq!(into.len(), BLOCK_LEN_BYTES);
    let start = start(tag, number);
    for (nth, eight) in into.chunks_exact_mut(8).enumerate() {
        eight.copy_from_slice(&counted(start, nth as u64).to_le_bytes());
    }
    into[..8].copy_from_slice(&tag.0.to_le_bytes());
    into[8..HEAD_LEN_BYTES].copy_from_slice(&(number ^ MARK).to_le_bytes());
}

/// True if `piece` equals the block's bytes from `at` on. Compares eight bytes at a time, without a copy of the
/// block and without a branch, so that the compiler can vectorise the loop.
fn is_piece(tag: Tag, number: u64, at: usize, piece: &[u8]) -> bool {
    // The block header and partial words take the slow path.
    let whole_from = at.max(HEAD_LEN_BYTES).next_multiple_of(8) - at;
    if whole_from >= piece.len() {
        return byte_wrong(tag, number, at, piece).is_none();
    }
    let (front, words) = piece.split_at(whole_from);
    let words = words.chunks_exact(8);
    let back = words.remainder();
    let back_at = at + piece.len() - back.len();
    let mut expected = counted(start(tag, number), ((at + whole_from) / 8) as u64);
    let mut differ = 0;
    for eight in words {
        let word = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        differ |= word ^ expected;
        expected = expected.wrapping_add(STEP);
    }
    differ == 0
        && byte_wrong(tag, number, at, front).is_none()
        && byte_wrong(tag, number, back_at, back).is_none()
}

/// The index in `piece` of its first byte that differs from the block's bytes from `at` on.
fn byte_wrong(tag: Tag, number: u64, at: usize, piece: &[u8]) -> Option<usize> {
    let start = start(tag, number);
    (0..piece.len()).find(|nth| {
        let at = at + nth;
        let word = match at / 8 {
            0 => tag.0,
            1 => number ^ MARK,
            word => counted(start, word as u64),
        };
        piece[*nth] != word.to_le_bytes()[at % 8]
    })
}

fn start(tag: Tag, number: u64) -> u64 {
    mix(tag.0 ^ number.wrapping_mul(STEP))
}

/// The n-th word of a block, before the header replaces the first two.
fn counted(start: u64, nth: u64) -> u64 {
    start.wrapping_add(nth.wrapping_mul(STEP))
}

/// Splits a range at block boundaries. `with(block, offset in it, length)` returns true to continue.
fn each_piece(offset_bytes: u64, len: usize, mut with: impl FnMut(u64, usize, usize) -> bool) {
    let size = BLOCK_LEN_BYTES as u64;
    let (mut offset_bytes, mut left) = (offset_bytes, len);
    while left > 0 {
        let at = (offset_bytes % size) as usize;
        let piece = left.min(BLOCK_LEN_BYTES - at);
        if !with(offset_bytes / size, at, piece) {
            return;
        }
        offset_bytes += piece as u64;
        left -= piece;
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_the_same_bytes_and_a_wrong_one_is_found() {
        let tag = Tag::of("/a/b.bin");
        assert_eq!(tag, Tag::of("a/b.bin"));
        let mut whole = vec![0; 5 * BLOCK_LEN_BYTES + 77];
        fill(tag, 0, &mut whole);
        for (from, to) in [(0, 1), (4095, 4097), (5, 20_000), (8192, 12_288), (1, 1)] {
            let mut part = vec![0; to - from];
            fill(tag, from as u64, &mut part);
            assert_eq!(part, whole[from..to], "{from}..{to}");
            assert_eq!(first_wrong(tag, from as u64, &part), None);
        }
        for (at, from) in [
            (9000, 0),
            (8192, 7),
            (4095, 4095),
            (20_556, 20_551),
            (4104, 4097),
        ] {
            whole[at] ^= 1;
            assert_eq!(
                first_wrong(tag, from as u64, &whole[from..]),
                Some(at as u64)
            );
            whole[at] ^= 1;
        }
        whole[9000] ^= 1;
        assert_eq!(first_wrong(tag, 0, &whole), Some(9000));
        assert_eq!(first_wrong(Tag::of("other"), 0, &whole[..4096]), Some(0));
    }

    #[test]
    fn a_block_names_its_file_and_nothing_else_does() {
        let mut block = [0; BLOCK_LEN_BYTES];
        assert_eq!(recognise(&block), None);
        fill(Tag::of("x"), 7 * 4096, &mut block);
        assert_eq!(recognise(&block), Some((Tag::of("x"), 7)));
        assert_eq!(recognise(&block[..4095]), None);
        block[4000] ^= 0x10;
        assert_eq!(recognise(&block), None);
        assert_eq!(recognise_cut(&block), None);
        block[100..].fill(0);
        assert_eq!(recognise_cut(&block), Some((Tag::of("x"), 7, 100)));
        assert_eq!(recognise_cut(&[0; BLOCK_LEN_BYTES]), None);
    }
}
