//! Parses the few fields of an HTTP response head that the lab's clients need.

/// Status and framing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Value of Content-Length, if there is one.
    pub body_len_bytes: Option<u64>,
    /// Value of Content-Range, if there is one.
    pub range: Option<ContentRange>,
    /// True if the body is chunked.
    pub chunked: bool,
    /// True if the server closes the connection after this response.
    pub close: bool,
    /// Length of the head with its empty line.
    pub len_bytes: usize,
}

/// The range of a file in a 206 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Offset of its first byte.
    pub first: u64,
    /// Offset of its last byte.
    pub last: u64,
    /// Length of the whole file.
    pub total_bytes: u64,
}

/// Largest response head that a contender may send.
pub const HEAD_LEN_BYTES_MAX: usize = 16 << 10;

/// Parses a head at the start of `bytes`: `Ok(None)` while it is incomplete, an error text if it is not
/// HTTP/1.x. Only an error allocates memory, since a client may parse a hundred thousand heads a second.
pub fn parse(bytes: &[u8]) -> Result<Option<Head>, String> {
    let mut lines = Lines { bytes, at: 0 };
    let Some(status_line) = lines.next() else {
        return incomplete(bytes);
    };
    let mut head = Head {
        status: status_of(status_line)
            .ok_or_else(|| format!("not a status line: {:?}", text(status_line)))?,
        body_len_bytes: None,
        range: None,
        chunked: false,
        close: status_line.starts_with(b"HTTP/1.0"),
        len_bytes: 0,
    };
    loop {
        match lines.next() {
            None => return incomplete(bytes),
            Some(b"") => {
                head.len_bytes = lines.at;
                return Ok(Some(head));
            }
            Some(line) => field(&mut head, line)?,
        }
    }
}

/// Lines that end with CRLF; text after the last CRLF is not a line yet.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let mut from = 0;
        loop {
            let end = from + rest[from..].iter().position(|byte| *byte == b'\n')?;
            if end > 0 && rest[end - 1] == b'\r' {
                self.at += end + 1;
                return Some(&rest[..end - 1]);
            }
            from = end + 1;
        }
    }
}

fn incomplete(bytes: &[u8]) -> Result<Option<Head>, String> {
    match bytes.len() >= HEAD_LEN_BYTES_MAX {
        true => Err("response head over 16 KiB".into()),
        false => Ok(None),
    }
}

fn field(head: &mut Head, line: &[u8]) -> Result<(), String> {
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or_else(|| format!("not a header field: {:?}", text(line)))?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if is("content-length") {
        let len_bytes = number(value);
        let len_bytes = len_bytes.ok_or_else(|| format!("Content-Length {:?}", text(value)))?;
        head.body_len_bytes = Some(len_bytes);
    } else if is("content-range") && head.status == 206 {
        let range = range(value);
        head.range = Some(range.ok_or_else(|| format!("Content-Range {:?}", text(value)))?);
    } else if is("transfer-encoding") {
        head.chunked = value.eq_ignore_ascii_case(b"chunked");
    } else if is("connection") && value.eq_ignore_ascii_case(b"close") {
        head.close = true;
    } else if is("connection") && value.eq_ignore_ascii_case(b"keep-alive") {
        head.close = false;
    }
    Ok(())
}

/// Parses `bytes 0-99/1234`. `None` for an unsatisfied range or an unknown length, which no request here can
/// produce.
fn range(value: &[u8]) -> Option<ContentRange> {
    let value = std::str::from_utf8(value).ok()?.strip_prefix("bytes ")?;
    let (range, total) = value.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some(ContentRange {
        first: number(first.as_bytes())?,
        last: number(last.as_bytes())?,
        total_bytes: number(total.as_bytes())?,
    })
}

/// Accepts digits only; `parse` would also accept a sign.
fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn status_of(line: &[u8]) -> Option<u16> {
    let version = line.starts_with(b"HTTP/1.1 ") || line.starts_with(b"HTTP/1.0 ");
    let digits = line.get(9..12)?;
    version.then(|| number(digits))?.map(|status| status as u16)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whole_or_not_at_all() {
        let bytes = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH: 42\r\n\r\nbody";
        for cut in 0..bytes.len() - 4 {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
        let head = parse(bytes).unwrap().unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.body_len_bytes, Some(42));
        assert_eq!(&bytes[head.len_bytes..], b"body");
        assert!(!head.close && !head.chunked);
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: no\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n").is_err());
        assert!(parse(&[b'a'; HEAD_LEN_BYTES_MAX]).is_err());
    }

    #[test]
    fn a_range_is_read_or_refused() {
        let of = |value: &str| {
            let head = format!("HTTP/1.1 206 x\r\nContent-Range: {value}\r\n\r\n");
            parse(head.as_bytes())
        };
        let wanted = ContentRange {
            first: 5,
            last: 9,
            total_bytes: 10,
        };
        assert_eq!(of("bytes 5-9/10").unwrap().unwrap().range, Some(wanted));
        for value in [
            "bytes */10",
            "bytes 5-9/*",
            "bytes +5-9/10",
            "5-9/10",
            "bytes 5-9",
        ] {
            assert!(of(value).is_err(), "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_head_an_error_or_incomplete_and_the_head_ends_within_them(
            start in proptest::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.0 206 \r\nContent-Range: bytes "]),
            bytes in "[ -~\r\n:/-]{0,200}",
        ) {
            let whole = format!("{start}{bytes}");
            if let Ok(Some(head)) = parse(whole.as_bytes()) {
                proptest::prop_assert!(whole.as_bytes()[..head.len_bytes].ends_with(b"\r\n\r\n"));
                proptest::prop_assert_eq!(parse(&whole.as_bytes()[..head.len_bytes]), Ok(Some(head)));
            }
        }

        #[test]
        fn what_a_server_writes_is_what_is_read(len: u64, first in 0u64..1 << 60, more: u32, close: bool) {
            let last = first + u64::from(more);
            let connection = if close { "close" } else { "keep-alive" };
            let text = format!(
                "HTTP/1.1 206 Partial Content\r\nDate: x\r\nCONTENT-length:{len}\r\ncontent-Range: bytes {first}-{last}/{}\r\nConnection: {connection}\r\n\r\nrest",
                last + 1
            );
            let head = parse(text.as_bytes()).unwrap().unwrap();
            let range = ContentRange { first, last, total_bytes: last + 1 };
            proptest::prop_assert_eq!((head.body_len_bytes, head.range, head.close), (Some(len), Some(range), close));
            proptest::prop_assert_eq!(head.len_bytes + 4, text.len());
        }
    }
}
