//! Chooses the next object of a client, and knows its name and length.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::draw::{Dice, Zipf};
use super::trace::Trace;
use super::workload::{Choice, Class, Part, PartChoice};
use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::Result;

/// The objects of a class. All threads share them; only the position in a trace changes.
#[derive(Debug)]
pub struct Catalog {
    choice: Choice,
    before: String,
    after: String,
    digits: usize,
    count: u32,
    first: u32,
    len_bytes: Option<u64>,
    locality: f64,
    zipf: Option<Zipf>,
    trace: Option<Arc<Trace>>,
    /// Next row of the trace.
    row: AtomicUsize,
    part: Part,
}

/// The part of an object that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole object, without a Range field.
    Whole,
    /// A range of `len_bytes` from `from` on.
    Range {
        /// Offset of the first byte.
        from: u64,
        /// Length of the range.
        len_bytes: u64,
    },
}

impl Catalog {
    /// The objects of a class; reads its trace, if there is one.
    pub fn new(class: &Class) -> Result<Self> {
        let object = &class.object;
        let path = object.path.trim_start_matches('/');
        let (before, after) = path.split_once("{n}").unwrap_or((path, ""));
        let trace = match &object.file {
            Some(file) => Some(Arc::new(Trace::read(file)?)),
            None => None,
        };
        let count = object.count.unwrap_or(1);
        Ok(Self {
            choice: object.choice,
            before: format!("/{before}"),
            after: after.into(),
            digits: usize::from(object.digits),
            count,
            first: object.first,
            len_bytes: object.len_bytes,
            locality: object.p.unwrap_or(0.0),
            zipf: object.s.map(|s| Zipf::new(count, s)),
            trace,
            row: AtomicUsize::new(0),
            part: class.part.unwrap_or_default(),
        })
    }

    /// Chooses the next object of a client.
    pub fn choose(&self, client: u32, dice: &mut Dice) -> u32 {
        match (self.choice, &self.zipf, &self.trace) {
            (Choice::Uniform, ..) => dice.below(u64::from(self.count)) as u32,
            (Choice::Zipf, Some(zipf), _) => zipf.draw(dice),
            (Choice::Dealt, ..) => self.reader(client).1,
            (Choice::Locality, ..) if !chosen(client, self.locality, 0.0) => client + 1,
            (Choice::Trace, _, Some(trace)) => {
                let row = self.row.fetch_add(1, Ordering::Relaxed);
                trace.rows[row % trace.rows.len()].object
            }
            _ => 0,
        }
    }

    /// For dealt objects: the client's index among the readers of its object, and the object's number.
    pub fn reader(&self, client: u32) -> (u64, u32) {
        let nth = u64::from(self.first) + u64::from(client);
        let count = u64::from(self.count.max(1));
        (nth / count, (nth % count) as u32)
    }

    /// The offset at which a client begins in its object (`places`).
    pub fn place_bytes(&self, client: u32) -> u64 {
        let (reader, object) = self.reader(client);
        let least_bytes = self.part.apart_bytes.unwrap_or(0);
        let apart_bytes = match self.part.apart_max_bytes {
            Some(most_bytes) if self.count > 1 => {
                let part = f64::from(object) / f64::from(self.count - 1);
                let factor = most_bytes as f64 / least_bytes.max(1) as f64;
                (least_bytes as f64 * factor.powf(part)).round() as u64
            }
            _ => least_bytes,
        };
        let place_bytes = reader.saturating_mul(apart_bytes);
        place_bytes - place_bytes % self.part.align_bytes.unwrap_or(1)
    }

    /// Chooses the part of the object to request.
    pub fn part(&self, client: u32, dice: &mut Dice) -> Wanted {
        let file_bytes = self.len_bytes.unwrap_or(0);
        let align_bytes = self.part.align_bytes.unwrap_or(1);
        let len_bytes = match self.part.choice {
            PartChoice::Whole => return Wanted::Whole,
            PartChoice::Ranges => self.part.len_bytes.unwrap_or(1),
            PartChoice::Seeks => 1,
            PartChoice::Places => {
                let from = self.place_bytes(client);
                let len_bytes = file_bytes.saturating_sub(from);
                return Wanted::Range { from, len_bytes };
            }
        };
        let places = (file_bytes - len_bytes) / align_bytes + 1;
        let from = dice.below(places) * align_bytes;
        let len_bytes = match self.part.choice {
            PartChoice::Seeks => file_bytes - from,
            _ => len_bytes,
        };
        Wanted::Range { from, len_bytes }
    }

    /// Appends the path of an object, with its leading slash.
    pub fn write_path(&self, object: u32, into: &mut Vec<u8>) {
        into.extend_from_slice(self.before.as_bytes());
        if self.choice != Choice::One {
            let digits = self.digits;
            write!(into, "{object:0digits$}").expect("a Vec takes everything");
        }
        into.extend_from_slice(self.after.as_bytes());
    }

    /// The path of an object, for error texts.
    pub fn path(&self, object: u32) -> String {
        let mut path = Vec::new();
        self.write_path(object, &mut path);
        String::from_utf8_lossy(&path).into_owned()
    }

    /// The tag of a path that `write_path` wrote.
    pub fn tag(path: &[u8]) -> Tag {
        Tag::of(std::str::from_utf8(path).expect("paths are ASCII"))
    }

    /// Length of an object, if the workload gives it.
    pub fn len_bytes(&self, object: u32) -> Option<u64> {
        match &self.trace {
            Some(trace) => trace.lens_bytes.get(object as usize).copied(),
            None => self.len_bytes,
        }
    }

    /// Number of objects, which are numbered from 0.
    pub fn count(&self) -> u32 {
        match &self.trace {
            Some(trace) => trace.lens_bytes.len() as u32,
            None => self.count,
        }
    }

    /// The log to replay.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }
}

/// True if a client belongs to a share of its class. Exactly `share` of the clients do, spread evenly. `phase`
/// (0..1) lets several shares of a class fall on different clients.
pub fn chosen(client: u32, share: f64, phase: f64) -> bool {
    let until = |clients: f64| (clients * share + phase + 1e-9).floor();
    until(f64::from(client) + 1.0) > until(f64::from(client))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Objects;

    fn catalog(object: Objects, part: Option<Part>) -> Catalog {
        let mut class = Class::new("a", 10, object);
        class.part = part;
        Catalog::new(&class).unwrap()
    }

    #[test]
    fn a_part_of_a_class_is_exactly_so_many() {
        for (share, count) in [(0.0, 0), (0.15, 45), (0.2, 60), (0.5, 150), (1.0, 300)] {
            for phase in [0.0, 0.25, 0.5] {
                let got = (0..300)
                    .filter(|client| chosen(*client, share, phase))
                    .count();
                assert!(
                    got.abs_diff(count) <= usize::from(phase > 0.0),
                    "{share} {phase}: {got}"
                );
            }
        }
    }

    #[test]
    fn a_local_part_shares_an_object_and_the_others_have_their_own() {
        let mut object = Objects::set(Choice::Locality, "film/{n}.bin", 11);
        object.p = Some(0.2);
        let catalog = catalog(object, None);
        let mut dice = Dice::of(1, 0, 0);
        let got: Vec<u32> = (0..10)
            .map(|client| catalog.choose(client, &mut dice))
            .collect();
        assert_eq!(got, [1, 2, 3, 4, 0, 6, 7, 8, 9, 0]);
        assert_eq!(catalog.path(7), "/film/7.bin");
    }

    #[test]
    fn dealt_objects_go_round_and_their_readers_begin_apart() {
        let mut object = Objects::set(Choice::Dealt, "film/{n}.bin", 3);
        (object.first, object.len_bytes) = (2, Some(10_000));
        let places = |apart_max_bytes| Part {
            choice: PartChoice::Places,
            apart_bytes: Some(100),
            apart_max_bytes,
            ..Part::default()
        };
        let mut dice = Dice::of(1, 0, 0);
        let dealt = catalog(object.clone(), Some(places(None)));
        let got: Vec<u32> = (0..5)
            .map(|client| dealt.choose(client, &mut dice))
            .collect();
        assert_eq!(got, [2, 0, 1, 2, 0]);
        let from = |from| Wanted::Range {
            from,
            len_bytes: 10_000 - from,
        };
        let got = [0, 1, 3, 4].map(|client| dealt.part(client, &mut dice));
        assert_eq!(got, [from(0), from(100), from(100), from(200)]);
        object.first = 0;
        let spread = catalog(object.clone(), Some(places(Some(2500))));
        let got = [2, 3, 4, 5].map(|client| spread.part(client, &mut dice));
        assert_eq!(got, [from(0), from(100), from(500), from(2500)]);
        let align_bytes = Some(64);
        let aligned = Part {
            align_bytes,
            ..places(Some(2500))
        };
        let aligned = catalog(object, Some(aligned));
        let got = [3, 4, 5].map(|client| aligned.part(client, &mut dice));
        assert_eq!(got, [from(64), from(448), from(2496)]);
    }

    #[test]
    fn ranges_lie_in_the_file_and_at_their_alignment() {
        let mut object = Objects::one("/a");
        object.len_bytes = Some(10_000);
        let part = |choice, len_bytes| Part {
            choice,
            len_bytes,
            align_bytes: Some(100),
            ..Part::default()
        };
        let ranges = catalog(object.clone(), Some(part(PartChoice::Ranges, Some(250))));
        let seeks = catalog(object, Some(part(PartChoice::Seeks, None)));
        let mut dice = Dice::of(1, 0, 0);
        for _ in 0..1000 {
            let Wanted::Range { from, len_bytes } = ranges.part(0, &mut dice) else {
                panic!("a range is asked for");
            };
            assert!(from % 100 == 0 && from + 250 <= 10_000 && len_bytes == 250);
            let Wanted::Range { from, len_bytes } = seeks.part(0, &mut dice) else {
                panic!("a range is asked for");
            };
            assert!(from % 100 == 0 && from < 10_000 && from + len_bytes == 10_000);
        }
    }

    #[test]
    fn numbers_have_their_digits() {
        let mut object = Objects::set(Choice::Uniform, "s/{n}.bin", 50);
        object.digits = 4;
        let catalog = catalog(object, None);
        assert_eq!(catalog.path(7), "/s/0007.bin");
        assert_eq!(Catalog::tag(b"/s/0007.bin"), Tag::of("s/0007.bin"));
        let mut dice = Dice::of(1, 0, 0);
        assert!((0..500).all(|_| catalog.choose(0, &mut dice) < 50));
    }
}
