//! One response as its client sees it: its plan alone says which byte comes next.

use std::collections::VecDeque;

use ackpace_core::conn::{ObjectId, Part, Plan, ResidencySource, Span};
use ackpace_core::units::KIB;

use super::input::Input;
use super::messages;

/// A request, and the response that it should get.
#[derive(Clone, Debug)]
pub(super) struct HttpRequest {
    pub plan: Plan,
    /// Lengths of the slices of its listing.
    pub slices: VecDeque<u64>,
    pub file: u32,
}

/// A response under way.
pub(super) struct Response {
    pub plan: Plan,
    pub file: u32,
    slices: VecDeque<u64>,
    slice: Option<(u64, bool)>,
    /// A slice is being made.
    pub slicing: bool,
    /// The next byte: its part, and the offset in that part.
    at: (u16, u64),
    pub sent_bytes: u64,
    /// Where it begins among all bytes of its connection.
    pub start_bytes: u64,
    /// It may end early: something failed, or its client left.
    pub excused: bool,
}

impl Response {
    pub fn new(request: HttpRequest, start_bytes: u64) -> Response {
        let mut response = Response {
            plan: request.plan,
            file: request.file,
            slices: request.slices,
            slice: None,
            slicing: false,
            at: (0, 0),
            sent_bytes: 0,
            start_bytes,
            excused: false,
        };
        response.settle();
        response
    }

    /// The length of the next part, and how many parts that covers: consecutive texts count together. `None`: the
    /// length is not known yet.
    fn next_part(&self) -> Option<(u64, u16)> {
        match self.plan.parts.get(usize::from(self.at.0))? {
            Part::Bytes(_) => {
                let texts = self.plan.texts(self.at.0);
                let count = self.plan.texts(self.at.0).count() as u16;
                Some((texts.map(|text| text.len() as u64).sum(), count))
            }
            Part::Body { span, .. } => Some((span.len_bytes, 1)),
            Part::Slices => self.slice.map(|(len_bytes, _)| (len_bytes, 1)),
        }
    }

    /// Advances past finished parts and past the last slice.
    fn settle(&mut self) {
        while let Some((len_bytes, parts)) = self.next_part() {
            let listed = matches!(self.plan.parts[usize::from(self.at.0)], Part::Slices);
            let last = !listed || self.slice.is_some_and(|(_, last)| last);
            if self.at.1 < len_bytes || !last {
                return;
            }
            (self.at, self.slice) = ((self.at.0 + parts, 0), None);
        }
    }

    /// Whether the kernel has taken its last byte.
    pub fn is_whole(&self) -> bool {
        usize::from(self.at.0) == self.plan.parts.len()
    }

    /// Records that the next slice of its listing is made; returns its length and whether it is the last.
    pub fn sliced(&mut self) -> (u64, bool) {
        if let Some((len_bytes, last)) = self.slice {
            assert!(
                self.at.1 == len_bytes && !last,
                "a slice is asked for while one is being sent"
            );
        }
        let len_bytes = self.slices.pop_front().unwrap_or(0);
        let last = self.slices.is_empty();
        (self.slice, self.at.1, self.slicing) = (Some((len_bytes, last)), 0, false);
        self.settle();
        (len_bytes, last)
    }

    /// The ranges of this file that it contains.
    pub fn bodies(&self, of: ObjectId) -> Vec<Span> {
        let parts = self.plan.parts.iter();
        let spans = parts.filter_map(|part| match part {
            Part::Body { object, span, .. } => (*object == of).then_some(*span),
            Part::Bytes(_) | Part::Slices => None,
        });
        spans.collect()
    }

    /// Checks the law of framing: the bytes sent are the next ones of the plan and lie in one part. Returns their file
    /// and range if they are of a file.
    pub fn check(&self, part: u16, from_bytes: u64, len_bytes: u64) -> Option<(ObjectId, Span)> {
        assert_eq!(
            (part, from_bytes),
            self.at,
            "a byte is sent twice, or never (part, place in it)"
        );
        let Some((part_bytes, _)) = self.next_part() else {
            panic!("bytes of a slice that nobody has made");
        };
        let end_bytes = from_bytes.checked_add(len_bytes);
        assert!(
            len_bytes > 0 && end_bytes.is_some_and(|end| end <= part_bytes),
            "{len_bytes} bytes from {from_bytes} on are sent of part {part}, which has {part_bytes}"
        );
        match self.plan.parts[usize::from(part)] {
            Part::Body { object, span, .. } => {
                let offset_bytes = span.offset_bytes + from_bytes;
                let span = Span {
                    offset_bytes,
                    len_bytes,
                };
                Some((object, span))
            }
            _ => None,
        }
    }

    /// Records that the socket took this many bytes.
    pub fn sent(&mut self, taken_bytes: u64) {
        self.sent_bytes += taken_bytes;
        self.at.1 += taken_bytes;
        self.settle();
    }
}

/// Many ranges begin at multiples of this.
const STEP_BYTES: u64 = 16 * KIB;
/// Bytes of the response's head.
const HEAD_BYTES: usize = 300;
static TEXT: [u8; HEAD_BYTES] = [b't'; HEAD_BYTES];

fn text(len_bytes: usize) -> Part {
    Part::Bytes(TEXT[..len_bytes].into())
}

/// What is known of a file when its response is planned.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub len_bytes: u64,
    pub residency: ResidencySource,
}

/// A request of any kind for any of the files, as the input says.
pub(super) fn request(input: &mut Input<'_>, files: &[Shape], generation: u32) -> HttpRequest {
    let nth = input.below(files.len() as u64) as u32;
    let (file, object) = (files[nth as usize], object(nth, generation));
    let body = |span| messages::body(object, file.len_bytes, file.residency, span);
    let whole = Span {
        offset_bytes: 0,
        len_bytes: file.len_bytes,
    };
    let mut parts = vec![text(HEAD_BYTES)];
    let mut slices = VecDeque::new();
    match input.below(8) {
        0 => {}
        1 => {
            let count = input.below(4);
            slices.extend((0..count).map(|_| input.pick(&[7_000, 0, 1])));
            parts.push(Part::Slices);
        }
        2 => parts.push(body(whole)),
        3 => parts.push(body(span(input, file.len_bytes))),
        4 => {
            let cut_bytes = input.below(1 + file.len_bytes / STEP_BYTES) * STEP_BYTES;
            let len_bytes = (cut_bytes + input.below(300)).min(file.len_bytes);
            let (offset_bytes, len_bytes) = (len_bytes, file.len_bytes - len_bytes);
            parts.push(body(Span {
                offset_bytes,
                len_bytes,
            }));
        }
        _ => {
            for _ in 0..1 + input.below(16) {
                if !input.once_in(6) {
                    parts.push(text(input.pick(&[80, 0, 1])));
                }
                parts.push(body(span(input, file.len_bytes)));
            }
            parts.push(text(40));
        }
    }
    let keep_alive = !input.once_in(8);
    HttpRequest {
        plan: messages::plan(parts, HEAD_BYTES as u64, keep_alive),
        slices,
        file: nth,
    }
}

pub(super) fn object(index: u32, generation: u32) -> ObjectId {
    ObjectId {
        device: 0,
        index,
        generation,
    }
}

/// Any range of a file; rarely an empty one.
fn span(input: &mut Input<'_>, file_bytes: u64) -> Span {
    const LENGTHS: [u64; 8] = [100, 1 << 20, 3 << 20, 1, 70_000, 16_384, 0, 1_300_000];
    let step_bytes = input.pick(&[STEP_BYTES, 1 << 20, 1]);
    let offset_bytes = (input.below(400) * step_bytes) % file_bytes.max(1);
    let len_bytes = input.pick(&LENGTHS).min(file_bytes - offset_bytes);
    Span {
        offset_bytes,
        len_bytes,
    }
}

/// How the residency of a file's pages is found out, if at all.
pub(super) fn residency(input: &mut Input<'_>) -> ResidencySource {
    input.pick(&[
        ResidencySource::Ask,
        ResidencySource::Ask,
        ResidencySource::Remember,
        ResidencySource::Always,
    ])
}
