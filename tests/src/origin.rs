//! An origin for a gateway under test: it answers as the test says, target by target, and records what it was asked.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{PATIENCE, eventually, reset_on_drop};

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// GET or HEAD.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The whole head.
    pub head: String,
    /// How often this target was asked for before.
    pub nth: usize,
}

impl Asked {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The bytes of a content of this length that are asked for, if it is a range.
    pub fn range(&self, len: usize) -> Option<Range<usize>> {
        let (first, last) = self
            .field("Range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => Some(first..(last + 1).min(len)),
            (Ok(first), Err(_)) => Some(first..len),
            (Err(_), Ok(count)) => Some(len.saturating_sub(count)..len),
            _ => None,
        }
    }
}

/// One thing that an origin does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends a part of a content, whose bytes are counted.
    Body(Arc<[u8]>, Range<usize>),
    /// Sends these bytes one by one.
    Drip(Vec<u8>),
    /// Sends these bytes again and again until the gateway closes.
    Endless(Vec<u8>),
    /// Says nothing until the gateway closes.
    Hang,
    /// Closes.
    Close,
    /// Resets.
    Reset,
}

/// What an origin does for one request. Then it waits for the next one, unless the last step ends the connection.
#[derive(Clone, Debug, Default)]
pub struct Answer(pub Vec<Step>);

impl Answer {
    /// Sends exactly these bytes.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Answer {
        Answer(vec![Step::Send(bytes.as_ref().to_vec())])
    }

    /// Does this as well.
    #[must_use]
    pub fn then(mut self, step: Step) -> Answer {
        self.0.push(step);
        self
    }

    /// Closes after so many bytes of the body.
    #[must_use]
    pub fn cut(mut self, after: usize) -> Answer {
        for step in &mut self.0 {
            if let Step::Body(_, span) = step {
                span.end = span.end.min(span.start + after);
            }
        }
        self.then(Step::Close)
    }
}

/// One version of what is at a target.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// The lines that each response has, each with its CRLF.
    pub fields: String,
    has_ranges: bool,
}

impl Content {
    /// Bytes with this strong tag.
    pub fn new(bytes: impl Into<Arc<[u8]>>, tag: &str) -> Content {
        Content {
            bytes: bytes.into(),
            fields: format!("ETag: \"{tag}\"\r\n"),
            has_ranges: true,
        }
    }

    /// Bytes without a validator.
    pub fn untagged(bytes: impl Into<Arc<[u8]>>) -> Content {
        Content {
            fields: String::new(),
            ..Content::new(bytes, "")
        }
    }

    /// The same with one more field.
    #[must_use]
    pub fn with(mut self, line: &str) -> Content {
        self.fields += line;
        self.fields += "\r\n";
        self
    }

    /// The same from an origin that ignores Range.
    #[must_use]
    pub fn without_ranges(mut self) -> Content {
        self.has_ranges = false;
        self
    }

    fn tag(&self) -> Option<&str> {
        let line = self
            .fields
            .lines()
            .find_map(|line| line.strip_prefix("ETag: "));
        line.filter(|tag| !tag.is_empty())
    }

    /// What a well-behaved origin does.
    pub fn answer(&self, asked: &Asked) -> Answer {
        let len = self.bytes.len();
        let is_own = |field| {
            asked
                .field(field)
                .is_some_and(|tag| Some(tag) == self.tag())
        };
        if is_own("If-None-Match") {
            return Answer::raw(format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", self.fields));
        }
        let range = asked.range(len).filter(|_| self.has_ranges);
        let range = range.filter(|_| asked.field("If-Range").is_none() || is_own("If-Range"));
        let (status, span) = match range {
            Some(span) if span.start >= len || span.is_empty() => {
                let none = format!("HTTP/1.1 416 \r\nContent-Range: bytes */{len}\r\n");
                return Answer::raw(none + "Content-Length: 0\r\n\r\n");
            }
            Some(span) => {
                let (first, last) = (span.start, span.end - 1);
                let line = format!("206 \r\nContent-Range: bytes {first}-{last}/{len}");
                (line, span)
            }
            None => ("200 ".to_owned(), 0..len),
        };
        let accepts = if self.has_ranges {
            "Accept-Ranges: bytes\r\n"
        } else {
            ""
        };
        let head = format!(
            "HTTP/1.1 {status}\r\n{accepts}{}Content-Length: {}\r\n\r\n",
            self.fields,
            span.len()
        );
        match asked.method == "HEAD" {
            true => Answer::raw(head),
            false => Answer::raw(head).then(Step::Body(Arc::clone(&self.bytes), span)),
        }
    }
}

type Handler = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

#[derive(Default)]
struct Shared {
    handlers: Mutex<HashMap<String, Handler>>,
    asked: Mutex<Vec<Asked>>,
    sent_bytes: AtomicU64,
    open: Mutex<HashMap<usize, TcpStream>>,
    connections: AtomicUsize,
}

/// A running origin. Its drop stops it.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Origin {
    /// An origin that has nothing.
    #[allow(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Origin {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut origin = Origin {
            address: any,
            shared: Arc::default(),
            listening: None,
        };
        origin.come_up();
        origin
    }

    /// Answers requests for this target in this way from now on.
    pub fn on(
        &self,
        target: &str,
        answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> &Origin {
        locked(&self.shared.handlers).insert(target.to_owned(), Arc::new(answer));
        self
    }

    /// Has this content at this target from now on.
    pub fn put(&self, target: &str, content: &Content) -> &Origin {
        let content = content.clone();
        self.on(target, move |asked| content.answer(asked))
    }

    /// Sends exactly these bytes for this target.
    pub fn raw(&self, target: &str, bytes: impl AsRef<[u8]>) -> &Origin {
        let answer = Answer::raw(bytes);
        self.on(target, move |_| answer.clone())
    }

    /// Its address as a gateway is given it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests for this target so far.
    pub fn asked(&self, target: &str) -> Vec<Asked> {
        let all = locked(&self.shared.asked);
        let of = all.iter().filter(|asked| asked.target == target);
        of.cloned().collect()
    }

    /// Bytes of contents that it has sent.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    /// Connections that are open, and those that ever were.
    pub fn connections(&self) -> (usize, usize) {
        let ever = self.shared.connections.load(Ordering::Relaxed);
        (locked(&self.shared.open).len(), ever)
    }

    /// Closes all connections.
    pub fn hang_up(&self) {
        for stream in locked(&self.shared.open).values() {
            let _ = stream.shutdown(Shutdown::Both); // it may be closed already
        }
    }

    /// Refuses connections from now on, and closes those that are open.
    pub fn go_down(&mut self) {
        if let Some((over, thread)) = self.listening.take() {
            over.store(true, Ordering::Release);
            let _ = TcpStream::connect(self.address); // it looks whether it is over
            let _ = thread.join();
        }
        self.hang_up();
    }

    /// Accepts connections again, at the same address.
    pub fn come_up(&mut self) {
        let mut listener = None;
        eventually("its port is free", || {
            listener = TcpListener::bind(self.address).ok(); // a client may have that port just now
            listener.is_some()
        });
        let listener = listener.expect("a listener");
        self.address = listener.local_addr().expect("a bound socket");
        let (shared, over) = (Arc::clone(&self.shared), Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(stream));
            }
        });
        self.listening = Some((over, thread));
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.go_down();
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let limited = stream
            .set_read_timeout(Some(2 * PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| stream.set_nodelay(true));
        let (Ok(()), Ok(copy)) = (limited, stream.try_clone()) else {
            return;
        };
        locked(&self.open).insert(number, copy);
        let mut unread = Vec::new();
        while let Some(asked) = self.next(&mut stream, &mut unread) {
            let handler = locked(&self.handlers).get(&asked.target).cloned();
            let body = if asked.method == "HEAD" { "" } else { "none" };
            let missing = format!("HTTP/1.1 404 \r\nContent-Length: 4\r\n\r\n{body}");
            let missing = || Answer::raw(missing);
            let answer = handler.map_or_else(missing, |handler| handler(&asked));
            let goes_on = answer.0.iter().all(|step| self.act(step, &mut stream));
            if !goes_on {
                break;
            }
        }
        locked(&self.open).remove(&number);
    }

    /// The next request; `None`: the gateway has closed.
    fn next(&self, stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Asked> {
        let end = loop {
            if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
            unread.extend_from_slice(&piece[..read]);
        };
        let head: Vec<u8> = unread.drain(..end).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut words = head.split(' ').map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut all = locked(&self.asked);
        let nth = all.iter().filter(|asked| asked.target == target).count();
        let asked = Asked {
            method,
            target,
            head,
            nth,
        };
        all.push(asked.clone());
        Some(asked)
    }

    /// Does one step. Returns whether the connection goes on.
    fn act(&self, step: &Step, stream: &mut TcpStream) -> bool {
        let done: io::Result<()> = match step {
            Step::Send(bytes) => stream.write_all(bytes),
            Step::Body(bytes, span) => {
                let mut pieces = bytes[span.clone()].chunks(64 << 10);
                pieces.try_for_each(|piece| {
                    // Before: whoever has the last byte finds it counted.
                    let len_bytes = piece.len() as u64;
                    self.sent_bytes.fetch_add(len_bytes, Ordering::Relaxed);
                    stream.write_all(piece)
                })
            }
            Step::Drip(bytes) => bytes.iter().try_for_each(|byte| {
                thread::sleep(Duration::from_micros(200)); // so that it arrives alone
                stream.write_all(&[*byte])
            }),
            Step::Endless(bytes) => loop {
                if let Err(error) = stream.write_all(bytes) {
                    break Err(error);
                }
            },
            Step::Hang => {
                while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
                return false;
            }
            Step::Close => {
                let _ = stream.shutdown(Shutdown::Both); // the gateway may have closed
                return false;
            }
            Step::Reset => {
                reset_on_drop(stream);
                return false;
            }
        };
        done.is_ok()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
