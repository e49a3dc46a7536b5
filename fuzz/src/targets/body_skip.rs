//! A line with the framing of a body (`chunked`, or a length), then any bytes as that body: [`BodySkip`].

use ackpace_wire::http::{BodySkip, Reject, RequestBody, Skipped};

/// Laws: the cuts between pieces change nothing; an end, once found, stays; a chunked body ends where `httparse` says
/// it does.
pub fn body_skip(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n');
    let (framing, bytes) = data.split_at(end.map_or(0, |end| end + 1));
    let length = std::str::from_utf8(framing).map(str::trim);
    let framing = match length.ok().and_then(|text| text.parse().ok()) {
        Some(0) => RequestBody::None,
        Some(len_bytes) => RequestBody::Length(len_bytes),
        None => RequestBody::Chunked,
    };

    let whole = BodySkip::new(framing).skip(bytes);
    for piece_len in [1, 2, 7, (bytes.len() / 2).max(1)] {
        assert_eq!(
            skip_in_pieces(framing, bytes, piece_len),
            whole,
            "by {piece_len}"
        );
    }
    let Ok(Skipped {
        consumed_bytes,
        done,
    }) = whole
    else {
        return;
    };
    assert!(consumed_bytes <= bytes.len());
    assert!(done || consumed_bytes == bytes.len(), "bytes are left over");
    match framing {
        RequestBody::None => assert!(done && consumed_bytes == 0),
        RequestBody::Length(len_bytes) => {
            assert_eq!(consumed_bytes as u64, len_bytes.min(bytes.len() as u64));
        }
        RequestBody::Chunked if done => compare_with_httparse(&bytes[..consumed_bytes]),
        RequestBody::Chunked => {}
    }
    let alone = BodySkip::new(framing).skip(&bytes[..consumed_bytes]);
    assert_eq!(alone, whole, "what follows a body is none of its business");
}

fn skip_in_pieces(framing: RequestBody, bytes: &[u8], piece_len: usize) -> Result<Skipped, Reject> {
    let mut skip = BodySkip::new(framing);
    let mut sum = skip.skip(b"")?;
    for piece in bytes.chunks(piece_len) {
        let step = skip.skip(piece)?;
        sum.consumed_bytes += step.consumed_bytes;
        sum.done = step.done;
        if step.done {
            assert_eq!(skip.skip(b"GET").map(|step| step.consumed_bytes), Ok(0));
            break;
        }
    }
    Ok(sum)
}

fn compare_with_httparse(body: &[u8]) {
    let mut rest = body;
    loop {
        let Ok(httparse::Status::Complete((line_len, size_bytes))) =
            httparse::parse_chunk_size(rest)
        else {
            panic!("httparse knows no chunk at {}", rest.escape_ascii());
        };
        rest = &rest[line_len..];
        if size_bytes == 0 {
            break;
        }
        let (_, after) = rest.split_at(size_bytes as usize);
        rest = after.strip_prefix(b"\r\n").expect("a chunk ends in CR LF");
    }
    let mut slots = [httparse::EMPTY_HEADER; 64];
    match httparse::parse_headers(rest, &mut slots) {
        Ok(httparse::Status::Complete((len, _))) => assert_eq!(len, rest.len()),
        Err(httparse::Error::TooManyHeaders) => {}
        other => panic!("httparse reads the trailer as {other:?}"),
    }
}
