//! The log of changes: a line for each, with from, to and why, so many in a second at most.

use std::fmt::{Display, Formatter, Result};

use ackpace_core::units::{Instant, US_PER_S};
use ackpace_share::outside::{NONE_SEGMENTS, Setting};
use serde::Serialize;

use crate::options::Tune;
use crate::tuner::Change;
use ackpace_host_base::lines::{Lines, To};

/// Lines of the log for changes in a second. More: counted, and one line tells how many.
const CHANGE_LINES_PER_S_MAX: u64 = 20;

/// Writes the lines.
#[derive(Debug)]
pub struct Journal {
    lines: Lines,
    /// JSON on standard output, not text on standard error.
    json: bool,
    /// No lines for changes.
    quiet: bool,
    /// Nothing is changed: the lines say what would be.
    dry_run: bool,
    /// The second that is under way, how many lines it has, and how many were held back in it.
    second: u64,
    told: u64,
    held_back: u64,
}

/// A change as it is told: to programs by its fields, to people in words.
#[derive(Debug, Serialize)]
struct Line {
    local: String,
    peer: String,
    cookie: u64,
    from_clamp_segments: Option<u32>,
    to_clamp_segments: Option<u32>,
    from_lowat_bytes: Option<u32>,
    to_lowat_bytes: Option<u32>,
    share_bytes: Option<u64>,
    why: &'static str,
    given_back: bool,
    dry_run: bool,
}

impl Journal {
    /// One without lines.
    pub fn new(options: &Tune) -> Journal {
        Journal {
            lines: Lines::new(),
            json: options.json,
            quiet: options.quiet,
            dry_run: options.dry_run,
            second: 0,
            told: 0,
            held_back: 0,
        }
    }

    /// Tells of a change that was carried out, unless it is one too many in its second.
    pub fn change(&mut self, change: &Change, now: Instant) {
        self.turn(now);
        if self.quiet || !self.has_room() {
            return;
        }
        let line = Line::of(change, self.dry_run);
        match self.json {
            true => self.tell(serde_json::to_string(&line).unwrap_or_default()),
            false => self.say(&line),
        }
    }

    /// A line for whoever asked.
    pub fn tell(&mut self, line: String) {
        self.lines.write(To::Output, line);
    }

    /// A line for the operator.
    pub fn say(&mut self, line: impl Display) {
        self.lines.write(To::Errors, format!("tune: {line}"));
    }

    /// Whether this second has room for one more line, which is then counted; if not, it is counted as held back.
    fn has_room(&mut self) -> bool {
        let has = self.told < CHANGE_LINES_PER_S_MAX;
        let count = if has {
            &mut self.told
        } else {
            &mut self.held_back
        };
        *count += 1;
        has
    }

    /// Another second may have begun, with room for other lines.
    pub fn turn(&mut self, now: Instant) {
        let second = now.us / US_PER_S;
        if second == self.second {
            return;
        }
        self.flush();
        (self.second, self.told) = (second, 0);
    }

    /// Tells how many changes have no line until now.
    pub fn flush(&mut self) {
        let held_back = std::mem::take(&mut self.held_back);
        match (held_back, self.json) {
            (0, _) => {}
            (_, true) => self.tell(format!("{{\"held_back\":{held_back}}}")),
            (_, false) => self.say(format_args!("{held_back} more changes in a second")),
        }
    }
}

impl Line {
    fn of(change: &Change, dry_run: bool) -> Line {
        let clamp = |of: Setting| Some(of.clamp_segments).filter(|clamp| *clamp < NONE_SEGMENTS);
        let lowat = |of: Setting| Some(of.lowat_bytes).filter(|bytes| *bytes > 0);
        let (from, to) = (change.order.from, change.order.to.unwrap_or_default());
        Line {
            local: change.local.to_string(),
            peer: change.peer.to_string(),
            cookie: change.order.cookie,
            from_clamp_segments: clamp(from),
            to_clamp_segments: clamp(to),
            from_lowat_bytes: lowat(from),
            to_lowat_bytes: lowat(to),
            share_bytes: change.share_bytes,
            why: change.why.name(),
            given_back: change.order.to.is_none(),
            dry_run,
        }
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.dry_run {
            f.write_str("would ")?;
        }
        let Line {
            local, peer, why, ..
        } = self;
        if self.given_back {
            return write!(f, "restore {local} > {peer}: {why}");
        }
        write!(f, "set {local} > {peer}:")?;
        let shown = |of: Option<u32>| of.map_or("none".to_owned(), |number| number.to_string());
        let (from, to) = (self.from_clamp_segments, self.to_clamp_segments);
        if from != to {
            write!(f, " clamp {} -> {} segments,", shown(from), shown(to))?;
        }
        let (from, to) = (self.from_lowat_bytes, self.to_lowat_bytes);
        if from != to {
            write!(f, " lowat {} -> {} B,", shown(from), shown(to))?;
        }
        match self.share_bytes {
            Some(bytes) => write!(f, " share {bytes} B: {why}"),
            None => write!(f, " no share: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Order;
    use crate::tuner::Why;
    use ackpace_share::outside::{Cause, HandsOff};

    #[test]
    fn a_line_has_from_to_and_why() {
        let end = |text: &str| text.parse().expect("an address");
        let line = |to: Option<Setting>, why| {
            let from = Setting {
                clamp_segments: u32::MAX,
                lowat_bytes: 0,
            };
            let change = Change {
                order: Order {
                    cookie: 7,
                    from,
                    to,
                },
                local: end("10.0.0.1:80"),
                peer: end("[2001:db8::1]:5"),
                share_bytes: Some(90_000),
                why,
            };
            Line::of(&change, false).to_string()
        };
        let to = Setting {
            clamp_segments: 40,
            lowat_bytes: 16_384,
        };
        assert_eq!(
            line(Some(to), Why::Set(Cause::Joined)),
            "set 10.0.0.1:80 > [2001:db8::1]:5: clamp none -> 40 segments, lowat none -> 16384 B, share 90000 B: joined"
        );
        assert_eq!(
            line(None, Why::GiveBack(HandsOff::Lowat)),
            "restore 10.0.0.1:80 > [2001:db8::1]:5: program_set_lowat"
        );
    }

    #[test]
    fn so_many_lines_a_second_and_the_rest_is_counted() {
        let mut journal = Journal::new(&Tune::default());
        let at = |us| Instant { us };
        journal.turn(at(10));
        let told = (0..50).filter(|_| journal.has_room()).count() as u64;
        let held_back = 50 - CHANGE_LINES_PER_S_MAX;
        assert_eq!(
            (told, journal.held_back),
            (CHANGE_LINES_PER_S_MAX, held_back)
        );
        journal.turn(at(US_PER_S));
        assert!(journal.has_room(), "the next second");
    }
}
