//! The mode of unix sockets.

use std::fmt;

use super::value::{ValueError, shown};

/// Who may connect to unix sockets: the mode of their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnixMode {
    /// What the umask of the process leaves.
    Umask,
    /// These permission bits.
    Mode(u32),
}

impl UnixMode {
    /// Reads `umask`, or a mode in octal as chmod(1) has it: `666`, `0660`.
    ///
    /// # Errors
    /// Anything else, and bits beyond 777.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "umask" {
            return Ok(Self::Umask);
        }
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        match u32::from_str_radix(text, 8) {
            Ok(mode @ 0..=0o777) if is_octal => Ok(Self::Mode(mode)),
            _ => Err(ValueError::new(format!(
                "{} is no mode in octal, such as 660 or 666, and not umask",
                shown(text)
            ))),
        }
    }
}

impl fmt::Display for UnixMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Umask => f.write_str("umask"),
            Self::Mode(mode) => write!(f, "{mode:03o}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal_or_umask() {
        for (text, mode) in [
            ("umask", UnixMode::Umask),
            ("666", UnixMode::Mode(0o666)),
            ("0660", UnixMode::Mode(0o660)),
        ] {
            assert_eq!(UnixMode::parse(text), Ok(mode));
            assert_eq!(UnixMode::parse(&mode.to_string()), Ok(mode));
        }
        for bad in [
            "",
            "6",
            "66",
            "1777",
            "0o660",
            "688",
            "+66",
            "rw-rw-rw-",
            "00666",
        ] {
            let error = UnixMode::parse(bad).unwrap_err().to_string();
            assert!(
                error.ends_with("is no mode in octal, such as 660 or 666, and not umask"),
                "{error}"
            );
        }
    }
}
