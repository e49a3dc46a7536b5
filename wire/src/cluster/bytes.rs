//! Numbers and strings of a body.

use super::Bad;

/// What is left of a body.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Bad::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, Bad> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub fn u16(&mut self) -> Result<u16, Bad> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub fn u32(&mut self) -> Result<u32, Bad> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub fn u64(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub fn address<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        self.take()
    }

    pub fn bool(&mut self) -> Result<bool, Bad> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Bad::Value),
        }
    }

    /// Bytes after their length (u16).
    pub fn bytes(&mut self, len_bytes_max: usize) -> Result<&'a [u8], Bad> {
        let len = usize::from(self.u16()?);
        if len > len_bytes_max {
            return Err(Bad::Length);
        }
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Bad::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The same, as text.
    pub fn text(&mut self, len_bytes_max: usize) -> Result<String, Bad> {
        let bytes = self.bytes(len_bytes_max)?;
        let text = std::str::from_utf8(bytes).map_err(|_| Bad::Value)?;
        Ok(text.to_owned())
    }
}

/// Appends bytes after their length. More than a u16 can tell are cut, and nothing that long is valid.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    to.extend(len.to_le_bytes());
    to.extend(&bytes[..usize::from(len)]);
}
