//! Any bytes as a request target: [`resolve`](ackpace_wire::http::target::resolve).

use ackpace_wire::http::target::{self, Form};

/// Laws: a path starts at the root, never leaves it and has one spelling; it equals decoding and then walking the
/// segments; encoding it leads back to it.
pub fn target(data: &[u8]) {
    let Ok(target) = target::resolve(data) else {
        return;
    };
    let path = &*target.path;
    assert_eq!(path.first(), Some(&b'/'));
    assert!(!path.contains(&0) && !path.windows(2).any(|pair| pair == b"//"));
    let mut segments = path.split(|&byte| byte == b'/');
    assert!(segments.all(|segment| segment != b"." && segment != b".."));
    let query_is_inside = |query: &[u8]| data.windows(query.len().max(1)).any(|w| w == query);
    assert!(
        target
            .query
            .is_none_or(|query| query.is_empty() || query_is_inside(query))
    );
    if target.form == Form::Origin {
        assert_eq!(
            path,
            walked(data),
            "another reading of {}",
            data.escape_ascii()
        );
    }

    let mut encoded = Vec::new();
    target::encode_path(path, &mut encoded);
    assert!(encoded.iter().all(u8::is_ascii_graphic) && !encoded.contains(&b'?'));
    let again = target::resolve(&encoded).expect("our own encoding");
    assert_eq!((&*again.path, again.query), (path, None));
}

/// The same by other means: a library decodes, and a stack of segments resolves the path.
fn walked(raw: &[u8]) -> Vec<u8> {
    let end = raw.iter().position(|byte| b"?#".contains(byte));
    let raw_path = &raw[..end.unwrap_or(raw.len())];
    let decoded: Vec<u8> = percent_encoding::percent_decode(raw_path).collect();
    let mut stack: Vec<&[u8]> = Vec::new();
    let mut last: &[u8] = b"";
    for segment in decoded.split(|&byte| byte == b'/') {
        last = segment;
        match segment {
            b"" | b"." => {}
            b".." => drop(
                stack
                    .pop()
                    .expect("resolve refuses to climb above the root"),
            ),
            _ => stack.push(segment),
        }
    }
    let mut path: Vec<u8> = stack.iter().flat_map(|s| [b"/", *s].concat()).collect();
    if matches!(last, b"" | b"." | b"..") {
        path.push(b'/');
    }
    path
}
