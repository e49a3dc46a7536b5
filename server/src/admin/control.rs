//! The control thread: a small loop over its two listeners and few clients, none of which can delay another.
//!
//! A client has a bounded time for its request and its answer. When all slots are taken, the oldest client makes room.
//! So a thousand silent connections never keep a scraper out, which sends its whole request at once.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};

use super::{Board, questions, scrape};
use crate::limits::{
    CONTROL_CLIENTS_MAX, CONTROL_HELD_BYTES_MAX, QUESTION_BYTES_MAX, QUESTION_IDLE_MAX, SCRAPE_MAX,
};

/// Pause before the control thread accepts again when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http,
    Lines,
}

struct Client {
    socket: OwnedFd,
    speaks: Speaks,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of `output` was sent.
    sent: usize,
    /// The part of the answer that is not made yet.
    rest: Option<questions::Rest>,
    until: Instant,
    /// Nothing further is answered: input is discarded until the client closes.
    last: bool,
}

/// Whether a client stays.
type Stays = bool;

pub struct Control {
    board: Board,
    listeners: Vec<(OwnedFd, Speaks)>,
    /// Oldest first.
    clients: Vec<Client>,
}

impl Control {
    pub fn new(board: Board, metrics: Option<OwnedFd>, admin: Option<OwnedFd>) -> Control {
        let metrics = metrics.map(|socket| (socket, Speaks::Http));
        let admin = admin.map(|socket| (socket, Speaks::Lines));
        Control {
            board,
            listeners: metrics.into_iter().chain(admin).collect(),
            clients: Vec::new(),
        }
    }

    pub fn run(mut self) {
        loop {
            let (incoming, ready) = self.wait();
            let now = Instant::now();
            let mut clients = std::mem::take(&mut self.clients).into_iter();
            for flags in ready.into_iter().map(Some).chain(std::iter::repeat(None)) {
                let Some(mut client) = clients.next() else {
                    break;
                };
                let flags = flags.unwrap_or_else(PollFlags::empty);
                let stays = flags.is_empty() || client.turn(flags, &self.board, now);
                if stays && now < client.until {
                    self.clients.push(client);
                    let behind = clients.as_slice().iter().map(Client::held_bytes).sum();
                    make_room(&mut self.clients, behind);
                }
            }
            for (listener, has_news) in incoming.into_iter().enumerate() {
                if has_news {
                    self.accept(listener, now);
                }
            }
        }
    }

    /// Sleeps until something happens; returns the listeners that have clients, and the events of each client.
    fn wait(&self) -> (Vec<bool>, Vec<PollFlags>) {
        let listeners = self.listeners.iter();
        let mut fds: Vec<PollFd<'_>> = listeners
            .map(|(socket, _)| PollFd::new(socket, PollFlags::IN))
            .collect();
        fds.extend(
            self.clients
                .iter()
                .map(|client| PollFd::new(&client.socket, client.waits_for())),
        );
        let until = self.clients.iter().map(|client| client.until).min();
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return (Vec::new(), Vec::new()); // interrupted, or out of memory for a moment
        }
        let (listeners, clients) = fds.split_at(self.listeners.len());
        (
            listeners
                .iter()
                .map(|fd| !fd.revents().is_empty())
                .collect(),
            clients.iter().map(PollFd::revents).collect(),
        )
    }

    fn accept(&mut self, listener: usize, now: Instant) {
        let (socket, speaks) = &self.listeners[listener];
        for _ in 0..CONTROL_CLIENTS_MAX {
            match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let of_its_kind = |client: &Client| client.speaks == *speaks;
                    if self
                        .clients
                        .iter()
                        .filter(|client| of_its_kind(client))
                        .count()
                        >= CONTROL_CLIENTS_MAX
                    {
                        if let Some(oldest) = self.clients.iter().position(of_its_kind) {
                            self.clients.remove(oldest);
                        }
                    }
                    self.clients.push(Client::new(socket, *speaks, now));
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::CONNABORTED | Errno::PROTO | Errno::PERM | Errno::INTR) => {}
                Err(_) => {
                    // Out of descriptors: this thread can afford to wait for some.
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }
}

/// Bounds the answers that wait for their clients: the client that has waited longest is dropped, but never the latest.
fn make_room(clients: &mut Vec<Client>, others_bytes: usize) {
    let held = |clients: &[Client]| clients.iter().map(Client::held_bytes).sum::<usize>();
    while held(clients) + others_bytes > CONTROL_HELD_BYTES_MAX {
        let before = &clients[..clients.len().saturating_sub(1)];
        let Some(oldest) = before.iter().position(|client| client.held_bytes() > 0) else {
            return;
        };
        clients.remove(oldest);
    }
}

impl Client {
    /// Bytes of the answer that it holds.
    fn held_bytes(&self) -> usize {
        self.output.capacity()
    }

    fn new(socket: OwnedFd, speaks: Speaks, now: Instant) -> Client {
        Client {
            socket,
            speaks,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            rest: None,
            until: now + speaks.timeout(),
            last: false,
        }
    }

    /// While an answer is being sent, no more input is read.
    fn waits_for(&self) -> PollFlags {
        if self.sent < self.output.len() || self.rest.is_some() {
            PollFlags::OUT
        } else {
            PollFlags::IN
        }
    }

    fn turn(&mut self, flags: PollFlags, board: &Board, now: Instant) -> Stays {
        if flags.contains(PollFlags::ERR) || flags.contains(PollFlags::NVAL) {
            return false;
        }
        match &mut self.rest {
            _ if self.sent < self.output.len() => {}
            Some(rest) => {
                // One piece a turn, so that nobody else waits for all of them.
                let (output, last) = rest.next(board);
                (self.output, self.sent) = (output, 0);
                self.rest.take_if(|_| last);
                self.until = now + self.speaks.timeout();
            }
            None => {
                let mut piece = [0; 2048];
                match recv(self.socket.as_fd(), &mut piece, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return false,
                    Ok((read, _)) if !self.last => self.input.extend_from_slice(&piece[..read]),
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR) => return true,
                    Err(_) => return false,
                }
                self.answer(board, now);
            }
        }
        // Several lines may have come at once; as long as the client takes their answers, all are answered now.
        while self.push() {
            let more = self.speaks == Speaks::Lines && self.input.contains(&b'\n');
            if self.sent < self.output.len() || self.rest.is_some() || self.last || !more {
                return true;
            }
            self.answer(board, now);
        }
        false
    }

    /// Answers the requests that are complete.
    fn answer(&mut self, board: &Board, now: Instant) {
        match self.speaks {
            Speaks::Http => {
                if let Some(answer) = scrape::answer(&self.input, board) {
                    (self.output, self.last) = (answer, true);
                }
            }
            Speaks::Lines => {
                if let Some(at) = self.input.iter().position(|byte| *byte == b'\n') {
                    (self.output, self.rest) = questions::answer(&self.input[..at], board);
                    self.input.drain(..=at);
                    self.until = now + self.speaks.timeout();
                } else if self.input.len() >= QUESTION_BYTES_MAX {
                    self.output = questions::refusal("the line is too long");
                    self.output.push(b'\n');
                    self.last = true;
                }
            }
        }
        if !self.output.is_empty() {
            self.sent = 0;
        }
        if self.last {
            self.input = Vec::new();
        }
    }

    /// Sends as much of the answer as the client takes.
    fn push(&mut self) -> Stays {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(
                self.socket.as_fd(),
                rest,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        if self.sent > 0 && self.last {
            // Further input is read and discarded: with unread input, close(2) would send RST, which destroys the
            // answer.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        (self.output, self.sent) = (Vec::new(), 0);
        true
    }
}

impl Speaks {
    fn timeout(self) -> Duration {
        match self {
            Speaks::Http => SCRAPE_MAX,
            Speaks::Lines => QUESTION_IDLE_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_nobody_takes_are_bounded_and_the_latest_is_kept() {
        let client = |bytes: usize| {
            let socket = std::fs::File::open("/dev/null").expect("a device").into();
            Client {
                output: Vec::with_capacity(bytes),
                ..Client::new(socket, Speaks::Http, Instant::now())
            }
        };
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(client(CONTROL_HELD_BYTES_MAX / 4));
            clients.push(client(0));
            make_room(&mut clients, 0);
        }
        let holding = clients.iter().filter(|client| client.held_bytes() > 0);
        assert_eq!(holding.count(), 4);
        assert_eq!(clients.len(), 54, "who holds nothing stays");
        clients.push(client(2 * CONTROL_HELD_BYTES_MAX));
        make_room(&mut clients, 0);
        assert_eq!(clients.len(), 51, "the latest answer alone is kept whole");
    }
}
