//! Entity tags (RFC 9110 section 8.8.3): `"<mtime seconds>[.<nanoseconds>]-<size>[-coding]"` in hex. Mirrors
//! that preserve a file's mtime send the same tag, so a client can resume a download at another mirror.
//!
//! In a Nix store, an ostree checkout or a reproducible image all files have the same mtime, 0 or 1, and a link is swapped to
//! publish a version. The tag of such a file is `"i<inode>-<ctime seconds>.<nanoseconds>-<size>[-coding]"`. Each mirror has another one;
//! but none has the same for two versions, so it is as strong as others. A read-only image keeps no ctime: its
//! files have no tag.

use super::negotiation::Coding;

/// The tag of a file changed within this many seconds of the answer is weak: clocks of file systems are coarse,
/// so the file may change again without a change of mtime and size. RFC 9110 section 8.8.2.2 reasons likewise
/// for dates.
pub const WEAK_FOR_S: u64 = 2;

/// The latest mtime, in seconds since 1970, that says nothing of a file's version: tools set all files to such a time.
const MTIME_OF_NOTHING_UNIX_S: i64 = 1;

/// The times at which a file was changed, and which file it is (stat(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Its mtime in seconds since 1970. It may be negative or in the future, since any writer of the file can
    /// set it.
    pub modified_unix_s: i64,
    /// The nanoseconds of the mtime; 0 where the file system or a mirroring tool keeps none.
    pub modified_ns: u32,
    /// Its ctime in seconds since 1970, which nobody can set. Read-only images have the mtime here.
    pub changed_unix_s: i64,
    /// The nanoseconds of the ctime.
    pub changed_ns: u32,
    /// Its inode number.
    pub inode: u64,
}

impl Times {
    /// The times of a file last changed in this second, without nanoseconds.
    pub const fn of(unix_s: i64) -> Times {
        Times {
            modified_unix_s: unix_s,
            modified_ns: 0,
            changed_unix_s: unix_s,
            changed_ns: 0,
            inode: 0,
        }
    }

    /// Whether the mtime may differ between two versions of the file.
    pub const fn has_mtime(&self) -> bool {
        self.modified_unix_s > MTIME_OF_NOTHING_UNIX_S
    }

    /// True if the file may still change without a visible change of its times. An mtime that lies further in
    /// the future than clock skew explains was set on purpose, by a tool. It says nothing about changes now;
    /// the ctime does.
    pub fn is_fresh(&self, now_unix_s: u64) -> bool {
        let now = i64::try_from(now_unix_s).unwrap_or(i64::MAX);
        now.abs_diff(self.modified_unix_s) < WEAK_FOR_S
            || now.saturating_sub(self.changed_unix_s) < WEAK_FOR_S as i64
    }
}

/// The tag of one representation. Building it allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag {
    bytes: [u8; Self::ROOM],
    len: u8,
    weak: bool,
}

impl ETag {
    /// Our own need 66: two quotes, an `i`, three 64-bit numbers in hex, nanoseconds, two dashes and a coding. An
    /// origin's may be longer: a hash of 256 bits in hex, and a word beside it. Above: it counts as none.
    const ROOM: usize = 128;

    /// The tag of a file of `len_bytes`, last modified at these times and sent in `coding` at `now_unix_s`; `None`: nothing tells
    /// its versions apart.
    pub fn new(
        times: &Times,
        len_bytes: u64,
        coding: Option<Coding>,
        now_unix_s: u64,
    ) -> Option<Self> {
        let mut tag = Self {
            bytes: [0; Self::ROOM],
            len: 0,
            weak: times.is_fresh(now_unix_s),
        };
        tag.push(b"\"");
        if times.has_mtime() {
            tag.push_hex(times.modified_unix_s as u64);
            if times.modified_ns > 0 {
                tag.push(b".");
                tag.push_hex(times.modified_ns.into());
            }
        } else if times.changed_unix_s > MTIME_OF_NOTHING_UNIX_S {
            tag.push(b"i");
            tag.push_hex(times.inode);
            tag.push(b"-");
            tag.push_hex(times.changed_unix_s as u64);
            tag.push(b".");
            tag.push_hex(times.changed_ns.into());
        } else {
            return None;
        }
        tag.push(b"-");
        tag.push_hex(len_bytes);
        if let Some(coding) = coding {
            tag.push(b"-");
            tag.push(coding.suffix().as_bytes());
        }
        tag.push(b"\"");
        Some(tag)
    }

    /// An origin's tag: the value of its ETag field. `None` for anything but one tag, of at most 128 bytes without the
    /// `W/` of a weak one.
    pub fn foreign(value: &[u8]) -> Option<Self> {
        let (Some(Given { opaque, weak }), []) = one(value) else {
            return None;
        };
        let mut tag = Self {
            bytes: [0; Self::ROOM],
            len: 0,
            weak,
        };
        tag.push((opaque.len() <= Self::ROOM).then_some(opaque)?);
        Some(tag)
    }

    /// Appends the tag as a field has it: with the `W/` of a weak one.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.weak { b"W/" } else { b"" });
        out.extend_from_slice(self.opaque());
    }

    /// The opaque tag with its quotes, without the `W/` of a weak one.
    pub fn opaque(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// True if two different contents may have this tag.
    pub const fn is_weak(&self) -> bool {
        self.weak
    }

    fn push(&mut self, text: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + text.len()].copy_from_slice(text);
        self.len += text.len() as u8; // at most `ROOM`, or the line above had failed
    }

    fn push_hex(&mut self, number: u64) {
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for nth in (0..digits).rev() {
            let digit = ((number >> (4 * nth)) & 15) as usize;
            self.push(&b"0123456789abcdef"[digit..=digit]);
        }
    }
}

/// One tag in a field sent by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given<'a> {
    opaque: &'a [u8],
    weak: bool,
}

impl Given<'_> {
    /// Strong comparison (RFC 9110 section 8.8.3.2): both tags are strong and equal.
    pub fn is_strongly(&self, tag: &ETag) -> bool {
        !self.weak && !tag.weak && self.opaque == tag.opaque()
    }

    /// Weak comparison (RFC 9110 section 8.8.3.2): equal opaque tags suffice.
    pub fn is_weakly(&self, tag: &ETag) -> bool {
        self.opaque == tag.opaque()
    }
}

/// The tags of one field line. A member that is not an entity tag is skipped: it can match nothing, but the
/// others can.
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

/// The tag at the start of `text`, if there is one, and the text after its list member.
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
    use super::{ETag, Given, Times, given};
    use crate::http::Coding;
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn text(modified_unix_s: i64, len_bytes: u64, coding: Option<Coding>) -> String {
        text_of(&Times::of(modified_unix_s), len_bytes, coding)
    }

    fn text_of(times: &Times, len_bytes: u64, coding: Option<Coding>) -> String {
        let tag = ETag::new(times, len_bytes, coding, 10).expect("something tells versions apart");
        String::from_utf8_lossy(tag.opaque()).into_owned()
    }

    fn is_weak(times: &Times, now_unix_s: u64) -> bool {
        ETag::new(times, 1, None, now_unix_s).is_some_and(|tag| tag.is_weak())
    }

    #[test]
    fn a_tag_is_time_size_and_coding_in_hex() {
        assert_eq!(text(2, 0, None), "\"2-0\"");
        assert_eq!(text(0x5f00_00ff, 0x10, None), "\"5f0000ff-10\"");
        assert_eq!(text(3, 2, Some(Coding::Zstd)), "\"3-2-zst\"");
        assert_eq!(text(3, 2, Some(Coding::Brotli)), "\"3-2-br\"");
        assert_eq!(text(3, 2, Some(Coding::Gzip)), "\"3-2-gz\"");
        let longest = Times {
            changed_unix_s: i64::MAX,
            changed_ns: 999_999_999,
            inode: u64::MAX,
            ..Times::of(0)
        };
        assert_eq!(
            text_of(&longest, u64::MAX, Some(Coding::Zstd)),
            "\"iffffffffffffffff-7fffffffffffffff.3b9ac9ff-ffffffffffffffff-zst\""
        );
    }

    #[test]
    fn a_file_whose_mtime_says_nothing_is_known_by_inode_and_ctime_or_not_at_all() {
        for modified_unix_s in [i64::MIN, -1, 0, 1] {
            let times = Times {
                changed_unix_s: 100,
                changed_ns: 7,
                inode: 0xab,
                ..Times::of(modified_unix_s)
            };
            assert_eq!(text_of(&times, 5, None), "\"iab-64.7-5\"");
            let other_ns = Times {
                changed_ns: 8,
                ..times
            };
            let other_file = Times { inode: 1, ..times };
            for other in [other_ns, other_file] {
                assert_ne!(text_of(&other, 5, None), text_of(&times, 5, None));
            }
            assert_eq!([101, 102].map(|now| is_weak(&times, now)), [true, false]);
            let image = Times {
                changed_unix_s: modified_unix_s,
                ..times
            };
            assert_eq!(ETag::new(&image, 5, None, 200), None);
        }
    }

    #[test]
    fn a_tag_is_weak_while_the_second_of_the_mtime_or_of_the_ctime_is_near() {
        for (changed_unix_s, now_unix_s, weak) in [
            (0, 98, false), // a time in the future was set by a tool
            (0, 99, true),
            (0, 100, true),
            (0, 101, true),
            (0, 102, false),
            (500, 500, true), // the mtime was put back
            (500, 501, true),
            (500, 502, false),
            (500, 400, true), // the clock was set back: nobody can say
        ] {
            let times = Times {
                changed_unix_s,
                ..Times::of(100)
            };
            assert_eq!(
                is_weak(&times, now_unix_s),
                weak,
                "{changed_unix_s} {now_unix_s}"
            );
        }
    }

    #[test]
    fn an_origins_tag_is_taken_as_it_is_or_not_at_all() {
        let of_len = |len: usize| format!("\"{}\"", "x".repeat(len - 2));
        let weak = format!("W/{}", of_len(128));
        for value in ["\"\"", "W/\"a,b\"", "\"\u{e4}\"", &of_len(128), &weak] {
            let tag = ETag::foreign(value.as_bytes()).expect("a tag");
            let mut written = Vec::new();
            tag.write(&mut written);
            assert_eq!(written, value.as_bytes());
            assert_eq!(tag.is_weak(), value.starts_with("W/"));
        }
        for value in [
            "",
            "a",
            "\"a",
            "\"a\",",
            "\"a\", \"b\"",
            "w/\"a\"",
            "\"a b\"",
            " \"a\"",
            "\"\r\"",
            &of_len(129),
        ] {
            assert_eq!(ETag::foreign(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn two_versions_within_one_second_have_two_tags() {
        let tag = |modified_ns| {
            let times = Times {
                modified_ns,
                ..Times::of(100)
            };
            text_of(&times, 5, None)
        };
        let tags = [0, 1, 999_999_999].map(tag);
        assert_eq!(tags, ["\"64-5\"", "\"64.1-5\"", "\"64.3b9ac9ff-5\""]);
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
        let strong = ETag::new(&Times::of(2), 1, None, 100).expect("a tag");
        let weak = ETag::new(&Times::of(2), 1, None, 2).expect("a tag");
        let check = |value: &str, tag: &ETag| {
            let given = given(value.as_bytes()).next();
            given.map(|given| (given.is_strongly(tag), given.is_weakly(tag)))
        };
        assert_eq!(check("W/\"2-1\"", &weak), Some((false, true)));
        assert_eq!(check("W/\"2-1\"", &strong), Some((false, true)));
        assert_eq!(check("\"2-1\"", &weak), Some((false, true)));
        assert_eq!(check("\"2-1\"", &strong), Some((true, true)));
        assert_eq!(check("\"2-2\"", &strong), Some((false, false)));
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn two_versions_of_a_file_have_two_tags(a in any::<(i64, u64)>(), b in any::<(i64, u64)>()) {
            let tag = |(unix_s, len_bytes)| ETag::new(&Times::of(unix_s), len_bytes, None, 0);
            let (Some(tag_a), Some(tag_b)) = (tag(a), tag(b)) else {
                prop_assert!(a.0 <= 1 || b.0 <= 1);
                return Ok(());
            };
            prop_assert_eq!(tag_a.opaque() == tag_b.opaque(), a == b);
            prop_assert_eq!(given(tag_a.opaque()).count(), 1);
        }
    }
}
