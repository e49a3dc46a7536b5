//! The other end of the admin socket: `ackpace top` and `ackpace why`.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::place;
use super::view;
use crate::answers::{Explained, Refusal, Top};
use crate::failure::Failure;
use crate::limits::{ANSWER_MAX, CONTROL_ANSWER_BYTES, TOP_CONNECTIONS_MAX};

/// How often `top` looks.
const REFRESH: Duration = Duration::from_secs(1);

/// How the answers are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// As they come, for programs.
    pub json: bool,
    /// One look, not one each second.
    pub once: bool,
    /// Connections at most; `None`: 20 for people, 256 for programs.
    pub most: Option<usize>,
}

/// `ackpace top`.
///
/// # Errors
/// No server, or one that ends meanwhile.
pub fn top(path: Option<&Path>, shown: Shown) -> Result<(), Failure> {
    let mut server = Server::find(path)?;
    let most = shown
        .most
        .unwrap_or(if shown.json { TOP_CONNECTIONS_MAX } else { 20 });
    let clear = !shown.once && !shown.json && std::io::stdout().is_terminal();
    loop {
        let line = server.ask(&format!("top {most}"))?;
        let top: Top = read(&line)?;
        let text = match shown.json {
            true => line,
            false => view::top(&top),
        };
        let start = if clear { "\x1b[H\x1b[J" } else { "" };
        if !say(&format!("{start}{text}"))? || shown.once {
            return Ok(());
        }
        std::thread::sleep(REFRESH);
    }
}

/// `ackpace why CONN`.
///
/// # Errors
/// No server, or no such connection.
pub fn why(path: Option<&Path>, target: &str, json: bool) -> Result<(), Failure> {
    // Told here, so that a mistyped name needs no server to be found out.
    target
        .parse::<crate::answers::Target>()
        .map_err(Failure::operator)?;
    let mut server = Server::find(path)?;
    let line = server.ask(&format!("why {target}"))?;
    let explained: Explained = read(&line)?;
    let text = match json {
        true => line,
        false => view::why(&explained),
    };
    say(&text).map(drop)
}

/// Prints; `false` if nobody reads it any more (`| head`).
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
        let most = 16 * CONTROL_ANSWER_BYTES; // whoever answers there
        let read = (&mut self.0).take(most).read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(line),
            _ => Err(gone()),
        }
    }
}

/// The answer, or what the server says instead.
fn read<T: DeserializeOwned>(line: &str) -> Result<T, Failure> {
    if let Ok(refusal) = serde_json::from_str::<Refusal>(line) {
        return Err(Failure::runtime(view::plain(&refusal.error)));
    }
    let error =
        |error| Failure::runtime(format!("the answer of the server can't be read: {error}"));
    serde_json::from_str(line).map_err(error)
}
