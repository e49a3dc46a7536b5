//! The requests of the admin socket: a line each, answered by one line of JSON.
//!
//! `ackpace/1 top [N]` and `ackpace/1 why ADDRESS:PORT|NAME|DEVICE`. Any other line is answered by an error that says
//! so. The answer with all connections is made in pieces, each when the client has taken the one before, so that no
//! more than a piece is held.

use std::net::SocketAddr;
use std::time::Instant;

use ackpace_core::conn::ConnId;
use ackpace_core::limits::PAUSED_US;
use ackpace_core::units::{Bytes, Time};
use ackpace_core::why::Wait;
use crossbeam_channel::{Receiver, RecvTimeoutError, TrySendError, bounded};
use serde::Serialize;

use super::{Board, cached, device, nodes};
use crate::answers::{
    Answer, Ask, Connection, Explained, NfsRow, Question, Refusal, Server, Target, Told, Top,
    VERSION, WorkerRow,
};
use crate::limits::{DECISIONS_SHOWN_MAX, TOP_CONNECTIONS_MAX, WORKER_ANSWER_MAX};
use crate::nfs_tally;
use std::sync::atomic::Ordering::Relaxed;

/// Time between two censuses of all connections for the metrics; one of 16,000 takes a worker a fraction of a
/// millisecond. More scrapes: they see the same one.
const CENSUS_INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);
/// Connections in one piece of an answer with all connections, some 2 us each of their worker's time. More: a further
/// piece, when the client has taken this one.
const TOP_PIECE_CONNECTIONS_MAX: usize = 32;
/// Bytes of such a piece, before its last connection. More: a further piece.
const TOP_PIECE_BYTES: usize = 64 << 10;

/// What a response may wait for, and what stands in its place before an origin.
const DISK: &str = "the disk";
const ORIGIN: &str = "its origin";

/// A request by the admin socket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Top(usize),
    All,
    Why(Subject),
    /// What a gateway keeps.
    Cache,
    /// Forget what a gateway knows of targets that begin so; or only ask about it again.
    Purge(String, bool),
    /// The nodes of the cluster.
    Cluster,
    /// Have a node drained, or no longer.
    Drain(String, bool),
}

/// The subject of `why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Connection(Target),
    /// A device, by its number or the name of one of its disks.
    Device(String),
}

/// The answer to one line, with its line feed, or the beginning of the answer.
pub fn answer(line: &[u8], board: &Board) -> (Vec<u8>, Option<Rest>) {
    let mut bytes = match parse(line) {
        Ok(Request::Top(most)) => json(&top(most, board)),
        Ok(Request::All) => {
            let (bytes, rest) = Rest::of(top(0, board));
            return (bytes, Some(rest));
        }
        Ok(Request::Cache) => told(cached::state(board)),
        Ok(Request::Purge(prefix, only_stale)) => told(cached::purge(board, &prefix, only_stale)),
        Ok(Request::Cluster) => told(nodes::state(board)),
        Ok(Request::Drain(node, on)) => told(nodes::drain(board, &node, on)),
        Ok(Request::Why(subject)) => told(why(&subject, board)),
        Err(error) => refusal(&error),
    };
    bytes.push(b'\n');
    (bytes, None)
}

/// The rest of an answer with all connections.
pub struct Rest {
    /// Workers that have answered and have more to send, in reverse.
    workers: Vec<u16>,
    /// The next slot of the last of them.
    from: u32,
    sending: u64,
    said: u64,
}

impl Rest {
    fn of(top: Top) -> (Vec<u8>, Rest) {
        let mut bytes = json(&Beginning {
            version: top.version,
            server: &top.server,
            workers: &top.workers,
            silent_workers: &top.silent_workers,
            ended_workers: &top.ended_workers,
            nfs_threads: &top.nfs_threads,
        });
        bytes.pop(); // the end of the object
        bytes.extend_from_slice(b",\"connections\":[");
        let rest = Rest {
            workers: top.workers.iter().rev().map(|row| row.worker).collect(),
            from: 0,
            sending: top.workers.iter().map(|row| row.sending).sum(),
            said: 0,
        };
        (bytes, rest)
    }

    /// The next piece; and whether it was the last one.
    pub fn next(&mut self, board: &Board) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        while let Some(worker) = self.workers.last().copied() {
            let ask = Ask::Piece(self.from, TOP_PIECE_CONNECTIONS_MAX);
            let (piece, next) = match ask_one(worker, board, ask) {
                Some(Answer::Piece(piece, next)) => (piece, next),
                _ => (Vec::new(), None), // it hangs now: the others are still shown
            };
            for (place, connection) in &piece {
                if bytes.len() >= TOP_PIECE_BYTES {
                    return (bytes, false);
                }
                if self.said > 0 {
                    bytes.push(b',');
                }
                bytes.append(&mut json(connection));
                (self.from, self.said) = (place + 1, self.said + 1);
            }
            self.from = next.unwrap_or(0);
            if next.is_none() {
                self.workers.pop();
            }
            if !bytes.is_empty() {
                return (bytes, false);
            }
        }
        let left_out = self.sending.saturating_sub(self.said);
        bytes.extend_from_slice(format!("],\"left_out\":{left_out}}}\n").as_bytes());
        (bytes, true)
    }
}

/// [`Top`] up to its connections.
#[derive(Serialize)]
struct Beginning<'a> {
    version: u32,
    server: &'a Server,
    workers: &'a [WorkerRow],
    silent_workers: &'a [u16],
    ended_workers: &'a [u16],
    nfs_threads: &'a [NfsRow],
}

/// An answer with the error; without a line feed.
pub fn refusal(error: &str) -> Vec<u8> {
    let error = error.to_owned();
    json(&Refusal {
        version: VERSION,
        error,
    })
}

fn told(answer: Result<impl Serialize, String>) -> Vec<u8> {
    match answer {
        Ok(answer) => json(&answer),
        Err(error) => refusal(&error),
    }
}

fn json(answer: &impl Serialize) -> Vec<u8> {
    // Numbers, texts and lists only, which can't fail.
    serde_json::to_vec(answer).unwrap_or_default()
}

fn parse(line: &[u8]) -> Result<Request, String> {
    let usage = || "ask \"ackpace/1 top [N]\" or \"ackpace/1 why ADDRESS:PORT|DEVICE\"".to_owned();
    let line = std::str::from_utf8(line).map_err(|_| usage())?;
    let words: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
    match words[..] {
        ["ackpace/1", "top"] => Ok(Request::All),
        ["ackpace/1", "top", most] => match most.parse() {
            Ok(most) => Ok(Request::Top(TOP_CONNECTIONS_MAX.min(most))),
            Err(_) => Err(usage()),
        },
        ["ackpace/1", "cache"] => Ok(Request::Cache),
        ["ackpace/1", "cluster"] => Ok(Request::Cluster),
        ["ackpace/1", "drain", node] => Ok(Request::Drain(node.to_owned(), true)),
        ["ackpace/1", "undrain", node] => Ok(Request::Drain(node.to_owned(), false)),
        ["ackpace/1", "purge", prefix] => Ok(Request::Purge(prefix.to_owned(), false)),
        ["ackpace/1", "stale", prefix] => Ok(Request::Purge(prefix.to_owned(), true)),
        ["ackpace/1", "why", target] => Ok(Request::Why(target.parse()?)),
        [version, ..] if version.starts_with("ackpace/") && version != "ackpace/1" => Err(format!(
            "this server speaks ackpace/{VERSION}: use the ackpace of its release, {}",
            env!("CARGO_PKG_VERSION")
        )),
        _ => Err(usage()),
    }
}

impl std::str::FromStr for Subject {
    type Err = String;

    /// A name that could be a connection's is one.
    fn from_str(text: &str) -> Result<Subject, String> {
        match text.parse() {
            Ok(target) => Ok(Subject::Connection(target)),
            Err(_) if device::may_be_name(text) => Ok(Subject::Device(text.to_owned())),
            Err(error) => Err(error),
        }
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    /// `192.0.2.1:4242`, `[2001:db8::1]:4242`, or a name as `top` shows it: `0.12.3`.
    fn from_str(text: &str) -> Result<Target, String> {
        if let Ok(peer) = text.parse::<SocketAddr>() {
            return Ok(Target::Peer(SocketAddr::new(
                peer.ip().to_canonical(),
                peer.port(),
            )));
        }
        let mut numbers = text.splitn(3, '.').map(str::parse::<u32>);
        if let (Some(Ok(worker)), Some(Ok(index)), Some(Ok(generation))) =
            (numbers.next(), numbers.next(), numbers.next())
        {
            if let Ok(worker) = u16::try_from(worker) {
                let conn = ConnId { index, generation };
                return Ok(Target::Name { worker, conn });
            }
        }
        Err(format!(
            "{} is no connection: name it by its client's address and port, such as 192.0.2.1:4242, or by its name in \
             `ackpace top`, such as 0.12.3; name a device by its number, such as 0, or by one of its disks, such as sda",
            crate::options::shown(text)
        ))
    }
}

/// Why a worker gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    /// It did not answer in time.
    Silent,
    Ended,
}

/// Asks every worker, and waits for all of them together; the answers in the order of the workers.
fn ask(board: &Board, ask: Ask) -> Vec<Result<Answer, Unanswered>> {
    let until = Instant::now() + WORKER_ANSWER_MAX;
    let asked: Vec<_> = board
        .workers
        .iter()
        .map(|line| {
            let (reply, told) = bounded(1);
            // A worker that has not taken the last question yet hangs; it gets no further one.
            let sent = line.questions.try_send(Question { ask, reply });
            line.waker.wake();
            match sent {
                Ok(()) => Ok(told),
                Err(TrySendError::Full(_)) => Err(Unanswered::Silent),
                Err(TrySendError::Disconnected(_)) => Err(Unanswered::Ended),
            }
        })
        .collect();
    let answer = |told: Receiver<Answer>| {
        told.recv_deadline(until).map_err(|error| match error {
            RecvTimeoutError::Timeout => Unanswered::Silent,
            RecvTimeoutError::Disconnected => Unanswered::Ended, // with the question in its queue
        })
    };
    asked.into_iter().map(|told| answer(told?)).collect()
}

fn ask_one(worker: u16, board: &Board, ask: Ask) -> Option<Answer> {
    let line = board.workers.get(usize::from(worker))?;
    let (reply, told) = bounded(1);
    line.questions.try_send(Question { ask, reply }).ok()?;
    line.waker.wake();
    told.recv_timeout(WORKER_ANSWER_MAX).ok()
}

/// Has every worker take a census of its connections, if the last one is old: at most once in [`CENSUS_INTERVAL`], so
/// that nobody can keep the workers busy by scraping.
pub fn census(board: &Board) {
    let now = Instant::now();
    let fresh = |last: Instant| now.saturating_duration_since(last) < CENSUS_INTERVAL;
    if !board.census_at.get().is_some_and(fresh) {
        board.census_at.set(Some(now));
        ask(board, Ask::Census);
    }
}

fn top(most: usize, board: &Board) -> Top {
    let mut top = Top {
        version: VERSION,
        server: Server {
            pid: std::process::id(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_us: board.shared.clock.now().us,
            draining: board.shared.stopping.load(Relaxed),
        },
        nfs_threads: nfs_tally::rows(&board.shared.nfs),
        ..Top::default()
    };
    for (worker, answer) in (0..).zip(ask(board, Ask::Top(0))) {
        match answer {
            Ok(Answer::Top(row, _)) => top.workers.push(row),
            Err(Unanswered::Ended) => top.ended_workers.push(worker),
            Ok(_) | Err(Unanswered::Silent) => top.silent_workers.push(worker),
        }
    }
    let workers = if most == 0 { 0 } else { top.workers.len() };
    for at in 0..workers {
        // One worker after the other, so that no more is held than twice what is asked for.
        let asked = ask_one(top.workers[at].worker, board, Ask::Top(most));
        if let Some(Answer::Top(row, connections)) = asked {
            top.workers[at] = row;
            top.connections.extend(connections);
        }
        let connections = &mut top.connections;
        connections.sort_by_key(|connection| std::cmp::Reverse(connection.rate_bytes_per_s));
        connections.truncate(most);
    }
    let sending: u64 = top.workers.iter().map(|row| row.sending).sum();
    top.left_out = sending.saturating_sub(top.connections.len() as u64);
    top
}

fn why(subject: &Subject, board: &Board) -> Result<Explained, String> {
    match subject {
        Subject::Connection(target) => explained(*target, board),
        Subject::Device(name) => device::explained(name, board),
    }
}

fn explained(target: Target, board: &Board) -> Result<Explained, String> {
    let answers = ask(board, Ask::Why(target));
    let silent = |answer: &&Result<Answer, Unanswered>| matches!(answer, Err(Unanswered::Silent));
    let silent = answers.iter().filter(silent).count();
    for answer in answers {
        if let Ok(Answer::Why(connection, mut decisions)) = answer {
            let origin = origin(board);
            if origin.is_some() {
                for told in &mut decisions {
                    told.text = told.text.replace(DISK, ORIGIN);
                }
            }
            return Ok(Explained {
                version: VERSION,
                now: match &connection {
                    Some(connection) => sentences(connection, origin.as_deref()),
                    None => vec!["the connection is closed".to_owned()],
                },
                connection: connection.map(|connection| *connection),
                device: None,
                decisions: last(decisions),
            });
        }
    }
    if let (Target::Peer(peer), Some(cluster)) = (target, &board.shared.cluster) {
        if let Some(told) = nodes::elsewhere(cluster, peer) {
            return Ok(told);
        }
    }
    Err(match silent {
        0 => {
            "there is no such connection now; `ackpace top` shows those that are sending".to_owned()
        }
        1 => "1 worker does not answer: it hangs in a system call, look at dmesg; the others do not have it".to_owned(),
        _ => format!(
            "{silent} workers do not answer: they hang in a system call, look at dmesg; the others do not have it"
        ),
    })
}

/// Enough to understand, short enough to read.
fn last(mut decisions: Vec<Told>) -> Vec<Told> {
    decisions.drain(..decisions.len().saturating_sub(DECISIONS_SHOWN_MAX));
    decisions
}

/// What a response of a gateway waits for in place of a disk.
fn origin(board: &Board) -> Option<String> {
    let gateway = board.shared.site.gateway.as_ref()?;
    let mut started = board.shared.disks.started();
    let (_, handle) = started.find(|(device, _)| *device == usize::from(gateway.device))?;
    let tally = handle.tally();
    let reads = tally.reads.load(Relaxed);
    let usual = tally.service_us.load(Relaxed).checked_div(reads).map(Time);
    let usual = usual.map_or_else(String::new, |usual| {
        format!("; a read from there takes {usual} in the mean")
    });
    Some(format!("its origin, {gateway}{usual}"))
}

/// `origin` stands in place of the disk.
fn sentences(connection: &Connection, origin: Option<&str>) -> Vec<String> {
    let Connection { id, peer, .. } = connection;
    let Some(response) = &connection.response else {
        let phase = &connection.phase;
        let mut sentences = vec![format!(
            "{peer} (connection {id}) has no response under way: {phase}"
        )];
        sentences.extend(nodes::placed(connection));
        return sentences;
    };
    let object = connection
        .object
        .as_deref()
        .unwrap_or("an answer made for it");
    let mut sentences = vec![format!(
        "{peer} (connection {id}) gets {object}: {} are with the kernel, {} are left, after {}",
        Bytes(response.sent_bytes),
        Bytes(response.left_bytes),
        Time(response.took_us)
    )];
    let wait = Wait::ALL
        .into_iter()
        .find(|wait| wait.name() == response.wait);
    if let Some(wait) = wait {
        let since = match wait {
            Wait::Turn => String::new(),
            _ => format!(", for {} now", Time(response.wait_us)),
        };
        sentences.push(match origin.filter(|_| wait == Wait::Disk) {
            Some(origin) => format!("it waits{since}, for {origin}"),
            None => format!("it waits for {}{since}", wait.sentence()),
        });
    }
    sentences.extend(nodes::placed(connection));
    sentences.extend(window(connection));
    sentences.extend(path(connection));
    if let Some(share) = connection.share_bytes {
        sentences.push(format!(
            "its share of the send memory is {}: its socket holds no more, unsent and in flight",
            Bytes(share)
        ));
    }
    sentences.push(rates(connection));
    let slow = if origin.is_some() { ORIGIN } else { DISK };
    sentences.push(format!(
        "it has stood still for {slow} with nothing in its socket for {}, for its client for {}",
        Time(response.waited_disk_us),
        Time(response.waited_net_us)
    ));
    sentences
}

/// How far its client's window is open, and what of it the socket uses.
fn window(connection: &Connection) -> Option<String> {
    let window = match connection.window_bytes? {
        0 => "closed (0 B)".to_owned(),
        open => Bytes(open).to_string(),
    };
    Some(format!(
        "its client's window is {window}; {} are in flight and {} wait unsent in the socket; the window has held it up \
         for {} in all",
        Bytes(connection.in_flight_bytes?),
        Bytes(connection.unsent_bytes?),
        Time(connection.window_limited_us.unwrap_or_default())
    ))
}

fn path(connection: &Connection) -> Option<String> {
    Some(format!(
        "round trip {}, congestion window {}, {} segments sent again",
        Time(connection.rtt_us?),
        Bytes(connection.cwnd_bytes?),
        connection.retransmitted_segments?
    ))
}

/// Its rate, and its estimated rates. For a client that does not read, they say what is done when it goes on.
fn rates(connection: &Connection) -> String {
    let believed = |rate: u64| match rate {
        0 => "not known yet".to_owned(),
        rate => format!("{}/s", Bytes(rate)),
    };
    let response = connection.response.as_ref();
    let window = response.filter(|response| response.wait == Wait::Window.name());
    let what = match window {
        Some(response) if response.wait_us >= PAUSED_US => {
            "it has paused, so nothing is read ahead for it and its socket is not filled until its client reads again; what it \
             took"
        }
        Some(_) => "what it takes when its client reads",
        None => "what it takes",
    };
    format!(
        "{}/s have arrived in the last seconds; {what}: {}",
        Bytes(connection.rate_bytes_per_s),
        believed(connection.believed_bytes_per_s),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Response;

    #[test]
    fn a_line_is_understood_or_refused_with_a_cure() {
        let name = Subject::Connection(Target::Name {
            worker: 1,
            conn: ConnId {
                index: 2,
                generation: 3,
            },
        });
        let peer = |text: &str| {
            let peer = text.parse().expect("an address");
            Request::Why(Subject::Connection(Target::Peer(peer)))
        };
        let device = |name: &str| Request::Why(Subject::Device(name.to_owned()));
        for (line, request) in [
            ("ackpace/1 top", Request::All),
            ("ackpace/1 top 5\r", Request::Top(5)),
            ("ackpace/1 top 99999999", Request::Top(TOP_CONNECTIONS_MAX)),
            ("ackpace/1 why 1.2.3", Request::Why(name)),
            ("ackpace/1 why 0", device("0")),
            ("ackpace/1 why /dev/sda", device("/dev/sda")),
            ("ackpace/1 why 192.0.2.1:80", peer("192.0.2.1:80")),
            ("ackpace/1 why [::ffff:192.0.2.1]:80", peer("192.0.2.1:80")),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(request), "{line}");
        }
        for (line, part) in [
            ("", "ask"),
            ("top", "ask"),
            ("ackpace/1 top x", "ask"),
            ("ackpace/1 top 1 2", "ask"),
            ("ackpace/2 top", "this server speaks ackpace/1"),
            ("ackpace/1 why 1.2", "is no connection"),
            ("ackpace/1 why 70000.1.1", "is no connection"),
            ("ackpace/1 why \u{1b}[2J", "is no connection"),
        ] {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(
                error.contains(part) && !error.contains('\u{1b}'),
                "{line}: {error}"
            );
        }
        assert!(parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn a_stalled_client_is_told_of_in_sentences() {
        let mut connection = Connection {
            id: "0.3.1".into(),
            peer: "192.0.2.1:4242".into(),
            phase: "sending".into(),
            object: Some("/a.iso".into()),
            rate_bytes_per_s: 900_000,
            believed_bytes_per_s: 1_200_000,
            window_bytes: Some(0),
            in_flight_bytes: Some(0),
            unsent_bytes: Some(131_072),
            window_limited_us: Some(9_000_000),
            share_bytes: Some(150_000),
            response: Some(Response {
                wait: "window".into(),
                wait_us: 8_500_000,
                sent_bytes: 1_000_000,
                left_bytes: 4_000_000,
                took_us: 10_000_000,
                ..Response::default()
            }),
            ..Connection::default()
        };
        assert_eq!(
            sentences(&connection, None),
            [
                "192.0.2.1:4242 (connection 0.3.1) gets /a.iso: 1.0 MB are with the kernel, 4.0 MB are left, after 10 s",
                "it waits for its client, which does not read: its receive window is closed or full, for 8.5 s now",
                "its client's window is closed (0 B); 0 B are in flight and 131 KB wait unsent in the socket; the window \
                 has held it up for 9.0 s in all",
                "its share of the send memory is 150 KB: its socket holds no more, unsent and in flight",
                "900 KB/s have arrived in the last seconds; what it takes when its client reads: 1.2 MB/s",
                "it has stood still for the disk with nothing in its socket for 0 us, for its client for 0 us",
            ]
        );
        connection.rate_bytes_per_s = 0;
        connection.response.as_mut().expect("it is there").wait_us = PAUSED_US;
        assert_eq!(
            rates(&connection),
            "0 B/s have arrived in the last seconds; it has paused, so nothing is read ahead for it and its socket is not filled until \
             its client reads again; what it took: 1.2 MB/s"
        );
    }
}
