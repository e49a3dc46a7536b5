//! HTTP/1.1 for a static file server and a caching gateway (RFC 9110 semantics, RFC 9112 syntax, RFC 9111 caching).
//!
//! The path of a request:
//!
//! 1. [`parse`] finds one head at the start of the received bytes and borrows a [`Request`] from it.
//! 2. [`Request::refusal`] says whether this server answers such a request at all.
//! 3. [`target::resolve`] turns its target into a safe path.
//! 4. The shell finds the file and hands a [`plan::Representation`] to [`plan::file`]. That evaluates
//!    preconditions ([`conditional`]) and ranges ([`range`]), and returns a [`plan::Plan`]: the exact bytes and
//!    file spans to send.
//! 5. [`body::BodySkip`] skips the body of the request, if there is one.
//!
//! The path of a request to an origin: [`ask`](mod@ask) writes its head, [`parse_response`] reads that of the response,
//! [`BodyReader`] finds its payload, [`caching`] says whether it may be stored, and [`plan::relay`] what of it is sent
//! to clients.

pub mod ask;
pub mod body;
pub mod caching;
pub mod conditional;
pub mod content_range;
mod cursor;
pub mod date;
pub mod etag;
pub mod fields;
pub mod head;
mod hops;
pub mod host;
pub mod negotiation;
pub mod plan;
pub mod range;
pub mod reader;
pub mod request;
pub mod response;
pub mod status;
pub mod target;
#[cfg(test)]
pub(crate) mod testing;

pub use ask::{Ask, AskedRange, Condition};
pub use body::{BodyReader, BodySkip, Piece, Skipped};
pub use content_range::ContentRange;
pub use etag::{ETag, Times};
pub use negotiation::Coding;
pub use plan::{Context, Part, Plan, Representation};
pub use reader::{Parsed, parse};
pub use request::{Method, Request, RequestBody, Version};
pub use response::{Asked, Framing, ParsedResponse, Response, parse_response};
pub use status::{Reject, Status};
pub use target::Target;
