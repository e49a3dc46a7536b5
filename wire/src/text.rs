//! Bytes from outside made safe to stand in HTML, JSON and URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// All but the unreserved characters of RFC 3986 2.3. Stricter than a path needs: nothing that is left can end a
/// segment or an attribute or be taken for a scheme (`a:b`), a host (`//x`), a query or a space (`+`).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Appends `segment` (one path segment, raw) as part of a URL.
pub(crate) fn push_percent_encoded(segment: &[u8], out: &mut Vec<u8>) {
    for piece in percent_encode(segment, SEGMENT) {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// Appends `text` for an HTML element's content or a quoted attribute. Bytes that are not UTF-8 and control characters
/// (which HTML forbids, and which could drive the terminal of a text browser) become U+FFFD.
pub(crate) fn push_html(text: &[u8], out: &mut Vec<u8>) {
    push_html_with(text, |_| false, out);
}

/// As [`push_html`], for text of several lines: line feeds and tabs stay, CR LF becomes LF.
pub(crate) fn push_html_lines(text: &[u8], out: &mut Vec<u8>) {
    push_html_with(text, |control| matches!(control, b'\n' | b'\t'), out);
}

fn push_html_with(text: &[u8], keeps: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();
    for chunk in text.utf8_chunks() {
        let valid = chunk.valid().as_bytes();
        for (at, &byte) in valid.iter().enumerate() {
            match byte {
                b'&' => out.extend_from_slice(b"&amp;"),
                b'<' => out.extend_from_slice(b"&lt;"),
                b'>' => out.extend_from_slice(b"&gt;"),
                b'"' => out.extend_from_slice(b"&quot;"),
                b'\'' => out.extend_from_slice(b"&#39;"),
                b'\r' if keeps(b'\n') && valid.get(at + 1) == Some(&b'\n') => {}
                0..=0x1F | 0x7F if !keeps(byte) => out.extend_from_slice(REPLACEMENT),
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(REPLACEMENT);
        }
    }
}

/// Appends `text` as a JSON string with its quotes (RFC 8259 7). Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn push_json_string(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                // RFC 8259 does not ask for 0x7F, but a terminal does.
                0..=0x1F | 0x7F => {
                    let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&digits);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn with(push: fn(&[u8], &mut Vec<u8>), text: &[u8]) -> String {
        let mut out = Vec::new();
        push(text, &mut out);
        String::from_utf8(out).expect("UTF-8 for any input")
    }

    #[test]
    fn html_is_escaped_and_control_characters_are_replaced() {
        assert_eq!(
            with(push_html, b"<a href=\"x\">&'"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;"
        );
        assert_eq!(
            with(push_html, b"a\x1B[31m\n\xFFb\x7F"),
            "a\u{FFFD}[31m\u{FFFD}\u{FFFD}b\u{FFFD}"
        );
        assert_eq!(
            with(push_html_lines, b"a\r\n\tb\r\x00"),
            "a\n\tb\u{FFFD}\u{FFFD}"
        );
        assert_eq!(with(push_html, "größe €".as_bytes()), "größe €");
    }

    #[test]
    fn a_segment_keeps_only_unreserved_characters() {
        assert_eq!(
            with(push_percent_encoded, b"a:b?c#d%e/f g+h"),
            "a%3Ab%3Fc%23d%25e%2Ff%20g%2Bh"
        );
        assert_eq!(with(push_percent_encoded, b"A-Z_0.9~"), "A-Z_0.9~");
        assert_eq!(with(push_percent_encoded, b"\xFF\xC3\xA9"), "%FF%C3%A9");
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn any_json_string_is_read_back_as_the_lossy_text(text: Vec<u8>) {
            let json = with(push_json_string, &text);
            let read: String = serde_json::from_str(&json).expect("valid JSON");
            prop_assert_eq!(read, String::from_utf8_lossy(&text));
        }

        #[test]
        fn any_segment_is_read_back_exactly(segment: Vec<u8>) {
            let encoded = with(push_percent_encoded, &segment);
            prop_assert!(!encoded.contains(['/', ':', '?', '#', '&', '"', '\'', '<', ' ', '+']));
            prop_assert_eq!(percent_encoding::percent_decode_str(&encoded).collect::<Vec<u8>>(), segment);
        }
    }
}
