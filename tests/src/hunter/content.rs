//! Content of files: cells of 16 bytes that name their file, version and place, so that a byte can be judged where it
//! arrives.
//!
//! A cell is a line, `FF.VVVVV.OOOOOO`: the file, the version that wrote it, and its place (offset / 16), all in hex.
//! The content of a file is therefore a function of a few numbers, its [`State`], and nothing has to be kept for
//! comparison.

use std::sync::Arc;

pub const CELL: usize = 16;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The cell at `number` (offset / 16) as `version` of `file` wrote it.
pub fn cell(file: u8, version: u32, number: u64) -> [u8; CELL] {
    let digit = |value: u64, place: u32| HEX[(value >> (4 * place)) as usize & 15];
    let mut cell = *b"00.00000.000000\n";
    for place in 0..2 {
        cell[1 - place as usize] = digit(file.into(), place);
    }
    for place in 0..5 {
        cell[7 - place as usize] = digit(version.into(), place);
    }
    for place in 0..6 {
        cell[14 - place as usize] = digit(number, place);
    }
    cell
}

/// Content of a file at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub file: u8,
    /// Which version wrote what: each entry is an end offset and a version. In order; the last one ends with the file.
    pub spans: Vec<(u64, u32)>,
}

impl State {
    /// A file that one version wrote.
    pub fn new(file: u8, version: u32, len_bytes: u64) -> Arc<State> {
        let spans = vec![(len_bytes, version)];
        Arc::new(State { file, spans })
    }

    pub fn len_bytes(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.0)
    }

    /// The state after `version` appends `more_bytes`.
    pub fn grown(&self, version: u32, more_bytes: u64) -> Arc<State> {
        let mut grown = self.clone();
        grown.spans.push((self.len_bytes() + more_bytes, version));
        Arc::new(grown)
    }

    /// The state after truncation to this length, which is not above the present one.
    pub fn cut(&self, len_bytes: u64) -> Arc<State> {
        let mut cut = self.clone();
        cut.spans.retain(|span| span.0 < len_bytes);
        let version = self.version_at(len_bytes.saturating_sub(1));
        cut.spans.push((len_bytes, version.unwrap_or(0)));
        Arc::new(cut)
    }

    /// The version that wrote the byte at `offset`; `None` behind the end.
    pub fn version_at(&self, offset: u64) -> Option<u32> {
        let span = self.spans.iter().find(|span| offset < span.0);
        span.map(|span| span.1)
    }

    /// Writes the content from `offset` on. Bytes behind the end are 0.
    pub fn fill(&self, offset: u64, into: &mut [u8]) {
        let (mut at, mut rest) = (offset, into);
        let mut spans = self
            .spans
            .iter()
            .skip_while(|span| span.0 <= offset)
            .peekable();
        while !rest.is_empty() {
            let Some(&(end, version)) = spans.peek() else {
                return rest.fill(0);
            };
            let here = rest.len().min((end - at) as usize);
            let (piece, behind) = rest.split_at_mut(here);
            fill_span(self.file, *version, at, piece);
            (at, rest) = (at + here as u64, behind);
            spans.next_if(|span| span.0 <= at);
        }
    }

    /// Offset of the first of these bytes that differs from the content at `offset`.
    pub fn differs_at(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 4096];
        let mut at = offset;
        for piece in bytes.chunks(expected.len()) {
            let expected = &mut expected[..piece.len()];
            self.fill(at, expected);
            let behind = self.len_bytes().saturating_sub(at).min(piece.len() as u64) as usize;
            if piece != expected || behind < piece.len() {
                let same = piece.iter().zip(&*expected).take_while(|(a, b)| a == b);
                return Some(at + same.count().min(behind) as u64);
            }
            at += piece.len() as u64;
        }
        None
    }

    /// Whether both have the same bytes from `start` to `end`.
    pub fn agrees_with(&self, other: &State, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let (own, its) = (self.version_at(at), other.version_at(at));
            if own.is_none() || own != its {
                return false;
            }
            let ends = [self, other].map(|state| {
                let span = state.spans.iter().find(|span| at < span.0);
                span.map_or(end, |span| span.0)
            });
            at = ends[0].min(ends[1]);
        }
        true
    }
}

/// Cells of one version, from `at` on.
fn fill_span(file: u8, version: u32, at: u64, into: &mut [u8]) {
    let mut cell_bytes = cell(file, version, at / CELL as u64);
    let within = at as usize % CELL;
    let head = into.len().min(CELL - within);
    into[..head].copy_from_slice(&cell_bytes[within..within + head]);
    let cells = into[head..].chunks_mut(CELL);
    for (number, piece) in (at / CELL as u64 + 1..).zip(cells) {
        // In most cases only the last two digits change from one cell to the next.
        if number % 256 == 0 {
            cell_bytes = cell(file, version, number);
        } else {
            cell_bytes[13] = HEX[number as usize >> 4 & 15];
            cell_bytes[14] = HEX[number as usize & 15];
        }
        piece.copy_from_slice(&cell_bytes[..piece.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(state: &State, offset: u64, len: usize) -> String {
        let mut bytes = vec![0; len];
        state.fill(offset, &mut bytes);
        String::from_utf8(bytes).expect("ASCII")
    }

    #[test]
    fn a_cell_says_its_file_its_version_and_its_place() {
        assert_eq!(&cell(0xa1, 0xbcdef, 0x12_3456), b"a1.bcdef.123456\n");
        let state = State::new(0xa1, 2, 1 << 20);
        assert_eq!(
            text(&state, 0xff0, 32),
            "a1.00002.0000ff\na1.00002.000100\n"
        );
        assert_eq!(text(&state, 0xffe, 6), "f\na1.0");
    }

    #[test]
    fn what_is_filled_in_pieces_is_what_is_filled_at_once() {
        let state = State::new(3, 7, 10_000).grown(9, 5_001).grown(12, 70_000);
        let mut whole = vec![0; state.len_bytes() as usize];
        state.fill(0, &mut whole);
        for (offset, len) in [
            (0, 1),
            (9_995, 20),
            (15_000, 3),
            (4_095, 20_000),
            (85_000, 1),
        ] {
            let mut piece = vec![0; len];
            state.fill(offset as u64, &mut piece);
            assert!(piece == whole[offset..offset + len], "{len} at {offset}");
        }
        assert_eq!(state.differs_at(17, &whole[17..]), None);
    }

    #[test]
    fn the_first_wrong_byte_is_named_and_so_is_one_behind_the_end() {
        let state = State::new(3, 7, 10_000);
        let mut bytes = vec![0; 10_000];
        state.fill(0, &mut bytes);
        bytes[5_000] ^= 1;
        assert_eq!(state.differs_at(0, &bytes), Some(5_000));
        bytes[5_000] ^= 1;
        bytes.push(0);
        assert_eq!(state.differs_at(0, &bytes), Some(10_000));
    }

    #[test]
    fn states_agree_where_the_same_version_wrote() {
        let old = State::new(3, 7, 10_000);
        let grown = old.grown(8, 10);
        assert!(old.agrees_with(&grown, 0, 10_000));
        assert!(!old.agrees_with(&grown, 0, 10_001));
        assert!(old.cut(50).agrees_with(&grown, 0, 50));
        assert!(!State::new(3, 9, 10_000).agrees_with(&old, 5, 6));
    }
}
