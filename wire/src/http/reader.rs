//! Parses one request head: bytes in, a [`Request`] that borrows from them out (RFC 9112 sections 2 to 5).
//!
//! This parser is stricter than the usual libraries, to rule out request smuggling: no bare CR or LF anywhere,
//! no folded lines, and one meaning for the length of the body. It reads each byte once, allocates nothing, and
//! can reject a head before it is complete. The fuzz target `request_head` compares it with `httparse`, which
//! must accept every head that this parser accepts.

use super::cursor::{Cursor, Stop};
use super::fields::is_token_byte;
use super::request::{self, Method, Request};
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
    let mut cursor = Cursor::new(bytes, HEAD_BYTES_MAX);
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
    const WHY: &str = "The request line does not end in a space and HTTP/1.1.";
    let version = cursor.version(WHY)?;
    cursor.line_end(WHY)?;
    let fields = cursor.fields(
        FIELDS_MAX,
        Reject {
            status: Status::HeaderFieldsTooLarge,
            why: "The head of the request has more than 100 fields.",
        },
    )?;
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

#[cfg(test)]
mod tests;
