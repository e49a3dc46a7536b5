//! An object of an origin: one version of what it has at a target.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ackpace_core::conn::{ObjectId, Span, Version};
use ackpace_core::limits::FIRST_READ_BYTES;
use ackpace_wire::http::ask::Condition;
use ackpace_wire::http::caching::{Freshness, Use, date_of};
use ackpace_wire::http::conditional::Validators;
use ackpace_wire::http::etag::ETag;
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::plan::relay;
use ackpace_wire::http::{ContentRange, Framing, Response, range};

use super::ask::Hint;
use crate::store::slab::Slab;

/// How long a stale object is sent if no origin answers and it does not say: a day.
const IF_ERROR_S: u64 = 86_400;

/// One version of what the origins have at a target. Everything but its validity stays as it is.
pub struct Object {
    pub id: ObjectId,
    /// Below the addresses of the origins, as they are asked for it.
    pub target: Box<[u8]>,
    /// The origin that has it: others may have nothing there yet.
    pub origin: u16,
    pub len_bytes: u64,
    /// Its validators as clients compare them.
    pub validators: Validators,
    /// Empty: the origin sent none.
    pub content_type: Box<str>,
    /// The end-to-end fields that clients get as they are, each with its CRLF.
    pub fields: Box<[u8]>,
    /// Vary, as the origin sent it.
    pub vary: Box<[u8]>,
    validity: Mutex<Validity>,
    /// The origin has another version now.
    changed: AtomicBool,
    /// It is a file of this node as another one has it: the open file goes on, whatever the other node has now.
    is_file: bool,
    slab: Arc<Slab>,
}

/// How long an object may be sent without asking its origin (RFC 9111 section 4.2).
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub freshness: Freshness,
    /// When it was received, in seconds since 1970.
    pub received_unix_s: u64,
    /// Date, as the origin sent it.
    pub date_unix_s: Option<u64>,
}

impl Validity {
    fn of(response: &Response<'_>, now_unix_s: u64) -> Validity {
        Validity {
            freshness: Freshness::of(response, now_unix_s, now_unix_s),
            received_unix_s: now_unix_s,
            date_unix_s: date_of(response.fields(), Field::Date),
        }
    }

    fn stored_s(&self, now_unix_s: u64) -> u64 {
        now_unix_s.saturating_sub(self.received_unix_s)
    }

    /// How the object may be used now.
    pub fn usable(&self, now_unix_s: u64) -> Use {
        self.freshness.use_after(self.stored_s(now_unix_s))
    }

    /// Whether it may be used now although no origin answers.
    pub fn is_usable_on_error(&self, now_unix_s: u64) -> bool {
        let stored_s = self.stored_s(now_unix_s);
        self.freshness.is_usable_on_error(stored_s, IF_ERROR_S)
    }

    /// Its age now: the value of Age.
    pub fn age_s(&self, now_unix_s: u64) -> u64 {
        self.freshness.age_after_s(self.stored_s(now_unix_s))
    }
}

/// An object as one request finds it.
#[derive(Clone)]
pub struct Found {
    pub object: Arc<Object>,
    pub validity: Validity,
    pub how: How,
    /// An origin was asked for somebody else already, and the answer is for both.
    pub collapsed: bool,
}

/// How a request met its object: the words of Cache-Status (RFC 9211).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All that it asks for is in memory.
    Hit,
    /// It is known, and bytes that the request asks for are not in memory.
    Partial,
    /// It was not known.
    Missed,
    /// It was stale, and the origin has another version.
    Changed,
    /// It was stale, and the origin said that it is the same.
    Revalidated,
    /// It was stale, and is sent all the same.
    Stale,
}

impl How {
    /// The value of Cache-Status after the name of the cache.
    pub fn status(self) -> &'static str {
        match self {
            How::Hit => "hit",
            How::Partial => "fwd=partial",
            How::Missed => "fwd=uri-miss",
            How::Changed => "fwd=stale",
            How::Revalidated => "fwd=stale; fwd-status=304",
            How::Stale => "hit; detail=stale",
        }
    }
}

impl Object {
    /// What the machines are told of its version: its length. They compare it with nothing.
    pub fn version(&self) -> Version {
        Version {
            len_bytes: self.len_bytes,
            ..Version::default()
        }
    }

    pub fn validity(&self) -> Validity {
        *self.validity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The origin said by this 304 that it is still the same. `false`: it means another version, or one that may not be kept.
    pub fn renew(&self, response: &Response<'_>, now_unix_s: u64) -> bool {
        let etag = response
            .fields()
            .single(Field::ETag)
            .and_then(ETag::foreign);
        let validity = Validity::of(response, now_unix_s);
        if etag.is_some() && !self.is_of(response) || validity.freshness.not_storable.is_some() {
            return false;
        }
        let before = self.validity();
        let freshness = (before.freshness).renewed(response, now_unix_s, now_unix_s);
        self.revalue(Validity {
            freshness,
            ..validity
        });
        true
    }

    /// The origin said that it is still the same, and how long it stays so.
    pub fn revalue(&self, validity: Validity) {
        *self.validity.lock().unwrap_or_else(PoisonError::into_inner) = validity;
    }

    /// The origin is asked about it before it is sent again.
    pub fn expire(&self) {
        let before = self.validity();
        self.revalue(Validity {
            freshness: Freshness {
                fresh_for_s: 0,
                stale_while_revalidate_s: Some(0),
                ..before.freshness
            },
            ..before
        });
    }

    /// What a response says of the object at a target, and which of its bytes follow; `None`: it is none. An object has a
    /// length, and a validator that tells its versions apart; where it is long, its origin has ranges. One that answers with
    /// all when it is asked for a part (`asked_part`) has none, whatever it says. The caller names the object and its origin.
    pub fn of(
        response: &Response<'_>,
        target: &[u8],
        asked_part: bool,
        slab: &Arc<Slab>,
        now_unix_s: u64,
    ) -> Option<(Object, Option<Span>)> {
        let fields = response.fields();
        let (len_bytes, span) = match (response.status, response.framing) {
            (206, _) => match ContentRange::parse(fields.single(Field::ContentRange)?)? {
                ContentRange::Part {
                    span,
                    len_bytes: Some(len_bytes),
                } => (len_bytes, Some(span)),
                _ => return None,
            },
            (200, Framing::None) => (response.len_bytes?, None),
            (200, Framing::Length(len_bytes)) => {
                let (offset_bytes, all) = (0, len_bytes);
                let span = range::Span {
                    offset_bytes,
                    len_bytes: all,
                };
                (len_bytes, Some(span))
            }
            _ => return None,
        };
        let span = span.map(|span| Span {
            offset_bytes: span.offset_bytes,
            len_bytes: span.len_bytes,
        });
        let has_ranges = response.status == 206
            || !asked_part && fields.single(Field::AcceptRanges) == Some(b"bytes")
            || span.is_some() && len_bytes <= FIRST_READ_BYTES;
        let validity = Validity::of(response, now_unix_s);
        let etag = fields.single(Field::ETag).and_then(ETag::foreign);
        let modified_unix_s = date_of(fields, Field::LastModified);
        let validators = Validators::foreign(etag, modified_unix_s, validity.date_unix_s);
        let is_strong =
            etag.is_some_and(|tag| !tag.is_weak()) || validators.last_modified_is_strong;
        let is_coded = fields.first(Field::ContentEncoding).is_some();
        if is_coded || !has_ranges || !is_strong || validity.freshness.not_storable.is_some() {
            return None;
        }
        let content_type = fields.single(Field::ContentType).unwrap_or_default();
        let vary: Vec<&[u8]> = fields.values(Field::Vary).collect();
        let object = Object {
            id: ObjectId {
                device: 0,
                index: 0,
                generation: 0,
            },
            target: target.into(),
            origin: 0,
            len_bytes,
            validators,
            content_type: std::str::from_utf8(content_type).ok()?.into(),
            fields: relay::stored(response).ok()?.into(),
            vary: vary.join(&b", "[..]).into(),
            validity: Mutex::new(validity),
            changed: AtomicBool::new(false),
            is_file: false,
            slab: Arc::clone(slab),
        };
        Some((object, span))
    }

    /// A file that another node has as well, with the same validators. It stays what it is, under this name.
    pub fn of_file(
        id: ObjectId,
        target: &[u8],
        len_bytes: u64,
        validators: Validators,
        slab: &Arc<Slab>,
    ) -> Object {
        let validity = Validity {
            freshness: Freshness::FOR_EVER,
            received_unix_s: 0,
            date_unix_s: None,
        };
        Object {
            id,
            target: target.into(),
            origin: 0,
            len_bytes,
            validators,
            content_type: Box::default(),
            fields: Box::default(),
            vary: Box::default(),
            validity: Mutex::new(validity),
            changed: AtomicBool::new(false),
            is_file: true,
            slab: Arc::clone(slab),
        }
    }

    /// Whether a response is of this version.
    pub fn is_of(&self, response: &Response<'_>) -> bool {
        let fields = response.fields();
        let etag = fields.single(Field::ETag).and_then(ETag::foreign);
        let own = self.validators;
        match (own.etag, etag) {
            (Some(own), Some(etag)) => own == etag,
            _ => {
                own.last_modified_unix_s.is_some()
                    && own.last_modified_unix_s == date_of(fields, Field::LastModified)
            }
        }
    }

    /// Whether another object is the same version.
    pub fn is_same(&self, other: &Object) -> bool {
        let (own, other_s) = (&self.validators, &other.validators);
        self.len_bytes == other.len_bytes
            && own.etag == other_s.etag
            && own.last_modified_unix_s == other_s.last_modified_unix_s
    }

    /// The condition on which a part of it is asked for: another version comes as a whole, or not at all.
    pub fn if_range(&self) -> Condition<'_> {
        let Validators {
            etag,
            last_modified_unix_s,
            last_modified_is_strong,
        } = &self.validators;
        match (etag, last_modified_unix_s) {
            (Some(tag), _) if !tag.is_weak() => Condition::RangeOfTag(tag),
            (_, Some(unix_s)) if *last_modified_is_strong => Condition::RangeOfDate(*unix_s),
            _ => Condition::None,
        }
    }

    /// The condition on which it is asked for again.
    pub fn if_changed(&self) -> Condition<'_> {
        Condition::Changed {
            tag: self.validators.etag.as_ref(),
            since_unix_s: self.validators.last_modified_unix_s,
        }
    }

    /// The origin has another version: responses under way end, and its bytes leave memory.
    pub fn has_changed(&self) {
        self.changed.store(!self.is_file, Ordering::Release);
        self.slab.forget(self.id);
    }

    pub fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Where its bytes lie that several clients want.
    pub fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    /// Whether all of the span is there.
    pub fn is_resident(&self, span: Span) -> bool {
        self.slab.covers(self.id, span)
    }

    /// How a request meets an object that is fresh.
    pub fn met(&self, hint: Hint) -> How {
        let span = match hint {
            Hint::Head => None,
            Hint::Span(first, last) => {
                let end_bytes = last.saturating_add(1).min(self.len_bytes);
                let len_bytes = end_bytes.saturating_sub(first);
                Some((first, len_bytes))
            }
            Hint::Last(len_bytes) => {
                let len_bytes = len_bytes.min(self.len_bytes);
                Some((self.len_bytes - len_bytes, len_bytes))
            }
        };
        let is_there = span.is_none_or(|(offset_bytes, len_bytes)| {
            let span = Span {
                offset_bytes,
                len_bytes,
            };
            len_bytes == 0 || self.is_resident(span)
        });
        if is_there { How::Hit } else { How::Partial }
    }

    /// What tells this version apart from all others of any object of any origin, also in another process: the origin, the
    /// target, and the validator by which the origin tells versions apart. None of them has a line feed in it.
    pub fn identity(&self, origin: &str) -> Vec<u8> {
        let mut identity = [origin.as_bytes(), b"\n", &self.target, b"\n"].concat();
        let Validators {
            etag,
            last_modified_unix_s,
            ..
        } = &self.validators;
        match (etag, last_modified_unix_s) {
            (Some(tag), _) if !tag.is_weak() => tag.write(&mut identity),
            (_, unix_s) => identity.extend_from_slice(format!("{unix_s:?}").as_bytes()),
        }
        identity
    }

    /// Memory that it takes.
    pub fn held_bytes(&self) -> usize {
        let texts = [&self.target, &self.fields, &self.vary];
        size_of::<Object>()
            + self.content_type.len()
            + texts.map(|text| text.len()).into_iter().sum::<usize>()
    }
}

impl Drop for Object {
    /// Nobody can ask for it any more: another one gets a new name.
    fn drop(&mut self) {
        self.slab.forget(self.id);
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.id, self.target.escape_ascii())
    }
}
