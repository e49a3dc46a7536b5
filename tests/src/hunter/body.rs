//! The body of a response: which bytes of which file are due next, and whether they are those of one version.

use std::time::{Duration, Instant};

use super::head::content_range;
use super::history::History;
use super::plan::Span;
use super::track::{IN_BUFFERS, Judged, Track};
use super::wrong::{Kind, Wrong, shown};

pub struct Body {
    shape: Shape,
    /// Bytes that Content-Length promises and that have not come yet.
    left: u64,
    track: Option<Track>,
    /// When the socket was last found empty, after it had been so for [`DRY`].
    drained: Option<Instant>,
    /// The first and the last time at which its reader found the socket empty, since bytes came last.
    dry: Option<(Instant, Instant)>,
    /// How much was left at which time; at most one entry each [`MARK`].
    marks: Vec<(Instant, u64)>,
}

/// A reader that finds nothing for so long has emptied the server's socket, too. For shorter times the kernel of a busy
/// machine may not have moved the bytes yet.
const DRY: Duration = Duration::from_millis(100);
/// See [`Body::marks`].
const MARK: Duration = Duration::from_millis(100);

enum Shape {
    /// Bytes that are in no file.
    Text,
    /// A range of a file.
    File {
        at: u64,
        end: u64,
    },
    Parts(Parts),
    Chunks(Chunks),
}

struct Parts {
    boundary: String,
    asked: Vec<Span>,
    /// Ranges still due, once the first part has told how long the file is.
    due: Option<Vec<(u64, u64)>>,
    /// The rest of the current part.
    at: u64,
    end: u64,
    /// The head of a part, or the last boundary, as far as it has come.
    head: Vec<u8>,
    closed: bool,
    file: usize,
    times: (Instant, Instant),
}

impl Body {
    pub fn none() -> Body {
        Body::text(0)
    }

    /// Any bytes, this many.
    pub fn text(left: u64) -> Body {
        let shape = Shape::Text;
        Body {
            shape,
            left,
            track: None,
            drained: None,
            dry: None,
            marks: Vec::new(),
        }
    }

    pub fn chunked() -> Body {
        Body {
            shape: Shape::Chunks(Chunks::default()),
            ..Body::text(u64::MAX)
        }
    }

    /// One range of a file. `times`: of the request and of the head.
    pub fn file(
        file: usize,
        total_bytes: u64,
        spans: Vec<(u64, u64)>,
        times: (Instant, Instant),
        history: &History,
    ) -> Body {
        let (at, end) = spans[0];
        let track = Some(Track::new(file, total_bytes, times, &history.lives()[file]));
        Body {
            shape: Shape::File { at, end },
            track,
            ..Body::text(end - at)
        }
    }

    pub fn parts(
        file: usize,
        asked: Vec<Span>,
        boundary: &str,
        len_bytes: u64,
        times: (Instant, Instant),
        history: &History,
    ) -> Body {
        let parts = Parts {
            boundary: boundary.to_owned(),
            asked,
            due: None,
            at: 0,
            end: 0,
            head: Vec::new(),
            closed: false,
            file,
            times,
        };
        let track = Some(Track::new(file, 0, times, &history.lives()[file]));
        Body {
            shape: Shape::Parts(parts),
            track,
            ..Body::text(len_bytes)
        }
    }

    /// Whether the bytes fit no content that the file ever had.
    pub fn is_of_nobody(&self) -> bool {
        self.track.as_ref().is_some_and(Track::is_of_nobody)
    }

    pub fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// The file range that is due, and where the part behind it begins.
    pub fn due(&self) -> Option<(u64, u64, Option<u64>)> {
        let (at, end, next) = match &self.shape {
            Shape::File { at, end } => (*at, *end, None),
            Shape::Parts(parts) => {
                let next = parts.due.as_ref().and_then(|due| due.first());
                (parts.at, parts.end, next.map(|next| next.0))
            }
            Shape::Text | Shape::Chunks(_) => return None,
        };
        (at < end).then_some((at, end, next))
    }

    /// Notes that the socket is empty.
    pub fn drained(&mut self, now: Instant) {
        self.dry.get_or_insert((now, now)).1 = now;
    }

    pub fn place(&self) -> String {
        let at = match &self.shape {
            Shape::Text => String::new(),
            Shape::File { at, end } => format!(", at {at} of the file, until {end}"),
            Shape::Parts(parts) => format!(
                ", in the part at {} of the file, until {}",
                parts.at, parts.end
            ),
            Shape::Chunks(chunks) => return format!("{} bytes of a chunk to come", chunks.left),
        };
        format!("{} bytes to come{at}", self.left)
    }

    /// Takes those of the bytes that belong to it, and returns how many these are.
    pub fn feed(&mut self, bytes: &[u8], now: Instant, history: &History) -> Result<usize, Wrong> {
        if let Some((first, last)) = self.dry.take() {
            if last.saturating_duration_since(first) >= DRY {
                self.drained = Some(last);
            }
        }
        if self.track.is_some() && self.marks.last().is_none_or(|mark| now >= mark.0 + MARK) {
            self.marks.push((now, self.left));
        }
        let take = bytes
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let bytes = &bytes[..take];
        match (&mut self.shape, &mut self.track) {
            (Shape::Text, _) => {}
            (Shape::File { at, .. }, Some(track)) => {
                track.feed(*at, bytes, &history.lives()[track.file])?;
                *at += take as u64;
            }
            (Shape::Parts(parts), Some(track)) => parts.feed(bytes, track, history)?,
            (Shape::Chunks(chunks), _) => {
                let used = chunks.feed(bytes)?;
                if chunks.due == Line::None {
                    self.left = 0;
                }
                return Ok(used);
            }
            (_, None) => unreachable!("a file is tracked"),
        }
        self.left -= take as u64;
        if let (0, Shape::Parts(parts)) = (self.left, &self.shape) {
            if !parts.closed {
                return Wrong::err(
                    Kind::Frame,
                    format!(
                        "Content-Length ends in the middle of the parts{}",
                        self.place()
                    ),
                );
            }
        }
        Ok(take)
    }

    pub fn judge(
        &self,
        tag: &str,
        in_buffers_bytes: u64,
        history: &History,
    ) -> Result<Judged, Wrong> {
        let Some(track) = &self.track else {
            return Ok(Judged::One);
        };
        // Whether the server went on sending long after this time.
        let went_on = |since: Instant| {
            let due = since + IN_BUFFERS;
            let was_empty = self.drained.is_some_and(|drained| drained > due);
            let mark = self.marks.iter().find(|mark| mark.0 > due);
            was_empty || mark.is_some_and(|mark| mark.1 > in_buffers_bytes)
        };
        track.judge(tag, &went_on, &mut history.lives()[track.file])
    }
}

impl Parts {
    fn feed(&mut self, bytes: &[u8], track: &mut Track, history: &History) -> Result<(), Wrong> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.at < self.end {
                let here = rest.len().min((self.end - self.at) as usize);
                track.feed(self.at, &rest[..here], &history.lives()[self.file])?;
                self.at += here as u64;
                rest = &rest[here..];
            } else {
                rest = self.feed_head(rest, track, history)?;
            }
        }
        Ok(())
    }

    fn feed_head<'a>(
        &mut self,
        bytes: &'a [u8],
        track: &mut Track,
        history: &History,
    ) -> Result<&'a [u8], Wrong> {
        if self.closed {
            return Wrong::err(
                Kind::Frame,
                format!("behind the last boundary: {}", shown(bytes)),
            );
        }
        let opening = format!("\r\n--{}", self.boundary);
        for (nth, byte) in bytes.iter().enumerate() {
            self.head.push(*byte);
            let compared = self.head.len().min(opening.len());
            if self.head[..compared] != opening.as_bytes()[..compared] {
                let text = format!(
                    "a boundary should come, and there is {}",
                    shown(&[&self.head, &bytes[nth + 1..]].concat())
                );
                return Wrong::err(Kind::Beyond, text);
            }
            let behind = &self.head[compared..];
            if behind == b"--\r\n" {
                let due = self.due.as_deref();
                if due.is_none_or(|due| !due.is_empty()) {
                    return Wrong::err(
                        Kind::Frame,
                        format!("the last boundary, with parts to come: {due:?}"),
                    );
                }
                self.closed = true;
                return Ok(&bytes[nth + 1..]);
            }
            if behind.ends_with(b"\r\n\r\n") {
                let text = String::from_utf8_lossy(behind).into_owned();
                self.begin(&text, track, history)?;
                self.head.clear();
                return Ok(&bytes[nth + 1..]);
            }
            if behind.len() > 1000 {
                return Wrong::err(
                    Kind::Frame,
                    format!("no head of a part: {}", shown(&self.head)),
                );
            }
        }
        Ok(&[])
    }

    fn begin(&mut self, head: &str, track: &mut Track, history: &History) -> Result<(), Wrong> {
        let range = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Range: "));
        let Some((start, end, total)) = range.and_then(content_range) else {
            return Wrong::err(
                Kind::Frame,
                format!("a part without Content-Range: {head:?}"),
            );
        };
        let asked = &self.asked;
        let due = self.due.get_or_insert_with(|| {
            *track = Track::new(self.file, total, self.times, &history.lives()[self.file]);
            asked.iter().filter_map(|span| span.of(total)).collect()
        });
        if due.first() != Some(&(start, end)) || total != track.total_bytes {
            let text = format!(
                "a part {start}-{end} of {total}; expected of {}: {due:?}",
                track.total_bytes
            );
            return Wrong::err(Kind::Frame, text);
        }
        due.remove(0);
        (self.at, self.end) = (start, end);
        Ok(())
    }
}

/// A chunked body (RFC 9112 section 7.1) without trailers.
#[derive(Default)]
struct Chunks {
    /// Bytes left of this chunk.
    left: u64,
    /// The current line with its end: a length, the end of a chunk, or the empty line behind the last chunk.
    line: Vec<u8>,
    due: Line,
}

/// What a line of a chunked body has to be.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Length,
    EndOfChunk,
    Last,
    None,
}

impl Chunks {
    /// Takes those of the bytes that belong to it, and returns how many these are.
    fn feed(&mut self, bytes: &[u8]) -> Result<usize, Wrong> {
        let mut at = 0;
        while at < bytes.len() && self.due != Line::None {
            if self.left > 0 {
                let here = (bytes.len() - at).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                (at, self.left) = (at + here, self.left - here as u64);
                continue;
            }
            self.line.push(bytes[at]);
            at += 1;
            if self.line.ends_with(b"\r\n") || self.line.len() > 18 {
                self.next()?;
            }
        }
        Ok(at)
    }

    fn next(&mut self) -> Result<(), Wrong> {
        let text = String::from_utf8_lossy(&self.line).into_owned();
        let len = text
            .strip_suffix("\r\n")
            .and_then(|text| u64::from_str_radix(text, 16).ok());
        self.due = match (self.due, len) {
            (Line::Length, Some(0)) => Line::Last,
            (Line::Length, Some(len)) => {
                self.left = len;
                Line::EndOfChunk
            }
            (Line::EndOfChunk, None) if text == "\r\n" => Line::Length,
            (Line::Last, None) if text == "\r\n" => Line::None,
            _ => {
                return Wrong::err(
                    Kind::Frame,
                    format!("in a chunked body: {}", shown(&self.line)),
                );
            }
        };
        self.line.clear();
        Ok(())
    }
}
