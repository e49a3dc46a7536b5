//! The answering side of the status socket: one thread, and nobody waits for another.
//!
//! Each asker has a deadline, by which it has asked and taken its answer; so many are heard at once, and more wait in the backlog for a
//! place. So one that says nothing takes a place for a while, and nothing else.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use ackpace_core::units::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Board;
use crate::clock::Clock;
use crate::limits::{ASKERS_MAX, QUESTION_BYTES_MAX};

/// After an error of accept(2), as there is where a process has no descriptor left: it would be the same at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The door.
pub(super) struct Door {
    listener: UnixListener,
    board: Board,
    clock: Clock,
    /// How long each may take.
    wait_ms: u64,
    askers: Vec<Asker>,
}

impl Door {
    /// Opens for those who connect to this listener.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn new(listener: UnixListener, board: Board, wait_ms: u64) -> io::Result<Door> {
        listener.set_nonblocking(true)?;
        Ok(Door {
            listener,
            board,
            clock: Clock::start(),
            wait_ms,
            askers: Vec::new(),
        })
    }

    /// Answers, as long as the process lives.
    pub fn serve(mut self) {
        loop {
            self.wait();
            self.turn();
        }
    }

    /// Until somebody comes or goes on, or the first deadline is over.
    fn wait(&self) {
        let mut ready: Vec<PollFd> = self.askers.iter().map(Asker::waits_for).collect();
        if self.askers.len() < ASKERS_MAX {
            ready.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let now = self.clock.now();
        let first = self.askers.iter().map(|asker| asker.until).min();
        let wait = first.map(|until| Timespec {
            tv_sec: (until.since_us(now) / 1_000_000) as i64,
            tv_nsec: (until.since_us(now) % 1_000_000 * 1_000) as i64,
        });
        // Whatever woke it, a turn asks all again.
        let _ = poll(&mut ready, wait.as_ref());
    }

    /// Lets in who waits, and goes on with all as far as that does not block.
    fn turn(&mut self) {
        let now = self.clock.now();
        while self.askers.len() < ASKERS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let until = now.plus_us(self.wait_ms * 1_000);
                    self.askers.extend(Asker::new(stream, until));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    thread::sleep(ACCEPT_AGAIN);
                    break;
                }
            }
        }
        let (board, wait_ms) = (&self.board, self.wait_ms);
        self.askers
            .retain_mut(|asker| asker.goes_on(board, wait_ms, now));
    }
}

/// One who asks.
#[derive(Debug)]
struct Asker {
    stream: UnixStream,
    question: [u8; QUESTION_BYTES_MAX],
    asked: usize,
    /// Empty until the question is there.
    answer: Vec<u8>,
    told: usize,
    until: Instant,
}

impl Asker {
    /// One that has come. `None`: its socket is broken.
    fn new(stream: UnixStream, until: Instant) -> Option<Asker> {
        stream.set_nonblocking(true).ok()?;
        Some(Asker {
            stream,
            question: [0; QUESTION_BYTES_MAX],
            asked: 0,
            answer: Vec::new(),
            told: 0,
            until,
        })
    }

    fn waits_for(&self) -> PollFd<'_> {
        let flags = match self.answer.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::OUT,
        };
        PollFd::new(&self.stream, flags)
    }

    /// Reads and writes what it can. Whether it is to be heard again.
    fn goes_on(&mut self, board: &Board, wait_ms: u64, now: Instant) -> bool {
        let is_late = now >= self.until;
        match self.step(board) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && !is_late => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.answer.is_empty() => {
                let _ = writeln!(self.stream, "refused: no question within {wait_ms} ms");
                false
            }
            Ok(()) | Err(_) => false,
        }
    }

    /// To the end, or to the next call that would block.
    fn step(&mut self, board: &Board) -> io::Result<()> {
        if self.answer.is_empty() {
            let question = self.ask()?;
            self.answer = self.reply(&question, board)?.into_bytes();
        }
        while self.told < self.answer.len() {
            match self.stream.write(&self.answer[self.told..])? {
                0 => return Ok(()),
                told => self.told += told,
            }
        }
        Ok(())
    }

    /// A line, or what comes before the bound or the end.
    fn ask(&mut self) -> io::Result<String> {
        while self.asked < QUESTION_BYTES_MAX && !self.question[..self.asked].contains(&b'\n') {
            match self.stream.read(&mut self.question[self.asked..])? {
                0 => break,
                read => self.asked += read,
            }
        }
        let question = String::from_utf8_lossy(&self.question[..self.asked]);
        Ok(question.trim().to_owned())
    }

    /// Read in any case: closing a socket with unread bytes would take the refusal from its reader.
    fn reply(&self, question: &str, board: &Board) -> io::Result<String> {
        let peer = rustix::net::sockopt::socket_peercred(&self.stream)?;
        let own = rustix::process::geteuid();
        if !peer.uid.is_root() && peer.uid != own {
            let own = own.as_raw();
            return Ok(format!("refused: only root and user {own} may ask\n"));
        }
        Ok(match question {
            "status" => serde_json::to_string(&board.read())? + "\n",
            "metrics" => board.read().metrics(),
            _ => "refused: 'status' and 'metrics' are what can be asked\n".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Shutdown;
    use std::path::PathBuf;

    use super::super::ask;
    use super::*;
    use crate::tally::Tally;

    /// A door that answers, with its path. Each may take `wait_ms`.
    fn open(test: &str, wait_ms: u64) -> PathBuf {
        let name = format!("ackpace-host-door-{test}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a free path");
        let board = Board::default();
        board.show(&Tally {
            sockets: 7,
            ..Tally::default()
        });
        let door = Door::new(listener, board, wait_ms).expect("a listener");
        thread::spawn(|| door.serve());
        path
    }

    fn tells(path: &std::path::Path) -> bool {
        let told = ask(path, "status").expect("an answer");
        told.contains("\"sockets\":7")
    }

    const AN_HOUR_MS: u64 = 3_600_000;

    #[test]
    fn one_that_says_nothing_keeps_nobody_from_an_answer() {
        let path = open("silent", AN_HOUR_MS);
        let mut half = UnixStream::connect(&path).expect("it listens");
        half.write_all(b"sta").expect("room");
        let silent: Vec<UnixStream> = (0..ASKERS_MAX - 2)
            .map(|_| UnixStream::connect(&path).expect("it listens"))
            .collect();
        assert!(tells(&path));
        half.write_all(b"tus\n").expect("room");
        let mut told = String::new();
        half.read_to_string(&mut told).expect("its own answer");
        assert!(told.contains("\"sockets\":7") && tells(&path));
        drop(silent);
        fs::remove_file(&path).expect("its own");
    }

    #[test]
    fn where_all_places_are_taken_by_the_silent_one_is_heard_after_them() {
        let path = open("full", 50);
        let mut silent: Vec<UnixStream> = (0..2 * ASKERS_MAX)
            .map(|_| UnixStream::connect(&path).expect("it listens"))
            .collect();
        assert!(tells(&path));
        for stream in &mut silent {
            let mut told = String::new();
            stream.read_to_string(&mut told).expect("an end");
            assert_eq!(told, "refused: no question within 50 ms\n");
        }
        fs::remove_file(&path).expect("its own");
    }

    #[test]
    fn a_hundred_at_once_are_all_told() {
        let path = open("hundred", AN_HOUR_MS);
        let mut askers: Vec<UnixStream> = (0..100)
            .map(|_| UnixStream::connect(&path).expect("it listens"))
            .collect();
        for asker in askers.iter_mut().rev() {
            asker.write_all(b"metrics\n").expect("room");
        }
        for asker in &mut askers {
            let mut told = String::new();
            asker.read_to_string(&mut told).expect("an answer");
            assert!(told.contains("ackpace_host_tune_sockets 7\n"), "{told}");
        }
        fs::remove_file(&path).expect("its own");
    }

    #[test]
    fn garbage_is_refused_or_cut_and_the_next_one_is_told() {
        let path = open("garbage", AN_HOUR_MS);
        for garbage in [
            &b"\xff\xfe\0\n"[..],
            b"\n",
            b"",
            b"statusstatus",
            &[b'y'; 5_000],
        ] {
            let mut stream = UnixStream::connect(&path).expect("it listens");
            let _ = stream.write_all(garbage);
            let _ = stream.shutdown(Shutdown::Write);
            let mut told = Vec::new();
            // What is left unread of a long one ends the connection.
            let read = stream.read_to_end(&mut told);
            let told = String::from_utf8(told).expect("text");
            assert!(
                told == "refused: 'status' and 'metrics' are what can be asked\n"
                    || garbage.len() > QUESTION_BYTES_MAX && read.is_err(),
                "{told}"
            );
            assert!(tells(&path));
        }
        fs::remove_file(&path).expect("its own");
    }

    #[test]
    fn one_that_does_not_take_its_answer_is_let_go_when_its_time_is_over() {
        let (stream, _asker) = UnixStream::pair().expect("two sockets");
        let mut asker = Asker::new(stream, Instant { us: 1_000 }).expect("a socket");
        asker.answer = vec![b'x'; 64 << 20];
        let board = Board::default();
        assert!(asker.goes_on(&board, 1, Instant { us: 0 }), "it waits");
        assert!(asker.told > 0 && asker.told < asker.answer.len());
        assert!(!asker.goes_on(&board, 1, Instant { us: 1_000 }));
    }
}
