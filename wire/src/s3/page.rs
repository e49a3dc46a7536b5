//! A page of a listing (ListObjectsV2, `ListBucketResult`). Elements are known by their names alone, since stores differ in their
//! name space; those that are not known are skipped.

/// Names on a page. Stores send at most 1,000. More: the page is refused.
const ITEMS_MAX: usize = 1_000;
/// Bytes of the token that leads to the next page. More: the page is refused.
const TOKEN_BYTES_MAX: usize = 4 << 10;

/// A name below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Without the prefix, and without the slash of a folder.
    pub name: String,
    /// Keys begin with it and a slash.
    pub is_folder: bool,
    /// The size of a key's object.
    pub len_bytes: Option<u64>,
    /// When it was written, in Unix seconds.
    pub modified_unix_s: Option<i64>,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Folders first, else in the order of the store.
    pub items: Vec<Item>,
    /// What the next page is asked for by; `None`: this is the last one.
    pub next: Option<String>,
}

/// The element inside which the present one stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Key,
    Folder,
}

/// What was read of an item.
#[derive(Default)]
struct Raw {
    name: Option<String>,
    len_bytes: Option<u64>,
    modified_unix_s: Option<i64>,
}

impl Page {
    /// Parses a page of the keys that begin with `prefix`, with `/` as the delimiter.
    ///
    /// # Errors
    /// A sentence if it is not whole, no listing of that prefix, or beyond its bounds.
    pub fn parse(body: &[u8], prefix: &str) -> Result<Page, &'static str> {
        let text = std::str::from_utf8(body).map_err(|_| "A listing that is not UTF-8.")?;
        let mut page = Page::default();
        let (mut inside, mut raw) = (Inside::Nothing, Raw::default());
        let (mut begun, mut truncated) = (false, false);
        let mut rest = text;
        while let Some(tag) = Tag::next(&mut rest)? {
            match (tag.kind, tag.name) {
                (Kind::Open, "ListBucketResult") => begun = true,
                (Kind::Close, "ListBucketResult") if begun => {
                    if truncated && page.next.is_none() {
                        return Err("A listing that goes on, and does not say where.");
                    }
                    page.next = page.next.filter(|_| truncated);
                    page.items.sort_by_key(|item| !item.is_folder); // stable
                    return Ok(page);
                }
                (Kind::Open, "Contents") => (inside, raw) = (Inside::Key, Raw::default()),
                (Kind::Open, "CommonPrefixes") => (inside, raw) = (Inside::Folder, Raw::default()),
                (Kind::Close, "Contents" | "CommonPrefixes") => {
                    page.items
                        .extend(item(std::mem::take(&mut raw), inside, prefix)?);
                    inside = Inside::Nothing;
                    if page.items.len() > ITEMS_MAX {
                        return Err("A page of a listing with more than 1,000 names.");
                    }
                }
                (Kind::Close, name) => {
                    let text = tag.before;
                    match (inside, name) {
                        (Inside::Key, "Key") | (Inside::Folder, "Prefix") => {
                            raw.name = Some(unescape(text)?);
                        }
                        (Inside::Key, "Size") => raw.len_bytes = text.parse().ok(),
                        (Inside::Key, "LastModified") => raw.modified_unix_s = unix_s(text),
                        (Inside::Nothing, "IsTruncated") => truncated = text == "true",
                        (Inside::Nothing, "NextContinuationToken") => {
                            let token = unescape(text)?;
                            if token.len() > TOKEN_BYTES_MAX {
                                return Err("A token of a listing with more than 4 KiB.");
                            }
                            page.next = Some(token);
                        }
                        _ => {}
                    }
                }
                (Kind::Open | Kind::Empty, _) => {}
            }
        }
        Err("A listing that is none, or not whole.")
    }
}

/// The item; `None` for the key that stands for the folder itself.
fn item(raw: Raw, inside: Inside, prefix: &str) -> Result<Option<Item>, &'static str> {
    let why = "A listing of another folder than the one asked for.";
    let name = raw
        .name
        .as_deref()
        .and_then(|name| name.strip_prefix(prefix));
    let name = name.ok_or(why)?;
    let is_folder = inside == Inside::Folder;
    let name = match is_folder {
        true => name.strip_suffix('/').ok_or(why)?,
        false if name.is_empty() => return Ok(None),
        false => name,
    };
    if name.contains('/') {
        return Err(why);
    }
    Ok(Some(Item {
        name: name.to_owned(),
        is_folder,
        len_bytes: raw.len_bytes,
        modified_unix_s: raw.modified_unix_s,
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Close,
    /// `<a/>`, or what is not an element.
    Empty,
}

struct Tag<'a> {
    kind: Kind,
    name: &'a str,
    /// The text since the tag before it.
    before: &'a str,
}

impl<'a> Tag<'a> {
    fn next(rest: &mut &'a str) -> Result<Option<Tag<'a>>, &'static str> {
        let Some((before, behind)) = rest.split_once('<') else {
            return Ok(None);
        };
        let Some((inner, behind)) = behind.split_once('>') else {
            return Err("A listing with a tag that does not end.");
        };
        *rest = behind;
        // A comment or CDATA could hold what looks like a tag. Stores send neither.
        if inner.starts_with('!') {
            return Err("A listing with a declaration.");
        }
        let (kind, inner) = match inner.strip_prefix('/') {
            Some(inner) => (Kind::Close, inner),
            None if inner.ends_with(['/', '?']) => (Kind::Empty, inner),
            None => (Kind::Open, inner),
        };
        let end = inner.find(|char: char| char.is_ascii_whitespace() || char == '/');
        let name = &inner[..end.unwrap_or(inner.len())];
        let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
        Ok(Some(Tag { kind, name, before }))
    }
}

/// The characters that a text stands for (XML 1.0 sections 4.1 and 4.6).
fn unescape(text: &str) -> Result<String, &'static str> {
    let why = "A listing with a reference to nothing.";
    let mut out = String::with_capacity(text.len());
    let mut pieces = text.split('&');
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (name, behind) = piece.split_once(';').ok_or(why)?;
        let char = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            name => name.strip_prefix('#').and_then(|number| {
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16),
                    None => number.parse(),
                };
                code.ok().and_then(char::from_u32)
            }),
        };
        out.push(char.ok_or(why)?);
        out.push_str(behind);
    }
    Ok(out)
}

/// The Unix seconds of a time like `2009-10-12T17:50:30.000Z`.
fn unix_s(text: &str) -> Option<i64> {
    let number = |at: std::ops::Range<usize>| text.get(at)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March, as in `civil.rs`.
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests;
