//! Diagnostics for the operator: short lines on standard error, from `tracing` anywhere in the server.
//!
//! `2026-11-21T16:48:38Z WARN  disk: read failed path=/srv/a offset_bytes=4096`. A line holds no raw control byte, so
//! no client can forge one by what it asks for.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ackpace_wire::civil::Civil;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::pump::{Handle, Pump, Sink};
use crate::options::{LogLevel, acts_on_a_terminal};

/// Bytes of one line. More: the line is cut. (The bound of the access log is in wire.)
const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// How long an abrupt end waits for the lines before it: they say what led to it.
pub const FLUSH_AT_END: Duration = Duration::from_millis(500);

/// The running log of diagnostics. Dropping it writes what is queued and stops it; later events are lost.
pub struct Diagnostics {
    pump: Pump,
}

impl Diagnostics {
    /// Sends all `tracing` events of this process from `level` on to standard error. Once per process.
    pub fn start(level: LogLevel) -> io::Result<Diagnostics> {
        let sink = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let pump = start_pump(Box::new(sink))?;
        tracing::subscriber::set_global_default(subscriber(level, pump.handle()))
            .map_err(io::Error::other)?;
        let (handle, earlier) = (pump.handle(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            handle.flush(FLUSH_AT_END);
            earlier(panic);
        }));
        Ok(Diagnostics { pump })
    }

    /// A handle by which its counts are read.
    pub fn handle(&self) -> Handle {
        self.pump.handle()
    }
}

fn start_pump(sink: Sink) -> io::Result<Pump> {
    let name = "log: standard error".to_owned();
    Pump::start(name, sink, Box::new(|| None))
}

fn subscriber(level: LogLevel, handle: Handle) -> impl Subscriber + Send + Sync {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .event_format(Lines)
        .with_writer(Queue { handle })
        .finish()
}

/// The queue as a writer: each event is one call of `write`.
struct Queue {
    handle: Handle,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Queue;

    fn make_writer(&'a self) -> &'a Queue {
        self
    }
}

impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.handle.push(line.into());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Time, level, message, then `name=value` for each further field.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        push_start(now_unix_s(), event.metadata().level(), &mut line);
        let mut fields = Fields::default();
        event.record(&mut fields);
        push_escaped(&fields.message, &mut line);
        push_escaped(&fields.others, &mut line);
        writer.write_str(cut(&line))?;
        writer.write_char('\n')
    }
}

/// The part of `line` that is printed; the line feed after it is within the bound.
fn cut(line: &str) -> &str {
    let mut end = line.len().min(LOG_LINE_BYTES_MAX - 1);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

fn now_unix_s() -> i64 {
    // A clock before 1970 is no reason to fail.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}

fn push_start(unix_s: i64, level: &Level, line: &mut String) {
    let mut time = Vec::with_capacity(32);
    Civil::from_unix_s(unix_s).push_rfc3339(&mut time);
    line.push_str(&String::from_utf8_lossy(&time)); // ASCII
    line.push_str("Z ");
    line.push_str(match *level {
        Level::ERROR => "ERROR ",
        Level::WARN => "WARN  ",
        Level::INFO => "INFO  ",
        Level::DEBUG => "DEBUG ",
        Level::TRACE => "TRACE ",
    });
}

/// Such characters as Rust writes them (`\n`, `\u{1b}`).
fn push_escaped(text: &str, line: &mut String) {
    for char in text.chars() {
        if acts_on_a_terminal(char) {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn push(&mut self, name: &str, value: &str) {
        if name == "message" {
            self.message.push_str(value);
            return;
        }
        let plain = !value.is_empty() && !value.contains([' ', '"', '=']);
        self.others.push(' ');
        self.others.push_str(name);
        self.others.push('=');
        match plain {
            true => self.others.push_str(value),
            false => self.others.push_str(&format!("{value:?}")),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push(field.name(), &value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic before").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LogLevel, act: impl FnOnce()) -> Vec<String> {
        let sink = Shared::default();
        let pump = start_pump(Box::new(sink.clone())).expect("a thread");
        tracing::subscriber::with_default(subscriber(level, pump.handle()), act);
        drop(pump);
        let text =
            String::from_utf8(sink.0.lock().expect("no panic before").clone()).expect("UTF-8");
        text.lines()
            .map(|line| {
                let (time, rest) = line.split_once(' ').expect("a time");
                assert!(
                    time.len() == "2026-11-21T16:48:38Z".len() && time.ends_with('Z'),
                    "{time}"
                );
                rest.to_owned()
            })
            .collect()
    }

    #[test]
    fn a_line_has_level_message_and_fields() {
        let error = io::Error::from_raw_os_error(5);
        let lines = logged(LogLevel::Info, || {
            tracing::warn!(path = "/srv/a b", offset_bytes = 4096, error = %error, "read failed");
            tracing::info!("serving {}", "here");
        });
        assert_eq!(
            lines,
            [
                "WARN  read failed path=\"/srv/a b\" offset_bytes=4096 error=\"Input/output error (os error 5)\"",
                "INFO  serving here"
            ]
        );
    }

    #[test]
    fn events_below_the_level_are_left_out() {
        let all = || {
            tracing::error!("e");
            tracing::warn!("w");
            tracing::info!("i");
            tracing::debug!("d");
            tracing::trace!("t");
        };
        for (level, count) in [
            (LogLevel::Error, 1),
            (LogLevel::Warn, 2),
            (LogLevel::Info, 3),
            (LogLevel::Debug, 4),
        ] {
            assert_eq!(logged(level, all).len(), count, "{level:?}");
        }
    }

    #[test]
    fn nobody_can_forge_a_line_or_drive_the_terminal() {
        let lines = logged(LogLevel::Info, || {
            tracing::info!(
                path = "a\n2026-11-21T16:48:38Z ERROR b",
                "x\r\n\x1B[31m\u{9b}y\u{202e}"
            );
        });
        assert_eq!(
            lines,
            [r#"INFO  x\r\n\u{1b}[31m\u{9b}y\u{202e} path="a\n2026-11-21T16:48:38Z ERROR b""#]
        );
    }

    #[test]
    fn a_long_line_is_cut_at_its_bound() {
        let mut line = String::new();
        push_start(0, &Level::INFO, &mut line);
        let room = LOG_LINE_BYTES_MAX - line.len() - 1;
        for (len_bytes, shown_bytes) in [(room - 1, room - 1), (room, room), (room + 1, room)] {
            let message = "x".repeat(len_bytes);
            let lines = logged(LogLevel::Info, || tracing::info!("{message}"));
            assert_eq!(lines[0].matches('x').count(), shown_bytes);
        }
        assert_eq!(
            cut(&"é".repeat(LOG_LINE_BYTES_MAX)).len() % 2,
            0,
            "no half character"
        );
    }
}
