//! `ackpace-host receive watch` under test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{command, eventually, host_binary};

/// It runs and tells a page each second, until this ends.
#[derive(Debug)]
pub struct Watching {
    child: Child,
    pages: mpsc::Receiver<String>,
    page: String,
}

impl Watching {
    /// Starts it for one port, and returns when it watches.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(port: u16) -> Watching {
        let mut child = command(host_binary())
            .args(["receive", "watch", "--json", "--port", &port.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut err = BufReader::new(child.stderr.take().expect("it is piped"));
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        err.read_line(&mut line).expect("text");
        assert!(line.contains("watches port"), "{line}");
        let (tell, pages) = mpsc::channel();
        thread::spawn(move || {
            for page in out.lines().map_while(Result::ok) {
                let _ = tell.send(page);
            }
        });
        Watching {
            child,
            pages,
            page: String::new(),
        }
    }

    /// Waits for a page of which this is true.
    ///
    /// # Panics
    /// When none comes.
    pub fn shows(&mut self, what: &str, is_shown: impl Fn(&str) -> bool) {
        eventually(what, || self.shows_now(&is_shown));
    }

    /// Whether a page of which this is true comes within this time, where only the kernel decides that.
    pub fn may_show(&mut self, within: Duration, is_shown: impl Fn(&str) -> bool) -> bool {
        let end = Instant::now() + within;
        while Instant::now() < end {
            if self.shows_now(&is_shown) {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
        false
    }

    fn shows_now(&mut self, is_shown: &impl Fn(&str) -> bool) -> bool {
        if let Some(next) = self.pages.try_iter().last() {
            self.page = next;
        }
        is_shown(&self.page)
    }

    /// The last page.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// Ends it as Ctrl-C does. Its exit code.
    ///
    /// # Panics
    /// When it can't be signalled.
    pub fn end(mut self) -> Option<i32> {
        // SAFETY: no pointers; our own child, which was not waited for.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
        assert_eq!(sent, 0, "kill");
        self.child.wait().expect("our own child").code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
