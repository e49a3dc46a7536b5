//! Which versions of its file a response can be of, byte after byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::State;
use super::history::{Change, Life, Stage};
use super::wrong::{Kind, Wrong, shown};

/// Bytes that the server gave the kernel before a file changed may still arrive: they lie in buffers, which refer to
/// the pages of the file. After this time none of them is left if the socket was empty, or if more is to come than
/// buffers hold.
pub const IN_BUFFERS: Duration = Duration::from_secs(1);

/// A file with a strong tag has not changed for longer than this.
const UNCHANGED: Duration = Duration::from_millis(500);

/// Verdict on a whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Of one version, or of no file.
    One,
    /// Of several versions, for a valid reason.
    Torn,
}

/// Which versions the bytes of a response can be of.
pub struct Track {
    pub file: usize,
    /// Its length as the response states it.
    pub total_bytes: u64,
    asked: Instant,
    head_at: Instant,
    /// The oldest stage that the server could have seen.
    oldest: usize,
    /// Number of stages that have been looked at.
    looked_at: usize,
    /// Stages that all bytes so far agree with.
    alive: Vec<usize>,
    got: Vec<(u64, u64)>,
    /// Why the last stage was ruled out.
    fell: String,
}

impl Track {
    /// A track of a response, by the times of its request and of its head.
    pub fn new(
        file: usize,
        total_bytes: u64,
        (asked, head_at): (Instant, Instant),
        life: &Life,
    ) -> Track {
        let oldest = life.oldest_seen_at(asked);
        let all = oldest..life.stages.len();
        Track {
            file,
            total_bytes,
            asked,
            head_at,
            oldest,
            looked_at: all.end,
            alive: all
                .filter(|nth| life.stages[*nth].state.is_some())
                .collect(),
            got: Vec::new(),
            fell: String::new(),
        }
    }

    /// Takes bytes that arrived for this offset.
    pub fn feed(&mut self, offset: u64, bytes: &[u8], life: &Life) -> Result<(), Wrong> {
        let state = |nth: usize| life.stages[nth].state.as_deref();
        for new in self.looked_at..life.stages.len() {
            // Bytes that have arrived are not kept, but they equal the content of these stages.
            let agrees = |own: &State, old: usize| {
                let agree = |&(start, end): &(u64, u64)| {
                    state(old).is_some_and(|old| own.agrees_with(old, start, end))
                };
                self.got.iter().all(agree)
            };
            if state(new).is_some_and(|own| {
                self.got.is_empty() || self.alive.iter().any(|old| agrees(own, *old))
            }) {
                self.alive.push(new);
            }
        }
        self.looked_at = life.stages.len();
        let were_some = !self.alive.is_empty();
        let (mut furthest, file) = (offset, self.file);
        self.alive.retain(|nth| {
            let differs = state(*nth).and_then(|state| state.differs_at(offset, bytes));
            furthest = furthest.max(differs.unwrap_or(0));
            differs.is_none()
        });
        if self.alive.is_empty() {
            if were_some {
                let from = (furthest - offset) as usize & !15;
                let expected: Vec<_> = life.stages[self.oldest..]
                    .iter()
                    .map(|stage| cell_at(stage.state.as_ref(), furthest))
                    .collect();
                self.fell = format!(
                    "file {file:02x} from {furthest} on: {}; there stood {expected:?}; before it came {:?}",
                    shown(&bytes[from.min(bytes.len())..]),
                    self.got
                );
            }
            self.is_of_somebody(offset, bytes, life)?;
        }
        match self.got.last_mut() {
            Some(last) if last.1 == offset => last.1 += bytes.len() as u64,
            _ => self.got.push((offset, offset + bytes.len() as u64)),
        }
        Ok(())
    }

    /// Whether the bytes fit no stage of the file.
    pub fn is_of_nobody(&self) -> bool {
        self.alive.is_empty()
    }

    /// Checks that each byte is what some version had there, or the 0 that truncation leaves in a file's last page.
    fn is_of_somebody(&self, offset: u64, bytes: &[u8], life: &Life) -> Result<(), Wrong> {
        let stages = &life.stages[self.oldest..];
        let cut = stages.iter().any(|stage| stage.change == Change::InPlace);
        let states: Vec<&Arc<State>> = stages
            .iter()
            .filter_map(|stage| stage.state.as_ref())
            .collect();
        let mut expected = vec![[0; 4096]; states.len()];
        for (nth, piece) in bytes.chunks(4096).enumerate() {
            let at = offset + nth as u64 * 4096;
            for (state, expected) in states.iter().zip(&mut expected) {
                state.fill(at, &mut expected[..piece.len()]);
            }
            let is_wrong = |nth: usize| {
                let had =
                    |expected: &[u8; 4096]| expected[nth] == piece[nth] && (piece[nth] != 0 || cut);
                !expected.iter().any(had)
            };
            if (0..piece.len()).any(is_wrong) {
                return Wrong::err(
                    Kind::WrongBytes,
                    format!("bytes that it never had there: {}", self.fell),
                );
            }
        }
        Ok(())
    }

    /// The response is one version's, under the strong tag of another one.
    fn judge_tag(
        &self,
        tag: &str,
        fit: &[usize],
        since: Instant,
        went_on: &dyn Fn(Instant) -> bool,
        life: &Life,
    ) -> Result<Judged, Wrong> {
        // A short response may lie in the socket whole while its file is written over: the socket refers to the file's
        // pages, and nothing more is sent that the server could hold back.
        let in_socket = |stage: &Stage| {
            stage.change == Change::InPlace
                && stage.begun > since
                && !stage.ended.is_some_and(went_on)
        };
        if fit.iter().any(|nth| in_socket(&life.stages[*nth])) {
            return Ok(Judged::Torn);
        }
        let stage = &life.stages[fit[0]];
        let before = self.head_at.saturating_duration_since(stage.begun);
        let text = format!(
            "{tag} was the tag of another version of {}; now it is of {:?} ({:?}, begun {:.3} s before the head came)",
            life.target,
            stage.state,
            stage.change,
            before.as_secs_f64()
        );
        Wrong::err(Kind::Tag, text)
    }

    /// Judges the complete response. `went_on`: whether the server sent more long after this time.
    pub fn judge(
        &self,
        tag: &str,
        went_on: &dyn Fn(Instant) -> bool,
        life: &mut Life,
    ) -> Result<Judged, Wrong> {
        let len = |nth: &usize| {
            life.stages[*nth]
                .state
                .as_ref()
                .map(|state| state.len_bytes())
        };
        let fit: Vec<usize> = self
            .alive
            .iter()
            .filter(|nth| len(nth) == Some(self.total_bytes))
            .copied()
            .collect();
        let strong = !tag.starts_with("W/") && !tag.is_empty();
        // The response began after this. A strong tag says that the file had been unchanged for a second or more: a
        // change shortly before the head came is later than that look. The request may have waited long behind others.
        let looked = self.head_at.checked_sub(UNCHANGED);
        let since = match strong {
            true => looked.map_or(self.asked, |looked| looked.max(self.asked)),
            false => self.head_at,
        };
        if !fit.is_empty() {
            if !strong || life.tagged(tag, &fit) {
                return Ok(Judged::One);
            }
            return self.judge_tag(tag, &fit, since, went_on, life);
        }
        let stages = &life.stages[self.oldest..];
        // A change that the server had to notice: it began after the response did, and ended long before the response
        // did.
        // A weak tag promises a prefix of a file that is being written: a file overwritten by something longer has
        // grown.
        let len_bytes = |stage: &Stage| stage.state.as_ref().map(|state| state.len_bytes());
        let grown = !strong
            && stages
                .iter()
                .any(|stage| len_bytes(stage) > Some(self.total_bytes));
        let noticed = stages.iter().filter(|_| !grown).find(|stage| {
            stage.change == Change::InPlace
                && stage.begun > since
                && stage.ended.is_some_and(went_on)
        });
        if let Some(stage) = noticed {
            let s = stage.begun.duration_since(self.asked).as_secs_f64();
            let text = format!(
                "all {} bytes came under {tag}, {s:.2} s after the request the file was written over; {}",
                self.total_bytes, self.fell
            );
            return Wrong::err(Kind::Mixed, text);
        }
        let unsettled = stages.iter().any(|stage| {
            matches!(stage.change, Change::InPlace | Change::Grow)
                && stage
                    .ended
                    .is_none_or(|ended| ended + IN_BUFFERS >= self.asked)
        });
        if unsettled {
            return Ok(Judged::Torn);
        }
        let text = format!(
            "no version of {} has {} bytes and these; {}",
            life.target, self.total_bytes, self.fell
        );
        Wrong::err(Kind::WrongBytes, text)
    }
}

/// The cell of a state at this offset, as text.
fn cell_at(state: Option<&Arc<State>>, offset: u64) -> String {
    let Some(state) = state else {
        return "nothing".to_owned();
    };
    let mut cell = [0; 16];
    state.fill(offset & !15, &mut cell);
    format!(
        "{:?} of {}",
        String::from_utf8_lossy(&cell[..15]),
        state.len_bytes()
    )
}
