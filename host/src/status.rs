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
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MS_MAX, QUESTION_MS_MAX};
use crate::tally::Tally;

mod door;

use self::door::Door;

/// For root and the user of this process, as whoever asks must be. Each asker takes a place; so nobody else can take all of them.
const MODE: u32 = 0o600;

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
    // Who may not ask can't connect. Who did so before this is told apart by his credentials.
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    let door = Door::new(listener, board.clone(), QUESTION_MS_MAX)?;
    let thread = thread::Builder::new().name("status".to_owned());
    thread.spawn(|| door.serve())?;
    Ok(file)
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
        io::ErrorKind::PermissionDenied => Failure::operator(
            "only root and the user of the instance that tunes may ask: run it as root, as by sudo",
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
        let meta = fs::metadata(&path).expect("it is there");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
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
}
