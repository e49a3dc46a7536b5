//! Where the access log and the metrics go, and where the admin socket is.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::listen::Listen;
use super::names::path;
use super::value::{ValueError, shown, shown_path};

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
    /// Reads `off`, `-` or a path. `/dev/stdout` is standard output, too: where that is a socket, as under systemd, it
    /// can't be opened by name.
    pub fn parse(text: OsString) -> Result<Self, ValueError> {
        let elsewhere = |text: &[u8]| {
            matches!(text, b"stdout" | b"stderr" | b"none" | b"syslog")
                || text.starts_with(b"syslog:")
                || text.starts_with(b"|")
        };
        match text.as_bytes() {
            b"off" => Ok(Self::Off),
            b"-" | b"/dev/stdout" | b"/dev/fd/1" | b"/proc/self/fd/1" => Ok(Self::Stdout),
            text if elsewhere(text) => {
                let shown = shown(&String::from_utf8_lossy(text));
                Err(ValueError::new(format!(
                    "{shown} is no place here: write - for standard output (the journal, under systemd), off for no log, ./{shown} \
                     for a file of that name"
                )))
            }
            _ => Ok(Self::File(path(text)?)),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stdout => f.write_str("-"),
            Self::File(path) => f.write_str(&shown_path(path)),
        }
    }
}

/// Where metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAt {
    /// Nowhere.
    Off,
    Tcp(Listen),
}

impl MetricsAt {
    /// Reads `off`, or an address as `--listen` has it.
    pub fn parse(text: OsString) -> Result<Self, ValueError> {
        if text.as_bytes() == b"off" {
            return Ok(Self::Off);
        }
        match Listen::parse(&text)? {
            listen @ Listen::Tcp { .. } => Ok(Self::Tcp(listen)),
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
    Path(PathBuf),
}

impl AdminAt {
    /// Reads `auto`, `off` or a path.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: fmt::Debug>(result: Result<T, ValueError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_log_goes_nowhere_to_stdout_or_to_a_file() {
        let parse = |text: &str| LogTarget::parse(text.into());
        assert_eq!(parse("off"), Ok(LogTarget::Off));
        assert_eq!(parse("-"), Ok(LogTarget::Stdout));
        assert_eq!(parse("/dev/stdout"), Ok(LogTarget::Stdout));
        for file in ["./off", "./stdout", "/dev/null", "stdout.log"] {
            assert_eq!(parse(file), Ok(LogTarget::File(file.into())));
        }
        assert_eq!(text(parse("")), "\"\" is not a path");
        for elsewhere in ["stdout", "syslog:server=192.0.2.1", "|/bin/logger"] {
            let told = text(parse(elsewhere));
            assert!(
                told.starts_with(elsewhere) && told.contains("write - for"),
                "{told}"
            );
        }
    }

    #[test]
    fn metrics_are_at_a_tcp_address_and_the_admin_socket_at_a_path() {
        let metrics = |text: &str| MetricsAt::parse(text.into());
        assert_eq!(metrics("off"), Ok(MetricsAt::Off));
        assert_eq!(metrics("9100"), Ok(MetricsAt::Tcp(Listen::local(9100))));
        assert!(matches!(
            metrics(":9100"),
            Ok(MetricsAt::Tcp(Listen::Tcp { all: true, .. }))
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
}
