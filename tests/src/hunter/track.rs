//! Which versions of its file an answer can be of, byte after byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::State;
use super::history::{Change, Life, Stage};
use super::wrong::{Kind, Wrong, shown};

/// What the server gave the kernel before a file changed may still arrive, for it lies in buffers, and they refer to the pages of the file.
/// So much later nothing of it is there any more if the socket was empty, or more is to come than buffers hold.
pub const IN_BUFFERS: Duration = Duration::from_secs(1);

/// A file with a strong tag has not changed for longer than this.
const UNCHANGED: Duration = Duration::from_millis(500);

/// What a whole body turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Of one version, or of no file.
    One,
    /// Of several, for a reason.
    Torn,
}

/// Which versions the bytes of an answer can be of.
pub struct Track {
    /// Which file.
    pub file: usize,
    /// How long it is by the word of the answer.
    pub total_bytes: u64,
    asked: Instant,
    head_at: Instant,
    /// The oldest stage that could have been seen.
    oldest: usize,
    /// So many stages have been looked at.
    looked_at: usize,
    /// Stages that all bytes until now agree with.
    alive: Vec<usize>,
    /// What came: from here to there.
    got: Vec<(u64, u64)>,
    /// How the last of them fell out.
    fell: String,
}

impl Track {
    /// Of an answer: when it was asked for, and when its head came.
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

    /// These bytes came for this place.
    ///
    /// # Errors
    /// When no version had them there.
    pub fn feed(&mut self, offset: u64, bytes: &[u8], life: &Life) -> Result<(), Wrong> {
        let state = |nth: usize| life.stages[nth].state.as_deref();
        for new in self.looked_at..life.stages.len() {
            // What came until now is not here any more, but it was what these were.
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

    /// Whether no file had any content that it could be.
    pub fn is_of_nobody(&self) -> bool {
        self.alive.is_empty()
    }

    /// Each byte must be what some version had there, or the 0 that cutting a file leaves in its last page.
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

    /// What it is, now that all came. `went_on`: whether the server sent more long after this time.
    ///
    /// # Errors
    /// See [`Body::judge`](super::body::Body::judge).
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
        if !fit.is_empty() {
            if strong && !life.tagged(tag, &fit) {
                let text = format!(
                    "{tag} was the tag of another version of {}; now it is of {:?}",
                    life.target, life.stages[fit[0]].state
                );
                return Wrong::err(Kind::Tag, text);
            }
            return Ok(Judged::One);
        }
        let stages = &life.stages[self.oldest..];
        // A change that the server had to notice: it began after this answer, and ended long before it.
        // Who gave a strong tag saw a file that had been as it was for a second or more: a change shortly before the head came is
        // later than that look. A request may have waited for long behind others.
        let looked = self.head_at.checked_sub(UNCHANGED);
        let since = match strong {
            true => looked.map_or(self.asked, |looked| looked.max(self.asked)),
            false => self.head_at,
        };
        // A weak tag promises a prefix of a file that is being written: written over by something longer, it has grown.
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
