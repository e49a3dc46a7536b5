//! Parses the head of an origin's response (RFC 9112 sections 2 to 6), as strictly as [`parse`](super::parse) does
//! requests: a response that two readers could end at different bytes is refused, and with it the connection.
//!
//! The fuzz target `response_head` compares it with `httparse`, which must accept every head that this parser
//! accepts.

use super::cursor::{Cursor, Stop};
use super::fields::{Field, Fields, decimal};
use super::request::{Version, wants_keep_alive};
use super::status::Reject;
use crate::limits::{OBJECT_BYTES_MAX, RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};

/// The method of the request that a response answers: a response to HEAD has no body, whatever its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// GET
    Get,
    /// HEAD
    Head,
}

/// The end of the body of a response (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body: the response answers HEAD, or is a 204 or 304.
    None,
    /// The length in bytes; it may be 0.
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked,
    /// The body ends with the connection. Nobody can tell whether it is whole.
    UntilClose,
}

/// The result of [`parse_response`] for the bytes received so far.
#[derive(Clone, Debug)]
pub enum ParsedResponse<'a> {
    /// A valid beginning: read more. Never returned for [`RESPONSE_HEAD_BYTES_MAX`] bytes or more.
    Incomplete,
    /// A 1xx (RFC 9110 section 15.2): skip it and parse what follows. The caller counts them, since an origin could send
    /// them without end.
    Interim {
        /// Length of its head, the closing empty line included.
        head_len_bytes: usize,
    },
    /// One final response. Its body or the next response follows.
    Complete {
        /// The response, borrowed from the parsed bytes.
        response: Response<'a>,
        /// Length of the head, the closing empty line included.
        head_len_bytes: usize,
    },
    /// No further bytes can make this a response that is understood. The connection must close. The sentence says why.
    Bad(&'static str),
}

/// The head of a final response that follows the grammar and is unambiguous. Cheap to copy; owns nothing.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status code, 200 to 599.
    pub status: u16,
    /// The version that the origin speaks.
    pub version: Version,
    /// True if the connection can be used again after the body.
    pub keep_alive: bool,
    /// The end of the body.
    pub framing: Framing,
    /// Content-Length, also where there is no body: in the answer to HEAD it is the length of the representation.
    pub len_bytes: Option<u64>,
    fields: Fields<'a>,
}

impl<'a> Response<'a> {
    /// All fields: look-ups, and all lines by [`Fields::iter`].
    pub fn fields(&self) -> &Fields<'a> {
        &self.fields
    }
}

/// Reads one response head at the start of `bytes`.
///
/// Pure: the same bytes give the same result, and bytes after a head never change it.
pub fn parse_response(bytes: &[u8], asked: Asked) -> ParsedResponse<'_> {
    let mut cursor = Cursor::new(bytes, RESPONSE_HEAD_BYTES_MAX);
    match head(&mut cursor, asked) {
        Ok(Some(response)) => ParsedResponse::Complete {
            response,
            head_len_bytes: cursor.at,
        },
        Ok(None) => ParsedResponse::Interim {
            head_len_bytes: cursor.at,
        },
        Err(Stop::Reject(reject)) => ParsedResponse::Bad(reject.why),
        Err(Stop::More) if bytes.len() < RESPONSE_HEAD_BYTES_MAX => ParsedResponse::Incomplete,
        Err(Stop::More) => ParsedResponse::Bad("The head of the response is longer than 32 KB."),
    }
}

/// One head; `None` for a 1xx.
fn head<'a>(cursor: &mut Cursor<'a>, asked: Asked) -> Result<Option<Response<'a>>, Stop> {
    let version = cursor.version("The response does not start with HTTP/1.1.")?;
    let status = status(cursor)?;
    let too_many = Reject::bad("The head of the response has more than 200 fields.");
    let fields = cursor.fields(RESPONSE_FIELDS_MAX, too_many)?;
    let len_bytes = length(&fields)?;
    let body = framing(version, len_bytes, &fields)?;
    let framing = match (asked, status) {
        (Asked::Head, _) | (_, 204 | 304) => Framing::None,
        (Asked::Get, _) => body,
    };
    Ok((status >= 200).then(|| Response {
        status,
        version,
        keep_alive: wants_keep_alive(version, &fields) && framing != Framing::UntilClose,
        framing,
        len_bytes,
        fields,
    }))
}

/// The rest of the status line after the version (RFC 9112 section 4). The reason phrase means nothing; some servers
/// leave it out, and the space before it.
fn status(cursor: &mut Cursor<'_>) -> Result<u16, Stop> {
    const WHY: &str = "The status line has no space and three digits after the version.";
    if cursor.peek()? != b' ' {
        return Err(Reject::bad(WHY).into());
    }
    cursor.at += 1;
    let mut status = 0;
    for _ in 0..3 {
        let digit = cursor.peek()?;
        if !digit.is_ascii_digit() {
            return Err(Reject::bad(WHY).into());
        }
        status = status * 10 + u16::from(digit - b'0');
        cursor.at += 1;
    }
    if status == 101 {
        let why = "The origin switches to another protocol, which nobody asked for.";
        return Err(Reject::bad(why).into());
    }
    if !(100..=599).contains(&status) {
        return Err(Reject::bad("The status code is not in 100 to 599.").into());
    }
    if cursor.peek()? == b' ' {
        cursor.run(|byte| byte >= b' ' && byte != 0x7f || byte == b'\t')?;
    }
    cursor.line_end("A control byte or a fourth digit is in the status line.")?;
    Ok(status)
}

/// Content-Length; lines that repeat the same number count as one (RFC 9112 section 6.3).
fn length(fields: &Fields<'_>) -> Result<Option<u64>, Reject> {
    let mut len_bytes = None;
    for value in fields.values(Field::ContentLength) {
        let this = decimal(value).filter(|len_bytes| *len_bytes <= OBJECT_BYTES_MAX);
        let this = this.ok_or(Reject::bad("Content-Length is not a number of bytes."))?;
        if len_bytes.is_some_and(|len_bytes| len_bytes != this) {
            let why = "The response has two different Content-Length fields.";
            return Err(Reject::bad(why));
        }
        len_bytes = Some(this);
    }
    Ok(len_bytes)
}

/// RFC 9112 sections 6.1 to 6.3, without any ambiguous message. Also checked where no body can follow.
fn framing(
    version: Version,
    len_bytes: Option<u64>,
    fields: &Fields<'_>,
) -> Result<Framing, Reject> {
    let Some(coding) = fields.first(Field::TransferEncoding) else {
        return Ok(len_bytes.map_or(Framing::UntilClose, Framing::Length));
    };
    let why = if len_bytes.is_some() {
        "The response has both Transfer-Encoding and Content-Length."
    } else if version == Version::Http10 {
        "Transfer-Encoding is not part of HTTP/1.0."
    } else if fields.is_repeated(Field::TransferEncoding) {
        "The response has several Transfer-Encoding fields."
    } else if !coding.eq_ignore_ascii_case(b"chunked") {
        "The only transfer coding known here is chunked."
    } else {
        return Ok(Framing::Chunked);
    };
    Err(Reject::bad(why))
}

#[cfg(test)]
mod tests {
    use super::{Asked, Framing, ParsedResponse, Response, parse_response};
    use crate::http::fields::Field;
    use crate::limits::{RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};

    const ORDINARY: &str = "HTTP/1.1 206 Partial Content\r\nDate: d\r\nETag: \"1\"\r\n\
        content-type:text/plain\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\
        Set-Cookie: a\r\nSET-COOKIE: b\r\nX-Obs: \u{e4}\r\n\r\n";

    fn asked_by(head: &str, asked: Asked) -> Result<Response<'_>, &'static str> {
        match parse_response(head.as_bytes(), asked) {
            ParsedResponse::Complete {
                response,
                head_len_bytes,
            } if head_len_bytes == head.len() => Ok(response),
            ParsedResponse::Bad(why) => Err(why),
            other => panic!("{head:?}: {other:?}"),
        }
    }

    fn got(head: &str) -> Result<Response<'_>, &'static str> {
        asked_by(head, Asked::Get)
    }

    fn framing(line: &str, asked: Asked) -> Result<(Framing, bool), &'static str> {
        let head = format!("{line}\r\n");
        asked_by(&head, asked).map(|response| (response.framing, response.keep_alive))
    }

    #[test]
    fn an_ordinary_response_is_read_field_by_field() {
        let response = got(ORDINARY).expect("a response");
        assert_eq!((response.status, response.keep_alive), (206, true));
        assert_eq!(response.framing, Framing::Length(5));
        assert_eq!(response.len_bytes, Some(5));
        let fields = response.fields();
        assert_eq!(fields.single(Field::ETag), Some(&b"\"1\""[..]));
        assert_eq!(fields.single(Field::ContentType), Some(&b"text/plain"[..]));
        let cookies: Vec<_> = fields.values(Field::SetCookie).collect();
        assert_eq!(cookies, [b"a", b"b"]);
        assert_eq!(fields.iter().count(), 8);
    }

    #[test]
    fn every_prefix_is_incomplete_and_what_follows_changes_nothing() {
        for end in 0..ORDINARY.len() {
            let parsed = parse_response(&ORDINARY.as_bytes()[..end], Asked::Get);
            assert!(matches!(parsed, ParsedResponse::Incomplete), "{end}");
        }
        let followed = [ORDINARY, "\0\r\n"].concat();
        match parse_response(followed.as_bytes(), Asked::Get) {
            ParsedResponse::Complete { head_len_bytes, .. } => {
                assert_eq!(head_len_bytes, ORDINARY.len());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_body_ends_as_rfc_9112_section_6_3_says() {
        use Framing::{Chunked, Length, None, UntilClose};
        for (lines, get, head) in [
            ("200 OK\r\nContent-Length: 7\r\n", (Length(7), true), true),
            ("200 OK\r\nContent-Length: 0\r\n", (Length(0), true), true),
            (
                "200 OK\r\nContent-Length: 7\r\ncontent-length: 07\r\n",
                (Length(7), true),
                true,
            ),
            (
                "200 OK\r\nTransfer-Encoding: Chunked\r\n",
                (Chunked, true),
                true,
            ),
            ("200 OK\r\n", (UntilClose, false), true),
            ("204 No\r\n", (None, true), true),
            ("304 No\r\nContent-Length: 7\r\n", (None, true), true),
            (
                "304 No\r\nContent-Length: 7\r\nConnection: x, Close\r\n",
                (None, false),
                false,
            ),
        ] {
            let line = format!("HTTP/1.1 {lines}");
            assert_eq!(framing(&line, Asked::Get), Ok(get), "{lines}");
            assert_eq!(framing(&line, Asked::Head), Ok((None, head)), "{lines}");
        }
        let old = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n";
        assert_eq!(framing(old, Asked::Get), Ok((Length(1), false)));
        let kept = format!("{old}Connection: keep-alive\r\n");
        assert_eq!(framing(&kept, Asked::Get), Ok((Length(1), true)));
    }

    #[test]
    fn a_length_that_could_be_read_two_ways_is_refused_even_without_a_body() {
        for lines in [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 9223372036854775808\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding:\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            for status in ["200", "204", "304"] {
                let line = format!("HTTP/1.1 {status} x\r\n{lines}");
                assert!(framing(&line, Asked::Get).is_err(), "{line}");
                assert!(framing(&line, Asked::Head).is_err(), "{line}");
            }
        }
        let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n";
        assert!(framing(old, Asked::Get).is_err());
    }

    #[test]
    fn a_reason_may_be_empty_or_missing() {
        for line in [
            "HTTP/1.1 200",
            "HTTP/1.1 200 ",
            "HTTP/1.0 404 N\u{f6}\t!",
            "HTTP/1.1 599  ",
        ] {
            let head = format!("{line}\r\n\r\n");
            assert!(got(&head).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for head in [
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            " HTTP/1.1 200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.2 200 OK\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/1.1\t200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 600 OK\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 O\0K\r\n\r\n",
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\rA: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: \x7f\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\rA: b\r\n\r\n",
        ] {
            let parsed = parse_response(head.as_bytes(), Asked::Get);
            assert!(matches!(parsed, ParsedResponse::Bad(_)), "{head:?}");
        }
    }

    #[test]
    fn an_interim_response_is_passed_over() {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let both = [hints, ORDINARY].concat();
        match parse_response(both.as_bytes(), Asked::Get) {
            ParsedResponse::Interim { head_len_bytes } => assert_eq!(head_len_bytes, hints.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_bounds_hold_at_and_above() {
        let lines = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert!(got(&lines(RESPONSE_FIELDS_MAX)).is_ok());
        assert!(got(&lines(RESPONSE_FIELDS_MAX + 1)).is_err());
        let around = "HTTP/1.1 200 OK\r\nA: \r\n\r\n".len();
        let long = |len: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(len));
        assert!(got(&long(RESPONSE_HEAD_BYTES_MAX - around)).is_ok());
        assert!(got(&long(RESPONSE_HEAD_BYTES_MAX - around + 1)).is_err());
    }
}
