//! The status socket: whoever asks is told how `tune` stands, if it is root or the user of this process.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ackpace_host_base::failure::Failure;

use crate::tally::Tally;

/// Root and the user of this process may connect.
const MODE: u32 = 0o600;
/// A question. Longer: the rest is not read.
const QUESTION_BYTES_MAX: u64 = 64;
/// How long one read or write may take. They are root, and few: who says nothing holds up the others for so long.
const STEP: Duration = Duration::from_millis(200);
/// How long one who asks waits for the answer: until others have taken their time. Longer: an error that says so.
const ANSWER_MS_MAX: u64 = 5_000;
/// An answer, as its reader takes it: some hundred times what there is to tell. Longer: cut off.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// After an error of accept(2), as where a process has no descriptor left: it would be the same at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What is told, as of the last pass.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Tally>>);

impl Board {
    /// Shows another tally.
    pub fn show(&self, tally: &Tally) {
        self.tally().clone_from(tally);
    }

    /// The pass that is under way hangs, for so long by now.
    pub fn stuck(&self, waited: Duration) {
        self.tally().stuck_s = waited.as_secs();
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the socket, which goes away with this.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

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
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    let board = board.clone();
    let thread = thread::Builder::new().name("status".to_owned());
    thread.spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // One that asks no more is nobody's loss.
                Ok(stream) => _ = answer(stream, &board),
                Err(_) => thread::sleep(ACCEPT_AGAIN),
            }
        }
    })?;
    Ok(file)
}

/// Answers one question.
fn answer(mut stream: UnixStream, board: &Board) -> io::Result<()> {
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))?;
    let mut question = String::new();
    BufReader::new((&stream).take(QUESTION_BYTES_MAX)).read_line(&mut question)?;
    let answer = match question.trim() {
        "status" => serde_json::to_string(&*board.tally())? + "\n",
        "metrics" => board.tally().metrics(),
        _ => "refused: 'status' and 'metrics' are what can be asked\n".to_owned(),
    };
    stream.write_all(answer.as_bytes())
}

/// Asks the instance at `path`.
///
/// # Errors
/// There is none, it refuses, or it has not answered to the end.
pub fn ask(path: &Path, question: &str) -> Result<String, Failure> {
    let stream = UnixStream::connect(path);
    let told = stream.and_then(|stream| hear(stream, question));
    let told = told.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::runtime("no instance is running in this network namespace")
        }
        io::ErrorKind::PermissionDenied => Failure::operator(
            "only root and the user of the instance that tunes may ask: run it as root, as by sudo",
        ),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::runtime(format!(
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
                .contains("no instance is running")
        );
    }

    #[test]
    fn one_that_says_nothing_is_let_go_and_the_next_one_is_told() {
        let path =
            std::env::temp_dir().join(format!("ackpace-host-silent-{}.sock", std::process::id()));
        let _file = answer_at(&path, &Board::default()).expect("a free path");
        let mut silent = UnixStream::connect(&path).expect("it listens");
        assert!(ask(&path, "metrics").is_ok());
        let mut told = String::new();
        silent.read_to_string(&mut told).expect("an end");
        assert_eq!(told, "");
    }

    #[test]
    fn an_answer_that_is_empty_or_cut_is_an_error() {
        for (answer, len_bytes) in [("", 0), ("{\"sockets\":", 11)] {
            let (asker, mut teller) = UnixStream::pair().expect("two sockets");
            teller.write_all(answer.as_bytes()).expect("there is room");
            teller.shutdown(Shutdown::Write).expect("as at its end");
            let why = hear(asker, "status")
                .expect_err("it is not whole")
                .to_string();
            let cut = format!("the answer ended after {len_bytes} bytes");
            assert!(why.contains(&cut), "{why}");
        }
    }
}
