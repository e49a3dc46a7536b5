//! When a turn is over: what a worker may do before it looks for new events, so that a new request never waits long.

use crate::limits::{OUTS_PER_TURN_MAX, TOP_UP_BYTES_MIN, TURN_BYTES_MAX, TURN_TOP_UP_BYTES_MAX};

/// What one turn has used of its bounds. A new turn begins with a new one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// Orders that were executed.
    orders: u32,
    /// Bytes that sockets took.
    bytes: u64,
    /// Those of them that were top-ups, each counted as [`Budget::topped_up`] says.
    top_up_bytes: u64,
}

/// The bound at which a turn ended before its work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// [`OUTS_PER_TURN_MAX`].
    Orders,
    /// [`TURN_BYTES_MAX`].
    Bytes,
    /// [`TURN_TOP_UP_BYTES_MAX`].
    TopUps,
}

impl Cut {
    /// Every bound, each at the index of its number.
    pub const ALL: [Cut; 3] = [Cut::Orders, Cut::Bytes, Cut::TopUps];

    /// Its label in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cut::Orders => "orders",
            Cut::Bytes => "bytes",
            Cut::TopUps => "top_ups",
        }
    }
}

impl Budget {
    /// A socket took so many bytes.
    pub fn took(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The bytes that a socket took filled it to its target. A small top-up costs a call, too, so each counts as
    /// [`TOP_UP_BYTES_MIN`] at least.
    pub fn topped_up(&mut self, bytes: u64) {
        self.top_up_bytes += bytes.max(TOP_UP_BYTES_MIN);
    }

    /// An order was executed. Returns the bound that ends the turn behind it, if any.
    #[must_use]
    pub fn executed(&mut self) -> Option<Cut> {
        debug_assert!(self.orders < OUTS_PER_TURN_MAX, "the turn was over");
        self.orders += 1;
        if self.bytes >= TURN_BYTES_MAX {
            Some(Cut::Bytes)
        } else if self.top_up_bytes >= TURN_TOP_UP_BYTES_MAX {
            Some(Cut::TopUps)
        } else if self.orders >= OUTS_PER_TURN_MAX {
            Some(Cut::Orders)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::SEND_BYTES_MAX;
    use crate::units::{KIB, MIB};

    /// What an order does: nothing to a socket, a send, or a top-up.
    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Other,
        Sends(u64),
        TopsUp(u64),
    }
    use Deed::{Other, Sends, TopsUp};

    /// Executes the same order until the turn ends: how many fit into it, and what ended it.
    fn turn_of(mut deed: impl FnMut() -> Deed) -> (u32, Cut) {
        let mut budget = Budget::default();
        for orders in 1.. {
            match deed() {
                Other => {}
                Sends(bytes) => budget.took(bytes),
                TopsUp(bytes) => {
                    budget.took(bytes);
                    budget.topped_up(bytes);
                }
            }
            if let Some(cut) = budget.executed() {
                return (orders, cut);
            }
        }
        unreachable!("a turn is bounded")
    }

    #[test]
    fn a_turn_ends_at_the_first_bound_that_it_reaches() {
        let table = [
            // each order            orders, and what cuts
            (Other, 64, Cut::Orders),
            (Sends(0), 64, Cut::Orders),
            (Sends(64 * KIB), 64, Cut::Bytes), // of two bounds at once the one of bytes is told
            (Sends(64 * KIB - 1), 64, Cut::Orders),
            (Sends(MIB), 4, Cut::Bytes),
            (Sends(MIB - 1), 5, Cut::Bytes),
            (Sends(2 * MIB), 2, Cut::Bytes),
            (Sends(TURN_BYTES_MAX), 1, Cut::Bytes),
            (
                TopsUp(1),
                MIB.div_ceil(TOP_UP_BYTES_MIN) as u32,
                Cut::TopUps,
            ),
            (TopsUp(MIB / 4), 4, Cut::TopUps),
            (TopsUp(MIB), 1, Cut::TopUps),
            (TopsUp(TURN_BYTES_MAX), 1, Cut::Bytes),
        ];
        for (deed, orders, cut) in table {
            assert_eq!(turn_of(|| deed), (orders, cut), "{deed:?} again and again");
        }
    }

    #[test]
    fn each_bound_stands_at_its_index() {
        assert!(
            Cut::ALL
                .iter()
                .enumerate()
                .all(|(at, cut)| *cut as usize == at)
        );
    }

    #[test]
    fn top_ups_leave_room_for_those_who_need_more() {
        let mut nth = 0;
        let (orders, cut) = turn_of(|| {
            nth += 1;
            if nth % 2 == 0 {
                TopsUp(MIB / 4)
            } else {
                Sends(MIB / 4)
            }
        });
        assert_eq!((orders, cut), (8, Cut::TopUps));
    }

    proptest! {
        #[test]
        fn a_turn_never_exceeds_a_bound_by_more_than_its_last_order(
            deeds in prop::collection::vec(
                (0..3u8, prop_oneof![0..64 * KIB, 0..=SEND_BYTES_MAX]),
                OUTS_PER_TURN_MAX as usize,
            ),
        ) {
            let (mut bytes, mut top_ups, mut last_bytes) = (0, 0, 0);
            let mut deeds = deeds.into_iter();
            let (orders, cut) = turn_of(|| {
                let (kind, of_bytes) = deeds.next().expect("as many as the bound on orders");
                last_bytes = if kind == 0 { 0 } else { of_bytes };
                bytes += last_bytes;
                match kind {
                    0 => Other,
                    1 => Sends(of_bytes),
                    _ => {
                        top_ups += of_bytes.max(TOP_UP_BYTES_MIN);
                        TopsUp(of_bytes)
                    }
                }
            });
            prop_assert!(bytes < TURN_BYTES_MAX + last_bytes.max(1));
            prop_assert!(bytes <= TURN_BYTES_MAX + SEND_BYTES_MAX);
            prop_assert_eq!(bytes >= TURN_BYTES_MAX, cut == Cut::Bytes);
            prop_assert!(cut != Cut::TopUps || top_ups >= TURN_TOP_UP_BYTES_MAX);
            prop_assert_eq!(cut == Cut::Orders, bytes < TURN_BYTES_MAX && top_ups < TURN_TOP_UP_BYTES_MAX);
            prop_assert!(orders <= OUTS_PER_TURN_MAX);
        }
    }
}
