//! Clients that look up the names of a folder one after the other, as `ls -l`, `find` and `rsync` do, wait for each answer before they
//! ask again. So the origin is asked for the next ones beforehand.

use core::ops::Range;

/// Names from one look-up to the next that count as one after the other: folders between them are not looked up.
const NEAR: u32 = 8;
/// Names in a row before the next are asked for. Fewer: an accident would do.
const ROW: u32 = 3;
/// Names that are asked for beforehand. More: of a client that stops, so many are asked for in vain.
const AHEAD: u32 = 32;

/// How the names of a folder are looked up, in one order of them. Clients of one folder share it: it only guesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookups {
    last: u32,
    row: u32,
    /// Those before this were asked for.
    until: u32,
}

impl Lookups {
    /// The name at this place, of so many, is looked up. Returns the places of those that are to be asked for.
    pub fn looked_up(&mut self, at: u32, len: u32) -> Range<u32> {
        let last = core::mem::replace(&mut self.last, at);
        if at == last {
            return 0..0;
        }
        if at < last || at - last > NEAR {
            (self.row, self.until) = (1, at);
            return 0..0;
        }
        self.row = self.row.saturating_add(1);
        let from = self.until.max(at.saturating_add(1));
        // In batches: half of them are there still.
        if self.row < ROW || from - at > AHEAD / 2 {
            return 0..0;
        }
        let end = at.saturating_add(1 + AHEAD).min(len);
        self.until = end.max(from);
        from.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_in_order_finds_each_name_asked_for_once() {
        let mut lookups = Lookups::default();
        let mut asked = vec![0; 200];
        for at in (0..200).filter(|at| at % 5 != 0) {
            assert!(at < 8 || asked[at] == 1, "{at}");
            for next in lookups.looked_up(at as u32, 200) {
                assert!(next > at as u32);
                asked[next as usize] += 1;
            }
        }
        assert!(asked.iter().all(|count| *count <= 1));
    }

    #[test]
    fn who_jumps_asks_for_nothing_else() {
        let mut lookups = Lookups::default();
        for at in [90, 3, 77, 78, 20, 150, 149, 148, 147, 10, 10, 10, 10] {
            assert_eq!(lookups.looked_up(at, 200), 0..0, "{at}");
        }
        assert_eq!(Lookups::default().looked_up(1, 2), 0..0);
        let mut end = Lookups::default();
        for at in 0..10 {
            assert!(end.looked_up(at, 10).all(|next| next < 10));
        }
    }
}
