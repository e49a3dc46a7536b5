//! The other end of the admin socket: `ackpace top` and `ackpace why`.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::place;
use super::questions::Subject;
use super::{nodes, view};
use crate::answers::{CacheState, ClusterState, Drained, Explained, Purged, Refusal, Top};
use crate::failure::Failure;
use crate::limits::TOP_CONNECTIONS_MAX;

/// The interval at which `top` is refreshed.
const REFRESH: Duration = Duration::from_secs(1);
/// Connections on a page that is not printed to a terminal.
const ON_A_PAGE: usize = 20;
/// How long `ackpace top` and `ackpace why` wait for an answer: far more than a server with hanging workers needs.
/// More: they say that it does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Bytes of an answer that `ackpace top` and `ackpace why` take, in their own memory: a million connections. More: it
/// is refused.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub json: bool,
    /// Print one snapshot, rather than one each second.
    pub once: bool,
    /// Connections at most; `None`: all for programs, what there is room for on a terminal, or 20.
    pub most: Option<usize>,
}

/// `ackpace top`.
pub fn top(path: Option<&Path>, shown: Shown) -> Result<(), Failure> {
    let mut server = AdminConnection::open(path)?;
    let is_drawn = !shown.once && !shown.json && std::io::stdout().is_terminal();
    loop {
        let size = is_drawn.then(view::terminal_size);
        let room = size.map_or(ON_A_PAGE, |(lines, _)| lines);
        let text = match (ask_top(&mut server, shown, room)?, size) {
            (ServerSnapshot::Line(line), _) => line,
            (ServerSnapshot::Top(top), Some(size)) => {
                view::drawn(&view::top(&top, Some(size)), size)
            }
            (ServerSnapshot::Top(top), None) => view::top(&top, None),
        };
        if !print(&text)? || shown.once {
            return Ok(());
        }
        std::thread::sleep(REFRESH);
    }
}

enum ServerSnapshot {
    Line(String),
    Top(Box<Top>),
}

/// Asks for the `room` fastest connections, or as many as the options say. The server sorts no more than
/// [`TOP_CONNECTIONS_MAX`]: beyond that it is asked for all of them, and they are sorted here.
fn ask_top(
    server: &mut AdminConnection,
    shown: Shown,
    room: usize,
) -> Result<ServerSnapshot, Failure> {
    let most = match shown.json {
        true => shown.most,
        false => Some(shown.most.unwrap_or(room)),
    };
    let sorted = most.filter(|most| *most <= TOP_CONNECTIONS_MAX);
    let line = server.ask(&match sorted {
        Some(most) => format!("top {most}"),
        None => "top".to_owned(),
    })?;
    let mut top: Top = parse(&line)?;
    if let Some(most) = most.filter(|_| sorted.is_none()) {
        let connections = &mut top.connections;
        connections.sort_by_key(|connection| std::cmp::Reverse(connection.rate_bytes_per_s));
        top.left_out += connections.len().saturating_sub(most) as u64;
        connections.truncate(most);
        if shown.json {
            let line = serde_json::to_string(&top).unwrap_or_default();
            return Ok(ServerSnapshot::Line(line + "\n"));
        }
    }
    Ok(match shown.json {
        true => ServerSnapshot::Line(line),
        false => ServerSnapshot::Top(Box::new(top)),
    })
}

/// `ackpace why CONN|DEVICE`.
pub fn why(path: Option<&Path>, target: &str, json: bool) -> Result<(), Failure> {
    // Checked here, so that a mistyped name is reported even without a server.
    target.parse::<Subject>().map_err(Failure::operator)?;
    let mut server = AdminConnection::open(path)?;
    let line = server.ask(&format!("why {target}"))?;
    let explained: Explained = parse(&line)?;
    let text = match json {
        true => line,
        false => view::why(&explained),
    };
    print(&text).map(drop)
}

/// `ackpace cache status`.
pub fn cache(path: Option<&Path>, json: bool) -> Result<(), Failure> {
    let line = AdminConnection::open(path)?.ask("cache")?;
    let state: CacheState = parse(&line)?;
    let text = match json {
        true => line,
        false => view::cache(&state),
    };
    print(&text).map(drop)
}

/// `ackpace cache purge PREFIX`.
pub fn purge(
    path: Option<&Path>,
    prefix: &str,
    only_stale: bool,
    json: bool,
) -> Result<(), Failure> {
    if prefix.contains(char::is_whitespace) {
        let text = "a prefix has no spaces: write them as %20, as the server asks its origin";
        return Err(Failure::operator(text));
    }
    let what = if only_stale { "stale" } else { "purge" };
    let line = AdminConnection::open(path)?.ask(&format!("{what} {prefix}"))?;
    let purged: Purged = parse(&line)?;
    let text = match json {
        true => line,
        false => view::purged(&purged, only_stale),
    };
    print(&text).map(drop)
}

/// `ackpace cluster status`.
pub fn cluster(path: Option<&Path>, json: bool) -> Result<(), Failure> {
    let line = AdminConnection::open(path)?.ask("cluster")?;
    let state: ClusterState = parse(&line)?;
    let text = match json {
        true => line,
        false => nodes::page(&state),
    };
    print(&text).map(drop)
}

/// `ackpace cluster drain NODE` and `undrain NODE`.
pub fn drain(path: Option<&Path>, node: &str, on: bool, json: bool) -> Result<(), Failure> {
    if node.is_empty() || node.contains(char::is_whitespace) {
        return Err(Failure::operator("a node's name has no spaces"));
    }
    let what = if on { "drain" } else { "undrain" };
    let line = AdminConnection::open(path)?.ask(&format!("{what} {node}"))?;
    let drained: Drained = parse(&line)?;
    let text = match json {
        true => line,
        false => nodes::drained(&drained),
    };
    print(&text).map(drop)
}

/// Prints; `false` if nobody reads the output any more (`| head`).
fn print(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::runtime(format!("standard output: {error}"))),
    }
}

/// A connection to the admin socket of a server: a line asks, a line of JSON answers.
struct AdminConnection(BufReader<UnixStream>);

impl AdminConnection {
    /// Connects to the server whose socket is at `path`, or to the only one that runs here.
    fn open(path: Option<&Path>) -> Result<AdminConnection, Failure> {
        let stream = place::find(path).map_err(Failure::runtime)?;
        let timed = stream.set_read_timeout(Some(ANSWER_MAX));
        timed.map_err(|error| Failure::runtime(error.to_string()))?;
        Ok(AdminConnection(BufReader::new(stream)))
    }

    /// Sends a request, and returns the line that answers it.
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
fn parse<T: DeserializeOwned>(line: &str) -> Result<T, Failure> {
    if let Ok(refusal) = serde_json::from_str::<Refusal>(line) {
        return Err(Failure::runtime(view::plain(&refusal.error)));
    }
    let error =
        |error| Failure::runtime(format!("the answer of the server can't be read: {error}"));
    serde_json::from_str(line).map_err(error)
}
