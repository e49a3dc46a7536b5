//! The other end of the admin socket: `ackpace top` and `ackpace why`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::place;
use super::questions::Subject;
use super::terminal::{Event, Terminal};
use super::view;
use crate::answers::{Explained, Refusal, Top};
use crate::failure::Failure;
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MAX, TOP_CONNECTIONS_MAX};

/// The interval at which `top` is refreshed.
const REFRESH: Duration = Duration::from_secs(1);
/// Connections on a page that is not printed to a terminal.
const ON_A_PAGE: usize = 20;

/// How the answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// As received, for programs.
    pub json: bool,
    /// Print one snapshot, rather than one each second.
    pub once: bool,
    /// Connections at most; `None`: all for programs, what there is room for on a terminal, or 20.
    pub most: Option<usize>,
}

/// `ackpace top`.
///
/// # Errors
/// There is no server, or it ends meanwhile.
pub fn top(path: Option<&Path>, shown: Shown) -> Result<(), Failure> {
    let mut server = Server::find(path)?;
    let mut terminal = match shown.once || shown.json {
        true => None,
        false => Terminal::open().map_err(|error| Failure::runtime(error.to_string()))?,
    };
    let mut next = Instant::now();
    let mut seen = None;
    loop {
        let size = terminal.as_ref().map(Terminal::size);
        if seen.is_none() || Instant::now() >= next {
            next = Instant::now() + REFRESH;
            let room = size.map_or(ON_A_PAGE, |(lines, _)| lines);
            seen = Some(look(&mut server, shown, room)?);
        }
        let text = match (&seen, size) {
            (Some(Seen::Line(line)), _) => line.clone(),
            (Some(Seen::Top(top)), Some(size)) => view::drawn(&view::top(top, Some(size)), size),
            (Some(Seen::Top(top)), None) => view::top(top, None),
            (None, _) => String::new(),
        };
        if !say(&text)? || shown.once {
            return Ok(());
        }
        match &mut terminal {
            None => std::thread::sleep(REFRESH),
            Some(terminal) => {
                let left = next.saturating_duration_since(Instant::now());
                if terminal.wait(left) == Event::Quit {
                    return Ok(());
                }
            }
        }
    }
}

/// A snapshot of the server.
enum Seen {
    /// As received.
    Line(String),
    Top(Box<Top>),
}

/// Asks for the fastest connections, or for all if these are more than a server sorts.
fn look(server: &mut Server, shown: Shown, room: usize) -> Result<Seen, Failure> {
    let most = match shown.json {
        true => shown.most,
        false => Some(shown.most.unwrap_or(room)),
    };
    let sorted = most.filter(|most| *most <= TOP_CONNECTIONS_MAX);
    let line = server.ask(&match sorted {
        Some(most) => format!("top {most}"),
        None => "top".to_owned(),
    })?;
    let mut top: Top = read(&line)?;
    if let Some(most) = most.filter(|_| sorted.is_none()) {
        let connections = &mut top.connections;
        connections.sort_by_key(|connection| std::cmp::Reverse(connection.rate_bytes_per_s));
        top.left_out += connections.len().saturating_sub(most) as u64;
        connections.truncate(most);
        if shown.json {
            let line = serde_json::to_string(&top).unwrap_or_default();
            return Ok(Seen::Line(line + "\n"));
        }
    }
    Ok(match shown.json {
        true => Seen::Line(line),
        false => Seen::Top(Box::new(top)),
    })
}

/// `ackpace why CONN|DEVICE`.
///
/// # Errors
/// There is no server, or no such connection or device.
pub fn why(path: Option<&Path>, target: &str, json: bool) -> Result<(), Failure> {
    // Checked here, so that a mistyped name is reported even without a server.
    target.parse::<Subject>().map_err(Failure::operator)?;
    let mut server = Server::find(path)?;
    let line = server.ask(&format!("why {target}"))?;
    let explained: Explained = read(&line)?;
    let text = match json {
        true => line,
        false => view::why(&explained),
    };
    say(&text).map(drop)
}

/// Prints; `false` if nobody reads the output any more (`| head`).
fn say(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::runtime(format!("standard output: {error}"))),
    }
}

struct Server(BufReader<UnixStream>);

impl Server {
    fn find(path: Option<&Path>) -> Result<Server, Failure> {
        let stream = place::find(path).map_err(Failure::runtime)?;
        let timed = stream.set_read_timeout(Some(ANSWER_MAX));
        timed.map_err(|error| Failure::runtime(error.to_string()))?;
        Ok(Server(BufReader::new(stream)))
    }

    /// The line that answers.
    fn ask(&mut self, request: &str) -> Result<String, Failure> {
        let gone = || Failure::runtime("the server has ended or does not answer");
        let request = format!("ackpace/1 {request}\n");
        let sent = self.0.get_mut().write_all(request.as_bytes());
        sent.map_err(|_| gone())?;
        let mut line = String::new();
        let read = (&mut self.0).take(ANSWER_BYTES_MAX).read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(line),
            _ => Err(gone()),
        }
    }
}

/// The answer, or the error that the server gives instead.
fn read<T: DeserializeOwned>(line: &str) -> Result<T, Failure> {
    if let Ok(refusal) = serde_json::from_str::<Refusal>(line) {
        return Err(Failure::runtime(view::plain(&refusal.error)));
    }
    let error =
        |error| Failure::runtime(format!("the answer of the server can't be read: {error}"));
    serde_json::from_str(line).map_err(error)
}
