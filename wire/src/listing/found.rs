//! Reads the listings of other servers, as they arrive: nginx, Apache, lighttpd, Caddy, Python's http.server, ackpace.
//!
//! Of HTML, the links count that lead to direct children of the folder; sort links and those to elsewhere are left out. A link that
//! ends with a slash is a folder's. Of JSON, an array of objects is understood that have the keys of nginx's `autoindex_format json`, or
//! Caddy's.

use percent_encoding::percent_decode;
use serde_json::Value;

use super::Format;
use crate::limits::{LISTING_PIECE_BYTES_MAX, NFS_NAME_BYTES_MAX};

/// A name in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// Without a slash, and none of `.` and `..`; at most 255 bytes.
    pub name: &'a [u8],
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// The format of a response, by its Content-Type; `None`: it is no listing.
pub fn format_of(content_type: &[u8]) -> Option<Format> {
    let end = content_type.iter().position(|byte| *byte == b';');
    let media = content_type[..end.unwrap_or(content_type.len())].trim_ascii();
    let is = |known: &[u8]| media.eq_ignore_ascii_case(known);
    if is(b"application/json") {
        Some(Format::Json)
    } else if is(b"text/html") || is(b"application/xhtml+xml") {
        Some(Format::Html)
    } else {
        None
    }
}

/// A listing that arrives.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    /// The path of the folder at its server, decoded: it begins and ends with a slash.
    base: Vec<u8>,
    /// The beginning of a tag or an object that is not whole.
    rest: Vec<u8>,
    state: State,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In text, or between objects.
    Between,
    /// In what ends with this: a comment, a script.
    Until(&'static [u8]),
    /// Nothing has come yet.
    Begins,
    /// The array is over.
    Ended,
    /// It is no listing.
    Broken,
}

/// What was found at the start of some bytes.
enum Step {
    /// So many bytes are done with.
    Used(usize),
    /// What begins there is not whole.
    More,
}

impl Reader {
    /// A listing of the folder with this path at its server, percent-encoded or not.
    pub fn new(format: Format, path: &[u8]) -> Reader {
        let mut base: Vec<u8> = percent_decode(path).collect();
        if base.last() != Some(&b'/') {
            base.push(b'/');
        }
        Reader {
            format,
            base,
            rest: Vec::new(),
            state: match format {
                Format::Json => State::Begins,
                Format::Html => State::Between,
            },
        }
    }

    /// Takes the next bytes, and calls `found` with each name in them. A name may come twice.
    pub fn take(&mut self, bytes: &[u8], mut found: impl FnMut(Named<'_>)) {
        let mut held = std::mem::take(&mut self.rest);
        held.extend_from_slice(bytes);
        let mut at = 0;
        while at < held.len() {
            let step = match self.format {
                Format::Html => self.html(&held[at..], &mut found),
                Format::Json => self.json(&held[at..], &mut found),
            };
            match step {
                Step::Used(used) => at += used.max(1),
                Step::More if held.len() - at <= LISTING_PIECE_BYTES_MAX => break,
                // A tag without end is text; an object without end ends the listing.
                Step::More => match self.format {
                    Format::Html => at += 1,
                    Format::Json => (self.state, at) = (State::Broken, held.len()),
                },
            }
        }
        held.drain(..at);
        self.rest = held;
    }

    /// Whether all that came was a listing, and a whole one as far as its format tells.
    pub fn is_whole(&self) -> bool {
        match self.format {
            Format::Html => true,
            Format::Json => self.state == State::Ended,
        }
    }

    fn html(&mut self, bytes: &[u8], found: &mut impl FnMut(Named<'_>)) -> Step {
        if let State::Until(end) = self.state {
            let Some(at) = position(bytes, end) else {
                // The end may have begun.
                let keep = bytes.len().min(end.len() - 1);
                return match bytes.len() - keep {
                    0 => Step::More,
                    used => Step::Used(used),
                };
            };
            self.state = State::Between;
            return Step::Used(at + end.len());
        }
        let Some(start) = bytes.iter().position(|byte| *byte == b'<') else {
            return Step::Used(bytes.len());
        };
        if start > 0 {
            return Step::Used(start);
        }
        if bytes.starts_with(b"<!--") {
            self.state = State::Until(b"-->");
            return Step::Used(4);
        }
        if bytes.len() < 4 && b"<!--".starts_with(bytes) {
            return Step::More;
        }
        let len = match tag(bytes) {
            Tag::Whole(len) => len,
            Tag::Text(len) => return Step::Used(len),
            Tag::More => return Step::More,
        };
        let tag = &bytes[1..len - 1];
        let end = tag.iter().position(|byte| !byte.is_ascii_alphanumeric());
        let (name, attributes) = tag.split_at(end.unwrap_or(tag.len()));
        if name.eq_ignore_ascii_case(b"script") {
            self.state = State::Until(b"</script");
        } else if name.eq_ignore_ascii_case(b"style") {
            self.state = State::Until(b"</style");
        } else if name.eq_ignore_ascii_case(b"a") {
            if let Some(href) = attribute(attributes, b"href") {
                self.link(&unescaped(href), found);
            }
        }
        Step::Used(len)
    }

    /// A link, whose entities are resolved.
    fn link(&self, href: &[u8], found: &mut impl FnMut(Named<'_>)) {
        let href = href.trim_ascii();
        let first = href.split(|byte| *byte == b'/').next().unwrap_or(href);
        let is_elsewhere = href.iter().any(|byte| b"?#\\".contains(byte))
            || href.starts_with(b"//")
            || first.contains(&b':');
        if is_elsewhere {
            return;
        }
        let path: Vec<u8> = percent_decode(href).collect();
        // A slash that was encoded belongs to a name, which can't be told.
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
        if count(&path) != count(href) {
            return;
        }
        let relative = match path.first() {
            Some(b'/') => path.strip_prefix(&self.base[..]),
            _ => Some(path.strip_prefix(b"./").unwrap_or(&path)),
        };
        if let Some(relative) = relative {
            name(relative, false, found);
        }
    }

    fn json(&mut self, bytes: &[u8], found: &mut impl FnMut(Named<'_>)) -> Step {
        let (first, state) = (bytes[0], self.state);
        match (state, first) {
            (State::Broken, _) => return Step::Used(bytes.len()),
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (State::Begins, b'[') => self.state = State::Between,
            (State::Between, b',') => {}
            (State::Between, b']') => self.state = State::Ended,
            (State::Between, b'{') => {
                let Some(len) = object_len(bytes) else {
                    return Step::More;
                };
                match serde_json::from_slice(&bytes[..len]) {
                    Ok(Value::Object(object)) => object_name(&object, found),
                    _ => self.state = State::Broken,
                }
                return Step::Used(len);
            }
            _ => self.state = State::Broken,
        }
        Step::Used(1)
    }
}

/// Tells of a name, which may have a slash at its end. Others, which no child of a folder can have, are left out.
fn name(text: &[u8], is_folder: bool, found: &mut impl FnMut(Named<'_>)) {
    let (name, has_slash) = match text.strip_suffix(b"/") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let is_name = (1..=NFS_NAME_BYTES_MAX).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|byte| matches!(byte, b'/' | 0));
    if is_name {
        found(Named {
            name,
            is_folder: is_folder || has_slash,
        });
    }
}

/// Of an entry of a listing in JSON. What is neither a file nor a folder can't be fetched.
fn object_name(object: &serde_json::Map<String, Value>, found: &mut impl FnMut(Named<'_>)) {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let is_folder = match text("type") {
        Some("directory") => true,
        Some("file") => false,
        Some(_) => return,
        None => object.get("is_dir").and_then(Value::as_bool) == Some(true),
    };
    // The exact name, where JSON can't express it.
    match (text("href"), text("name")) {
        (Some(href), _) => {
            let exact: Vec<u8> = percent_decode(href.as_bytes()).collect();
            name(&exact, is_folder, found);
        }
        (None, Some(plain)) => name(plain.as_bytes(), is_folder, found),
        (None, None) => {}
    }
}

/// What a bracket begins.
enum Tag {
    /// A tag of so many bytes, brackets included.
    Whole(usize),
    /// So many bytes of text.
    Text(usize),
    /// It is not whole.
    More,
}

/// The tag that begins here. In quotes, a bracket is text; elsewhere it begins another tag, so that each byte is looked at about once.
fn tag(bytes: &[u8]) -> Tag {
    let (mut quote, mut before) = (None, 0);
    for (at, &byte) in bytes.iter().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return Tag::Whole(at + 1),
            (None, b'<') => return Tag::Text(at),
            (None, b'"' | b'\'') if before == b'=' => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    Tag::More
}

/// The value of an attribute of a tag.
fn attribute<'a>(mut rest: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    loop {
        let start = rest
            .iter()
            .position(|byte| !byte.is_ascii_whitespace() && *byte != b'/')?;
        rest = &rest[start..];
        let end = rest
            .iter()
            .position(|byte| byte.is_ascii_whitespace() || *byte == b'=')
            .unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let behind = behind.trim_ascii_start();
        let Some(value) = behind.strip_prefix(b"=") else {
            rest = match end {
                0 => behind.get(1..)?,
                _ => behind,
            };
            continue;
        };
        let value = value.trim_ascii_start();
        let (value, behind) = match value.split_first() {
            Some((quote @ (b'"' | b'\''), value)) => {
                let end = value.iter().position(|byte| byte == quote)?;
                (&value[..end], &value[end + 1..])
            }
            _ => {
                let end = value.iter().position(u8::is_ascii_whitespace);
                value.split_at(end.unwrap_or(value.len()))
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

/// The text of an attribute: with the character references that servers write (HTML, section 13.5, has 2,231).
fn unescaped(text: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 10;
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let end = behind.iter().take(LONGEST).position(|byte| *byte == b';');
        let reference = end.filter(|_| byte == b'&').map(|end| &behind[..end]);
        let Some((reference, char)) = reference.and_then(|it| Some((it, referred(it)?))) else {
            out.push(byte);
            continue;
        };
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &behind[reference.len() + 1..];
    }
    out
}

fn referred(reference: &[u8]) -> Option<char> {
    let number = |digits: &[u8], radix| {
        let digits = std::str::from_utf8(digits).ok()?;
        char::from_u32(u32::from_str_radix(digits, radix).ok()?)
    };
    Some(match reference {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        b"nbsp" => '\u{a0}',
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
        [b'#', digits @ ..] => number(digits, 10)?,
        _ => return None,
    })
}

/// Bytes of the object that begins here; `None`: it is not whole.
fn object_len(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0usize, false, false);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' if !is_text => depth += 1,
            b'}' if !is_text => {
                depth -= 1; // it begins with one
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
#[path = "found_tests.rs"]
mod tests;
