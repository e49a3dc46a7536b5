use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn object(index: u32) -> ObjectId {
    ObjectId {
        device: 1,
        index,
        generation: 0,
    }
}

fn span(offset_bytes: u64, len_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes,
    }
}

fn reserve(payload: &mut Payload, len_bytes: u64) -> Reserved {
    payload.reserve(len_bytes, |_| false).expect("room")
}

/// Reserves and fills; says which segments were opened for it.
fn keep(payload: &mut Payload, id: u32, offset_bytes: u64, len_bytes: u64) -> Few<u32> {
    let reserved = reserve(payload, len_bytes);
    let mut at_bytes = offset_bytes;
    for row in reserved.rows {
        payload.filled(object(id), at_bytes, row);
        at_bytes += row.len_bytes;
    }
    reserved.opened
}

#[test]
fn a_long_read_is_long_rows_and_short_ones_lie_one_behind_the_other() {
    let mut payload = Payload::new(8);
    let short = reserve(&mut payload, 5000);
    assert_eq!(short.opened.as_slice(), [0]);
    let long = reserve(&mut payload, READ_BYTES_MAX);
    let lens: Vec<u64> = long.rows.iter().map(|row| row.len_bytes).collect();
    assert_eq!(lens, [SEGMENT_BYTES - 8192, SEGMENT_BYTES, 8192]);
    assert_eq!(long.rows[0].at_bytes, 8192, "the next page");
    assert_eq!(long.opened.as_slice(), [1, 2]);
}

#[test]
fn a_rest_that_would_break_a_read_up_stays_unused() {
    let mut payload = Payload::new(8);
    reserve(&mut payload, SEGMENT_BYTES - 32 * KIB);
    let read = reserve(&mut payload, 64 * KIB);
    assert_eq!((read.rows.len(), read.rows[0].segment), (1, 1));
    let mut payload = Payload::new(8);
    reserve(&mut payload, SEGMENT_BYTES - 32 * KIB);
    let small = reserve(&mut payload, 32 * KIB);
    assert_eq!(small.rows[0].segment, 0, "it fits whole");
    assert!(small.opened.is_empty());
}

#[test]
fn pieces_side_by_side_are_one_extent_and_found_as_one_row() {
    let mut payload = Payload::new(8);
    let row = reserve(&mut payload, MIB).rows[0];
    for piece in 0..16 {
        let (at_bytes, len_bytes) = (row.at_bytes + piece * 64 * KIB, 64 * KIB);
        let piece_row = Row {
            at_bytes,
            len_bytes,
            ..row
        };
        payload.filled(object(1), piece * 64 * KIB, piece_row);
    }
    assert_eq!(payload.counts().extents, 1);
    keep(&mut payload, 1, MIB, 64 * KIB);
    let found = payload.find(object(1), span(1000, 2 * MIB)).expect("kept");
    assert_eq!(found.at_bytes, 1000);
    assert_eq!(found.len_bytes, MIB + 64 * KIB - 1000);
    assert!(payload.covers(object(1), span(0, MIB + 64 * KIB)));
    assert!(!payload.covers(object(1), span(0, MIB + 64 * KIB + 1)));
    assert!(!payload.covers(object(2), span(0, 1)));
}

#[test]
fn what_was_used_stays_for_another_round_and_what_is_pinned_stays() {
    let mut payload = Payload::new(4);
    for id in 0..4 {
        keep(&mut payload, id, 0, SEGMENT_BYTES);
    }
    assert!(payload.find(object(0), span(0, 1)).is_some());
    let opened = payload
        .reserve(SEGMENT_BYTES, |segment| segment == 1)
        .expect("room")
        .opened;
    assert_eq!(opened.as_slice(), [2], "0 was used, 1 is pinned");
    assert!(payload.find(object(2), span(0, 1)).is_none());
    assert!(payload.find(object(1), span(0, 1)).is_some());
    let before = payload.counts();
    assert_eq!(payload.reserve(SEGMENT_BYTES, |_| true), None);
    assert_eq!(payload.counts(), before, "nothing was freed for it");
}

#[test]
fn if_all_were_used_the_oldest_goes() {
    let mut payload = Payload::new(4);
    for id in 0..4 {
        keep(&mut payload, id, 0, SEGMENT_BYTES);
        assert!(payload.find(object(id), span(0, 1)).is_some());
    }
    let opened = reserve(&mut payload, SEGMENT_BYTES).opened;
    assert_eq!(opened.as_slice(), [0]);
}

#[test]
fn a_segment_without_memory_is_free_and_others_are_freed_rather_than_it_tried_again() {
    let mut payload = Payload::new(4);
    for id in 0..3 {
        keep(&mut payload, id, 0, SEGMENT_BYTES);
    }
    let failed = reserve(&mut payload, SEGMENT_BYTES);
    assert_eq!(failed.opened.as_slice(), [3]);
    payload.not_opened(&failed.opened);
    assert_eq!(payload.counts().segments_used, 3);
    assert_eq!(reserve(&mut payload, SEGMENT_BYTES).opened.as_slice(), [0]);
}

#[test]
fn extents_have_a_bound_that_makes_room_early() {
    let (mut payload, mut most) = (Payload::new(8), 0);
    for id in 0..20_000 {
        keep(&mut payload, id, 0, 100);
        assert!(payload.find(object(id), span(0, 100)).is_some(), "{id}");
        most = most.max(payload.counts().extents);
    }
    assert!(most <= 8 * SEGMENT_BYTES / EXTENT_BYTES_MIN, "{most}");
    assert!(most >= 8 * SEGMENT_BYTES / EXTENT_BYTES_MIN / 2, "{most}");
    // Nothing can be freed early: no room, rather than bytes that are not found.
    let refused = (0..2000).find(|id| {
        let reserved = payload.reserve(100, |_| true);
        reserved.is_none_or(|it| {
            payload.filled(object(100_000 + id), 0, it.rows[0]);
            false
        })
    });
    assert!(refused.is_some());
}

#[test]
fn tables_stay_in_proportion() {
    // A leaf of a BTreeMap has 11 places and may be less than half full; a list doubles.
    let alone_bytes = 11 * size_of::<(u64, Extent)>() + 16;
    let listed_bytes = 2 * size_of::<segments::Key>() + 3 * size_of::<(ObjectId, Object)>();
    assert!((alone_bytes + listed_bytes) as u64 <= EXTENT_MEMORY_BYTES);
    // Extents of 64 KiB: the rest of a segment, and the tables.
    let tables_bytes = EXTENT_MEMORY_BYTES * SEGMENT_BYTES / (64 * KIB);
    let per_mille = (SEGMENT_BYTES + tables_bytes) * 1000 / (SEGMENT_BYTES - ROW_BYTES_MIN);
    assert!(per_mille <= 1050, "{per_mille}");
}

/// The lengths and offsets of the model are so many of these: a map with an entry for each byte would be slow.
const UNIT_BYTES: u64 = 512;

#[derive(Clone, Debug)]
enum Step {
    /// Reserve, and fill in pieces of `piece`, the last ones first if so.
    Keep {
        id: u32,
        offset: u64,
        len: u64,
        piece: u64,
        backward: bool,
    },
    /// Reserve and fill nothing.
    Waste {
        len: u64,
    },
    /// Reserve, and fail to get the memory.
    Fail {
        len: u64,
    },
    Find {
        id: u32,
        offset: u64,
        len: u64,
    },
    Forget {
        id: u32,
    },
    Pin {
        segment: u32,
    },
    Unpin {
        segment: u32,
    },
}

const SEGMENTS: u32 = 5;

fn step() -> impl Strategy<Value = Step> {
    let (id, offset, len) = (0u32..3, 0u64..6000, 1u64..=4096);
    let place = (
        id.clone(),
        offset,
        prop_oneof![3 => 1u64..200, 1 => 1u64..=8192],
    );
    prop_oneof![
        6 => (place.clone(), 1u64..2000, any::<bool>()).prop_map(
            |((id, offset, len), piece, backward)| Step::Keep { id, offset, len, piece, backward }),
        1 => len.clone().prop_map(|len| Step::Waste { len }),
        1 => len.prop_map(|len| Step::Fail { len }),
        6 => place.prop_map(|(id, offset, len)| Step::Find { id, offset, len }),
        1 => id.prop_map(|id| Step::Forget { id }),
        1 => (0..SEGMENTS).prop_map(|segment| Step::Pin { segment }),
        2 => (0..SEGMENTS).prop_map(|segment| Step::Unpin { segment }),
    ]
}

/// Where each unit of each object lies, and what lies there.
#[derive(Default)]
struct Model {
    places: BTreeMap<(u32, u64), (u32, u64)>,
    memory: BTreeMap<(u32, u64), (u32, u64)>,
    pinned: BTreeSet<u32>,
}

impl Model {
    fn reserve(&mut self, payload: &mut Payload, len: u64) -> Option<Reserved> {
        let reserved = payload.reserve(len * UNIT_BYTES, |it| self.pinned.contains(&it))?;
        for segment in &reserved.opened {
            assert!(
                !self.pinned.contains(segment) || self.is_new(*segment),
                "{segment} is pinned"
            );
            self.places.retain(|_, place| place.0 != *segment);
            self.memory.retain(|place, _| place.0 != *segment);
        }
        let total: u64 = reserved.rows.iter().map(|row| row.len_bytes).sum();
        assert_eq!(total, len * UNIT_BYTES);
        Some(reserved)
    }

    /// Whether nothing was ever written to it.
    fn is_new(&self, segment: u32) -> bool {
        !self.memory.keys().any(|place| place.0 == segment)
    }

    /// Fills a piece of a reservation.
    fn fill(
        &mut self,
        payload: &mut Payload,
        reserved: &Reserved,
        id: u32,
        offset: u64,
        piece: std::ops::Range<u64>,
    ) {
        let mut start = 0;
        for row in &reserved.rows {
            let end = start + row.len_bytes / UNIT_BYTES;
            let (from, until) = (piece.start.max(start), piece.end.min(end));
            if from < until {
                let at = row.at_bytes / UNIT_BYTES + (from - start);
                for nth in 0..until - from {
                    let (place, unit) = ((row.segment, at + nth), (id, offset + from + nth));
                    assert!(
                        self.memory.insert(place, unit).is_none(),
                        "{place:?} is written over"
                    );
                    self.places.entry(unit).or_insert(place);
                }
                let row = Row {
                    at_bytes: at * UNIT_BYTES,
                    len_bytes: (until - from) * UNIT_BYTES,
                    ..*row
                };
                payload.filled(object(id), (offset + from) * UNIT_BYTES, row);
            }
            start = end;
        }
    }

    fn check(&self, payload: &mut Payload, id: u32, offset: u64, len: u64) {
        let wanted = span(offset * UNIT_BYTES, len * UNIT_BYTES);
        let here = |unit: u64| self.places.get(&(id, unit)).copied();
        let first = here(offset);
        let follows =
            |nth: &u64| here(offset + nth) == first.map(|(segment, at)| (segment, at + nth));
        let expected = first.map(|(segment, at)| Row {
            segment,
            at_bytes: at * UNIT_BYTES,
            len_bytes: (0..len).take_while(follows).count() as u64 * UNIT_BYTES,
        });
        assert_eq!(payload.find(object(id), wanted), expected);
        let all = (offset..offset + len).all(|unit| here(unit).is_some());
        assert_eq!(payload.covers(object(id), wanted), all);
    }

    fn step(&mut self, payload: &mut Payload, step: Step) {
        match step {
            Step::Keep {
                id,
                offset,
                len,
                piece,
                backward,
            } => {
                let Some(reserved) = self.reserve(payload, len) else {
                    return;
                };
                // Few, so that no extent is dropped.
                let piece = piece.max(len / 8);
                let mut pieces: Vec<u64> = (0..len).step_by(piece as usize).collect();
                if backward {
                    pieces.reverse();
                }
                for from in pieces {
                    let until = (from + piece).min(len);
                    self.fill(payload, &reserved, id, offset, from..until);
                }
            }
            Step::Waste { len } => {
                self.reserve(payload, len);
            }
            Step::Fail { len } => {
                if let Some(reserved) = self.reserve(payload, len) {
                    payload.not_opened(&reserved.opened);
                }
            }
            Step::Find { id, offset, len } => self.check(payload, id, offset, len),
            Step::Forget { id } => {
                let _ = payload.forget(object(id));
                self.places.retain(|unit, _| unit.0 != id);
            }
            Step::Pin { segment } => {
                self.pinned.insert(segment);
            }
            Step::Unpin { segment } => {
                self.pinned.remove(&segment);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// What is found is what a map from byte to place says, of bytes that nobody wrote over.
    #[test]
    fn found_bytes_are_those_of_a_plain_map(steps in vec(step(), 1..60)) {
        let (mut payload, mut model) = (Payload::new(SEGMENTS), Model::default());
        for step in steps {
            model.step(&mut payload, step);
            let counts = payload.counts();
            prop_assert_eq!(counts.kept_bytes, model.places.len() as u64 * UNIT_BYTES);
            prop_assert!(counts.segments_used <= SEGMENTS);
        }
    }
}
