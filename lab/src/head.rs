//! The little of an HTTP response head that the clients of the lab look at.

/// Status and framing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Value of Content-Length, if there is one.
    pub body_len_bytes: Option<u64>,
    /// The body comes in chunks.
    pub chunked: bool,
    /// The server will close after this response.
    pub close: bool,
    /// Length of the head with its empty line.
    pub len_bytes: usize,
}

/// Largest response head that a contender may send.
pub const HEAD_LEN_BYTES_MAX: usize = 16 << 10;

/// Reads a head from the start of `bytes`: `Ok(None)` while it is incomplete, an error text when it
/// is not HTTP/1.x.
pub fn parse(bytes: &[u8]) -> Result<Option<Head>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        if bytes.len() >= HEAD_LEN_BYTES_MAX {
            return Err("response head over 16 KiB".into());
        }
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or("");
    let mut head = Head {
        status: status_of(status_line)
            .ok_or_else(|| format!("not a status line: {status_line:?}"))?,
        body_len_bytes: None,
        chunked: false,
        close: status_line.starts_with("HTTP/1.0"),
        len_bytes: end + 4,
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(format!("not a header field: {line:?}"));
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let bytes = value.parse();
                head.body_len_bytes = Some(bytes.map_err(|_| format!("Content-Length {value:?}"))?);
            }
            "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" if value.eq_ignore_ascii_case("close") => head.close = true,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => head.close = false,
            _ => {}
        }
    }
    Ok(Some(head))
}

fn status_of(line: &str) -> Option<u16> {
    let rest = line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    rest.get(..3)?.parse().ok()
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
    fn framing_fields_are_seen() {
        let bytes = b"HTTP/1.1 206 x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        let head = parse(bytes).unwrap().unwrap();
        assert!(head.chunked && head.close);
        assert_eq!((head.status, head.body_len_bytes), (206, None));
        let old = parse(b"HTTP/1.0 200 OK\r\n\r\n").unwrap().unwrap();
        assert!(old.close, "HTTP/1.0 closes unless it says otherwise");
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: no\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n").is_err());
        assert!(parse(&[b'a'; HEAD_LEN_BYTES_MAX]).is_err());
    }
}
