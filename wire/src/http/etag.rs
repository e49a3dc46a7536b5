//! Entity tags (RFC 9110 section 8.8.3): `"<mtime seconds>-<size>[-coding]"` in hex, so that every
//! mirror of a file has the same tag and a download can go on at another one.

use super::negotiation::Coding;

/// A file whose mtime is nearer than this to the time of the answer may change again without a
/// change of mtime in seconds and size: its tag is weak. RFC 9110 section 8.8.2.2 has the same
/// thought for dates.
pub const WEAK_FOR_S: u64 = 2;

/// The tag of one representation. Made without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag {
    bytes: [u8; Self::ROOM],
    len: usize,
    weak: bool,
}

impl ETag {
    /// Two quotes, two numbers of 64 bits, a dash, a coding.
    const ROOM: usize = 2 + 16 + 1 + 16 + "-zst".len();

    /// The tag of a file last modified at `modified_unix_s` (may be negative), of `len_bytes`, sent
    /// in `coding` at the time `now_unix_s`.
    pub fn new(
        modified_unix_s: i64,
        len_bytes: u64,
        coding: Option<Coding>,
        now_unix_s: u64,
    ) -> Self {
        let mut tag = Self {
            bytes: [0; Self::ROOM],
            len: 0,
            weak: is_fresh(modified_unix_s, now_unix_s),
        };
        tag.push(b"\"");
        tag.push_hex(modified_unix_s.cast_unsigned_bits());
        tag.push(b"-");
        tag.push_hex(len_bytes);
        if let Some(coding) = coding {
            tag.push(b"-");
            tag.push(coding.suffix().as_bytes());
        }
        tag.push(b"\"");
        tag
    }

    /// The opaque tag with its quotes, without the `W/` of a weak one.
    pub fn opaque(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// True if two different contents may have this tag.
    pub const fn is_weak(&self) -> bool {
        self.weak
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn push_hex(&mut self, number: u64) {
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for nth in (0..digits).rev() {
            let digit = ((number >> (4 * nth)) & 15) as usize;
            self.push(&b"0123456789abcdef"[digit..=digit]);
        }
    }
}

/// True if the file may still be changing within the second its mtime names. A time further in the
/// future than clocks differ was set on purpose, by a tool: it says nothing about changes now.
pub fn is_fresh(modified_unix_s: i64, now_unix_s: u64) -> bool {
    i64::try_from(now_unix_s).is_ok_and(|now| now.abs_diff(modified_unix_s) < WEAK_FOR_S)
}

/// `i64::cast_unsigned` is younger than our oldest compiler.
trait UnsignedBits {
    fn cast_unsigned_bits(self) -> u64;
}

impl UnsignedBits for i64 {
    fn cast_unsigned_bits(self) -> u64 {
        u64::from_ne_bytes(self.to_ne_bytes())
    }
}

/// One tag in a field of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given<'a> {
    opaque: &'a [u8],
    weak: bool,
}

impl Given<'_> {
    /// Strong comparison (RFC 9110 section 8.8.3.2): the same bytes were meant.
    pub fn is_strongly(&self, tag: &ETag) -> bool {
        !self.weak && !tag.weak && self.opaque == tag.opaque()
    }

    /// Weak comparison: the same meaning is enough.
    pub fn is_weakly(&self, tag: &ETag) -> bool {
        self.opaque == tag.opaque()
    }
}

/// The tags of one field line. A member that is no entity tag is passed over: it can match nothing,
/// but its neighbours can.
pub fn given(value: &[u8]) -> impl Iterator<Item = Given<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            while let [b' ' | b'\t' | b',', tail @ ..] = rest {
                rest = tail;
            }
            if rest.is_empty() {
                return None;
            }
            let (tag, tail) = one(rest);
            rest = tail;
            if tag.is_some() {
                return tag;
            }
        }
    })
}

/// The tag at the start of `text`, if one stands there, and what follows its member.
fn one(text: &[u8]) -> (Option<Given<'_>>, &[u8]) {
    let (weak, tag) = match text.strip_prefix(b"W/") {
        Some(tag) => (true, tag),
        None => (false, text),
    };
    let opaque_len = tag.strip_prefix(b"\"").and_then(|inner| {
        let end = inner.iter().position(|&byte| byte == b'"')?;
        let is_etagc = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        inner[..end].iter().all(is_etagc).then_some(end + 2)
    });
    let (opaque, after) = tag.split_at(opaque_len.unwrap_or(0));
    let end = after.iter().position(|&byte| byte == b',');
    let (between, rest) = after.split_at(end.unwrap_or(after.len()));
    let alone = between.iter().all(|byte| b" \t".contains(byte));
    let given = opaque_len.filter(|_| alone).map(|_| Given { opaque, weak });
    (given, rest)
}

#[cfg(test)]
mod tests {
    use super::{ETag, Given, given};
    use crate::http::Coding;
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn text(modified_unix_s: i64, len_bytes: u64, coding: Option<Coding>) -> String {
        let tag = ETag::new(modified_unix_s, len_bytes, coding, 10);
        String::from_utf8_lossy(tag.opaque()).into_owned()
    }

    #[test]
    fn a_tag_is_time_size_and_coding_in_hex() {
        assert_eq!(text(0, 0, None), "\"0-0\"");
        assert_eq!(text(0x5f00_00ff, 0x10, None), "\"5f0000ff-10\"");
        assert_eq!(text(1, 2, Some(Coding::Zstd)), "\"1-2-zst\"");
        assert_eq!(text(1, 2, Some(Coding::Brotli)), "\"1-2-br\"");
        assert_eq!(text(1, 2, Some(Coding::Gzip)), "\"1-2-gz\"");
        let longest = "\"8000000000000000-ffffffffffffffff-zst\"";
        assert_eq!(text(i64::MIN, u64::MAX, Some(Coding::Zstd)), longest);
    }

    #[test]
    fn a_tag_is_weak_while_the_second_of_the_mtime_is_near() {
        let weak_at = |now_unix_s| ETag::new(100, 1, None, now_unix_s).is_weak();
        assert_eq!([99, 100, 101, 102].map(weak_at), [true, true, true, false]);
        assert!(!weak_at(98), "a time in the future was set by a tool");
        assert!(!ETag::new(i64::MIN, 1, None, u64::MAX).is_weak());
    }

    #[test]
    fn lists_of_tags_are_read_and_what_is_none_is_passed_over() {
        let tags = |value: &'static str| -> Vec<(bool, &str)> {
            given(value.as_bytes())
                .map(|Given { opaque, weak }| (weak, std::str::from_utf8(opaque).unwrap_or("?")))
                .collect()
        };
        assert_eq!(tags("\"a\""), [(false, "\"a\"")]);
        assert_eq!(
            tags("W/\"a\" ,, \t\"b,c\",\"\""),
            [(true, "\"a\""), (false, "\"b,c\""), (false, "\"\"")]
        );
        assert_eq!(
            tags("a, \"b\", w/\"c\", \"d\"x, \"e f\", \"g\""),
            [(false, "\"b\""), (false, "\"g\"")]
        );
        for none in [
            "",
            ",",
            "*",
            "\"",
            "\"a",
            "W/",
            "W/a",
            "Mon, 28 Sep 1970 06:00:00 GMT",
        ] {
            assert_eq!(tags(none), [], "{none}");
        }
    }

    #[test]
    fn comparison_is_the_table_of_rfc_9110_section_8_8_3_2() {
        let strong = ETag::new(1, 1, None, 100);
        let weak = ETag::new(1, 1, None, 1);
        let check = |value: &str, tag: &ETag| {
            let given = given(value.as_bytes()).next();
            given.map(|given| (given.is_strongly(tag), given.is_weakly(tag)))
        };
        assert_eq!(check("W/\"1-1\"", &weak), Some((false, true)));
        assert_eq!(check("W/\"1-1\"", &strong), Some((false, true)));
        assert_eq!(check("\"1-1\"", &weak), Some((false, true)));
        assert_eq!(check("\"1-1\"", &strong), Some((true, true)));
        assert_eq!(check("\"1-2\"", &strong), Some((false, false)));
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn two_versions_of_a_file_have_two_tags(a in any::<(i64, u64)>(), b in any::<(i64, u64)>()) {
            let (tag_a, tag_b) = (ETag::new(a.0, a.1, None, 0), ETag::new(b.0, b.1, None, 0));
            prop_assert_eq!(tag_a.opaque() == tag_b.opaque(), a == b);
            prop_assert_eq!(given(tag_a.opaque()).count(), 1);
        }
    }
}
