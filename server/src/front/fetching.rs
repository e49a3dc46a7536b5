//! What an origin is asked for a request.

use ackpace_wire::http::ask::AskedRange;
use ackpace_wire::http::caching::CacheControl;
use ackpace_wire::http::range;
use ackpace_wire::http::target::{self, Target};
use ackpace_wire::http::{Method, Reject, Request, Version};
use ackpace_wire::s3;

use crate::gateway::{Asked, Gateway, Hint};

/// What an origin is asked for a request with this head. A bucket is asked for a key: it gets no query, and nothing by
/// which a client shows who it is, so its objects are the same for all.
/// Errors: No bucket can be asked for that.
pub fn asked_of(
    request: &Request<'_>,
    target: &Target<'_>,
    head: &[u8],
    gateway: &Gateway,
) -> Result<Asked, Reject> {
    let has_buckets = gateway.has_buckets();
    let mut encoded = Vec::new();
    if has_buckets {
        encoded = s3::target(request.target)?;
    } else {
        target::encode_path(&target.path, &mut encoded);
        if let Some(query) = target.query {
            encoded.push(b'?');
            target::encode_query(query, &mut encoded);
        }
    }
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
        target: encoded.into(),
        hint,
        head: head.into(),
        private: is_own && !has_buckets,
        only_if_cached: CacheControl::of(request.fields()).only_if_cached,
        chunked: request.version == Version::Http11,
        index_of: None,
    })
}
