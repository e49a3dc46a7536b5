//! A player's film: the next segment, its due time, and whether there is anything to play.

use crate::objects::Wanted;
use crate::setup::NEVER_US;

/// Playback state of a player.
#[derive(Clone, Copy, Debug)]
pub struct Playback {
    film_bytes_per_s: u64,
    segment_bytes: u64,
    /// Offset in the film of the next segment.
    at_bytes: u64,
    /// The time at which everything received will have been played; `NEVER_US` before the first segment.
    plays_until_us: u64,
    /// The time at which the next segment is due.
    due_us: u64,
}

impl Playback {
    /// A player without data. `film_s`: length of a segment in seconds.
    pub fn new(film_bytes_per_s: u64, film_s: f64) -> Self {
        Self {
            film_bytes_per_s: film_bytes_per_s.max(1),
            segment_bytes: ((film_bytes_per_s as f64 * film_s) as u64).max(1),
            at_bytes: 0,
            plays_until_us: NEVER_US,
            due_us: 0,
        }
    }

    /// True if the next segment is the first of a film.
    pub fn begins(&self) -> bool {
        self.at_bytes == 0
    }

    /// The time at which the next segment is due.
    pub fn due_us(&self) -> u64 {
        self.due_us
    }

    /// The range of the next segment in a film of `file_bytes`.
    pub fn segment(&self, file_bytes: u64) -> Wanted {
        let left_bytes = file_bytes.saturating_sub(self.at_bytes);
        Wanted::Range {
            from: self.at_bytes,
            len_bytes: self.segment_bytes.min(left_bytes),
        }
    }

    /// Records that the next segment, of `len_bytes`, has arrived. Returns the time since which playback had
    /// stalled for it, if it had.
    pub fn came(&mut self, len_bytes: u64, file_bytes: u64, now_us: u64) -> Option<u64> {
        self.at_bytes += len_bytes;
        if self.at_bytes >= file_bytes {
            self.at_bytes = 0; // the next film follows without a break
        }
        let since_us = self.stands_still_us(now_us);
        let begins_us = match self.plays_until_us {
            NEVER_US => now_us,
            until_us => until_us.max(now_us),
        };
        let film_us = u128::from(len_bytes) * 1_000_000 / u128::from(self.film_bytes_per_s);
        self.due_us = begins_us;
        self.plays_until_us = begins_us + film_us as u64;
        since_us
    }

    /// The time since which there has been nothing to play, if playback is stalled.
    pub fn stands_still_us(&self, now_us: u64) -> Option<u64> {
        (self.plays_until_us < now_us).then_some(self.plays_until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 10_000;

    fn range(from: u64, len_bytes: u64) -> Wanted {
        Wanted::Range { from, len_bytes }
    }

    #[test]
    fn two_segments_come_at_once_and_then_each_is_due_when_the_one_before_begins_to_be_played() {
        let mut film = Playback::new(1000, 4.0);
        assert!(film.begins() && film.due_us() == 0);
        assert_eq!(film.segment(FILE_BYTES), range(0, 4000));
        assert_eq!(film.stands_still_us(9_000_000), None, "it has not begun");
        assert_eq!(film.came(4000, FILE_BYTES, 100_000), None);
        assert_eq!(film.due_us(), 100_000, "the second at once");
        assert_eq!(film.segment(FILE_BYTES), range(4000, 4000));
        assert_eq!(film.came(4000, FILE_BYTES, 900_000), None);
        assert_eq!(film.due_us(), 4_100_000);
        assert_eq!(film.segment(FILE_BYTES), range(8000, 2000), "what is left");
        assert_eq!(film.came(2000, FILE_BYTES, 8_100_000), None, "in time");
        assert!(film.begins(), "another film");
        assert_eq!(film.due_us(), 8_100_000);
    }

    #[test]
    fn a_film_stands_still_from_the_end_of_what_there_is_and_goes_on_with_what_comes() {
        let mut film = Playback::new(1000, 4.0);
        film.came(4000, FILE_BYTES, 0);
        assert_eq!(film.stands_still_us(4_000_000), None);
        assert_eq!(film.stands_still_us(4_000_001), Some(4_000_000));
        assert_eq!(film.came(4000, FILE_BYTES, 5_500_000), Some(4_000_000));
        assert_eq!(film.due_us(), 5_500_000, "the next is due at once");
        assert_eq!(film.stands_still_us(9_500_000), None);
    }
}
