//! Reads what the heads of requests and responses have in common: versions, line ends and field lines (RFC 9112 sections 2 and 5).

use super::fields::{Fields, is_token_byte, trim};
use super::request::Version;
use super::status::{Reject, Status};

/// Why reading stopped before the end of a head.
pub(super) enum Stop {
    /// The bytes end inside it.
    More,
    /// No further bytes can make it valid.
    Reject(Reject),
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Self::Reject(reject)
    }
}

/// A position in the bytes; every step returns `More` at their end.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte, and sees `bytes_max` bytes at most.
    pub(super) fn new(bytes: &'a [u8], bytes_max: usize) -> Self {
        Self {
            bytes: &bytes[..bytes.len().min(bytes_max)],
            at: 0,
        }
    }

    pub(super) fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    /// The run of bytes of this kind from the current position; at least one byte must follow it.
    pub(super) fn run(&mut self, is_of_kind: impl Fn(u8) -> bool) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let run_len = rest.iter().position(|&byte| !is_of_kind(byte));
        let run = &rest[..run_len.unwrap_or(rest.len())];
        self.at += run.len();
        run_len.map(|_| run).ok_or(Stop::More)
    }

    /// Consumes CR LF, or rejects with `why` if another byte stands here.
    pub(super) fn line_end(&mut self, why: &'static str) -> Result<(), Stop> {
        match self.peek()? {
            b'\r' => self.at += 1,
            b'\n' => return Err(Reject::bad("A line ends in a bare LF.").into()),
            _ => return Err(Reject::bad(why).into()),
        }
        match self.peek()? {
            b'\n' => self.at += 1,
            _ => return Err(Reject::bad("A CR without its LF is in the head.").into()),
        }
        Ok(())
    }

    /// `HTTP/1.0` or `HTTP/1.1`; any other text is rejected with `why`.
    pub(super) fn version(&mut self, why: &'static str) -> Result<Version, Stop> {
        for &expected in b"HTTP/" {
            if self.peek()? != expected {
                return Err(Reject::bad(why).into());
            }
            self.at += 1;
        }
        let mut digits = [0; 2];
        for (nth, digit) in digits.iter_mut().enumerate() {
            if nth == 1 {
                if self.peek()? != b'.' {
                    return Err(Reject::bad(why).into());
                }
                self.at += 1;
            }
            *digit = self.peek()?;
            if !digit.is_ascii_digit() {
                return Err(Reject::bad(why).into());
            }
            self.at += 1;
        }
        let version = match &digits {
            b"10" => Version::Http10,
            b"11" => Version::Http11,
            _ => {
                return Err(Stop::Reject(Reject {
                    status: Status::VersionNotSupported,
                    why: "Only HTTP/1.1 and HTTP/1.0 are spoken here.",
                }));
            }
        };
        Ok(version)
    }

    /// The field section and the empty line after it; with more lines than `lines_max` it is rejected as `too_many`.
    pub(super) fn fields(
        &mut self,
        lines_max: usize,
        too_many: Reject,
    ) -> Result<Fields<'a>, Stop> {
        let start = self.at;
        let mut fields = Fields::new(&self.bytes[start..]);
        let mut count = 0;
        while !matches!(self.peek()?, b'\r' | b'\n') {
            count += 1;
            if count > lines_max {
                return Err(too_many.into());
            }
            let name = self.field_name()?;
            let value_at = self.at;
            // field-vchar, SP, HTAB, obs-text (RFC 9110 section 5.5)
            let raw = self.run(|byte| byte >= b' ' && byte != 0x7f || byte == b'\t')?;
            self.line_end("A control byte is in a field.")?;
            let value = trim(raw);
            let leading = raw.iter().take_while(|&&b| b == b' ' || b == b'\t').count();
            let value_at = value_at - start + if value.is_empty() { 0 } else { leading };
            fields.note(name, value_at, value.len());
        }
        fields.end(self.at - start);
        self.line_end("")?;
        Ok(fields)
    }

    /// A field name and its colon.
    fn field_name(&mut self) -> Result<&'a [u8], Stop> {
        let name = self.run(is_token_byte)?;
        match self.peek()? {
            b':' if name.is_empty() => {
                return Err(Reject::bad("A field has no name.").into());
            }
            b':' => self.at += 1,
            b' ' | b'\t' if name.is_empty() => {
                return Err(Reject::bad("A field is folded over several lines.").into());
            }
            b' ' | b'\t' => {
                return Err(Reject::bad("White space stands before the colon of a field.").into());
            }
            _ => return Err(Reject::bad("The name of a field is not a token.").into()),
        }
        Ok(name)
    }
}
