//! Writes the head of an answer.

use std::io::Write;

use super::date;
use super::etag::ETag;
use super::status::Status;

/// A head under construction. Field values come from this crate or were checked by it: no value may hold a CR
/// or LF.
pub struct Head {
    bytes: Vec<u8>,
}

impl Head {
    /// Starts with the status line and Date (RFC 9110 section 6.6.1). The version is always HTTP/1.1, the one
    /// that *we* speak (section 6.2), whatever the client sent.
    pub fn new(status: Status, now_unix_s: u64) -> Self {
        let mut head = Self::undated(status.line());
        head.date("Date", now_unix_s);
        head
    }

    /// Starts with the status line alone: `line` is its code and reason phrase.
    pub(super) fn undated(line: &str) -> Self {
        let mut bytes = Vec::with_capacity(384);
        bytes.extend_from_slice(b"HTTP/1.1 ");
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
        Self { bytes }
    }

    /// Adds whole lines that were checked before, each with its CR LF.
    pub(super) fn lines(&mut self, lines: &[u8]) {
        self.bytes.extend_from_slice(lines);
    }

    /// Adds a field with a value of bytes. Control bytes, which no caller should pass, are left out.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        let visible = |byte: &&u8| **byte >= b' ' && **byte != 0x7f;
        self.bytes.extend(value.iter().filter(visible));
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a field with a formatted value.
    pub fn field_fmt(&mut self, name: &str, value: std::fmt::Arguments<'_>) {
        // Writing into memory cannot fail.
        let _ = write!(self.bytes, "{name}: {value}\r\n");
    }

    /// Adds a field with a date, given in seconds since 1970.
    pub fn date(&mut self, name: &str, unix_s: u64) {
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        date::write(unix_s, &mut self.bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a field with an entity tag.
    pub(super) fn tag(&mut self, tag: &ETag) {
        self.bytes.extend_from_slice(b"ETag: ");
        tag.write(&mut self.bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Ends the head with its empty line.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }
}
