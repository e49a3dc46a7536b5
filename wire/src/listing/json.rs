//! The listing as JSON, with the keys of nginx's ngx_http_autoindex_module: name, type, mtime (as an HTTP date), size
//! (of files). Every output is valid JSON (RFC 8259).
//!
//! JSON cannot express a name that is not UTF-8: `name` then has U+FFFD in place of the invalid bytes, and
//! another key `href` has the exact name, percent-encoded.

use super::{Entry, EntryKind};
use crate::civil::push_decimal;
use crate::http::date;
use crate::text::{push_json_string, push_percent_encoded};

pub(super) fn head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"[");
}

pub(super) fn entry(first: bool, entry: &Entry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(if first {
        b"\n{ \"name\":"
    } else {
        b",\n{ \"name\":"
    });
    push_json_string(entry.name, out);
    out.extend_from_slice(match entry.kind {
        EntryKind::Directory | EntryKind::LinkToDirectory => b", \"type\":\"directory\"",
        EntryKind::File | EntryKind::LinkToFile => b", \"type\":\"file\"",
        EntryKind::Other => b", \"type\":\"other\"",
    });
    if let Some(modified_unix_s) = entry.modified_unix_s {
        out.extend_from_slice(b", \"mtime\":\"");
        date::write(u64::try_from(modified_unix_s).unwrap_or(0), out);
        out.push(b'"');
    }
    if let (EntryKind::File | EntryKind::LinkToFile, Some(len_bytes)) =
        (entry.kind, entry.len_bytes)
    {
        out.extend_from_slice(b", \"size\":");
        push_decimal(len_bytes, out);
    }
    if std::str::from_utf8(entry.name).is_err() {
        out.extend_from_slice(b", \"href\":\"");
        push_percent_encoded(entry.name, out);
        out.push(b'"');
    }
    out.extend_from_slice(b" }");
}

pub(super) fn foot(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n]\n");
}
