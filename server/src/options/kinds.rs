//! The small values: words to choose from, targets, names.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ackpace_wire::content_type;
use ackpace_wire::hide::Hide;
use clap::ValueEnum;

use super::listen::Listen;
use super::value::{ValueError, shown, whole};

/// How many workers, each a thread with its own share of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// One for each core that may be used (affinity mask, cgroup quota).
    Auto,
    /// So many, 1 to 64.
    Count(u16),
}

impl Workers {
    /// Reads `auto` or a number.
    ///
    /// # Errors
    /// Any other word, or a number outside 1 to 64.
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

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FollowSymlinks {
    /// Those that end inside the root or one of `allow_roots`.
    Inside,
    /// All of them, wherever they lead.
    All,
    /// None.
    None,
}

/// When sockets are given more to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SendBy {
    /// When their margin is half used up, together with all that are near that point.
    Margin,
    /// Each as soon as it takes some.
    Eager,
}

/// How files are read from disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReadBy {
    /// Past the page cache, as long as they have one reader.
    Direct,
    /// Through it.
    PageCache,
}

/// How much is read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrefetchBy {
    /// By each client's rate and the disk's load.
    Tdap,
    /// The same by the paper's equations, to compare.
    Paper,
    /// By each client's rate, for a constant time.
    Rate,
    /// The same for all.
    Fixed,
}

/// Whether the reads of those who left are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cancel {
    /// They are.
    On,
    /// They are made.
    Off,
}

/// What becomes of reads for clients whose path is congested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DelayBy {
    /// They are due by the rate, which is measured anew.
    Rate,
    /// They wait for half of the target time.
    Paper,
    /// They are made as planned.
    Off,
}

/// In which order a disk is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderBy {
    /// As files lie on it.
    CLook,
    /// Who runs dry first.
    Deadline,
    /// Who asked first.
    Arrival,
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
    /// One JSON object a line, with what arrived and what was waited for.
    Json,
}

/// The least important messages that are still shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Something failed and somebody has to act.
    Error,
    /// Something is not as it should be; the server goes on.
    Warn,
    /// Start, stop, and what an operator wants to know once.
    Info,
    /// Every decision; for finding a fault.
    Debug,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// To standard output.
    Stdout,
    /// To the end of this file.
    File(PathBuf),
}

impl LogTarget {
    /// Reads `off`, `-` or a path.
    ///
    /// # Errors
    /// An empty path.
    pub fn parse(text: OsString) -> Result<Self, ValueError> {
        match text.as_bytes() {
            b"off" => Ok(Self::Off),
            b"-" => Ok(Self::Stdout),
            _ => Ok(Self::File(path(text)?)),
        }
    }
}

/// Where metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAt {
    /// Nowhere.
    Off,
    /// At this address.
    Tcp {
        /// Address and port; port 0 lets the kernel choose.
        addr: SocketAddr,
        /// Every address of the machine.
        all: bool,
    },
}

impl MetricsAt {
    /// Reads `off`, or an address as `--listen` has it.
    ///
    /// # Errors
    /// What [`Listen::parse`] refuses, and what is not TCP.
    pub fn parse(text: OsString) -> Result<Self, ValueError> {
        if text.as_bytes() == b"off" {
            return Ok(Self::Off);
        }
        match Listen::parse(&text)? {
            Listen::Tcp { addr, all } => Ok(Self::Tcp { addr, all }),
            Listen::Unix(_) | Listen::Fd(_) => Err(ValueError::new(format!(
                "{} is no TCP address, such as 127.0.0.1:9100",
                shown(&text.to_string_lossy())
            ))),
        }
    }
}

/// Where the admin socket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAt {
    /// Where `ackpace top` looks for it.
    Auto,
    /// Nowhere.
    Off,
    /// At this path.
    Path(PathBuf),
}

impl AdminAt {
    /// Reads `auto`, `off` or a path.
    ///
    /// # Errors
    /// An empty path, or one that is too long for a unix socket.
    pub fn parse(text: OsString) -> Result<Self, ValueError> {
        match text.as_bytes() {
            b"auto" => return Ok(Self::Auto),
            b"off" => return Ok(Self::Off),
            _ => {}
        }
        let mut listen = OsString::from("unix:");
        listen.push(&text);
        match Listen::parse(&listen)? {
            Listen::Unix(path) => Ok(Self::Path(path)),
            Listen::Tcp { .. } | Listen::Fd(_) => Err(ValueError::new("it is no path")),
        }
    }
}

/// A path that names something.
///
/// # Errors
/// An empty path, or one with a NUL byte.
pub fn path(text: OsString) -> Result<PathBuf, ValueError> {
    if text.is_empty() || text.as_bytes().contains(&0) {
        let shown_path = shown(&text.to_string_lossy());
        return Err(ValueError::new(format!("{shown_path} is not a path")));
    }
    Ok(PathBuf::from(text))
}

/// The name of a file within a directory.
///
/// # Errors
/// A name with `/` or NUL, `.` and `..`, or a name that is longer than any file's (255 bytes).
pub fn file_name(text: &str) -> Result<String, ValueError> {
    let names_a_file =
        !matches!(text, "" | "." | "..") && !text.contains(['/', '\0']) && text.len() <= 255;
    if names_a_file {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(format!(
        "{} is not the name of a file, such as index.html",
        shown(text)
    )))
}

/// A pattern for names to hide: `*` and `?` are wild, all else stands for itself.
///
/// # Errors
/// A pattern that `ackpace_wire::hide` refuses: an empty or too long one, or one that no name can match.
pub fn pattern(text: &str) -> Result<String, ValueError> {
    if Hide::new(&[text]).is_err() {
        return Err(ValueError::new(format!(
            "{} matches no name: write a pattern for one name of a path, such as *.tmp",
            shown(text)
        )));
    }
    Ok(text.to_owned())
}

/// A media type for the names that end in an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeOverride {
    /// Without its leading dot, in lower case; may have dots inside (`tar.gz`).
    pub extension: String,
    /// As sent in Content-Type, parameters included.
    pub media_type: String,
}

impl TypeOverride {
    /// Reads `EXT=TYPE`, such as `tar.gz=application/gzip`.
    ///
    /// # Errors
    /// No `=`, or what `ackpace_wire::content_type` refuses as an extension or media type (RFC 9110 section 8.3.1).
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let Some((extension, media_type)) = text.split_once('=') else {
            return Err(ValueError::new(format!(
                "{} is not EXT=TYPE, such as md=text/markdown",
                shown(text)
            )));
        };
        let extension = extension.strip_prefix('.').unwrap_or(extension);
        if content_type::check_extension(extension).is_err() {
            return Err(ValueError::new(format!(
                "{} is not an extension, such as md or tar.gz",
                shown(extension)
            )));
        }
        if content_type::check_media_type(media_type).is_err() {
            return Err(ValueError::new(format!(
                "{} is not a media type, such as text/markdown; charset=utf-8",
                shown(media_type)
            )));
        }
        Ok(Self {
            extension: extension.to_ascii_lowercase(),
            media_type: media_type.to_owned(),
        })
    }
}

impl fmt::Display for TypeOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.extension, self.media_type)
    }
}

/// What is sent at a pace, besides what the congestion control paces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pacing {
    /// The first window of a response, where nothing else would slow it down.
    FirstFlight,
    /// Nothing.
    Off,
}

/// The congestion control of the connections of one listener, or of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControl {
    /// Whose; `None`: of all that have none of their own.
    pub listen: Option<Listen>,
    /// As the kernel calls it, such as `cubic`.
    pub name: String,
}

impl CongestionControl {
    /// Reads `NAME` or `ADDR=NAME`, such as `bbr` or `:8443=bbr`. Whether the kernel knows it turns out at the start.
    ///
    /// # Errors
    /// What can't be the name of a congestion control (1 to 15 letters, digits, `_` and `-`), or an address that `--listen`
    /// would not take.
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
    fn a_log_goes_nowhere_to_stdout_or_to_a_file() {
        let parse = |text: &str| LogTarget::parse(text.into());
        assert_eq!(parse("off"), Ok(LogTarget::Off));
        assert_eq!(parse("-"), Ok(LogTarget::Stdout));
        assert_eq!(parse("./off"), Ok(LogTarget::File("./off".into())));
        assert_eq!(text(parse("")), "\"\" is not a path");
    }

    #[test]
    fn metrics_are_at_a_tcp_address_and_the_admin_socket_at_a_path() {
        let metrics = |text: &str| MetricsAt::parse(text.into());
        let addr = ([127, 0, 0, 1], 9100).into();
        assert_eq!(metrics("off"), Ok(MetricsAt::Off));
        assert_eq!(metrics("9100"), Ok(MetricsAt::Tcp { addr, all: false }));
        assert!(matches!(
            metrics(":9100"),
            Ok(MetricsAt::Tcp { all: true, .. })
        ));
        assert_eq!(
            text(metrics("unix:/a")),
            "unix:/a is no TCP address, such as 127.0.0.1:9100"
        );
        let admin = |text: &str| AdminAt::parse(text.into());
        assert_eq!(
            (admin("auto"), admin("off")),
            (Ok(AdminAt::Auto), Ok(AdminAt::Off))
        );
        assert_eq!(admin("./off"), Ok(AdminAt::Path("./off".into())));
        assert!(admin("").is_err() && admin(&"x".repeat(200)).is_err());
    }

    #[test]
    fn paths_file_names_and_patterns_can_exist() {
        assert_eq!(text(path("a\0b".into())), "a\\u{0}b is not a path");
        assert_eq!(file_name("index.html"), Ok("index.html".into()));
        assert_eq!(file_name(&"x".repeat(255)), Ok("x".repeat(255)));
        let usage = "is not the name of a file, such as index.html";
        for bad in ["", ".", "..", "a/b", "/index.html"] {
            assert_eq!(text(file_name(bad)), format!("{} {usage}", shown(bad)));
        }
        assert!(file_name(&"x".repeat(256)).is_err());
        assert_eq!(pattern("*.tmp"), Ok("*.tmp".into()));
        assert_eq!(pattern(&"?".repeat(255)), Ok("?".repeat(255)));
        assert!(pattern(&"?".repeat(256)).is_err());
        let usage = "matches no name: write a pattern for one name of a path, such as *.tmp";
        assert_eq!(text(pattern("a/*")), format!("a/* {usage}"));
        assert_eq!(text(pattern("")), format!("\"\" {usage}"));
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
    fn types_have_an_extension_and_a_media_type() {
        let parse = |text: &str| TypeOverride::parse(text).map(|t| (t.extension, t.media_type));
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(parse("md=text/markdown"), pair("md", "text/markdown"));
        assert_eq!(
            parse(".TAR.gz=application/gzip"),
            pair("tar.gz", "application/gzip")
        );
        let utf8 = "text/plain; charset=utf-8; x=\"a b\"";
        assert_eq!(parse(&format!("txt={utf8}")), pair("txt", utf8));
        assert_eq!(
            text(parse("md")),
            "md is not EXT=TYPE, such as md=text/markdown"
        );
        for bad in ["", ".", "a..b", "a/b", "a.", "a\n"] {
            let name = shown(bad.strip_prefix('.').unwrap_or(bad));
            let expected = format!("{name} is not an extension, such as md or tar.gz");
            assert_eq!(text(parse(&format!("{bad}=text/plain"))), expected);
        }
        for bad in [
            "",
            "text",
            "text/",
            "/plain",
            "te xt/plain",
            "text/plain;",
            "text/plain; a",
            "text/plain\r\nX: y",
            "text/plain; a=\"\"\"",
        ] {
            let expected = format!(
                "{} is not a media type, such as text/markdown; charset=utf-8",
                shown(bad)
            );
            assert_eq!(text(parse(&format!("md={bad}"))), expected);
        }
        let longest = format!("a/{}", "b".repeat(253));
        assert!(parse(&format!("x={longest}")).is_ok());
        assert!(parse(&format!("x={longest}b")).is_err());
    }
}
