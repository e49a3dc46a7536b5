//! Base64 (RFC 4648 section 4), in its one right form.

const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of these bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            match at <= three.len() {
                true => text.push(SIGNS[(bits >> (18 - 6 * at) & 63) as usize].into()),
                false => text.push('='),
            }
        }
    }
    text
}

/// The bytes of a text; `None`: it has another form, or stands for more than `bytes_max`.
pub fn decode(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if text.len().div_ceil(4) > bytes_max.div_ceil(3) {
        return None;
    }
    let signs = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for sign in signs.bytes() {
        let value = SIGNS.iter().position(|known| *known == sign)?;
        (bits, count) = (bits << 6 | value as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    (bytes.len() <= bytes_max && encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_one_form() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
        ] {
            assert_eq!(encode(bytes), text); // RFC 4648, section 10
            assert_eq!(decode(text, bytes.len()).as_deref(), Some(bytes));
        }
        for bad in ["Zg", "Zg=", "Zh==", "Z", "Zm9v=", "Zm 9v", "Zm9v\n"] {
            assert_eq!(decode(bad, 8), None, "{bad}");
        }
        assert_eq!(decode("Zm9vYg==", 3), None, "four bytes");
        assert_eq!(decode("Zm8=", 1), None, "two bytes");
    }
}
