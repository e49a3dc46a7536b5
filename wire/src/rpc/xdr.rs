//! XDR (RFC 4506), read where it lies: opaque data is a slice of the bytes that came, and nothing is allocated. Numbers are big
//! endian, and every value takes a multiple of four bytes.

/// Why bytes are not the value that was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They end before it does.
    Short,
    /// A length is above its bound.
    Long,
    /// A number has a value that it cannot have.
    Value,
}

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Opaque data of a fixed length, a multiple of four.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        const { assert!(N % 4 == 0) };
        let (taken, rest) = self.0.split_first_chunk().ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// An unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Bad> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_be_bytes(self.fixed()?))
    }

    /// A boolean.
    pub fn bool(&mut self) -> Result<bool, Bad> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Bad::Value),
        }
    }

    /// Optional data: a boolean, and the value if that is true.
    pub fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Bad>,
    ) -> Result<Option<T>, Bad> {
        match self.bool()? {
            true => Ok(Some(read(self)?)),
            false => Ok(None),
        }
    }

    /// Opaque data or a string of variable length. What it is padded with may be anything: old clients send what was in
    /// memory.
    pub fn opaque(&mut self, len_bytes_max: usize) -> Result<&'a [u8], Bad> {
        let len = self.u32()? as usize;
        if len > len_bytes_max {
            return Err(Bad::Long);
        }
        let (taken, _) = self.0.split_at_checked(len).ok_or(Bad::Short)?;
        let (_, rest) = self
            .0
            .split_at_checked(len + pad_bytes(len))
            .ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Bytes that follow opaque data of this length, to make it a multiple of four.
pub const fn pad_bytes(len_bytes: usize) -> usize {
    len_bytes.wrapping_neg() % 4
}

/// Appends values.
pub(crate) trait Put {
    /// An unsigned integer, an enumeration.
    fn put_u32(&mut self, number: u32);
    /// An unsigned hyper integer.
    fn put_u64(&mut self, number: u64);
    /// A boolean.
    fn put_bool(&mut self, is: bool);
    /// Opaque data or a string of variable length. Nothing that is sent is longer than a u32 can tell.
    fn put_opaque(&mut self, bytes: &[u8]);
    /// Optional data.
    fn put_optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T));
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, number: u32) {
        self.extend(number.to_be_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.extend(number.to_be_bytes());
    }

    fn put_bool(&mut self, is: bool) {
        self.put_u32(is.into());
    }

    fn put_opaque(&mut self, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.put_u32(len);
        self.extend(bytes);
        self.extend(&[0; 3][..pad_bytes(bytes.len())]);
    }

    fn put_optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.put_bool(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_data_is_padded_to_four_bytes() {
        for (bytes, coded) in [
            (&b""[..], &b"\0\0\0\0"[..]),
            (b"a", b"\0\0\0\x01a\0\0\0"),
            (b"abc", b"\0\0\0\x03abc\0"),
            (b"abcd", b"\0\0\0\x04abcd"),
        ] {
            let mut to = Vec::new();
            to.put_opaque(bytes);
            assert_eq!(to, coded);
            assert_eq!(Reader(coded).opaque(4), Ok(bytes));
            for end in 0..coded.len() {
                assert_eq!(Reader(&coded[..end]).opaque(4), Err(Bad::Short));
            }
        }
    }

    #[test]
    fn a_length_is_compared_with_its_bound_first() {
        let huge = b"\xff\xff\xff\xff";
        assert_eq!(Reader(huge).opaque(64), Err(Bad::Long));
        assert_eq!(Reader(b"\0\0\0\x05abcde\0\0\0").opaque(4), Err(Bad::Long));
        let boolean = [0, 0, 0, 2];
        assert_eq!(Reader(&boolean).bool(), Err(Bad::Value));
    }
}
