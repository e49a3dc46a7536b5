//! Keys and values of a login: `key=value` and a zero byte (RFC 7143 section 6.1).

use crate::limits::ISCSI_KEYS_MAX;

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadText {
    /// A piece has no `=`, or no zero byte behind it, or is not UTF-8.
    Form,
    /// More keys than are heard.
    TooMany,
    /// A key stands there twice.
    Twice,
}

/// Appends a key with its value.
pub(super) fn put(to: &mut Vec<u8>, key: &str, value: &str) {
    to.extend_from_slice(key.as_bytes());
    to.push(b'=');
    to.extend_from_slice(value.as_bytes());
    to.push(0);
}

/// All keys with their values.
pub(super) fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, BadText> {
    let Some(text) = text.strip_suffix(&[0]) else {
        return match text.is_empty() {
            true => Ok(Vec::new()),
            false => Err(BadText::Form),
        };
    };
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    // Some targets pad their text with zero bytes that they count.
    for piece in text
        .split(|&byte| byte == 0)
        .filter(|piece| !piece.is_empty())
    {
        if pairs.len() == ISCSI_KEYS_MAX {
            return Err(BadText::TooMany);
        }
        let piece = std::str::from_utf8(piece).map_err(|_| BadText::Form)?;
        let (key, value) = piece.split_once('=').ok_or(BadText::Form)?;
        if pairs.iter().any(|(other, _)| *other == key) {
            return Err(BadText::Twice);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// The value of a key.
pub(super) fn find<'a>(pairs: &[(&'a str, &'a str)], key: &str) -> Option<&'a str> {
    let pair = pairs.iter().find(|(other, _)| *other == key);
    pair.map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(pairs(b""), Ok(vec![]));
        assert_eq!(pairs(b"A=1\0B=\0\0"), Ok(vec![("A", "1"), ("B", "")]));
        assert_eq!(pairs(b"A=1"), Err(BadText::Form));
        assert_eq!(pairs(b"A\0"), Err(BadText::Form));
        assert_eq!(pairs(b"A=\xff\0"), Err(BadText::Form));
        assert_eq!(pairs(b"A=1\0A=2\0"), Err(BadText::Twice));
        let many: String = (0..=ISCSI_KEYS_MAX).map(|n| format!("{n}=\0")).collect();
        assert_eq!(pairs(many.as_bytes()), Err(BadText::TooMany));
    }

    proptest! {
        #[test]
        fn what_was_put_is_there(values in prop::collection::vec("[ -~]{0,20}", 0..ISCSI_KEYS_MAX)) {
            let mut text = Vec::new();
            for (n, value) in values.iter().enumerate() {
                put(&mut text, &format!("K{n}"), value);
            }
            let read = pairs(&text).expect("a text");
            prop_assert_eq!(read.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), values);
        }
    }
}
