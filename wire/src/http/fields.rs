//! The field section of a head: an index of the fields that matter, without copies.

/// A field that some part of the server reads. Those up to User-Agent are indexed, since every request is asked for
/// some of them; the others are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Field {
    /// RFC 9110 section 7.2
    Host,
    /// RFC 9110 section 7.6.1
    Connection,
    /// RFC 9110 section 8.6
    ContentLength,
    /// RFC 9112 section 6.1
    TransferEncoding,
    /// RFC 9110 section 10.1.1
    Expect,
    /// RFC 9110 section 14.2
    Range,
    /// RFC 9110 section 13.1.5
    IfRange,
    /// RFC 9110 section 13.1.1
    IfMatch,
    /// RFC 9110 section 13.1.2
    IfNoneMatch,
    /// RFC 9110 section 13.1.3
    IfModifiedSince,
    /// RFC 9110 section 13.1.4
    IfUnmodifiedSince,
    /// RFC 9110 section 12.5.1
    Accept,
    /// RFC 9110 section 12.5.3
    AcceptEncoding,
    /// RFC 9110 section 10.1.3
    Referer,
    /// RFC 9110 section 10.1.5
    UserAgent,
    /// RFC 9110 section 11.6.2
    Authorization,
    /// RFC 9111 section 5.2
    CacheControl,
    /// RFC 9110 section 8.8.3
    ETag,
    /// RFC 9110 section 8.8.2
    LastModified,
    /// RFC 9110 section 8.3
    ContentType,
    /// RFC 9110 section 14.4
    ContentRange,
    /// RFC 9110 section 8.4
    ContentEncoding,
    /// RFC 9110 section 14.3
    AcceptRanges,
    /// RFC 9111 section 5.3
    Expires,
    /// RFC 9111 section 5.1
    Age,
    /// RFC 9110 section 6.6.1
    Date,
    /// RFC 9110 section 12.5.5
    Vary,
    /// RFC 6265 section 4.1
    SetCookie,
    /// RFC 9110 section 10.2.2
    Location,
}

const INDEXED: usize = Field::UserAgent as usize + 1;

impl Field {
    /// The field of this name, in any case; `None` for a name that no part of the server reads.
    fn of(name: &[u8]) -> Option<Self> {
        let first = name.first()? | 32;
        let (text, field): (&[u8], Self) = match name.len() {
            3 => (b"age", Self::Age),
            4 if first == b'h' => (b"host", Self::Host),
            4 if first == b'd' => (b"date", Self::Date),
            4 if first == b'v' => (b"vary", Self::Vary),
            4 => (b"etag", Self::ETag),
            5 => (b"range", Self::Range),
            6 if first == b'a' => (b"accept", Self::Accept),
            6 => (b"expect", Self::Expect),
            7 if first == b'e' => (b"expires", Self::Expires),
            7 => (b"referer", Self::Referer),
            8 if first == b'l' => (b"location", Self::Location),
            8 if name[3] | 32 == b'r' => (b"if-range", Self::IfRange),
            8 => (b"if-match", Self::IfMatch),
            10 if first == b'c' => (b"connection", Self::Connection),
            10 if first == b's' => (b"set-cookie", Self::SetCookie),
            10 => (b"user-agent", Self::UserAgent),
            12 => (b"content-type", Self::ContentType),
            13 if first == b'i' => (b"if-none-match", Self::IfNoneMatch),
            13 if first == b'l' => (b"last-modified", Self::LastModified),
            13 if name[1] | 32 == b'u' => (b"authorization", Self::Authorization),
            13 if name[1] | 32 == b'c' => (b"accept-ranges", Self::AcceptRanges),
            13 if name[1] | 32 == b'o' => (b"content-range", Self::ContentRange),
            13 => (b"cache-control", Self::CacheControl),
            14 => (b"content-length", Self::ContentLength),
            15 => (b"accept-encoding", Self::AcceptEncoding),
            16 => (b"content-encoding", Self::ContentEncoding),
            17 if first == b'i' => (b"if-modified-since", Self::IfModifiedSince),
            17 => (b"transfer-encoding", Self::TransferEncoding),
            19 => (b"if-unmodified-since", Self::IfUnmodifiedSince),
            _ => return None,
        };
        name.eq_ignore_ascii_case(text).then_some(field)
    }
}

/// Where a value stands in the field section. Offset 0 means no value: the first name stands there.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    at: u16,
    len: u16,
}

/// A checked field section. Looking up an indexed field takes constant time; others and repeated lines need another
/// scan.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    section: &'a [u8],
    slots: [Slot; INDEXED],
    repeated: u16,
}

impl<'a> Fields<'a> {
    /// Starts without fields, for a section that is still to be read; see [`Fields::note`].
    pub(super) fn new(section: &'a [u8]) -> Self {
        debug_assert!(section.len() <= usize::from(u16::MAX));
        Self {
            section,
            slots: [Slot::default(); INDEXED],
            repeated: 0,
        }
    }

    /// Records one checked line: `name`, and a value of `len` bytes at offset `at` of the section.
    pub(super) fn note(&mut self, name: &[u8], at: usize, len: usize) {
        let Some(field) = Field::of(name) else { return };
        let Some(slot) = self.slots.get_mut(field as usize) else {
            return;
        };
        if slot.at != 0 {
            self.repeated |= 1 << field as u16;
        } else if let (Ok(at), Ok(len)) = (u16::try_from(at), u16::try_from(len)) {
            *slot = Slot { at, len };
        }
    }

    /// Cuts the section to its actual length, `len_bytes`.
    pub(super) fn end(&mut self, len_bytes: usize) {
        self.section = self.section.get(..len_bytes).unwrap_or(self.section);
    }

    /// The value of the first line of this name, without the white space around it.
    pub fn first(&self, field: Field) -> Option<&'a [u8]> {
        let Some(&Slot { at, len }) = self.slots.get(field as usize) else {
            return self.scan(field).next();
        };
        (at != 0).then(|| &self.section[usize::from(at)..usize::from(at) + usize::from(len)])
    }

    /// True if more than one line has this name.
    pub fn is_repeated(&self, field: Field) -> bool {
        match (field as usize) < INDEXED {
            true => self.repeated & (1 << field as u16) != 0,
            false => self.scan(field).nth(1).is_some(),
        }
    }

    /// The value of a field that takes one value; `None` also if the field is repeated.
    pub fn single(&self, field: Field) -> Option<&'a [u8]> {
        if self.is_repeated(field) {
            return None;
        }
        self.first(field)
    }

    /// The values of all lines of this name, in order: for fields that are lists (RFC 9110 section 5.3).
    pub fn values(&self, field: Field) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let needs_scan = field as usize >= INDEXED || self.is_repeated(field);
        let first = (!needs_scan).then(|| self.first(field)).flatten();
        let scan = needs_scan.then(|| self.scan(field));
        first.into_iter().chain(scan.into_iter().flatten())
    }

    /// As [`Fields::values`], without the index.
    fn scan(&self, field: Field) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let of_field = move |(name, _): &(&[u8], &[u8])| Field::of(name) == Some(field);
        self.iter().filter(of_field).map(|(_, value)| value)
    }

    /// All lines in order, as pairs of name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        Lines { rest: self.section }
    }
}

/// Walks a checked section again; ends at the first line that is not a field line.
#[derive(Clone)]
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.rest.iter().position(|&byte| byte == b'\r')?;
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..)?;
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..colon], trim(&line[colon + 1..])))
    }
}

/// `text` without the optional white space (SP, HTAB) at both ends (RFC 9110 section 5.6.3).
pub fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The members of a comma-separated list over several lines, trimmed, without empty ones (RFC 9110 section
/// 5.6.1.2). Not for lists whose members may hold a quoted comma.
pub fn members<'a>(values: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    values
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(trim)
        .filter(|member| !member.is_empty())
}

/// The number that decimal digits alone write; `None` also above 64 bits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok()?;
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| all_digits)
}

/// True for the bytes of a token (RFC 9110 section 5.6.2).
pub const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = matches!(byte as u8,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
            | b'`' | b'|' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::{Field, Fields, decimal, members, trim};

    const ALL: [(&str, Field); 29] = [
        ("Host", Field::Host),
        ("Connection", Field::Connection),
        ("Content-Length", Field::ContentLength),
        ("Transfer-Encoding", Field::TransferEncoding),
        ("Expect", Field::Expect),
        ("Range", Field::Range),
        ("If-Range", Field::IfRange),
        ("If-Match", Field::IfMatch),
        ("If-None-Match", Field::IfNoneMatch),
        ("If-Modified-Since", Field::IfModifiedSince),
        ("If-Unmodified-Since", Field::IfUnmodifiedSince),
        ("Accept", Field::Accept),
        ("Accept-Encoding", Field::AcceptEncoding),
        ("Referer", Field::Referer),
        ("User-Agent", Field::UserAgent),
        ("Authorization", Field::Authorization),
        ("Cache-Control", Field::CacheControl),
        ("ETag", Field::ETag),
        ("Last-Modified", Field::LastModified),
        ("Content-Type", Field::ContentType),
        ("Content-Range", Field::ContentRange),
        ("Content-Encoding", Field::ContentEncoding),
        ("Accept-Ranges", Field::AcceptRanges),
        ("Expires", Field::Expires),
        ("Age", Field::Age),
        ("Date", Field::Date),
        ("Vary", Field::Vary),
        ("Set-Cookie", Field::SetCookie),
        ("Location", Field::Location),
    ];

    #[test]
    fn every_field_is_known_by_its_name_in_any_case_and_by_no_other() {
        for (name, field) in ALL {
            assert_eq!(Field::of(name.as_bytes()), Some(field), "{name}");
            assert_eq!(Field::of(name.to_uppercase().as_bytes()), Some(field));
            assert_eq!(Field::of(name.to_lowercase().as_bytes()), Some(field));
            for at in 0..name.len() {
                let mut other = name.as_bytes().to_vec();
                other[at] = b'!';
                assert_eq!(Field::of(&other), None, "{name} at {at}");
            }
        }
    }

    #[test]
    fn repeated_lines_keep_their_order_and_are_no_single_value() {
        let section = b"Accept: a\r\nX: y\r\naccept:b , c\r\nAge: 1\r\nVary: a\r\nVARY: b\r\n";
        let mut fields = Fields::new(section);
        fields.note(b"Accept", 8, 1);
        fields.note(b"X", 14, 1);
        fields.note(b"accept", 24, 5);
        assert_eq!(fields.first(Field::Accept), Some(&b"a"[..]));
        assert_eq!(fields.single(Field::Accept), None);
        let values: Vec<_> = fields.values(Field::Accept).collect();
        assert_eq!(values, [&b"a"[..], b"b , c"]);
        let all: Vec<_> = members(values.into_iter()).collect();
        assert_eq!(all, [b"a", b"b", b"c"]);
        assert_eq!(fields.values(Field::Range).count(), 0);
        assert_eq!(fields.iter().count(), 6);
        // These are not indexed.
        assert_eq!(fields.single(Field::Age), Some(&b"1"[..]));
        assert_eq!(fields.first(Field::Vary), Some(&b"a"[..]));
        assert_eq!(fields.single(Field::Vary), None);
        assert_eq!(fields.values(Field::Vary).count(), 2);
        assert_eq!(fields.first(Field::Date), None);
    }

    #[test]
    fn a_number_is_digits_alone_within_64_bits() {
        assert_eq!(decimal(b"0018446744073709551615"), Some(u64::MAX));
        for text in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "0x1",
            "1.0",
            "18446744073709551616",
        ] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn only_spaces_and_tabs_are_trimmed() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t "), b"");
        assert_eq!(trim(b"\x0ba\xa0"), b"\x0ba\xa0");
    }
}
