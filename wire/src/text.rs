//! Escapes untrusted bytes for HTML, JSON and URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// All but the unreserved characters of RFC 3986 2.3. Stricter than a path needs: no remaining character can
/// end a segment or an attribute, or be taken for a scheme (`a:b`), a host (`//x`), a query or a space (`+`).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Appends `segment` (one path segment, raw) percent-encoded for a URL.
pub(crate) fn push_percent_encoded(segment: &[u8], out: &mut Vec<u8>) {
    for piece in percent_encode(segment, SEGMENT) {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// Whether neither HTML nor JSON escapes any of it. Most names are such, and are copied at once.
fn is_plain(text: &[u8]) -> bool {
    let plain = |byte: &u8| {
        matches!(byte, b' '..=b'~') && !matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'' | b'\\')
    };
    text.iter().all(plain)
}

/// Appends `text` for an HTML element's content or a quoted attribute. U+FFFD replaces bytes that are not
/// UTF-8, control characters (which HTML forbids, and which could drive the terminal of a text browser), and
/// bidirectional marks (which can show an `.exe` as `exe.pdf`).
pub(crate) fn push_html(text: &[u8], out: &mut Vec<u8>) {
    push_html_with(text, |_| false, out);
}

/// As [`push_html`], for text of several lines: line feeds and tabs stay, CR LF becomes LF.
pub(crate) fn push_html_lines(text: &[u8], out: &mut Vec<u8>) {
    push_html_with(text, |control| matches!(control, '\n' | '\t'), out);
}

fn push_html_with(text: &[u8], keeps: impl Fn(char) -> bool, out: &mut Vec<u8>) {
    if is_plain(text) {
        return out.extend_from_slice(text);
    }
    for chunk in text.utf8_chunks() {
        let mut chars = chunk.valid().chars().peekable();
        while let Some(char) = chars.next() {
            match char {
                '&' => out.extend_from_slice(b"&amp;"),
                '<' => out.extend_from_slice(b"&lt;"),
                '>' => out.extend_from_slice(b"&gt;"),
                '"' => out.extend_from_slice(b"&quot;"),
                '\'' => out.extend_from_slice(b"&#39;"),
                '\r' if keeps('\n') && chars.peek() == Some(&'\n') => {}
                char if keeps(char) => push_char(char, out),
                char if char.is_control() || turns_a_line(char) => {
                    out.extend_from_slice(REPLACEMENT);
                }
                char => push_char(char, out),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(REPLACEMENT);
        }
    }
}

fn push_char(char: char, out: &mut Vec<u8>) {
    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Bidirectional marks.
fn turns_a_line(char: char) -> bool {
    matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends `text` as a JSON string with its quotes (RFC 8259 7). Bytes that are not UTF-8 become U+FFFD. Escaped are also
/// control characters, bidirectional marks and separators of lines, which act in a terminal or an editor.
pub(crate) fn push_json_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    push_json_text(text, out);
    out.push(b'"');
}

fn push_json_text(text: &[u8], out: &mut Vec<u8>) {
    if is_plain(text) {
        return out.extend_from_slice(text);
    }
    for chunk in text.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                // RFC 8259 does not require escapes from 0x7F on, but terminals do.
                char if char.is_control()
                    || turns_a_line(char)
                    || matches!(char, '\u{2028}' | '\u{2029}') =>
                {
                    out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
                }
                char => push_char(char, out),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(REPLACEMENT);
        }
    }
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
        for (text, html) in [
            ("<a href=\"x\">&'", "&lt;a href=&quot;x&quot;&gt;&amp;&#39;"),
            ("a\x1B[31m\nb\x7F", "a\u{FFFD}[31m\u{FFFD}b\u{FFFD}"),
            ("größe € 日本 \u{200F}ملف", "größe € 日本 \u{200F}ملف"),
            (
                "a\u{85}\u{202E}b\u{2066}\u{2069}",
                "a\u{FFFD}\u{FFFD}b\u{FFFD}\u{FFFD}",
            ),
        ] {
            assert_eq!(with(push_html, text.as_bytes()), html);
        }
        assert_eq!(with(push_html, b"\xFFb"), "\u{FFFD}b");
        let lines = with(push_html_lines, b"a\r\n\tb\r\x00");
        assert_eq!(lines, "a\n\tb\u{FFFD}\u{FFFD}");
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
        fn text_of_any_ascii_is_escaped_as_its_characters_are(text in "[ -~]{0,20}") {
            for push in [push_html, push_json_text] {
                let each: String = text.chars().map(|char| with(push, char.to_string().as_bytes())).collect();
                prop_assert_eq!(with(push, text.as_bytes()), each);
            }
        }

        #[test]
        fn any_json_string_is_read_back_as_the_lossy_text(text: Vec<u8>) {
            let json = with(push_json_string, &text);
            let read: String = serde_json::from_str(&json).expect("valid JSON");
            prop_assert_eq!(read, String::from_utf8_lossy(&text));
        }

        #[test]
        fn no_json_string_holds_a_control_character(text: String) {
            prop_assert!(!with(push_json_string, text.as_bytes()).contains(char::is_control));
            prop_assert_eq!(with(push_json_string, "\u{9b}é\u{7f}".as_bytes()), r#""\u009bé\u007f""#);
            let marks = "\u{2027}\u{2028}\u{202e}\u{202f}\u{2065}\u{2066}\u{2069}\u{206a}";
            let expected = "\"\u{2027}\\u2028\\u202e\u{202f}\u{2065}\\u2066\\u2069\u{206a}\"";
            prop_assert_eq!(with(push_json_string, marks.as_bytes()), expected);
        }

        #[test]
        fn html_differs_from_the_lossy_text_in_what_is_escaped_or_replaced_only(text: String) {
            let html = with(push_html, text.as_bytes());
            let read = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
            let marks = ['\u{202A}'..='\u{202E}', '\u{2066}'..='\u{2069}'];
            let bad = |char: char| char.is_control() || marks.iter().any(|range| range.contains(&char));
            prop_assert_eq!(read.replace("&amp;", "&"), text.replace(bad, "\u{FFFD}"));
        }

        #[test]
        fn any_segment_is_read_back_exactly(segment: Vec<u8>) {
            let encoded = with(push_percent_encoded, &segment);
            prop_assert!(!encoded.contains(['/', ':', '?', '#', '&', '"', '\'', '<', ' ', '+']));
            prop_assert_eq!(percent_encoding::percent_decode_str(&encoded).collect::<Vec<u8>>(), segment);
        }
    }
}
