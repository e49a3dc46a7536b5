//! The head of a response and its fields.

use super::wrong::{Kind, Wrong, shown};

pub struct Head {
    pub status: u16,
    pub text: String,
}

impl Head {
    pub fn parse(text: String) -> Result<Head, Wrong> {
        let status = text.get(9..12).and_then(|code| code.parse().ok());
        let lines_are_sound = text.lines().skip(1).all(|line| line.contains(": "));
        match status {
            Some(status) if lines_are_sound => Ok(Head { status, text }),
            _ => Wrong::err(Kind::Frame, format!("no head: {}", shown(text.as_bytes()))),
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn len_bytes(&self) -> Result<u64, Wrong> {
        let len = self
            .field("Content-Length")
            .and_then(|value| value.parse().ok());
        len.ok_or_else(|| Wrong::new(Kind::Frame, format!("no Content-Length:\n{}", self.text)))
    }
}

/// Start, end (exclusive) and total length in a Content-Range.
pub fn content_range(value: &str) -> Option<(u64, u64, u64)> {
    let (span, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last + 1, total.parse().ok()?))
}
