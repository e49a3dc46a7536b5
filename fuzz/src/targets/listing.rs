//! Any bytes as the listing of another server: [`ackpace_wire::listing::Reader`].

use ackpace_wire::listing::{Format, Named, Reader};

/// Laws: each name is one that a child of a folder can have. In whatever pieces the bytes come, the names are the same.
pub fn listing(data: &[u8]) {
    let (first, page) = data.split_first().unwrap_or((&0, data));
    let format = match first % 2 {
        0 => Format::Html,
        _ => Format::Json,
    };
    let whole = names(format, page, page.len());
    for piece in [1, 5 + usize::from(*first)] {
        assert_eq!(names(format, page, piece), whole, "{piece}");
    }
}

/// The names, each with whether it is a folder; and whether that was all.
fn names(format: Format, page: &[u8], piece: usize) -> (Vec<(Vec<u8>, bool)>, bool) {
    let mut reader = Reader::new(format, b"/a%20b/");
    let mut names = Vec::new();
    for bytes in page.chunks(piece.max(1)) {
        reader.take(bytes, |Named { name, is_folder }| {
            assert!((1..=255).contains(&name.len()) && name != b"." && name != b"..");
            assert!(!name.iter().any(|byte| matches!(byte, b'/' | 0)));
            names.push((name.to_vec(), is_folder));
        });
    }
    (names, reader.is_whole())
}
