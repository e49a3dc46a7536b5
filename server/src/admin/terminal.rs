//! The terminal of `ackpace top`: keys without a line feed, its size, and its old mode restored on every way out.
//!
//! Ctrl-C and Ctrl-Z stay signals, so that they work as everywhere. They are caught, and take effect once the terminal
//! is restored.

use std::io::{IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::flag::register_usize;
use signal_hook::low_level::{emulate_default_handler, pipe};

use crate::limits::TERMINAL_LINES_MAX;

/// The terminal's mode before, while it is changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time is over.
    Due,
    /// The page has to be drawn anew: the size may have changed.
    Redraw,
    /// The user quits.
    Quit,
}

/// The terminal that a page is printed to.
pub struct Terminal {
    signals: UnixStream,
    /// The last signal that was caught and has not taken effect.
    caught: Arc<AtomicUsize>,
    /// Whether keys can be read.
    keys: bool,
}

impl Terminal {
    /// The terminal of standard output; `None` if it is none.
    ///
    /// # Errors
    /// As sigaction(2) and socketpair(2).
    pub fn open() -> std::io::Result<Option<Terminal>> {
        if !std::io::stdout().is_terminal() {
            return Ok(None);
        }
        let (signals, waker) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP] {
            register_usize(signal, Arc::clone(&caught), signal as usize)?;
        }
        // Registered after the flags: when this socket is readable, the flag of the signal is set.
        for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH] {
            pipe::register(signal, waker.try_clone()?)?;
        }
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
        let mut terminal = Terminal {
            signals,
            caught,
            keys: false,
        };
        terminal.enter();
        Ok(Some(terminal))
    }

    /// Lines, and characters of each, that are visible.
    pub fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(stdout()).ok();
        let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
        let (lines, columns) = size.map_or((24, 80), |size| {
            (usize::from(size.ws_row), usize::from(size.ws_col))
        });
        (
            lines.min(TERMINAL_LINES_MAX),
            columns.min(TERMINAL_LINES_MAX),
        )
    }

    /// Waits for an event, `at_most` for so long. A signal that ends or stops the process takes effect in here.
    pub fn wait(&mut self, at_most: Duration) -> Event {
        let until = Instant::now() + at_most;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let waker = PollFd::new(&self.signals, PollFlags::IN);
            let keys = PollFd::from_borrowed_fd(stdin(), PollFlags::IN);
            let mut fds = [waker, keys];
            let fds = if self.keys {
                &mut fds[..]
            } else {
                &mut fds[..1]
            };
            let readable = poll(fds, Some(&timeout)).unwrap_or(0); // a signal makes it readable
            let [signalled, pressed] = [0, 1].map(|at| {
                let flags = fds.get(at).map(PollFd::revents);
                readable > 0 && flags.is_some_and(|flags| !flags.is_empty())
            });
            if signalled || self.caught.load(Relaxed) != 0 {
                while (&self.signals)
                    .read(&mut [0; 64])
                    .is_ok_and(|read| read > 0)
                {}
                self.obey();
                return Event::Redraw;
            }
            if pressed && quits() {
                return Event::Quit;
            }
            if left.is_zero() {
                return Event::Due;
            }
        }
    }

    /// Lets the caught signal take effect, on a restored terminal. After a stop the process goes on here.
    fn obey(&mut self) {
        let signal = self.caught.swap(0, Relaxed);
        if signal != 0 {
            restore();
            let _ = emulate_default_handler(signal as i32);
            self.enter();
        }
    }

    /// Keys arrive one by one and are not echoed, if the terminal is ours to read.
    fn enter(&mut self) {
        let ours = || tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        self.keys = false;
        if !std::io::stdin().is_terminal() || !ours() {
            return;
        }
        let Ok(before) = tcgetattr(stdin()) else {
            return;
        };
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        if let Ok(mut place) = BEFORE.lock() {
            *place = Some(before);
        }
        self.keys = tcsetattr(stdin(), OptionalActions::Now, &modes).is_ok();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal.
fn restore() {
    let before = BEFORE.try_lock().ok().and_then(|mut place| place.take());
    if let Some(before) = before {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// Whether one of the keys pressed means quit, or there will be no more keys.
fn quits() -> bool {
    let mut keys = [0; 64];
    match rustix::io::read(stdin(), &mut keys) {
        Ok(0) => true, // readable without bytes: hung up
        Ok(read) => keys[..read]
            .iter()
            .any(|key| matches!(key, b'q' | b'Q' | 4)),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => false,
        Err(_) => true,
    }
}
