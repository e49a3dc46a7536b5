//! A program under test: its process, and what it says.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{PATIENCE, eventually};

/// How long a killed process may take to be gone.
const KILLED: Duration = Duration::from_secs(10);

/// Sends a signal to a child that has not been waited for, so that the number is still its own. After SIGSTOP none of its threads
/// runs: one thread takes the signal and has the others stop, which a busy machine puts off.
pub(crate) fn signal_child(pid: u32, signal: libc::c_int) {
    // SAFETY: no pointers.
    let result = unsafe { libc::kill(pid as libc::pid_t, signal) };
    assert_eq!(result, 0, "kill: {}", io::Error::last_os_error());
    if signal == libc::SIGSTOP {
        eventually("all threads are stopped", || !runs(pid));
    }
}

/// Whether a thread of a process runs, or may (proc_pid_stat(5): the state stands behind the name).
fn runs(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a child of ours");
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('R' | 'S'))
    })
}

/// A running program. Its drop kills it.
pub struct Program {
    child: Child,
    out: Text,
    err: Text,
}

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> Program {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = None;
        // A child that another thread has just forked may still hold a new copy of the program open for writing.
        eventually("the program starts", || match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => false,
            done => {
                started = Some(done.expect("the program starts"));
                true
            }
        });
        let mut child = started.expect("it has just started");
        let out = Text::follow(child.stdout.take().expect("its standard output"));
        let err = Text::follow(child.stderr.take().expect("its standard error"));
        Program { child, out, err }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written on standard output so far.
    pub fn out(&self) -> String {
        self.out.text()
    }

    /// What it has written on standard error so far.
    pub fn err(&self) -> String {
        self.err.text()
    }

    /// Waits for a line on standard output that contains all these parts, and returns it.
    pub fn out_line(&self, parts: &[&str]) -> String {
        self.out.line(parts)
    }

    /// Waits for a line on standard error that contains all these parts, and returns it.
    pub fn err_line(&self, parts: &[&str]) -> String {
        self.err.line(parts)
    }

    /// Sends it a signal. After SIGSTOP none of its threads runs.
    pub fn signal(&self, signal: libc::c_int) {
        signal_child(self.pid(), signal);
    }

    /// Its exit status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the end of the program", || self.ended().is_some());
        let status = self.ended().expect("it has just ended");
        self.out.wait_for_end();
        self.err.wait_for_end();
        status
    }

    /// Kills it, and waits for a moment: a hanging disk may hold it, and the owner of that disk may be waiting for us.
    pub fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = self.child.kill();
        let until = Instant::now() + KILLED;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends the signal and waits. Its exit code, if it was not killed.
    pub fn end(mut self, signal: libc::c_int) -> Option<i32> {
        self.signal(signal);
        self.wait().code()
    }

    /// Waits until this is true of the last line on standard output, and returns that.
    pub fn shows(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        eventually(what, || {
            last = self.last_line();
            is_shown(&last)
        });
        last
    }

    /// The last line that is whole on standard output.
    pub fn last_line(&self) -> String {
        let out = self.out();
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        whole.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A text stream that a thread reads as it comes.
struct Text(Arc<(Mutex<Followed>, Condvar)>);

#[derive(Default)]
struct Followed {
    text: String,
    ended: bool,
}

impl Text {
    fn follow(mut from: impl Read + Send + 'static) -> Text {
        let text = Text(Arc::default());
        let into = Arc::clone(&text.0);
        thread::spawn(move || {
            let mut piece = [0; 8192];
            loop {
                let read = from.read(&mut piece).unwrap_or(0);
                let mut followed = into.0.lock().expect("no panic while it is held");
                followed
                    .text
                    .push_str(&String::from_utf8_lossy(&piece[..read]));
                followed.ended = read == 0;
                into.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        text
    }

    fn text(&self) -> String {
        // Also shown when a test fails while it waits for more of it.
        let followed = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        followed.text.clone()
    }

    fn line(&self, parts: &[&str]) -> String {
        let fits = |text: &str| {
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let mut lines = whole.lines();
            lines
                .find(|line| parts.iter().all(|part| line.contains(part)))
                .map(str::to_owned)
        };
        self.wait(&format!("a line with {parts:?}"), |text| {
            fits(text).is_some()
        });
        fits(&self.text()).unwrap_or_default()
    }

    fn wait(&self, what: &str, fits: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut followed = self.0.0.lock().expect("no panic while it is held");
        while !fits(&followed.text) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !followed.ended && !left.is_zero(),
                "waited in vain for {what}; there is:\n{}",
                followed.text
            );
            let waited = self.0.1.wait_timeout(followed, left);
            followed = waited.expect("no panic while it is held").0;
        }
    }

    fn wait_for_end(&self) {
        let followed = self.0.0.lock().expect("no panic while it is held");
        let until = self
            .0
            .1
            .wait_timeout_while(followed, PATIENCE, |followed| !followed.ended);
        drop(until.expect("no panic while it is held"));
    }
}
