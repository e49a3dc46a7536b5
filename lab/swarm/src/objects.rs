//! Chooses the next object of a client, and knows its name and length.

use std::io::Write;

use super::draw::Dice;
use super::workload::{ALIGN_BYTES, Class, Objects, Part, path};
use ackpace_lab_base::content::Tag;

/// The objects of a class.
#[derive(Debug)]
pub struct Catalog {
    objects: Objects,
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
    /// The objects of a class.
    pub fn new(class: &Class) -> Self {
        Self {
            objects: class.object.clone(),
            part: class.part,
        }
    }

    /// Chooses the next object of a client.
    pub fn choose(&self, client: u32, dice: &mut Dice) -> u32 {
        match self.objects.first {
            None => dice.below(u64::from(self.objects.count)) as u32,
            Some(_) => self.reader(client).1,
        }
    }

    /// The client's index among the readers of its object, and the object's number.
    fn reader(&self, client: u32) -> (u64, u32) {
        let nth = u64::from(self.objects.first.unwrap_or(0)) + u64::from(client);
        let count = u64::from(self.objects.count.max(1));
        (nth / count, (nth % count) as u32)
    }

    /// The offset at which a client begins in its object (`Part::Places`).
    fn place_bytes(&self, client: u32, least_bytes: u64, most_bytes: Option<u64>) -> u64 {
        let (reader, object) = self.reader(client);
        let apart_bytes = match most_bytes {
            Some(most_bytes) if self.objects.count > 1 => {
                let part = f64::from(object) / f64::from(self.objects.count - 1);
                let factor = most_bytes as f64 / least_bytes.max(1) as f64;
                (least_bytes as f64 * factor.powf(part)).round() as u64
            }
            _ => least_bytes,
        };
        let place_bytes = reader.saturating_mul(apart_bytes);
        place_bytes - place_bytes % ALIGN_BYTES
    }

    /// Chooses the part of the object to request.
    pub fn part(&self, client: u32, dice: &mut Dice) -> Wanted {
        let file_bytes = self.objects.len_bytes.unwrap_or(0);
        match self.part {
            Part::Whole => Wanted::Whole,
            Part::Range { len_bytes } => {
                let places = (file_bytes - len_bytes) / ALIGN_BYTES + 1;
                let from = dice.below(places) * ALIGN_BYTES;
                Wanted::Range { from, len_bytes }
            }
            Part::Places {
                apart_bytes,
                apart_max_bytes,
            } => {
                let from = self.place_bytes(client, apart_bytes, apart_max_bytes);
                let len_bytes = file_bytes.saturating_sub(from);
                Wanted::Range { from, len_bytes }
            }
        }
    }

    /// Appends the path of an object, with its leading slash.
    pub fn write_path(&self, object: u32, into: &mut Vec<u8>) {
        write!(into, "/{}-{object:05}.bin", self.objects.set).expect("a Vec takes everything");
    }

    /// The path of an object, for error texts.
    pub fn path(&self, object: u32) -> String {
        path(&self.objects.set, object as usize)
    }

    /// The tag of a path that `write_path` wrote.
    pub fn tag(path: &[u8]) -> Tag {
        Tag::of(std::str::from_utf8(path).expect("paths are ASCII"))
    }

    /// Length of each object, if the workload gives it.
    pub fn len_bytes(&self) -> Option<u64> {
        self.objects.len_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(objects: Objects, len_bytes: u64, part: Part) -> Catalog {
        let len_bytes = Some(len_bytes);
        let objects = Objects {
            len_bytes,
            ..objects
        };
        Catalog { objects, part }
    }

    #[test]
    fn a_path_is_written_as_it_is_named() {
        let catalog = catalog(Objects::own("s", 9), 1, Part::Whole);
        let mut written = Vec::new();
        catalog.write_path(7, &mut written);
        assert_eq!(written, catalog.path(7).as_bytes());
        assert_eq!(Catalog::tag(&written), Tag::of("s-00007.bin"));
        let mut dice = Dice::of(1, 0, 0);
        assert_eq!(
            [0, 8].map(|client| catalog.choose(client, &mut dice)),
            [1, 9]
        );
    }

    #[test]
    fn dealt_objects_go_round_and_their_readers_begin_apart() {
        const FILE_BYTES: u64 = 100 * ALIGN_BYTES;
        let places = |blocks: u64, most: Option<u64>| Part::Places {
            apart_bytes: blocks * ALIGN_BYTES + 5,
            apart_max_bytes: most.map(|blocks| blocks * ALIGN_BYTES + 5),
        };
        let mut dice = Dice::of(1, 0, 0);
        let dealt = catalog(Objects::dealt("film", 3, 2), FILE_BYTES, places(1, None));
        let got = [0, 1, 2, 3, 4].map(|client| dealt.choose(client, &mut dice));
        assert_eq!(got, [2, 0, 1, 2, 0]);
        let from = |blocks| Wanted::Range {
            from: blocks * ALIGN_BYTES,
            len_bytes: FILE_BYTES - blocks * ALIGN_BYTES,
        };
        let got = [0, 1, 3, 4].map(|client| dealt.part(client, &mut dice));
        assert_eq!(got, [from(0), from(1), from(1), from(2)]);
        let spread = catalog(
            Objects::dealt("film", 3, 0),
            FILE_BYTES,
            places(1, Some(25)),
        );
        let got = [2, 3, 4, 5].map(|client| spread.part(client, &mut dice));
        assert_eq!(got, [from(0), from(1), from(5), from(25)]);
    }
}
