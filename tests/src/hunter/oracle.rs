//! The judge of a connection: it takes what arrives, byte by byte, and reports what is wrong.
//!
//! It knows what was asked ([`Oracle::asked`]) and what the files were when ([`History`]). It keeps no content. Unit
//! tests feed it broken streams, so that it can't silently pass them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::body::Body;
use super::head::{Head, content_range};
use super::history::History;
use super::plan::{Ask, Span, Subject};
use super::track::Judged;
use super::wrong::{Kind, Wrong, shown};

/// What else the weather excuses.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The disk or the origin fails: any response may be an error or end early.
    pub disk_fails: bool,
    /// Memory is scarce: any response may be 503.
    pub busy: bool,
    /// Most bytes under way in buffers of both sides.
    pub in_buffers_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    /// By RST, or another error.
    Reset,
}

/// Totals of a connection so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Bytes, heads included.
    pub bytes: u64,
    pub heads: usize,
    pub complete: usize,
    /// Responses that were cut short for a valid reason.
    pub cut: usize,
    /// Complete responses that hold more than one version for a valid reason.
    pub torn: usize,
}

/// Validators that the server sent for a file.
#[derive(Clone, Debug)]
pub struct Validators {
    pub file: usize,
    pub tag: String,
    pub date: String,
}

const HEAD_BYTES: usize = 16 << 10;
/// The server may not have noticed a change of the file that is no older than this at the request.
const JUST_NOW: Duration = Duration::from_secs(1);
/// Time after which the server may give up a head: less than its `--header-timeout` of 10 s, since its clock is not
/// ours.
const SLOW_HEAD: Duration = Duration::from_secs(8);

/// What one connection was asked, and how far its answers have come.
pub struct Oracle {
    rules: Rules,
    asks: VecDeque<Asked>,
    head: Vec<u8>,
    answer: Option<Answer>,
    closing: bool,
    pub sums: Sums,
    pub validators: Option<Validators>,
}

/// A request without a response.
struct Asked {
    ask: Ask,
    /// When its first byte was about to leave.
    at: Instant,
    /// When its last byte had left.
    sent_at: Option<Instant>,
}

struct Answer {
    ask: Ask,
    asked: Instant,
    head: Head,
    body: Body,
}

impl Oracle {
    pub fn new(rules: Rules) -> Oracle {
        Oracle {
            rules,
            asks: VecDeque::new(),
            head: Vec::new(),
            answer: None,
            closing: false,
            sums: Sums::default(),
            validators: None,
        }
    }

    /// Notes a request that is about to be sent.
    pub fn asked(&mut self, ask: Ask, now: Instant) {
        self.asks.push_back(Asked {
            ask,
            at: now,
            sent_at: None,
        });
    }

    /// Notes that all requests have left.
    pub fn all_sent(&mut self, now: Instant) {
        let last = self.asks.iter_mut().rev();
        for asked in last.take_while(|asked| asked.sent_at.is_none()) {
            asked.sent_at = Some(now);
        }
    }

    /// Whether all requests are answered, or the server has said that it will answer no more.
    pub fn is_answered(&self) -> bool {
        self.answer.is_none() && (self.asks.is_empty() || self.closing)
    }

    pub fn place(&self) -> String {
        match (&self.answer, self.asks.front()) {
            (Some(answer), _) => format!(
                "in the body of {:?} ({}): {}",
                answer.ask.text().lines().next().unwrap_or_default(),
                answer.head.status,
                answer.body.place()
            ),
            (None, Some(asked)) => {
                let line = asked.ask.text();
                let line = line.lines().next().unwrap_or_default().to_owned();
                format!(
                    "waiting for the head of {line:?}, {} bytes of it here",
                    self.head.len()
                )
            }
            (None, None) => "between two answers".to_owned(),
        }
    }

    /// The file range that is due next, and where the part behind it begins.
    pub fn due(&self) -> Option<(usize, Span, Option<u64>)> {
        let answer = self.answer.as_ref()?;
        let Subject::File(file) = answer.ask.subject else {
            return None;
        };
        let (at, end, next) = answer.body.due()?;
        Some((file, Span::Between(at, end - 1), next))
    }

    /// Notes that the socket is empty.
    pub fn drained(&mut self, now: Instant) {
        if let Some(answer) = &mut self.answer {
            answer.body.drained(now);
        }
    }

    pub fn feed(&mut self, bytes: &[u8], now: Instant, history: &History) -> Result<(), Wrong> {
        self.sums.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.answer.take() {
                None => self.feed_head(rest, now, history)?,
                Some(mut answer) => {
                    let used = answer.body.feed(rest, now, history)?;
                    self.goes_on(answer, history)?;
                    &rest[used..]
                }
            };
        }
        Ok(())
    }

    fn feed_head<'a>(
        &mut self,
        bytes: &'a [u8],
        now: Instant,
        history: &History,
    ) -> Result<&'a [u8], Wrong> {
        if self.closing || self.asks.is_empty() {
            let text = format!("nothing is owed, and there comes {}", shown(bytes));
            return Wrong::err(Kind::Beyond, text);
        }
        let before = self.head.len();
        self.head
            .extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES)]);
        let start = b"HTTP/1.1 ";
        let compared = start.len().min(self.head.len());
        if self.head[..compared] != start[..compared] {
            let text = format!(
                "an answer should begin, and there comes {}",
                shown(&self.head)
            );
            return Wrong::err(Kind::Beyond, text);
        }
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
            if self.head.len() > HEAD_BYTES {
                return Wrong::err(
                    Kind::Frame,
                    format!("a head without end: {}", shown(&self.head)),
                );
            }
            return Ok(&[]);
        };
        let text = String::from_utf8_lossy(&self.head[..end]).into_owned();
        let used = end + 4 - before;
        self.head.clear();
        let Asked { ask, at: asked, .. } = self.asks.pop_front().expect("looked at above");
        let head = Head::parse(text)?;
        self.sums.heads += 1;
        self.closing = head
            .field("Connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if ask.close && !self.closing {
            return Wrong::err(Kind::Frame, format!("close was asked for:\n{}", head.text));
        }
        let judge = Judge {
            ask: &ask,
            asked,
            now,
            rules: self.rules,
        };
        let body = judge.body(&head, history)?;
        let answer = Answer {
            ask,
            asked,
            head,
            body,
        };
        self.goes_on(answer, history)?;
        Ok(&bytes[used..])
    }

    /// Judges a response that is complete; keeps another one.
    fn goes_on(&mut self, answer: Answer, history: &History) -> Result<(), Wrong> {
        if !answer.body.is_whole() {
            self.answer = Some(answer);
            return Ok(());
        }
        self.sums.complete += 1;
        let tag = answer.head.field("ETag").unwrap_or_default();
        match answer
            .body
            .judge(tag, self.rules.in_buffers_bytes, history)?
        {
            Judged::Torn => self.sums.torn += 1,
            Judged::One => {}
        }
        if let (Subject::File(file), false) = (answer.ask.subject, tag.is_empty()) {
            let date = answer.head.field("Last-Modified").unwrap_or_default();
            self.validators = Some(Validators {
                file,
                tag: tag.to_owned(),
                date: date.to_owned(),
            });
        }
        Ok(())
    }

    pub fn ended(&mut self, how: End, now: Instant, history: &History) -> Result<(), Wrong> {
        if self.is_answered() && self.head.is_empty() {
            return Ok(());
        }
        let (subject, asked, was_slow) = match (&self.answer, self.asks.front()) {
            (Some(answer), _) => (answer.ask.subject, answer.asked, false),
            (None, Some(asked)) => {
                let took = asked
                    .sent_at
                    .unwrap_or(now)
                    .saturating_duration_since(asked.at);
                (asked.ask.subject, asked.at, took >= SLOW_HEAD)
            }
            (None, None) => unreachable!("nothing was owed"),
        };
        let since = asked.checked_sub(JUST_NOW).unwrap_or(asked);
        let changed = match subject {
            Subject::File(file) => history.lives()[file].changed_since(since),
            Subject::Listing => true, // files come and go while it is made
            Subject::Nothing => false,
        };
        if changed || was_slow || self.rules.disk_fails {
            self.sums.cut += 1;
            return Ok(());
        }
        Wrong::err(
            Kind::Cut,
            format!("{how:?} {}; its file did not change", self.place()),
        )
    }
}

/// Derives from the head of a response what its body has to be.
struct Judge<'a> {
    ask: &'a Ask,
    asked: Instant,
    now: Instant,
    rules: Rules,
}

impl Judge<'_> {
    fn body(&self, head: &Head, history: &History) -> Result<Body, Wrong> {
        self.status(head, history)?;
        if self.ask.head_only || head.status == 304 {
            return Ok(Body::none());
        }
        if head.field("Transfer-Encoding").is_some() {
            let listing = self.ask.subject == Subject::Listing && head.status == 200;
            if !listing || head.field("Content-Length").is_some() {
                return Wrong::err(
                    Kind::Frame,
                    format!("framed in two ways, or no listing:\n{}", head.text),
                );
            }
            return Ok(Body::chunked());
        }
        let len_bytes = head.len_bytes()?;
        match (self.ask.subject, head.status) {
            (Subject::File(file), 200) => {
                self.file(file, len_bytes, vec![(0, len_bytes)], head, history)
            }
            (Subject::File(file), 206) => self.partial(file, head, history),
            _ => Ok(Body::text(len_bytes)),
        }
    }

    fn file(
        &self,
        file: usize,
        total_bytes: u64,
        spans: Vec<(u64, u64)>,
        head: &Head,
        history: &History,
    ) -> Result<Body, Wrong> {
        let body = Body::file(file, total_bytes, spans, (self.asked, self.now), history);
        if body.is_of_nobody() {
            let text = format!("{} has been gone for long:\n{}", self.ask.text(), head.text);
            return Wrong::err(Kind::Status, text);
        }
        Ok(body)
    }

    fn partial(&self, file: usize, head: &Head, history: &History) -> Result<Body, Wrong> {
        let wrong = |what: &str| {
            let text = format!("{what}, for {}:\n{}", self.ask.text().trim_end(), head.text);
            Wrong::err(Kind::Frame, text)
        };
        let len_bytes = head.len_bytes()?;
        let kind = head.field("Content-Type").unwrap_or_default();
        if let Some((_, boundary)) = kind.split_once("multipart/byteranges; boundary=") {
            // The first part tells how long the file was.
            let spans = self.ask.spans.clone();
            let times = (self.asked, self.now);
            return Ok(Body::parts(
                file, spans, boundary, len_bytes, times, history,
            ));
        }
        let Some((start, end, total)) = head.field("Content-Range").and_then(content_range) else {
            return wrong("no Content-Range");
        };
        let asked: Vec<_> = self
            .ask
            .spans
            .iter()
            .filter_map(|span| span.of(total))
            .collect();
        if asked != [(start, end)] || end - start != len_bytes {
            return wrong("another range");
        }
        self.file(file, total, vec![(start, end)], head, history)
    }

    fn status(&self, head: &Head, history: &History) -> Result<(), Wrong> {
        let wrong = |why: &str| {
            let text = format!("{why}, for {}:\n{}", self.ask.text().trim_end(), head.text);
            Wrong::err(Kind::Status, text)
        };
        let Subject::File(file) = self.ask.subject else {
            return match (self.ask.subject, head.status) {
                (Subject::Listing, 200) | (Subject::Nothing, 404) => Ok(()),
                (_, 503) if self.rules.busy => Ok(()),
                (_, 500 | 502 | 504) if self.rules.disk_fails => Ok(()),
                _ => wrong("an answer that it can't have"),
            };
        };
        let (absent, changed) = {
            let lives = history.lives();
            let life = &lives[file];
            let since = self.asked.checked_sub(JUST_NOW).unwrap_or(self.asked);
            let stages = &life.stages[life.oldest_seen_at(self.asked)..];
            (
                stages.iter().any(|stage| stage.state.is_none()),
                life.changed_since(since),
            )
        };
        let ask = self.ask;
        match head.status {
            200 => self
                .may_be_whole(head)
                .or_else(|()| wrong("all of it, where ranges were asked for")),
            206 if !ask.spans.is_empty() && !ask.head_only => {
                match (&ask.if_range, head.field("ETag")) {
                    (Some(tag), own) if tag.ends_with('"') && own != Some(tag) => {
                        wrong("a range of another version")
                    }
                    _ => Ok(()),
                }
            }
            304 => match (&ask.if_none_match, head.field("ETag")) {
                (Some(tag), own) if own.map(opaque) != Some(opaque(tag)) => {
                    wrong("304 for another tag")
                }
                (None, _) if ask.if_modified_since.is_none() => wrong("304 without a condition"),
                _ => Ok(()),
            },
            404 if absent => Ok(()),
            416 => {
                let total = head
                    .field("Content-Range")
                    .and_then(|value| value.strip_prefix("bytes */")?.parse().ok());
                match total {
                    Some(total) if ask.spans.iter().all(|span| span.of(total).is_none()) => Ok(()),
                    _ => wrong("416 for ranges that are there"),
                }
            }
            503 if self.rules.busy => Ok(()),
            500 if changed => Ok(()),
            500 | 502 | 504 if self.rules.disk_fails => Ok(()),
            _ => wrong("an answer that it can't have"),
        }
    }

    /// Whether the server may have ignored the Range.
    fn may_be_whole(&self, head: &Head) -> Result<(), ()> {
        let ask = self.ask;
        if ask.spans.is_empty() || ask.head_only || ask.if_range.is_some() || ask.spans.len() > 16 {
            return Ok(());
        }
        let total = head.len_bytes().map_err(|_| ())?;
        let spans: Vec<_> = ask.spans.iter().filter_map(|span| span.of(total)).collect();
        let sum: u64 = spans.iter().map(|(start, end)| end - start).sum();
        let overlap = |a: &&(u64, u64), b: &(u64, u64)| a.0 < b.1 && b.0 < a.1;
        let crowded = spans
            .iter()
            .any(|b| spans.iter().filter(|a| overlap(a, b)).count() > 2);
        let excessive = spans.len() > 1 && (sum > total || crowded);
        if excessive || total == 0 {
            Ok(())
        } else {
            Err(())
        }
    }
}

/// A tag without its `W/`.
fn opaque(tag: &str) -> &str {
    tag.trim_start_matches("W/")
}

#[cfg(test)]
mod tests;
