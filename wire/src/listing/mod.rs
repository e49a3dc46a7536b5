//! Directory listings: those of other servers are read ([`Reader`]), and own ones are rendered in slices: head, then one call per
//! entry, then foot.
//!
//! Nothing is kept between the calls, so a listing of any length needs memory for one slice only. The caller
//! sorts (directories first, then names bytewise), leaves out hidden names, and ends slices wherever it likes:
//! each call appends a complete, bounded piece to `out`.
//!
//! HTML has one `<a href>` for each entry that can be fetched, without sort links or other queries, so crawlers
//! get each name once. JSON has the keys and values of nginx's `autoindex_format json`.

mod found;
mod html;
mod json;

pub use self::found::{Named, Reader, format_of};

use crate::limits::README_BYTES_MAX;

/// The output format of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A page for people and crawlers.
    #[default]
    Html,
    /// An array of objects for programs.
    Json,
}

impl Format {
    /// The media type of the listing.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Html => "text/html; charset=utf-8",
            Format::Json => "application/json",
        }
    }
}

/// The type of an entry. For a symbolic link, the type of its target counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory: its link ends with `/`.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link to a directory that is served.
    LinkToDirectory,
    /// A symbolic link to a regular file that is served.
    LinkToFile,
    /// A fifo, socket, device or link to something that is not served. It is named without a link, since a
    /// request for it gets 403 or 404.
    Other,
}

impl EntryKind {
    fn is_directory(self) -> bool {
        matches!(self, EntryKind::Directory | EntryKind::LinkToDirectory)
    }

    fn is_link(self) -> bool {
        matches!(self, EntryKind::LinkToDirectory | EntryKind::LinkToFile)
    }
}

/// One name in the directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name as the file system has it: any bytes but `/` and NUL, at most 255 of them, never `.` or `..`. A bucket has longer
    /// ones too, up to 1,024 bytes, and folders with an empty one.
    pub name: &'a [u8],
    /// Its type.
    pub kind: EntryKind,
    /// Size of a file; `None` where unknown. Ignored for other kinds.
    pub len_bytes: Option<u64>,
    /// Time of the last change in Unix seconds; `None` where unknown.
    pub modified_unix_s: Option<i64>,
}

/// The text shown below an HTML listing.
#[derive(Clone, Copy, Debug)]
pub struct Readme<'a> {
    /// The file's name.
    pub name: &'a [u8],
    /// Its content or the beginning of it. Text beyond [`README_BYTES_MAX`] is not shown, and the page says so.
    pub text: &'a [u8],
}

/// Appends the beginning. `path` is the directory's decoded URL path: it begins and ends with `/`.
pub fn head(format: Format, path: &[u8], out: &mut Vec<u8>) {
    match format {
        Format::Html => html::head(path, out),
        Format::Json => json::head(out),
    }
}

/// Appends one entry. `first` is true for the first entry of the listing only (JSON needs commas between them).
/// Appends at most [`crate::limits::LISTING_ENTRY_BYTES_MAX`] bytes for a name of at most 255.
pub fn entry(format: Format, first: bool, entry: &Entry<'_>, out: &mut Vec<u8>) {
    match format {
        Format::Html => html::entry(entry, out),
        Format::Json => json::entry(first, entry, out),
    }
}

/// Appends the end. `entry_count` is the number of entries written; the README is shown in HTML only.
pub fn foot(format: Format, readme: Option<Readme<'_>>, entry_count: u64, out: &mut Vec<u8>) {
    match format {
        Format::Html => html::foot(readme, entry_count, out),
        Format::Json => json::foot(out),
    }
}

/// The rank of `name` among README names, in any case; `None` if it is not one. Of several in a directory, show
/// the one with the lowest rank.
pub fn readme_rank(name: &[u8]) -> Option<u8> {
    const NAMES: [&str; 5] = [
        "readme",
        "readme.txt",
        "readme.md",
        "readme.markdown",
        "readme.rst",
    ];
    let rank = NAMES
        .iter()
        .position(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
    Some(rank as u8)
}

#[cfg(test)]
mod tests;
