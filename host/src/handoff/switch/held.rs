//! Packets that wait until the owner of their flow is known, oldest first. Pure.

use std::collections::{HashMap, VecDeque};

use ackpace_host_base::fields::Fields;

use super::entry::{KEY_BYTES, Key};

/// Packets of one flow. A flow is frozen for about a millisecond, in which even an upload at 10 Gbit/s sends less. Beyond: dropped and
/// counted, and TCP repairs it.
pub const FLOW_PACKETS_MAX: usize = 2_048;
/// Bytes of one flow, likewise.
pub const FLOW_BYTES_MAX: usize = 2 << 20;
/// Bytes of all flows: what this process may need at most. Beyond: dropped and counted, and TCP repairs it.
pub const BYTES_MAX: usize = 16 << 20;
/// What stands before the frame in a `struct held`.
const HEAD_BYTES: usize = KEY_BYTES + 12;

/// A packet that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
    /// The payload of each segment, if GRO has merged it; otherwise 0.
    pub segment_bytes: u16,
    /// The index of the device on which it came.
    pub device: u32,
}

impl Held {
    /// From a `struct held`; `None`: not one of ours.
    pub fn read(record: &[u8]) -> Option<(Key, Held)> {
        let key = Key::read(record)?;
        let mut fields = Fields(record.get(KEY_BYTES..HEAD_BYTES)?);
        let bytes = fields.word() as usize;
        let segment_bytes = u16::try_from(fields.word()).ok()?;
        let device = fields.word();
        let frame = record[HEAD_BYTES..].get(..bytes)?.to_owned();
        let held = Held {
            frame,
            segment_bytes,
            device,
        };
        Some((key, held))
    }
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Held>,
    bytes: usize,
}

/// The packets of all flows.
#[derive(Default)]
pub struct Waiting {
    flows: HashMap<Key, Queue>,
    bytes: usize,
}

impl Waiting {
    /// Adds one; `false`: there is no room, and it is dropped.
    pub fn push(&mut self, key: Key, held: Held) -> bool {
        let bytes = held.frame.len();
        if self.bytes + bytes > BYTES_MAX {
            return false;
        }
        let queue = self.flows.entry(key).or_default();
        if queue.packets.len() >= FLOW_PACKETS_MAX || queue.bytes + bytes > FLOW_BYTES_MAX {
            return false;
        }
        queue.bytes += bytes;
        self.bytes += bytes;
        queue.packets.push_back(held);
        true
    }

    /// Takes those of a flow, oldest first.
    pub fn take(&mut self, key: Key) -> VecDeque<Held> {
        let queue = self.flows.remove(&key).unwrap_or_default();
        self.bytes -= queue.bytes;
        queue.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held(bytes: usize, number: u32) -> Held {
        Held {
            frame: vec![0; bytes],
            segment_bytes: 0,
            device: number,
        }
    }

    proptest! {
        #[test]
        fn bounds_hold_and_order_is_kept(steps in prop::collection::vec((0u8..40, 0usize..70_000, 0u8..50), 0..2_000)) {
            let mut waiting = Waiting::default();
            for (number, (flow, bytes, what)) in steps.into_iter().enumerate() {
                let key = Key([flow; KEY_BYTES]);
                if what == 0 {
                    let taken = waiting.take(key);
                    prop_assert!(taken.len() <= FLOW_PACKETS_MAX);
                    prop_assert!(taken.iter().map(|it| it.frame.len()).sum::<usize>() <= FLOW_BYTES_MAX);
                    prop_assert!(taken.iter().zip(taken.iter().skip(1)).all(|(one, next)| one.device < next.device));
                } else {
                    waiting.push(key, held(bytes, number as u32));
                }
                prop_assert!(waiting.bytes <= BYTES_MAX);
            }
            (0..40).for_each(|flow| drop(waiting.take(Key([flow; KEY_BYTES]))));
            prop_assert_eq!(waiting.bytes, 0);
        }

        #[test]
        fn no_record_causes_a_panic(record in prop::collection::vec(any::<u8>(), 0..200)) {
            Held::read(&record);
        }
    }

    #[test]
    fn a_record_has_a_frame_of_its_own_length() {
        let mut record = vec![7; KEY_BYTES];
        record.extend([3u32, 1_448, 9].map(u32::to_ne_bytes).concat());
        record.extend([1, 2, 3, 0, 0]);
        let (key, held) = Held::read(&record).expect("it is whole");
        assert_eq!(key, Key([7; KEY_BYTES]));
        assert_eq!(
            (held.frame, held.segment_bytes, held.device),
            (vec![1, 2, 3], 1_448, 9)
        );
        record[KEY_BYTES] = 6;
        assert_eq!(Held::read(&record), None, "longer than the record");
    }
}
