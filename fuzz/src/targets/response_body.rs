//! A line with the framing of a body (`chunked`, `close`, or a length), then any bytes as that body: [`BodyReader`].

use ackpace_wire::http::{BodyReader, BodySkip, Framing, Piece, RequestBody};

/// What a reader made of some bytes.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    payload: Vec<u8>,
    consumed_bytes: usize,
    error: Option<&'static str>,
    is_done: bool,
}

/// Laws: the cuts between pieces change nothing; payload is a part of what was consumed; the end is where
/// [`BodySkip`] finds it.
pub fn response_body(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n');
    let (framing, bytes) = data.split_at(end.map_or(0, |end| end + 1));
    let framing = match std::str::from_utf8(framing).map(str::trim) {
        Ok("none") => Framing::None,
        Ok("close") => Framing::UntilClose,
        Ok(text) => text.parse().map_or(Framing::Chunked, Framing::Length),
        Err(_) => Framing::Chunked,
    };
    let whole = read_in_pieces(framing, bytes, bytes.len().max(1));
    for piece_len in [1, 2, 7, (bytes.len() / 2).max(1)] {
        let read = read_in_pieces(framing, bytes, piece_len);
        assert_eq!(read, whole, "by {piece_len}");
    }
    match framing {
        Framing::None => assert!(whole.is_done && whole.consumed_bytes == 0),
        Framing::Length(len_bytes) => {
            let here = len_bytes.min(bytes.len() as u64);
            assert_eq!(whole.payload, bytes[..here as usize]);
            assert_eq!(whole.is_done, here == len_bytes);
        }
        Framing::UntilClose => assert!(whole.payload == bytes && !whole.is_done),
        Framing::Chunked => {
            let skipped = BodySkip::new(RequestBody::Chunked).skip(bytes);
            assert_eq!(skipped.err().map(|reject| reject.why), whole.error);
            if let Ok(skipped) = skipped {
                assert_eq!(skipped.consumed_bytes, whole.consumed_bytes);
                assert_eq!(skipped.done, whole.is_done);
            }
        }
    }
}

fn read_in_pieces(framing: Framing, bytes: &[u8], piece_len: usize) -> Read {
    let mut reader = BodyReader::new(framing);
    assert_eq!(reader.needs_end(), framing == Framing::UntilClose);
    let mut read = Read {
        payload: Vec::new(),
        consumed_bytes: 0,
        error: None,
        is_done: false,
    };
    for input in bytes.chunks(piece_len) {
        let mut rest = input;
        loop {
            let (consumed_bytes, data) = match reader.next(rest) {
                Ok(Piece {
                    consumed_bytes,
                    data,
                }) => (consumed_bytes, data),
                Err(why) => {
                    assert_eq!(reader.next(b"0\r\n\r\n"), Err(why), "an error is final");
                    read.error = Some(why);
                    read.consumed_bytes = 0; // pieces before the error say nothing
                    return read;
                }
            };
            assert!(data.end <= consumed_bytes && consumed_bytes <= rest.len());
            read.payload.extend(&rest[data.clone()]);
            read.consumed_bytes += consumed_bytes;
            rest = &rest[consumed_bytes..];
            if data.is_empty() {
                assert!(rest.is_empty() || reader.is_done(), "bytes are left over");
                break;
            }
        }
    }
    read.is_done = reader.is_done();
    read
}
