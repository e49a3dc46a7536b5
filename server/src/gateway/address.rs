//! The address of an origin, as operators write it.

use std::fmt;

use ackpace_wire::http::ask::{self, Ask, AskedRange, Condition};
use ackpace_wire::http::{Asked, Parsed, parse};
use url::{Host, Url};

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
    shown: String,
}

/// Why a text is no address of an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}; write it like http://mirror.example/pub")]
pub struct AddressError {
    text: String,
    why: String,
}

impl Address {
    /// Parses an `http` or `https` URL.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        let failed = |why: &str| AddressError {
            text: text.to_owned(),
            why: why.to_owned(),
        };
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
            shown: url.as_str().trim_end_matches('/').to_owned(),
        })
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
        let mut head = Vec::new();
        let ask = Ask {
            method,
            target: &self.target(target),
            host: self.authority.as_bytes(),
            range,
            condition,
            lines: &[],
        };
        ask::ask(&ask, &mut head)?;
        Ok(head)
    }

    /// The head of a request that passes a client's on.
    /// Errors: As there, and if the client's is none.
    pub fn passed(&self, target: &[u8], head: &[u8]) -> Result<Vec<u8>, &'static str> {
        let Parsed::Complete { request, .. } = parse(head) else {
            return Err("no request to pass on");
        };
        let mut passed = Vec::new();
        let host = self.authority.as_bytes();
        ask::pass(&request, &self.target(target), host, &[], &mut passed)?;
        Ok(passed)
    }

    /// A target as this origin has it.
    fn target(&self, target: &[u8]) -> Vec<u8> {
        [self.base.as_bytes(), target].concat()
    }

    /// The target of a place at this origin, as Location has it; `None`: it is elsewhere. What would begin with two slashes is
    /// elsewhere, too: clients would read the name of a host there.
    pub fn local<'a>(&self, place: &'a [u8]) -> Option<&'a [u8]> {
        let below = place.strip_prefix(self.shown.as_bytes());
        let below = below.or_else(|| place.strip_prefix(self.base.as_bytes()));
        below.filter(|below| below.starts_with(b"/") && !below.starts_with(b"//"))
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
        assert_eq!(of("http://a.example"), is("a.example", 80, "a.example", ""));
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
            local.map(|local| std::str::from_utf8(local).expect("a part of a text"))
        };
        assert_eq!(local("http://a.example:81/pub/x?y"), Some("/x?y"));
        assert_eq!(local("/pub/x"), Some("/x"));
        for elsewhere in [
            "http://a.example:81/public",
            "http://a.example:811/pub/x",
            "http://a.example:81/pub//evil.example",
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
        ] {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
