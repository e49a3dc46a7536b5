//! Parses one request head: bytes in, a [`Request`] that borrows from them out (RFC 9112 sections 2 to 5).
//!
//! This parser is stricter than the usual libraries, to rule out request smuggling: no bare CR or LF anywhere,
//! no folded lines, and one meaning for the length of the body. It reads each byte once, allocates nothing, and
//! can reject a head before it is complete. The fuzz target `request_head` compares it with `httparse`, which
//! must accept every head that this parser accepts.

use super::fields::{Fields, is_token_byte, trim};
use super::request::{self, Method, Request, Version};
use super::status::{Reject, Status};
use crate::limits::{
    FIELDS_MAX, HEAD_BYTES_MAX, LEADING_EMPTY_LINES_MAX, METHOD_BYTES_MAX, TARGET_BYTES_MAX,
};

/// The result of [`parse`] for the bytes received so far.
#[derive(Clone, Debug)]
pub enum Parsed<'a> {
    /// A valid beginning: read more. Never returned for [`HEAD_BYTES_MAX`] bytes or more.
    Incomplete,
    /// One head. Its body or the next request follows it.
    Complete {
        /// The request, borrowed from the parsed bytes.
        request: Request<'a>,
        /// Length of the head, leading empty lines and the closing empty line included.
        head_len_bytes: usize,
    },
    /// No further bytes can make this a request that is served. The connection must close after the answer,
    /// because the start of the next request is unknown.
    Reject(Reject),
}

/// Reads one request head at the start of `bytes`.
///
/// Pure: the same bytes give the same result, and bytes after a head never change it. A caller may keep the
/// bytes and parse them again whenever it needs the borrowed request.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut cursor = Cursor {
        bytes: &bytes[..bytes.len().min(HEAD_BYTES_MAX)],
        at: 0,
    };
    match head(&mut cursor) {
        Ok(request) => Parsed::Complete {
            request,
            head_len_bytes: cursor.at,
        },
        Err(Stop::Reject(reject)) => Parsed::Reject(reject),
        Err(Stop::More) if bytes.len() < HEAD_BYTES_MAX => Parsed::Incomplete,
        Err(Stop::More) => Parsed::Reject(Reject {
            status: Status::HeaderFieldsTooLarge,
            why: "The head of the request is longer than 16 KB.",
        }),
    }
}

/// Why reading stopped before the end of a head.
enum Stop {
    More,
    Reject(Reject),
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Self::Reject(reject)
    }
}

/// A position in the bytes; every step returns `More` at their end.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    /// The run of bytes of this kind from the current position; at least one byte must follow it.
    fn run(&mut self, is_of_kind: impl Fn(u8) -> bool) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let run_len = rest.iter().position(|&byte| !is_of_kind(byte));
        let run = &rest[..run_len.unwrap_or(rest.len())];
        self.at += run.len();
        run_len.map(|_| run).ok_or(Stop::More)
    }

    /// Consumes CR LF, or rejects with `why` if another byte stands here.
    fn line_end(&mut self, why: &'static str) -> Result<(), Stop> {
        match self.peek()? {
            b'\r' => self.at += 1,
            b'\n' => return Err(Reject::bad("A line ends in a bare LF.").into()),
            _ => return Err(Reject::bad(why).into()),
        }
        match self.peek()? {
            b'\n' => self.at += 1,
            _ => return Err(Reject::bad("A CR without its LF is in the head.").into()),
        }
        Ok(())
    }
}

fn head<'a>(cursor: &mut Cursor<'a>) -> Result<Request<'a>, Stop> {
    let mut empty_lines = 0;
    while matches!(cursor.peek()?, b'\r' | b'\n') {
        empty_lines += 1;
        if empty_lines > LEADING_EMPTY_LINES_MAX {
            return Err(Reject::bad("Too many empty lines before the request.").into());
        }
        cursor.line_end("")?;
    }
    let method = method(cursor)?;
    let target = target(cursor)?;
    let version = version(cursor)?;
    let fields = fields(cursor)?;
    Ok(request::weigh(method, target, version, fields)?)
}

fn method<'a>(cursor: &mut Cursor<'a>) -> Result<Method<'a>, Stop> {
    let start = cursor.at;
    let run = cursor.run(is_token_byte);
    if cursor.at - start > METHOD_BYTES_MAX {
        return Err(Stop::Reject(Reject {
            status: Status::NotImplemented,
            why: "The method is longer than any known one.",
        }));
    }
    let token = run?;
    if token.is_empty() || cursor.peek()? != b' ' {
        return Err(Reject::bad("The request does not start with a method and a space.").into());
    }
    cursor.at += 1;
    Ok(Method::of(token))
}

/// Any byte but white space and control bytes: raw UTF-8 is not valid in a URI, but clients send it and it has
/// only one meaning.
fn target<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Stop> {
    let start = cursor.at;
    let run = cursor.run(|byte| byte > b' ' && byte != 0x7f);
    if cursor.at - start > TARGET_BYTES_MAX {
        return Err(Stop::Reject(Reject {
            status: Status::UriTooLong,
            why: "The target of the request is longer than 8 KB.",
        }));
    }
    let target = run?;
    match cursor.peek()? {
        b' ' if target.is_empty() => {
            Err(Reject::bad("More than one space follows the method.").into())
        }
        b' ' => {
            cursor.at += 1;
            Ok(target)
        }
        b'\r' | b'\n' => Err(Reject::bad("The request line has no HTTP version.").into()),
        _ => Err(Reject::bad("A control byte is in the target.").into()),
    }
}

fn version(cursor: &mut Cursor<'_>) -> Result<Version, Stop> {
    const WHY: &str = "The request line does not end in a space and HTTP/1.1.";
    for &expected in b"HTTP/" {
        if cursor.peek()? != expected {
            return Err(Reject::bad(WHY).into());
        }
        cursor.at += 1;
    }
    let mut digits = [0; 2];
    for (nth, digit) in digits.iter_mut().enumerate() {
        if nth == 1 {
            if cursor.peek()? != b'.' {
                return Err(Reject::bad(WHY).into());
            }
            cursor.at += 1;
        }
        *digit = cursor.peek()?;
        if !digit.is_ascii_digit() {
            return Err(Reject::bad(WHY).into());
        }
        cursor.at += 1;
    }
    let version = match &digits {
        b"10" => Version::Http10,
        b"11" => Version::Http11,
        _ => {
            return Err(Stop::Reject(Reject {
                status: Status::VersionNotSupported,
                why: "Only HTTP/1.1 and HTTP/1.0 are spoken here.",
            }));
        }
    };
    cursor.line_end(WHY)?;
    Ok(version)
}

fn fields<'a>(cursor: &mut Cursor<'a>) -> Result<Fields<'a>, Stop> {
    let start = cursor.at;
    let mut fields = Fields::new(&cursor.bytes[start..]);
    let mut count = 0;
    while !matches!(cursor.peek()?, b'\r' | b'\n') {
        count += 1;
        if count > FIELDS_MAX {
            return Err(Stop::Reject(Reject {
                status: Status::HeaderFieldsTooLarge,
                why: "The head of the request has more than 100 fields.",
            }));
        }
        let name = cursor.run(is_token_byte)?;
        match cursor.peek()? {
            b':' if name.is_empty() => {
                return Err(Reject::bad("A field has no name.").into());
            }
            b':' => cursor.at += 1,
            b' ' | b'\t' if name.is_empty() => {
                return Err(Reject::bad("A field is folded over several lines.").into());
            }
            b' ' | b'\t' => {
                return Err(Reject::bad("White space stands before the colon of a field.").into());
            }
            _ => return Err(Reject::bad("The name of a field is not a token.").into()),
        }
        let value_at = cursor.at;
        // field-vchar, SP, HTAB, obs-text (RFC 9110 section 5.5)
        let raw = cursor.run(|byte| byte >= b' ' && byte != 0x7f || byte == b'\t')?;
        cursor.line_end("A control byte is in a field.")?;
        let value = trim(raw);
        let leading = raw.iter().take_while(|&&b| b == b' ' || b == b'\t').count();
        let value_at = value_at - start + if value.is_empty() { 0 } else { leading };
        fields.note(name, value_at, value.len());
    }
    fields.end(cursor.at - start);
    cursor.line_end("")?;
    Ok(fields)
}

#[cfg(test)]
mod tests;
