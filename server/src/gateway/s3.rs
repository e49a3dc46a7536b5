//! Buckets of an object store with the interface of Amazon S3: how each request is signed. The signature is part of a request's
//! target when it is sent (a presigned URL) and stands nowhere else: not in the keys of the cache, the log, or messages.

use std::fmt;

use ackpace_wire::http::Asked;
use ackpace_wire::s3;
use jiff::Timestamp;
use rusty_s3::signing::sign;
use rusty_s3::{Credentials, Method};
use url::Url;

/// How long a signature holds. Each request is sent as soon as it is signed; clocks may differ by some minutes.
const SIGNED_S: u64 = 300;
/// A bucket, and the prefix of all keys that are served.
#[derive(Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Scheme, host and port.
    pub(super) origin: String,
    /// The path of the bucket itself.
    pub(super) path: String,
    /// Empty, or ends with a slash.
    pub(super) prefix: String,
    pub(super) region: String,
    pub(super) credentials: Option<Credentials>,
}

impl Bucket {
    /// Whether requests are signed.
    pub fn is_signed(&self) -> bool {
        self.credentials.is_some()
    }

    /// The keys in a folder begin with this.
    pub fn prefix_of(&self, folder: &[u8]) -> String {
        let folder = s3::decode(folder.strip_prefix(b"/").unwrap_or(folder));
        format!("{}{}", self.prefix, String::from_utf8_lossy(&folder))
    }

    /// The target of a page of a folder's listing.
    pub fn page(
        &self,
        folder: &[u8],
        token: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<u8>, &'static str> {
        let prefix = self.prefix_of(folder);
        // In the order of their names, as they are signed.
        let mut query = Vec::new();
        query.extend(token.map(|token| ("continuation-token", token)));
        query.extend([("delimiter", "/"), ("list-type", "2"), ("prefix", &prefix)]);
        self.signed(Asked::Get, &self.path, &query, now)
    }

    /// A path of the store and a query, signed now.
    ///
    /// # Errors
    /// A URL of that path would have another one.
    pub fn signed(
        &self,
        method: Asked,
        path: &str,
        query: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Vec<u8>, &'static str> {
        self.signed_for(method, path, query, (now, SIGNED_S))
    }

    pub(super) fn signed_for(
        &self,
        method: Asked,
        path: &str,
        query: &[(&str, &str)],
        (now, for_s): (Timestamp, u64),
    ) -> Result<Vec<u8>, &'static str> {
        let Some(credentials) = &self.credentials else {
            return Ok(unsigned(path, query));
        };
        let url = Url::parse(&format!("{}{path}", self.origin));
        let url = url.map_err(|_| "The key stands in no URL.")?;
        if url.path() != path {
            return Err("The key stands in no URL as it is.");
        }
        let method = match method {
            Asked::Get => Method::Get,
            Asked::Head => Method::Head,
        };
        let url = sign(
            &now,
            method,
            url,
            credentials.key(),
            credentials.secret(),
            credentials.token(),
            &self.region,
            for_s,
            query.iter().copied(),
            std::iter::empty(),
        );
        let query = url.query().unwrap_or_default();
        Ok([path, "?", query].concat().into_bytes())
    }
}

/// A path and a query.
fn unsigned(path: &str, query: &[(&str, &str)]) -> Vec<u8> {
    let mut target = path.as_bytes().to_vec();
    for (nth, (name, value)) in query.iter().enumerate() {
        target.push(if nth == 0 { b'?' } else { b'&' });
        s3::encode(name.as_bytes(), &mut target);
        target.push(b'=');
        s3::encode(value.as_bytes(), &mut target);
    }
    target
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}
