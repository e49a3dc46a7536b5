//! In which order a connection reads its file.

use super::{ReadOrder, Reads};
use ackpace_lab_swarm::draw::Dice;

/// The READs of one connection, without end.
pub struct Walk {
    dice: Dice,
    order: ReadOrder,
    len_bytes: u64,
    /// READs from the begin of the file to its end.
    parts: u64,
    /// Parts that come next, the last one first.
    window: Vec<u64>,
    /// The first part behind the window.
    next: u64,
}

impl Walk {
    /// That of connection `index`; the same for each contender.
    pub fn new(index: usize, reads: &Reads) -> Self {
        let len_bytes = u64::from(reads.len_bytes);
        let files = reads.of.list();
        let file_bytes = files[index % files.len()].1;
        Self {
            dice: Dice::of(1, 0, index as u32),
            order: reads.order,
            len_bytes,
            parts: (file_bytes / len_bytes).max(1),
            window: Vec::new(),
            next: 0,
        }
    }

    /// Where the next READ begins.
    pub fn next_bytes(&mut self) -> u64 {
        let part = match self.order {
            ReadOrder::Anywhere => self.dice.below(self.parts),
            ReadOrder::Onwards { among } => self.onwards(u64::from(among.max(1))),
        };
        part * self.len_bytes
    }

    /// True if all parts have come that come in order, and those from the begin are next.
    pub fn is_at_end(&self) -> bool {
        self.window.is_empty() && self.next >= self.parts
    }

    fn onwards(&mut self, among: u64) -> u64 {
        if self.window.is_empty() {
            if self.next >= self.parts {
                self.next = 0;
            }
            let end = (self.next + among).min(self.parts);
            self.window = (self.next..end).collect();
            self.next = end;
        }
        let at = self.dice.below(self.window.len() as u64) as usize;
        self.window.swap_remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Set;

    fn walk(order: ReadOrder) -> Walk {
        Walk::new(
            0,
            &Reads {
                of: Set::files("a", 1, 100),
                connections: 1,
                under_way: 1,
                len_bytes: 10,
                order,
                rate_bytes_per_s: None,
                warm_passes: 0,
                is_once: false,
                source: None,
                compared_with: None,
            },
        )
    }

    #[test]
    fn onwards_reads_each_part_once_and_none_far_from_its_place() {
        let mut walk = walk(ReadOrder::Onwards { among: 4 });
        for _ in 0..2 {
            let mut seen: Vec<u64> = (0..10).map(|_| walk.next_bytes() / 10).collect();
            let is_near = |(nth, part): (usize, &u64)| nth / 4 == *part as usize / 4;
            assert!(seen.iter().enumerate().all(is_near), "{seen:?}");
            seen.sort_unstable();
            assert_eq!(seen, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn anywhere_stays_within_the_file() {
        let mut walk = walk(ReadOrder::Anywhere);
        assert!((0..1000).all(|_| walk.next_bytes() <= 90));
    }
}
