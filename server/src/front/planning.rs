//! Between a request, the site and the machines: what to look up, and the response to what was found.

use std::sync::Arc;

use ackpace_core::conn::{
    ObjectId, Part as CorePart, Plan as CorePlan, Promise, ResidencySource, Version as CoreVersion,
};
use ackpace_core::limits::BODY_SKIP_BYTES_MAX;
use ackpace_core::upstream::Fault;
use ackpace_wire::content_type;
use ackpace_wire::http::conditional::Validators;
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::negotiation::prefers_json;
use ackpace_wire::http::plan::relay;
use ackpace_wire::http::range;
use ackpace_wire::http::target::{self, Target};
use ackpace_wire::http::{
    Context, Method, Parsed, Part, Plan, Reject, Representation, Request, RequestBody, Status,
    Version, parse, plan,
};
use ackpace_wire::limits::{MEDIA_TYPE_BYTES_MAX, PART_HEAD_BYTES_MAX, RANGES_COMMON};
use ackpace_wire::listing::Format;
use smallvec::{SmallVec, smallvec};

use super::charge::Charge;
use super::site::{Query, Served, Site, SiteAnswer};
use crate::clock::unix_ms;
use crate::gateway::Found;
use crate::response_cache::{CachedResponse, Content};

/// What the site has to look up for a request.
pub(super) fn query_of(request: &Request<'_>, target: &Target<'_>, site: &Site) -> Query {
    let listed = request.method != Method::Head;
    let accept_encoding = request.fields().values(Field::AcceptEncoding);
    Query {
        path: target.path.as_ref().into(),
        accept_encoding: match site.siblings.is_empty() {
            true => Box::default(),
            false => accept_encoding.map(Box::from).collect(),
        },
        format: format_of(request, target),
        chunked: listed.then_some(request.version == Version::Http11),
    }
}

/// The form of a listing that a request asks for.
fn format_of(request: &Request<'_>, target: &Target<'_>) -> Format {
    let accept = || request.fields().values(Field::Accept);
    let is_json = target.query == Some(b"json") || prefers_json(accept());
    if is_json { Format::Json } else { Format::Html }
}

/// The form of a listing that the request in a head asks for.
pub fn listed_of(head: &[u8]) -> Format {
    let Parsed::Complete { request, .. } = parse(head) else {
        return Format::default();
    };
    let target = target::resolve(request.target);
    target.map_or_else(|_| Format::default(), |target| format_of(&request, &target))
}

/// The decoded path in a request head, without its first slash; empty if there is none.
pub fn asked_path(head: &[u8]) -> Vec<u8> {
    let Parsed::Complete { request, .. } = parse(head) else {
        return Vec::new();
    };
    let target = target::resolve(request.target);
    target.map_or_else(|_| Vec::new(), |target| target.path[1..].to_vec())
}

/// What a response depends on at this moment besides request and file.
pub(super) fn context(draining: bool) -> Context {
    Context {
        now_unix_s: unix_ms() / 1000,
        draining,
        close: false,
        ranges_max: RANGES_COMMON,
    }
}

/// A body longer than the server skips ends the connection; the response says so.
pub(super) fn closes(request: &Request<'_>) -> bool {
    matches!(request.body, RequestBody::Length(len_bytes) if len_bytes > BODY_SKIP_BYTES_MAX)
}

/// The plan of the response to what the site found.
pub(super) fn planned(
    request: &Request<'_>,
    answer: &SiteAnswer,
    format: Format,
    context: &Context,
    site: &Site,
) -> Plan {
    let error = |status, why| plan::error(Some(request), &Reject { status, why }, context);
    match answer {
        SiteAnswer::File(served) => {
            let file = representation(served, site, context.now_unix_s);
            plan::file(request, &file, context)
        }
        SiteAnswer::Object(found) => {
            let fields = with_status(&found.object.fields, answer);
            let object = object_representation(found, &fields, context.now_unix_s);
            plan::file(request, &object, context)
        }
        SiteAnswer::Relayed {
            status,
            fields,
            body,
        } => {
            let fields = with_status(fields, answer);
            relay::relayed(request, *status, &fields, body.to_vec(), context)
        }
        SiteAnswer::Through(through) => {
            let fields = with_status(&through.fields, answer);
            relay::through(request, through.status, &fields, through.len_bytes, context)
        }
        SiteAnswer::NoAnswer(Fault::Silent) => error(
            Status::GatewayTimeout,
            "The server behind this one does not answer in time.",
        ),
        SiteAnswer::NoAnswer(_) => error(
            Status::BadGateway,
            "The server behind this one can't be reached, or does not answer as it should.",
        ),
        SiteAnswer::NotCached => error(Status::GatewayTimeout, "It is not cached."),
        SiteAnswer::Slash => {
            let reference = target::folder_reference(request.target);
            plan::redirect(request, Status::MovedPermanently, &reference, context)
        }
        SiteAnswer::Elsewhere(name) => {
            let reference = target::file_reference(name);
            plan::redirect(request, Status::Found, &reference, context)
        }
        SiteAnswer::Listing(_) => plan::listing(request, format.content_type(), context),
        SiteAnswer::NotFound | SiteAnswer::Astray(_) => {
            error(Status::NotFound, "There is no such file here.")
        }
        SiteAnswer::Forbidden(_) => error(Status::Forbidden, "This may not be read."),
        SiteAnswer::Exhausted | SiteAnswer::Crowded | SiteAnswer::Leased => error(
            Status::ServiceUnavailable,
            "The server is at a limit; try again soon.",
        ),
        SiteAnswer::Gone => error(
            Status::ServiceUnavailable,
            "The directory that is served here is not there.",
        ),
        SiteAnswer::Failed(_) => error(Status::InternalServerError, "The file could not be read."),
    }
}

/// By what clients and other nodes tell versions of a file apart.
pub fn validators(served: &Served, site: &Site) -> Validators {
    representation(served, site, unix_ms() / 1000).validators
}

fn representation<'a>(served: &'a Served, site: &'a Site, now_unix_s: u64) -> Representation<'a> {
    let content_type = content_type::of(&served.name, &site.types);
    let coding = (served.coding).or_else(|| content_type::coding(&served.name, content_type));
    let len_bytes = served.version.len_bytes;
    Representation {
        len_bytes,
        validators: Validators::new(&served.times, len_bytes, coding, now_unix_s),
        content_type,
        coding,
        vary: served.vary,
        fields: &[],
        date_unix_s: None,
        age_s: None,
    }
}

/// These fields of an origin, and what the cache did (RFC 9211).
fn with_status(fields: &[u8], answer: &SiteAnswer) -> Vec<u8> {
    let status = answer.cache_status().unwrap_or_default();
    let status = format!("Cache-Status: ackpace; {status}\r\n");
    [fields, status.as_bytes()].concat()
}

fn object_representation<'a>(
    found: &'a Found,
    fields: &'a [u8],
    now_unix_s: u64,
) -> Representation<'a> {
    let (object, validity) = (&found.object, &found.validity);
    Representation {
        len_bytes: object.len_bytes,
        validators: object.validators,
        content_type: &object.content_type,
        coding: None,
        vary: false,
        fields,
        date_unix_s: validity.date_unix_s,
        age_s: Some(validity.age_s(now_unix_s)),
    }
}

/// Memory of a range in a response but for its media type: its two parts, as the planner and then the machine have them, with
/// the planner's vector that grew once, the text of the first, and its span.
const RANGE_BYTES: usize = 2 * size_of::<CorePart>()
    + 4 * size_of::<Part>()
    + (PART_HEAD_BYTES_MAX - MEDIA_TYPE_BYTES_MAX + 32)
    + 3 * size_of::<range::Span>();

/// Memory for the ranges that are asked of a file beyond the common ones; `None`: these suffice, or there is no memory.
pub(super) fn ranges_room(
    request: &Request<'_>,
    answer: &SiteAnswer,
    site: &Site,
) -> Option<Charge> {
    let content_type = match answer {
        SiteAnswer::File(served) => content_type::of(&served.name, &site.types),
        SiteAnswer::Object(found) => &found.object.content_type,
        _ => return None,
    };
    let more = range::most(request.range()?).checked_sub(RANGES_COMMON + 1)? + 1;
    site.ranges.claim(more * (RANGE_BYTES + content_type.len()))
}

/// The most parts of a plan for which the connection has memory of its own.
pub(super) const PARTS_COMMON: usize = 2 * RANGES_COMMON + 2;

/// What the bodies of a plan are of.
#[derive(Clone, Copy)]
pub(super) struct BodyOf {
    object: ObjectId,
    version: CoreVersion,
    residency: ResidencySource,
}

impl BodyOf {
    /// What an answer has to send; `None`: nothing but text.
    pub fn answer(answer: &SiteAnswer) -> Option<BodyOf> {
        match answer {
            SiteAnswer::File(served) => Some(BodyOf {
                object: served.file.id,
                version: served.version,
                residency: served.file.residency,
            }),
            SiteAnswer::Object(found) => Some(BodyOf {
                object: found.object.id,
                version: found.object.version(),
                residency: ResidencySource::Ask, // the slab tells
            }),
            _ => None,
        }
    }
}

/// A plan in the types of the machines.
pub(super) fn core_plan(plan: Plan, body: Option<BodyOf>) -> CorePlan {
    let part = |part: Part| match (part, body) {
        (
            Part::File {
                offset_bytes,
                len_bytes,
            },
            Some(body),
        ) => CorePart::Body {
            object: body.object,
            version: body.version,
            promise: match plan.one_version {
                true => Promise::OneVersion,
                false => Promise::Prefix,
            },
            residency: body.residency,
            span: ackpace_core::conn::Span {
                offset_bytes,
                len_bytes,
            },
        },
        (Part::Bytes(bytes), _) => CorePart::Bytes(bytes.into()),
        (Part::File { .. }, None) => CorePart::Bytes([].into()),
        (Part::Stream { .. }, _) => CorePart::Slices,
    };
    let mut parts = SmallVec::new();
    parts.reserve_exact(plan.parts.len()); // there may be thousands
    parts.extend(plan.parts.into_iter().map(part));
    CorePlan {
        parts,
        head_len_bytes: plan.head_len_bytes,
        body_len_bytes: plan.body_len_bytes,
        keep_alive: plan.keep_alive,
    }
}

/// The plan of a cached response, in the types of the machines.
pub fn cached_core_plan(cached: &CachedResponse, content: &Content, keep_alive: bool) -> CorePlan {
    let text = |text: &Arc<[u8]>| CorePart::Bytes(Arc::clone(text));
    let (parts, head_len_bytes) = match cached {
        CachedResponse::Whole {
            text: all,
            head_len_bytes,
        } => (smallvec![text(all)], *head_len_bytes),
        CachedResponse::Open { head, file } => {
            let body = CorePart::Body {
                object: content.object,
                version: content.version,
                promise: Promise::OneVersion, // a cached response is old enough for that
                residency: file.residency,
                span: ackpace_core::conn::Span {
                    offset_bytes: 0,
                    len_bytes: content.version.len_bytes,
                },
            };
            (smallvec![text(head), body], head.len())
        }
    };
    CorePlan {
        parts,
        head_len_bytes: head_len_bytes as u64,
        body_len_bytes: Some(content.version.len_bytes),
        keep_alive,
    }
}
