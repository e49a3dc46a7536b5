//! The status socket: whoever asks is told how `tune` stands, if it is root or the user of this process.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MS_MAX, QUESTION_BYTES_MAX, QUESTION_MS_MAX};
use crate::tally::Tally;

/// What is told, as of the last pass.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Tally>>);

impl Board {
    /// Shows another tally.
    pub fn show(&self, tally: &Tally) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(tally);
    }

    /// Whether the budget was too small by the last tally.
    pub fn is_short(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_short
    }

    fn read(&self) -> Tally {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The file of the socket, which goes away with this.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Takes charge of the file that was just bound.
    pub fn of(path: &Path) -> SocketFile {
        SocketFile(path.to_owned())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Answers at `path` from now on, by a thread of its own. A file that a killed instance left is replaced: the caller has
/// the lock.
///
/// # Errors
/// As bind(2); the thread can't be started.
pub fn answer_at(path: &Path, board: &Board) -> io::Result<SocketFile> {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    let file = SocketFile::of(path);
    // Peers are told apart by their credentials, so that a refusal says why.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    let board = board.clone();
    thread::Builder::new()
        .name("status".to_owned())
        .spawn(move || {
            for asker in listener.incoming().flatten() {
                let _ = answer(asker, &board, QUESTION_MS_MAX);
            }
        })?;
    Ok(file)
}

fn answer(mut asker: UnixStream, board: &Board, wait_ms: u64) -> io::Result<()> {
    let wait = Some(Duration::from_millis(wait_ms));
    asker.set_read_timeout(wait)?;
    asker.set_write_timeout(wait)?;
    // Read in any case: closing a socket with unread bytes would take the refusal from its reader.
    let question = match line(&mut asker) {
        Err(error) if is_timeout(&error) => {
            return writeln!(asker, "refused: no question within {wait_ms} ms");
        }
        question => question?,
    };
    let peer = rustix::net::sockopt::socket_peercred(&asker)?;
    let own = rustix::process::geteuid();
    if !peer.uid.is_root() && peer.uid != own {
        return writeln!(
            asker,
            "refused: only root and user {} may ask",
            own.as_raw()
        );
    }
    match question.as_str() {
        "status" => writeln!(asker, "{}", serde_json::to_string(&board.read())?),
        "metrics" => write!(asker, "{}", board.read().metrics()),
        _ => writeln!(
            asker,
            "refused: 'status' and 'metrics' are what can be asked"
        ),
    }
}

/// A line, or what comes before the bound or the end.
fn line(asker: &mut UnixStream) -> io::Result<String> {
    let (mut text, mut held) = ([0; QUESTION_BYTES_MAX], 0);
    while held < text.len() && !text[..held].contains(&b'\n') {
        match asker.read(&mut text[held..])? {
            0 => break,
            read => held += read,
        }
    }
    Ok(String::from_utf8_lossy(&text[..held]).trim().to_owned())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Asks the instance at `path`.
///
/// # Errors
/// There is none, it refuses, or it has not answered to the end.
pub fn ask(path: &Path, question: &str) -> Result<String, Failure> {
    let stream = UnixStream::connect(path);
    let told = stream.and_then(|stream| hear(stream, question));
    let told = told.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::runtime(
            "nothing tunes this network namespace: 'ackpace-host tune --budget 256MiB' would",
        ),
        _ if is_timeout(&error) => Failure::runtime(format!(
            "{}: no answer within {ANSWER_MS_MAX} ms: the machine is overloaded, ask again",
            path.display()
        )),
        _ => Failure::runtime(format!("{}: {error}", path.display())),
    })?;
    match told.strip_prefix("refused: ") {
        Some(why) => Err(Failure::operator(why.trim())),
        None => Ok(told),
    }
}

/// The whole answer to a question.
fn hear(mut stream: UnixStream, question: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_millis(ANSWER_MS_MAX)))?;
    // Fails if the question comes too late. What was told before that is there still, and says why.
    let asked = stream.write_all(format!("{question}\n").as_bytes());
    let mut answer = String::new();
    let read = stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer);
    if answer.ends_with('\n') {
        return Ok(answer);
    }
    asked.and(read)?;
    let cut = format!(
        "the answer ended after {} bytes, within a line: ask again",
        answer.len()
    );
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, cut))
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn who_asks_is_told_and_a_wrong_question_refused() {
        let path =
            std::env::temp_dir().join(format!("ackpace-host-status-{}.sock", std::process::id()));
        let board = Board::default();
        let file = answer_at(&path, &board).expect("a free path");
        board.show(&Tally {
            sockets: 7,
            ..Tally::default()
        });
        let status: Tally =
            serde_json::from_str(&ask(&path, "status").expect("an answer")).expect("JSON");
        assert_eq!(status.sockets, 7);
        assert!(
            ask(&path, "metrics")
                .expect("an answer")
                .contains("ackpace_host_tune_sockets 7\n")
        );
        assert!(
            ask(&path, "x")
                .expect_err("no question")
                .to_string()
                .contains("'status'")
        );
        let long = "y".repeat(5_000);
        assert!(ask(&path, &long).is_err(), "it is cut off");
        drop(file);
        assert!(
            ask(&path, "status")
                .expect_err("gone")
                .to_string()
                .contains("nothing tunes")
        );
    }

    /// What one hears whose question is read, and answered by this.
    fn heard(answer: &str) -> io::Result<String> {
        let (asker, mut teller) = UnixStream::pair().expect("two sockets");
        teller.write_all(answer.as_bytes()).expect("there is room");
        teller.shutdown(Shutdown::Write).expect("as at its end");
        hear(asker, "status")
    }

    #[test]
    fn an_answer_that_is_empty_or_cut_is_an_error() {
        for (answer, len_bytes) in [("", 0), ("{\"sockets\":", 11)] {
            let why = heard(answer).expect_err("it is not whole").to_string();
            let cut = format!("the answer ended after {len_bytes} bytes");
            assert!(why.contains(&cut), "{why}");
        }
        assert_eq!(heard("{}\n").expect("it is whole"), "{}\n");
    }

    #[test]
    fn who_asks_too_late_hears_why() {
        let (asker, teller) = UnixStream::pair().expect("two sockets");
        answer(teller, &Board::default(), 1).expect("it is told");
        let told = hear(asker, "status").expect("its question found nobody, but was answered");
        assert_eq!(told, "refused: no question within 1 ms\n");
    }
}
