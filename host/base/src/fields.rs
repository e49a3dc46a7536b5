//! Reads what a program for the kernel tells: fields one after the other, in the byte order of this machine.

/// Bytes that are still to be read. A field that is not all there is zeros.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    /// The next bytes.
    #[inline]
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *bytes
    }

    /// A `__u16`.
    pub fn half(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    /// A `__u32`.
    pub fn word(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    /// A `__u64`.
    pub fn long(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    /// A `char[16]`, fit for a terminal.
    pub fn name(&mut self) -> String {
        let bytes: [u8; 16] = self.take();
        let end = bytes.iter().position(|byte| *byte == 0);
        let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(16)]);
        text.replace(is_unsafe, "?")
    }
}

/// Whether a terminal may do something else with it than to show it: control characters, and those that change directions or are not
/// seen.
pub fn is_unsafe(sign: char) -> bool {
    let formats = [
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
    ];
    sign.is_control()
        || formats.iter().any(|range| range.contains(&sign))
        || matches!(sign, '\u{61c}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_not_shown() {
        assert!("\x1b\n\u{202e}\u{2066}\u{200b}".chars().all(is_unsafe));
        assert!(!"nginx: worker (é)".contains(is_unsafe));
    }
}
