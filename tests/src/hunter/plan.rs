//! What a client will do: drawn from a seed, independent of any server.

use crate::Rng;

/// What is known of a file when it is requested.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub file: usize,
    /// The path at which it is served.
    pub target: String,
    /// Its present length; 0 if it does not exist.
    pub len_bytes: u64,
    /// The ETag of an earlier response.
    pub tag: Option<String>,
    /// The Last-Modified of an earlier response.
    pub date: Option<String>,
    /// The range that another client has just asked for.
    pub asked: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    File(usize),
    Listing,
    /// A path that does not exist.
    Nothing,
}

/// A range as a request states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From the first to the last of these bytes.
    Between(u64, u64),
    From(u64),
    /// This many bytes at the end.
    Last(u64),
}

impl Span {
    /// Start and end (exclusive) in a file of this length; `None` if the file has no byte of the range.
    pub fn of(self, len_bytes: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Span::Between(first, last) => (first, len_bytes.min(last + 1)),
            Span::From(first) => (first, len_bytes),
            Span::Last(count) => (len_bytes.saturating_sub(count), len_bytes),
        };
        (start < end).then_some((start, end))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With the previous request, in one write.
    Together,
    /// Once bytes of the previous response have come.
    UnderWay,
    /// Once the previous request is answered.
    Answered,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub subject: Subject,
    pub head_only: bool,
    /// Its Range; empty: the whole file.
    pub spans: Vec<Span>,
    pub if_range: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<String>,
    /// Whether it carries `Connection: close`.
    pub close: bool,
    pub when: When,
    target: String,
}

impl Ask {
    /// The request as it is sent.
    pub fn text(&self) -> String {
        let method = if self.head_only { "HEAD" } else { "GET" };
        let mut text = format!("{method} {} HTTP/1.1\r\nHost: t\r\n", self.target);
        if !self.spans.is_empty() {
            let spans: Vec<String> = self.spans.iter().map(Span::to_string).collect();
            text += &format!("Range: bytes={}\r\n", spans.join(","));
        }
        let fields = [
            ("If-Range", &self.if_range),
            ("If-None-Match", &self.if_none_match),
            ("If-Modified-Since", &self.if_modified_since),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                text += &format!("{name}: {value}\r\n");
            }
        }
        if self.close {
            text += "Connection: close\r\n";
        }
        text + "\r\n"
    }

    pub fn get(subject: Subject, target: &str) -> Ask {
        Ask {
            subject,
            head_only: false,
            spans: Vec::new(),
            if_range: None,
            if_none_match: None,
            if_modified_since: None,
            close: false,
            when: When::Answered,
            target: target.to_owned(),
        }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Span::Between(first, last) => write!(f, "{first}-{last}"),
            Span::From(first) => write!(f, "{first}-"),
            Span::Last(count) => write!(f, "-{count}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Fast,
    /// This many bytes at a time, one read every so many ms.
    Paced {
        /// Most bytes of a read.
        bytes: usize,
        /// Pause between two reads.
        every_ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    Answered,
    /// Once all is answered; it shuts down its sending side after the last request (shutdown(2)).
    HalfClosed,
    Reset(Limit),
    Closed(Limit),
}

/// How long a client stays: until the first of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Until it has this many bytes of all responses.
    pub bytes: u64,
    /// Until this much later.
    pub ms: u64,
}

/// All that a client does on a connection.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it asks for, in order; never empty.
    pub asks: Vec<Ask>,
    pub pace: Pace,
    /// Its SO_RCVBUF; `None`: the kernel's default.
    pub receive_bytes: Option<usize>,
    /// Later requests are first sent byte by byte, with this many ms between the bytes.
    pub drip_ms: Option<u64>,
    /// (bytes, ms): after this many bytes it reads nothing for this many ms.
    pub pause: Option<(u64, u64)>,
    pub leave: Leave,
}

impl Plan {
    /// One request, read without pauses.
    pub fn quick(ask: Ask) -> Plan {
        Plan {
            asks: vec![Ask {
                when: When::Together,
                ..ask
            }],
            pace: Pace::Fast,
            receive_bytes: None,
            drip_ms: None,
            pause: None,
            leave: Leave::Answered,
        }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (buffer, pause) = (self.receive_bytes, self.pause);
        let (pace, drip, leave) = (self.pace, self.drip_ms, self.leave);
        write!(
            f,
            "reads {pace:?} (SO_RCVBUF {buffer:?}, pause at bytes, ms: {pause:?}), drips {drip:?}, leaves {leave:?}"
        )?;
        for ask in &self.asks {
            write!(
                f,
                "\n    {:?}: {}",
                ask.when,
                ask.text().trim_end().replace("\r\n", " | ")
            )?;
        }
        Ok(())
    }
}

/// How clients behave, in percent of them.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Leave in the middle, by RST or FIN.
    pub leaves_early: usize,
    /// Read slowly or with pauses.
    pub slow: usize,
    /// Send later requests in single bytes. Each byte makes the server look at the response under way.
    pub drips: usize,
    pub multipart: usize,
    pub range: usize,
    pub conditional: usize,
    /// Ask for the listing or for a path that does not exist.
    pub other: usize,
    /// Most requests of a connection.
    pub asks_max: usize,
}

pub fn draw(rng: &mut Rng, taste: &Taste, known: &mut dyn FnMut(&mut Rng) -> Known) -> Plan {
    let count = 1 + rng.below(taste.asks_max);
    let mut asks: Vec<Ask> = (0..count).map(|_| draw_ask(rng, taste, known)).collect();
    asks[0].when = When::Together;
    let drip_ms = (rng.below(100) < taste.drips).then(|| 20 + rng.below(130) as u64);
    if drip_ms.is_some() && count > 1 {
        // Bytes that arrive while a response waits make the server look at it.
        asks[1].when = When::UnderWay;
    }
    let mut leave = Leave::Answered;
    if rng.below(100) < taste.leaves_early {
        let bytes = [0, 1, 1 + rng.below(1000), rng.below(4 << 20)][rng.below(4)] as u64;
        let most_ms = 1 << rng.below(12);
        let ms = rng.below(most_ms) as u64;
        leave = match rng.below(4) {
            0 => Leave::Closed(Limit { bytes, ms }),
            _ => Leave::Reset(Limit { bytes, ms }),
        };
    } else if rng.below(6) == 0 {
        leave = Leave::HalfClosed;
    } else {
        asks[count - 1].close = rng.below(4) == 0;
    }
    let mut plan = Plan {
        asks,
        pace: Pace::Fast,
        receive_bytes: [None, None, None, Some(1 << 20), Some(64 << 10)][rng.below(5)],
        drip_ms,
        pause: None,
        leave,
    };
    if rng.below(100) < taste.slow {
        match rng.below(4) {
            0 => plan.pause = Some((rng.below(2 << 20) as u64, 100 + rng.below(2500) as u64)),
            1 => {
                plan.receive_bytes = Some([2048, 16 << 10][rng.below(2)]);
                plan.pace = Pace::Paced {
                    bytes: 8 << 10,
                    every_ms: 2,
                };
            }
            _ => {
                plan.receive_bytes = Some([64 << 10, 256 << 10][rng.below(2)]);
                let every_ms = 5 + rng.below(40) as u64;
                plan.pace = Pace::Paced {
                    bytes: 32 << rng.below(5) << 10,
                    every_ms,
                };
            }
        }
    }
    plan
}

fn draw_ask(rng: &mut Rng, taste: &Taste, known: &mut dyn FnMut(&mut Rng) -> Known) -> Ask {
    let when = [When::Together, When::UnderWay, When::Answered][rng.below(3)];
    if rng.below(100) < taste.other {
        let (subject, target) = match rng.below(3) {
            0 => (Subject::Nothing, "/site/none"),
            _ => (Subject::Listing, "/site/"),
        };
        let head_only = rng.below(4) == 0;
        return Ask {
            head_only,
            when,
            ..Ask::get(subject, target)
        };
    }
    let known = known(rng);
    let mut ask = Ask::get(Subject::File(known.file), &known.target);
    (ask.when, ask.head_only) = (when, rng.below(12) == 0);
    let dice = rng.below(100);
    if dice < taste.multipart {
        ask.spans = draw_spans(rng, known.len_bytes);
    } else if dice < taste.multipart + taste.range {
        let own = draw_span(rng, known.len_bytes);
        ask.spans = vec![known.asked.filter(|_| rng.below(2) == 0).unwrap_or(own)];
    }
    if rng.below(100) < taste.conditional {
        match rng.below(4) {
            0 => ask.if_none_match = known.tag,
            1 => ask.if_modified_since = known.date,
            2 if !ask.spans.is_empty() => ask.if_range = known.date,
            _ if !ask.spans.is_empty() => ask.if_range = known.tag,
            _ => {}
        }
    }
    ask
}

/// A range of any size, anywhere; now and then at the ends of the file or behind them.
fn draw_span(rng: &mut Rng, len_bytes: u64) -> Span {
    let size = [1, 16, 4096, 128 << 10, 1 << 20, 4 << 20, 8 << 20][rng.below(7)];
    let len = (1 + rng.below(size)) as u64;
    let first = rng.below(len_bytes.max(1) as usize) as u64;
    match rng.below(12) {
        0 => Span::Last(len),
        1 => Span::From(first),
        2 => Span::Between(0, len - 1),
        3 => Span::From(len_bytes.saturating_sub(1)),
        4 if rng.below(4) == 0 => Span::From(len_bytes),
        5 => {
            let first = first & !((1 << 20) - 1);
            Span::Between(first, first + len - 1)
        }
        _ => Span::Between(first, first + len - 1),
    }
}

/// Several ranges that a server honours: together not longer than the file, and mostly disjoint. They ascend, descend
/// or are mixed, and lie all over the file or close together.
fn draw_spans(rng: &mut Rng, len_bytes: u64) -> Vec<Span> {
    let count = [2, 2, 3, 2 + rng.below(15)][rng.below(4)];
    if len_bytes < 64 || rng.below(8) == 0 {
        return (0..count).map(|_| draw_span(rng, len_bytes)).collect();
    }
    let extent = [len_bytes, len_bytes, 8 << 20, 3 << 20][rng.below(4)].min(len_bytes);
    let from = rng.below((len_bytes - extent + 1) as usize) as u64;
    let room = extent / count as u64;
    let mut spans: Vec<Span> = (0..count as u64)
        .map(|nth| {
            let first = from + nth * room + rng.below(room.div_ceil(2) as usize) as u64;
            let most = if rng.below(2) == 0 { 40 } else { room };
            let most = most.min(room.div_ceil(2)).max(1);
            Span::Between(first, first + rng.below(most as usize) as u64)
        })
        .collect();
    if let (0, Span::Between(first, last)) = (rng.below(3), spans[0]) {
        // A range over bytes just asked for, or just before them: two of these may overlap.
        let first = (first + last) / 2;
        spans.push(Span::Between(first.saturating_sub(20), first + 20));
        spans.truncate(16);
    }
    match rng.below(4) {
        0 => {}
        1 | 2 => spans.reverse(),
        _ => {
            for at in (1..spans.len()).rev() {
                spans.swap(at, rng.below(at + 1));
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASTE: Taste = Taste {
        leaves_early: 20,
        slow: 30,
        drips: 30,
        multipart: 30,
        range: 30,
        conditional: 30,
        other: 10,
        asks_max: 6,
    };

    fn plans(seed: u64) -> Vec<String> {
        let mut rng = Rng::new(seed);
        let mut known = |rng: &mut Rng| {
            let most = 1 << rng.below(24);
            Known {
                target: "/site/a".to_owned(),
                len_bytes: 1 + rng.below(most) as u64,
                tag: Some("\"a\"".to_owned()),
                ..Known::default()
            }
        };
        (0..500)
            .map(|_| draw(&mut rng, &TASTE, &mut known).to_string())
            .collect()
    }

    #[test]
    fn one_seed_is_one_row_of_plans() {
        assert_eq!(plans(5), plans(5));
        assert_ne!(plans(5), plans(6));
    }

    #[test]
    fn plans_have_all_that_clients_do() {
        let all = plans(1).concat();
        for what in [
            "HEAD ",
            "Together",
            "UnderWay",
            "Range: bytes=-",
            "If-Range",
            "If-None-Match",
            "Connection: close",
            "HalfClosed",
            "Reset",
            "Paced",
        ] {
            assert!(all.contains(what), "{what}");
        }
        assert!(plans(1).iter().any(|plan| plan.matches("GET").count() == 6));
    }

    #[test]
    fn a_span_is_cut_to_the_file() {
        assert_eq!(Span::Between(5, 9).of(8), Some((5, 8)));
        assert_eq!(Span::From(8).of(8), None);
        assert_eq!(Span::Last(9).of(8), Some((0, 8)));
    }
}
