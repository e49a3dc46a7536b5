//! What an origin is asked for a request.

use ackpace_wire::http::ask::AskedRange;
use ackpace_wire::http::caching::CacheControl;
use ackpace_wire::http::range;
use ackpace_wire::http::target;
use ackpace_wire::http::{Method, Reject, Request, Status, Version};
use ackpace_wire::s3;

use crate::gateway::{Asked, Gateway, Hint, via};

const LOOP: Reject = Reject {
    status: Status::BadGateway,
    why: "The request came through this server before: the server behind it leads back here.",
};

/// What an origin is asked for a request with this head. A bucket is asked for a key: it gets no query, and nothing by
/// which a client shows who it is, so its objects are the same for all.
/// Errors: No origin can be asked for that, or the gateway itself made the request.
pub fn asked_of(request: &Request<'_>, head: &[u8], gateway: &Gateway) -> Result<Asked, Reject> {
    let has_buckets = gateway.has_buckets();
    if via::is_own(request) {
        return Err(LOOP);
    }
    let target = match has_buckets {
        true => s3::target(request.target)?,
        false => target::onward(request.target)?,
    };
    let hint = match request.method {
        Method::Head => Hint::Head,
        _ => match request.range().and_then(range::first) {
            Some(AskedRange::Span { first, last }) => Hint::Span(first, last),
            Some(AskedRange::From(first)) => Hint::Span(first, u64::MAX),
            Some(AskedRange::Suffix(len_bytes)) => Hint::Last(len_bytes),
            None => Hint::Span(0, u64::MAX),
        },
    };
    let mut names = request.fields().iter().map(|(name, _)| name);
    let is_own = names.any(|name| name.eq_ignore_ascii_case(b"authorization"));
    Ok(Asked {
        target: target.into(),
        hint,
        head: head.into(),
        private: is_own && !has_buckets,
        only_if_cached: CacheControl::of(request.fields()).only_if_cached,
        chunked: request.version == Version::Http11,
        index_of: None,
        lists: false,
    })
}
