//! The request target: from what a client typed to a path that cannot leave the root.

use std::borrow::Cow;

use super::status::Reject;

/// The form in which a target was sent (RFC 9112 section 3.2). Authority-form is CONNECT's alone
/// and never gets this far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `*`: the server as a whole, for OPTIONS
    Asterisk,
}

/// A resolved target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The form it came in.
    pub form: Form,
    /// The decoded path: begins with `/`, has no empty segment and none that is `.` or `..`, and
    /// no NUL. It ends with `/` if and only if a directory was asked for. Any other byte may occur.
    /// Borrowed when decoding changed nothing.
    pub path: Cow<'a, [u8]>,
    /// What follows the first `?`, as it was sent.
    pub query: Option<&'a [u8]>,
}

/// Resolves a target that [`super::parse`] let through.
///
/// Percent-encoding is undone *before* the path is cut at slashes, so `%2e%2e` is `..` and `%2f` is
/// a slash, as in nginx: whoever asks, one spelling reaches the file system. A fragment, which has no
/// business here, is cut off as nginx does.
///
/// # Errors
/// 400 for a bad escape, an encoded NUL, a path that climbs above the root, a scheme other than
/// http(s), and anything that is no target of GET, HEAD or OPTIONS.
pub fn resolve(raw: &[u8]) -> Result<Target<'_>, Reject> {
    let (form, rest) = if raw == b"*" {
        (Form::Asterisk, &b"/"[..])
    } else if raw.first() == Some(&b'/') {
        (Form::Origin, raw)
    } else if let Some(rest) = after_scheme(raw) {
        (Form::Absolute, &rest[authority_len(rest)..])
    } else {
        return Err(Reject::bad(
            "The target is neither a path nor an http address.",
        ));
    };
    let rest = before(rest, b'#');
    let path = before(rest, b'?');
    let query = rest.get(path.len() + 1..);
    // `http://host` and `http://host?query` mean the root (RFC 9112 section 3.2.1)
    let path = if path.is_empty() { b"/" } else { path };
    Ok(Target {
        form,
        path: normal_path(path)?,
        query,
    })
}

/// The authority of an absolute target, unchecked.
pub(super) fn authority(raw: &[u8]) -> Option<&[u8]> {
    let rest = after_scheme(raw)?;
    Some(&rest[..authority_len(rest)])
}

/// Appends `path` so that it stands for exactly these bytes in a URI: everything but unreserved
/// bytes (RFC 3986 section 2.3), `/` and a few sub-delimiters that no client misreads is escaped.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    push_escaped(path, PATH_ESCAPES, out);
}

/// Appends a query as it was sent, with everything escaped that a field value or a URI cannot hold.
pub fn encode_query(query: &[u8], out: &mut Vec<u8>) {
    push_escaped(query, QUERY_ESCAPES, out);
}

/// What `encode_path` escapes. `:` and `@` stay, as `//` cannot occur in a normal path and the
/// path is always written with its leading slash.
const PATH_ESCAPES: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

const QUERY_ESCAPES: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

fn push_escaped(bytes: &[u8], set: &'static percent_encoding::AsciiSet, out: &mut Vec<u8>) {
    for piece in percent_encoding::percent_encode(bytes, set) {
        out.extend_from_slice(piece.as_bytes());
    }
}

fn after_scheme(raw: &[u8]) -> Option<&[u8]> {
    let colon = raw.iter().take(6).position(|&byte| byte == b':')?;
    let scheme = &raw[..colon];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    raw[colon + 1..].strip_prefix(b"//")
}

fn authority_len(rest: &[u8]) -> usize {
    rest.iter()
        .position(|byte| b"/?#".contains(byte))
        .unwrap_or(rest.len())
}

fn before(text: &[u8], end: u8) -> &[u8] {
    let end = text.iter().position(|&byte| byte == end);
    &text[..end.unwrap_or(text.len())]
}

/// Most paths are normal as they come; then nothing is copied.
fn normal_path(path: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let path = decode(path)?;
    if is_normal_decoded(&path) {
        return Ok(Cow::Owned(path));
    }
    resolve_segments(&path).map(Cow::Owned)
}

fn is_normal(path: &[u8]) -> bool {
    !path.contains(&b'%') && is_normal_decoded(path)
}

/// No empty, `.` or `..` segment between the leading and the last slash, and not after it either.
fn is_normal_decoded(path: &[u8]) -> bool {
    let Some(inner) = path.strip_prefix(b"/") else {
        return false;
    };
    let inner = inner.strip_suffix(b"/").unwrap_or(inner);
    path == b"/"
        || inner
            .split(|&byte| byte == b'/')
            .all(|segment| !matches!(segment, b"" | b"." | b".."))
}

fn decode(path: &[u8]) -> Result<Vec<u8>, Reject> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let [high, low, after @ ..] = tail else {
            return Err(BAD_ESCAPE);
        };
        let byte = hex(*high)? << 4 | hex(*low)?;
        if byte == 0 {
            return Err(Reject::bad("The path contains a NUL."));
        }
        decoded.push(byte);
        rest = after;
    }
    Ok(decoded)
}

const BAD_ESCAPE: Reject =
    Reject::bad("A percent sign in the path is not followed by two hex digits.");

fn hex(digit: u8) -> Result<u8, Reject> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(BAD_ESCAPE),
    }
}

/// RFC 3986 section 5.2.4, but `//` counts as one slash and climbing above the root is refused.
fn resolve_segments(path: &[u8]) -> Result<Vec<u8>, Reject> {
    let mut out = Vec::with_capacity(path.len() + 1);
    let mut directory = true;
    for segment in path.split(|&byte| byte == b'/') {
        directory = true;
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = out.iter().rposition(|&byte| byte == b'/');
                let Some(parent) = parent else {
                    return Err(Reject::bad("The path climbs above the root."));
                };
                out.truncate(parent);
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
                directory = false;
            }
        }
    }
    if directory {
        out.push(b'/');
    }
    Ok(out)
}
