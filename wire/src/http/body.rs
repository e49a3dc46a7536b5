//! Finds payload and end of a body (RFC 9112 sections 6 and 7.1): [`BodyReader`] for that of a response, [`BodySkip`] for
//! that of a request, which no answer of a file server depends on. The framing is checked strictly: an error in it
//! would make the next message start in the wrong place.

use std::ops::Range;

use super::fields::is_token_byte;
use super::request::RequestBody;
use super::response::Framing;
use super::status::Reject;

/// Bytes of one chunk-size line, including extensions and without CRLF. Nobody sends extensions to a file server, and
/// origins hardly any. Above: 400, or a bad response.
const CHUNK_LINE_BYTES_MAX: usize = 1 << 10;
/// Bytes of the trailer section of a body, which is ignored. Above: 400, or a bad response.
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// What one call of [`BodySkip::skip`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Bytes at the start of the input that belong to the body.
    pub consumed_bytes: usize,
    /// True once the body has ended; what follows is the next request.
    pub done: bool,
}

/// Finds the end of the body of one request. The result does not depend on how the input is split into pieces. The
/// server decides how much it is willing to skip, by counting `consumed_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct BodySkip(BodyReader);

impl BodySkip {
    /// Starts at the first byte of a body with this framing.
    pub const fn new(body: RequestBody) -> Self {
        Self(BodyReader::new(match body {
            RequestBody::None => Framing::None,
            RequestBody::Length(len_bytes) => Framing::Length(len_bytes),
            RequestBody::Chunked => Framing::Chunked,
        }))
    }

    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// 400 where [`BodyReader::next`] fails. Every later call returns the same error.
    pub fn skip(&mut self, bytes: &[u8]) -> Result<Skipped, Reject> {
        let mut consumed_bytes = 0;
        loop {
            let piece = self.0.next(&bytes[consumed_bytes..]);
            let piece = piece.map_err(Reject::bad)?;
            consumed_bytes += piece.consumed_bytes;
            if piece.data.is_empty() {
                break;
            }
        }
        Ok(Skipped {
            consumed_bytes,
            done: self.0.is_done(),
        })
    }
}

/// What one call of [`BodyReader::next`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes at the start of the input that belong to the body. Call again with the rest unless `data` is empty.
    pub consumed_bytes: usize,
    /// The payload among them, one run. Empty: the input or the body has ended.
    pub data: Range<usize>,
}

/// Finds the payload of one body. The result does not depend on how the input is split into pieces.
#[derive(Clone, Copy, Debug)]
pub struct BodyReader {
    state: State,
    /// Length of the current chunk-size line, or of the whole trailer section.
    line_len_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes left of a body of known length.
    Length(u64),
    /// A body that ends with the connection.
    UntilClose,
    /// Inside the hex digits of a chunk size.
    Size {
        size_bytes: u64,
        digits: u32,
    },
    /// After the digits: white space and extensions. `started` is true once a `;` has been seen.
    Extension {
        size_bytes: u64,
        started: bool,
    },
    SizeLf {
        size_bytes: u64,
    },
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
    Failed(&'static str),
}

impl BodyReader {
    /// Starts at the first byte of a body with this framing.
    pub const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(len_bytes) => State::Length(len_bytes),
            Framing::Chunked => SIZE_START,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            line_len_bytes: 0,
        }
    }

    /// True once the body has ended; what follows is the next message. Never true for one that
    /// [ends with the connection](Self::needs_end).
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// True if only the end of the connection ends this body. For any other that is not done, such an end means that
    /// bytes are missing.
    pub fn needs_end(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Takes the next bytes of the connection, up to the end of the first run of payload among them.
    ///
    /// # Errors
    /// A sentence for a chunk size that does not fit 64 bits, a missing CR LF, a bare CR or LF, a malformed trailer,
    /// and lines above their bounds. Every later call returns the same error.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Piece, &'static str> {
        let mut at = 0;
        loop {
            let from = at;
            self.state = match self.state {
                State::Done => break,
                State::Failed(why) => return Err(why),
                _ if at == bytes.len() => break,
                State::UntilClose => {
                    at = bytes.len();
                    State::UntilClose
                }
                State::Length(left) => match pass(left, bytes.len(), &mut at) {
                    0 => State::Done,
                    left => State::Length(left),
                },
                State::Data(left) => match pass(left, bytes.len(), &mut at) {
                    0 => State::DataCr,
                    left => State::Data(left),
                },
                state => {
                    self.state = self.framing_byte(state, bytes[at]);
                    at += 1;
                    continue;
                }
            };
            return Ok(Piece {
                consumed_bytes: at,
                data: from..at,
            });
        }
        Ok(Piece {
            consumed_bytes: at,
            data: at..at,
        })
    }

    /// The state after one byte that is no payload.
    fn framing_byte(&mut self, state: State, byte: u8) -> State {
        let bounded = self.bounded(state).and_then(|()| next(state, byte));
        let state = bounded.unwrap_or_else(State::Failed);
        if state == SIZE_START {
            self.line_len_bytes = 0;
        }
        state
    }

    /// Counts one byte of a line against its bound.
    fn bounded(&mut self, state: State) -> Result<(), &'static str> {
        self.line_len_bytes += 1;
        match state {
            State::Size { .. } | State::Extension { .. }
                if self.line_len_bytes > CHUNK_LINE_BYTES_MAX =>
            {
                Err("A chunk-size line of the body is too long.")
            }
            State::TrailerName | State::TrailerValue if self.line_len_bytes > TRAILER_BYTES_MAX => {
                Err("The trailer of the body is too long.")
            }
            _ => Ok(()),
        }
    }
}

const SIZE_START: State = State::Size {
    size_bytes: 0,
    digits: 0,
};

/// Advances `at` over as many of the `left` bytes as the input holds; returns how many are still to come.
fn pass(left: u64, len_bytes: usize, at: &mut usize) -> u64 {
    // The usize difference always fits u64; `min` makes the cast back lossless.
    let step = left.min((len_bytes - *at) as u64);
    *at += step as usize;
    left - step
}

/// The state after one byte of framing.
fn next(state: State, byte: u8) -> Result<State, &'static str> {
    match (state, byte) {
        (State::Size { size_bytes, digits }, _) if byte.is_ascii_hexdigit() => {
            size_digit(size_bytes, digits, byte)
        }
        (State::Size { digits: 0, .. }, _) => {
            Err("A chunk of the body does not start with its size.")
        }
        (State::Size { size_bytes, .. } | State::Extension { size_bytes, .. }, b'\r') => {
            Ok(State::SizeLf { size_bytes })
        }
        (State::Size { size_bytes, .. }, b';' | b' ' | b'\t') => Ok(State::Extension {
            size_bytes,
            started: byte == b';',
        }),
        (
            State::Extension {
                size_bytes,
                started,
            },
            _,
        ) => {
            let fits = match byte {
                b' ' | b'\t' => true,
                b';' => true,
                _ => started && byte > b' ' && byte != 0x7f,
            };
            if !fits {
                return Err("A chunk size is followed by no extension.");
            }
            Ok(State::Extension {
                size_bytes,
                started: started || byte == b';',
            })
        }
        (State::SizeLf { size_bytes: 0 }, b'\n') => Ok(State::TrailerStart),
        (State::SizeLf { size_bytes }, b'\n') => Ok(State::Data(size_bytes)),
        (State::DataCr, b'\r') => Ok(State::DataLf),
        (State::DataLf, b'\n') => Ok(SIZE_START),
        (State::TrailerStart, b'\r') => Ok(State::EndLf),
        (State::EndLf, b'\n') => Ok(State::Done),
        (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
            Ok(State::TrailerName)
        }
        (State::TrailerName, b':') => Ok(State::TrailerValue),
        (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
        (State::TrailerValue, _) if byte == b'\t' || byte >= b' ' && byte != 0x7f => {
            Ok(State::TrailerValue)
        }
        (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
        (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
            Err("The trailer of the body is malformed.")
        }
        (State::Size { .. } | State::DataCr | State::DataLf, _) => {
            Err("A chunk of the body does not end where its size says.")
        }
        _ => Err("A CR without its LF is in the framing of the body."),
    }
}

fn size_digit(size_bytes: u64, digits: u32, byte: u8) -> Result<State, &'static str> {
    let digit = match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 32) - b'a' + 10,
    };
    // 16 digits fill 64 bits; nobody needs leading zeros beyond them.
    if digits == 16 {
        return Err("A chunk size of the body is too large.");
    }
    Ok(State::Size {
        size_bytes: (size_bytes << 4) | u64::from(digit),
        digits: digits + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::{BodyReader, BodySkip, CHUNK_LINE_BYTES_MAX, Piece, Skipped, TRAILER_BYTES_MAX};
    use crate::http::testing::config;
    use crate::http::{Framing, RequestBody};
    use proptest::prelude::*;

    /// Length of the body if it ended, `None` if more input is needed, `Err` if it is malformed.
    fn chunked(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        match BodySkip::new(RequestBody::Chunked).skip(bytes) {
            Ok(Skipped {
                consumed_bytes,
                done,
            }) => Ok(done.then_some(consumed_bytes)),
            Err(reject) => Err(reject.why),
        }
    }

    #[test]
    fn a_body_of_known_length_ends_after_it() {
        let mut body = BodySkip::new(RequestBody::Length(5));
        let step = |consumed_bytes, done| {
            Ok(Skipped {
                consumed_bytes,
                done,
            })
        };
        assert_eq!(body.skip(b"abc"), step(3, false));
        assert_eq!(body.skip(b""), step(0, false));
        assert_eq!(body.skip(b"deGET"), step(2, true));
        assert_eq!(body.skip(b"GET"), step(0, true));
        assert_eq!(BodySkip::new(RequestBody::None).skip(b"GET"), step(0, true));
        let endless = BodySkip::new(RequestBody::Length(u64::MAX)).skip(b"abc");
        assert_eq!(endless, step(3, false));
    }

    #[test]
    fn chunks_extensions_and_trailers_are_passed_over() {
        for body in [
            "0\r\n\r\n",
            "c\r\nHellO world1\r\n0\r\n\r\n",
            "5;a=b;c=\"d e\"\r\nhello\r\n00000;x\r\n\r\n",
            "5 \t;a\r\nhello\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n",
            "1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n",
            "A\r\n0123456789\r\n0 \r\n\r\n",
        ] {
            let bytes = [body.as_bytes(), b"GET / HTTP/1.1"].concat();
            assert_eq!(chunked(&bytes), Ok(Some(body.len())), "{body:?}");
        }
    }

    #[test]
    fn framing_that_two_readers_could_read_differently_is_refused() {
        for body in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            ";\r\n",
            "1\nx\r\n0\r\n\r\n",
            "1\r\nx\n0\r\n\r\n",
            "1\rx",
            "1\r\nxx\r\n",
            "1\r\nx0\r\n",
            "1 2\r\n",
            "1;a\n",
            "1;\x01\r\n",
            "4\r\nSEE-THIS\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\nno colon\r\n",
            "0\r\n folded: x\r\n",
            "0\r\n: x\r\n",
            "0\r\na: \x07\r\n",
            "0\r\na: b\n",
            "10000000000000000\r\n",
            "00000000000000001\r\n",
        ] {
            assert!(chunked(body.as_bytes()).is_err(), "{body:?}");
        }
        assert_eq!(
            chunked(b"ffffffffffffffff\r\nx"),
            Ok(None),
            "64 bits are a size"
        );
    }

    #[test]
    fn a_body_without_a_length_ends_with_its_connection_alone() {
        let mut body = BodyReader::new(Framing::UntilClose);
        let piece = body.next(b"0\r\n\r\n").expect("any bytes");
        assert_eq!((piece.consumed_bytes, piece.data), (5, 0..5));
        assert!(body.needs_end() && !body.is_done());
        for framing in [Framing::None, Framing::Length(0)] {
            assert!(BodyReader::new(framing).is_done(), "{framing:?}");
        }
    }

    #[test]
    fn an_error_is_final() {
        let mut body = BodySkip::new(RequestBody::Chunked);
        let first = body.skip(b"zz");
        assert!(first.is_err());
        assert_eq!(body.skip(b"0\r\n\r\n"), first);
    }

    #[test]
    fn the_bound_on_a_chunk_line_holds_at_below_and_above() {
        for (len, fits) in [
            (CHUNK_LINE_BYTES_MAX - 1, true),
            (CHUNK_LINE_BYTES_MAX, true),
            (CHUNK_LINE_BYTES_MAX + 1, false),
        ] {
            let line = format!("1;{}\r\n", "x".repeat(len - 3));
            let body = format!("{line}x\r\n{line}x\r\n0\r\n\r\n");
            // The CR counts: it is the byte after the last one that fits.
            assert_eq!(chunked(body.as_bytes()).is_ok(), fits, "{len}");
        }
    }

    #[test]
    fn the_bound_on_the_trailer_holds_over_all_its_lines() {
        let trailer = |lines: usize| format!("0\r\n{}\r\n", "abcd: efgh12345\r\n".repeat(lines));
        let line_len = "abcd: efgh12345\r\n".len();
        let fits = chunked(trailer(TRAILER_BYTES_MAX / line_len - 1).as_bytes());
        assert!(fits.is_ok_and(|end| end.is_some()));
        assert!(chunked(trailer(TRAILER_BYTES_MAX / line_len + 1).as_bytes()).is_err());
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn the_result_does_not_depend_on_how_the_bytes_are_cut(
            bytes in "([0-9a-f]{1,2}|;a=b|\r\n|x|\r\n0\r\n\r\n|A: b\r\n){0,12}",
            cuts in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let bytes = bytes.as_bytes();
            let whole = BodySkip::new(RequestBody::Chunked).skip(bytes);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let (mut body, mut at, mut consumed_bytes) = (BodySkip::new(RequestBody::Chunked), 0, 0);
            let mut result = Ok(Skipped { consumed_bytes: 0, done: false });
            for cut in cuts {
                result = body.skip(&bytes[at..cut]);
                at = cut;
                match result {
                    Ok(step) => consumed_bytes += step.consumed_bytes,
                    Err(_) => break,
                }
            }
            prop_assert_eq!(result.map(|step| Skipped { consumed_bytes, ..step }), whole);
        }

        #[test]
        fn every_body_that_a_peer_would_send_is_read_and_skipped_whole(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..5),
            next in proptest::collection::vec(any::<u8>(), 0..9),
            step_bytes in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            let len_bytes = bytes.len();
            bytes.extend(next);
            prop_assert_eq!(chunked(&bytes), Ok(Some(len_bytes)));
            let (mut body, mut at, mut payload) = (BodyReader::new(Framing::Chunked), 0, Vec::new());
            while !body.is_done() {
                let end = bytes.len().min(at + step_bytes);
                let Piece { consumed_bytes, data } = body.next(&bytes[at..end]).expect("a good body");
                payload.extend(&bytes[at..end][data]);
                at += consumed_bytes;
            }
            prop_assert_eq!((at, payload), (len_bytes, chunks.concat()));
        }
    }
}
