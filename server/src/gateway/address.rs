//! The address of an origin, as operators write it.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

use ackpace_wire::http::ask::{self, Ask, AskedRange, Condition};
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::plan::location::{Home, location};
use ackpace_wire::http::{Asked, Method, Parsed, parse};
use jiff::Timestamp;
use url::{Host, Url};

use super::s3::Bucket;
use super::via;

/// The fields of a client's request that a bucket gets.
const OF_BUCKETS: [(&str, Field); 6] = [
    ("Range", Field::Range),
    ("If-Range", Field::IfRange),
    ("If-Match", Field::IfMatch),
    ("If-None-Match", Field::IfNoneMatch),
    ("If-Modified-Since", Field::IfModifiedSince),
    ("If-Unmodified-Since", Field::IfUnmodifiedSince),
];

/// An origin: where it is reached, and what all targets there begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its name or its IP address, for the resolver.
    pub host: String,
    pub port: u16,
    /// Whether it is reached by TLS.
    pub tls: bool,
    /// The Host field.
    pub authority: String,
    /// What stands before each target: empty, or a path that begins with a slash and does not end with one.
    pub base: String,
    /// It is a bucket, and requests to it are signed.
    pub bucket: Option<Bucket>,
    shown: String,
}

/// Why a text is no address of an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}; write it like http://mirror.example/pub or s3://bucket/prefix")]
pub struct AddressError {
    text: String,
    why: String,
}

impl AddressError {
    pub(super) fn new(text: &str, why: &str) -> AddressError {
        AddressError {
            text: text.to_owned(),
            why: why.to_owned(),
        }
    }
}

impl Address {
    /// Parses an `http` or `https` URL.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        let failed = |why: &str| AddressError::new(text, why);
        let (_, rest) = (text.split_once("://"))
            .ok_or_else(|| failed("it begins with none of http://, https:// and s3://"))?;
        // Url would take the first segment of the path for the host.
        if rest.starts_with(['/', '\\']) {
            return Err(failed("it has no host"));
        }
        let url = Url::parse(text).map_err(|error| failed(&error.to_string()))?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(failed("the scheme is neither http nor https")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(failed("a user or a password in it would end up in logs"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(failed("it has a query or a fragment"));
        }
        let host = url.host().ok_or_else(|| failed("it has no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        Ok(Address {
            host: match host {
                Host::Domain(name) => name.to_owned(),
                Host::Ipv4(ip) => ip.to_string(),
                Host::Ipv6(ip) => ip.to_string(),
            },
            port,
            tls,
            authority,
            base: url.path().trim_end_matches('/').to_owned(),
            bucket: None,
            shown: url.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// Another node of the cluster, by its name for the operator.
    pub fn of_node(addr: SocketAddr, name: &str) -> Address {
        Address {
            host: addr.ip().to_string(),
            port: addr.port(),
            tls: false,
            authority: addr.to_string(),
            base: String::new(),
            bucket: None,
            shown: format!("node {name}"),
        }
    }

    /// The same place with a bucket, by the text that names it.
    pub(super) fn of_bucket(self, bucket: Bucket, text: &str) -> Address {
        Address {
            bucket: Some(bucket),
            shown: text.trim_end_matches('/').to_owned(),
            ..self
        }
    }

    /// The head of a request of the gateway's own.
    /// Errors: Why it would say something else than what it is to say.
    pub fn request(
        &self,
        method: Asked,
        target: &[u8],
        range: Option<AskedRange>,
        condition: Condition<'_>,
    ) -> Result<Vec<u8>, &'static str> {
        let condition = match condition {
            // If-Range is not among what S3 promises to understand.
            Condition::RangeOfTag(tag) if self.bucket.is_some() => Condition::Match(tag),
            condition => condition,
        };
        self.head(&Ask {
            method,
            target: &self.target(method, target)?,
            host: self.authority.as_bytes(),
            range,
            condition,
            lines: &[],
            via: via::name(),
        })
    }

    /// The head of a request that passes a client's on. To a bucket go only the fields that say which bytes are wanted.
    /// Errors: As there, and if the client's is none.
    pub fn passed(&self, target: &[u8], head: &[u8]) -> Result<Vec<u8>, &'static str> {
        let Parsed::Complete { request, .. } = parse(head) else {
            return Err("no request to pass on");
        };
        let method = match request.method {
            Method::Head => Asked::Head,
            _ => Asked::Get,
        };
        let target = self.target(method, target)?;
        let host = self.authority.as_bytes();
        if self.bucket.is_none() {
            let mut passed = Vec::new();
            ask::pass(&request, &target, host, &[], via::name(), &mut passed)?;
            return Ok(passed);
        }
        let fields = request.fields();
        let lines = OF_BUCKETS
            .iter()
            .filter_map(|(name, field)| Some((*name, fields.single(*field)?)));
        self.head(&Ask {
            method,
            target: &target,
            host,
            range: None,
            condition: Condition::None,
            lines: &lines.collect::<Vec<_>>(),
            via: via::name(),
        })
    }

    /// The head of a request for a page of a folder's listing.
    /// Errors: As there, and if this is no bucket.
    pub fn page(&self, folder: &[u8], token: Option<&str>) -> Result<Vec<u8>, &'static str> {
        let bucket = self.bucket.as_ref().ok_or("no bucket to list")?;
        self.head(&Ask {
            method: Asked::Get,
            target: &bucket.page(folder, token, Timestamp::now())?,
            host: self.authority.as_bytes(),
            range: None,
            condition: Condition::None,
            lines: &[],
            via: via::name(),
        })
    }

    fn head(&self, ask: &Ask<'_>) -> Result<Vec<u8>, &'static str> {
        let mut head = Vec::new();
        ask::ask(ask, &mut head)?;
        Ok(head)
    }

    /// A target as this origin has it; of a bucket, signed now.
    fn target(&self, method: Asked, target: &[u8]) -> Result<Vec<u8>, &'static str> {
        let path = [self.base.as_bytes(), target].concat();
        let Some(bucket) = &self.bucket else {
            return Ok(path);
        };
        let path = std::str::from_utf8(&path).map_err(|_| "The key is not encoded.")?;
        bucket.signed(method, path, &[], Timestamp::now())
    }

    /// The target of a place at this origin, as Location has it; `None`: it is elsewhere.
    pub fn local<'a>(&self, place: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let home = Home {
            tls: self.tls,
            authority: &self.authority,
            base: &self.base,
        };
        location(place, &home)
    }

    /// The address without a slash at its end.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_place_a_host_field_and_a_base() {
        let of = |text: &str| {
            let address = Address::parse(text).expect("an address");
            (
                address.host.clone(),
                address.port,
                address.authority.clone(),
                address.base.clone(),
            )
        };
        let is = |host: &str, port, authority: &str, base: &str| {
            (host.to_owned(), port, authority.to_owned(), base.to_owned())
        };
        assert_eq!(of("HTTP://A.example"), is("a.example", 80, "a.example", ""));
        assert_eq!(
            of("http://a.example:8080/pub/"),
            is("a.example", 8080, "a.example:8080", "/pub")
        );
        assert_eq!(of("https://[::1]/x y"), is("::1", 443, "[::1]", "/x%20y"));
    }

    #[test]
    fn a_place_at_the_origin_is_a_target_of_the_gateway() {
        let origin = Address::parse("http://a.example:81/pub").expect("an address");
        let local = |place: &'static str| {
            let local = origin.local(place.as_bytes());
            local.map(|local| String::from_utf8(local.into_owned()).expect("a part of a text"))
        };
        assert_eq!(local("http://a.example:81/pub/x?y"), Some("/x?y".into()));
        assert_eq!(local("/pub/x"), Some("/x".into()));
        for elsewhere in [
            "http://a.example:81/public",
            "http://a.example:811/pub/x",
            "//evil.example/pub/x",
            "/x",
            "x",
            "",
        ] {
            assert_eq!(local(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_reason() {
        for (text, why) in [
            ("http://", "empty host"),
            ("ftp://a/", "neither http nor https"),
            ("http://me:secret@a/", "password"),
            ("http://a/?x", "query"),
            ("http:///pub", "no host"),
            ("http:a", "none of http://"),
            ("a:80", "none of http://"),
        ] {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
