//! Values that are a word from a list, and other small ones.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;

use super::listen::Listen;
use super::size::{self, Size};
use super::value::{ValueError, shown, whole};

/// The number of workers, each a thread with its own share of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// One for each core that may be used (affinity mask, cgroup quota).
    Auto,
    /// So many, 1 to 64.
    Count(u16),
}

impl Workers {
    /// Reads `auto` or a number.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = whole(text, 1..=64)
            .map_err(|error| ValueError::new(format!("{error}, or \"auto\"")))?;
        Ok(Self::Count(count as u16)) // at most 64
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

/// The memory of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMemory {
    /// The kernel tunes each socket.
    Kernel,
    /// So much is divided among the connections.
    Divided(Size),
}

impl SendMemory {
    /// Reads `kernel` or a size.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "kernel" {
            return Ok(Self::Kernel);
        }
        let size = size::within(text, 16 << 10, 90);
        size.map(Self::Divided)
            .map_err(|error| ValueError::new(format!("{error}, or kernel")))
    }
}

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FollowSymlinks {
    /// Those whose target is inside the root or one of `allow_roots`.
    Inside,
    /// All of them, wherever they lead.
    All,
    /// None.
    None,
}

/// A coding whose precompressed sibling (`page.html.zst` beside `page.html`) may be sent instead of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sibling {
    /// Zstandard (RFC 8878).
    #[value(name = ".zst")]
    Zst,
    /// Brotli (RFC 7932).
    #[value(name = ".br")]
    Br,
    /// Gzip (RFC 1952).
    #[value(name = ".gz")]
    Gz,
}

/// The shape of a line in the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// As Apache and nginx write it, with referrer and user agent.
    Combined,
    /// As `combined` without referrer and user agent.
    Common,
    /// One JSON object a line, with what arrived and what the response waited for.
    Json,
}

/// The least important messages that are still printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Something failed, and the operator has to act.
    Error,
    /// Something is wrong; the server goes on.
    Warn,
    /// Start, stop, and what an operator needs to know once.
    Info,
    /// Every decision; for debugging.
    Debug,
}

/// The congestion control of the connections of one listener, or of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControl {
    /// The listener; `None`: all that have none of their own.
    pub listen: Option<Listen>,
    /// The kernel's name of it, such as `cubic`.
    pub name: String,
}

impl CongestionControl {
    /// Reads `NAME` or `ADDR=NAME`, such as `bbr` or `:8443=bbr`. Whether the kernel knows it is checked at the start.
    pub fn parse(text: &OsStr) -> Result<Self, ValueError> {
        let bytes = text.as_bytes();
        let cut = bytes.iter().rposition(|&byte| byte == b'=');
        let listen = cut.map(|cut| Listen::parse(OsStr::from_bytes(&bytes[..cut])));
        let name = &bytes[cut.map_or(0, |cut| cut + 1)..];
        let good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=15).contains(&name.len()) || !name.iter().all(good) {
            let name = String::from_utf8_lossy(name);
            return Err(ValueError::new(format!(
                "{} is not the name of a congestion control, such as cubic",
                shown(&name)
            )));
        }
        Ok(Self {
            listen: listen.transpose()?,
            name: String::from_utf8_lossy(name).into_owned(),
        })
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.listen {
            Some(listen) => write!(f, "{listen}={}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

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

    fn text<T: fmt::Debug>(result: Result<T, ValueError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn workers_are_auto_or_a_number_in_range() {
        assert_eq!(Workers::parse("auto"), Ok(Workers::Auto));
        assert_eq!(Workers::parse("1"), Ok(Workers::Count(1)));
        assert_eq!(Workers::parse("64"), Ok(Workers::Count(64)));
        let range = "is out of range: 1 to 64, or \"auto\"";
        assert_eq!(text(Workers::parse("0")), format!("0 {range}"));
        assert_eq!(text(Workers::parse("65")), format!("65 {range}"));
        let kind = "Auto is not a whole number: 1 to 64, or \"auto\"";
        assert_eq!(text(Workers::parse("Auto")), kind);
        assert_eq!(Workers::Auto.to_string(), "auto");
        assert_eq!(Workers::Count(3).to_string(), "3");
    }

    #[test]
    fn send_memory_is_the_kernel_s_or_a_size_in_range() {
        assert_eq!(SendMemory::parse("kernel"), Ok(SendMemory::Kernel));
        let divided = |size| Ok(SendMemory::Divided(size));
        assert_eq!(SendMemory::parse("16KiB"), divided(Size::Bytes(16 << 10)));
        assert_eq!(SendMemory::parse("90%"), divided(Size::Percent(90)));
        let range = "is out of range: 16KiB or more, or 1% to 90%, or kernel";
        assert_eq!(text(SendMemory::parse("4KiB")), format!("4KiB {range}"));
        assert!(text(SendMemory::parse("auto")).ends_with(" such as 256MiB or 25%, or kernel"));
    }

    #[test]
    fn a_congestion_control_belongs_to_all_or_to_one_listener() {
        let parse = |text: &str| CongestionControl::parse(text.as_ref()).map(|c| c.to_string());
        for good in ["bbr", ":8443=bbr", "unix:/a=b=reno", "[::1]:80=dctcp-plus"] {
            assert_eq!(parse(good).as_deref(), Ok(good));
        }
        let name = "is not the name of a congestion control, such as cubic";
        assert_eq!(text(parse("")), format!("\"\" {name}"));
        assert_eq!(text(parse("a b")), format!("a b {name}"));
        assert_eq!(text(parse(":80=")), format!("\"\" {name}"));
        assert_eq!(
            text(parse(&"x".repeat(16))),
            format!("{} {name}", "x".repeat(16))
        );
        assert!(parse("nowhere=bbr").is_err());
    }

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
        for bad in ["", "66", "1777", "0o660", "688", "+66", "00666"] {
            let end = "is no mode in octal, such as 660 or 666, and not umask";
            assert!(text(UnixMode::parse(bad)).ends_with(end));
        }
    }
}
