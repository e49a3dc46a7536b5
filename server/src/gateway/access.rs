//! How origins are reached, by the options and the environment: buckets have a place and credentials.

use std::path::Path;

use ackpace_wire::s3;
use rusty_s3::Credentials;

use super::address::{Address, AddressError};
use super::s3::Bucket;
use crate::options::{is_bucket, shown};

/// Where a bucket is if nothing says so.
const REGION: &str = "us-east-1";
/// Bytes of a file with credentials. Longer: it is refused.
const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;

/// How buckets are reached, by the options and the environment.
#[derive(Clone, Default)]
pub struct Access {
    /// Where the store is; `None`: Amazon's.
    endpoint: Option<Address>,
    region: String,
    /// `None`: requests are not signed.
    credentials: Option<Credentials>,
}

/// Why buckets can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("{0}")]
    Endpoint(#[from] AddressError),
    #[error("{file}: {error}; name a file that this user may read")]
    Unreadable { file: String, error: std::io::Error },
    #[error("{file}: {why}")]
    File { file: String, why: &'static str },
    #[error("AWS_REGION: {0} is no region, such as eu-west-1")]
    Region(String),
    #[error("{0} is set, and {1} is not; set both, or none for requests without a signature")]
    Half(&'static str, &'static str),
}

impl AccessError {
    /// The option at fault, if it is none of the environment's variables, which messages name.
    pub fn option(&self) -> Option<&'static str> {
        match self {
            AccessError::Endpoint(_) => Some("s3_endpoint"),
            AccessError::Unreadable { .. } | AccessError::File { .. } => {
                Some("s3_credentials_file")
            }
            AccessError::Region(_) | AccessError::Half(..) => None,
        }
    }

    /// Whether a later start may find it mended.
    pub fn may_pass(&self) -> bool {
        matches!(self, AccessError::Unreadable { .. })
    }
}

impl Access {
    /// By the endpoint, the file with credentials, and the variables of the environment, of which the file goes first.
    pub fn of(
        endpoint: Option<&str>,
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Access, AccessError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let keys = match file {
            Some(file) => Keys::read(file)?,
            None => Keys {
                id: variable("AWS_ACCESS_KEY_ID"),
                secret: variable("AWS_SECRET_ACCESS_KEY"),
                token: variable("AWS_SESSION_TOKEN"),
            },
        };
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        // It is a part of Amazon's names of hosts. Other stores may call theirs as they like.
        let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if endpoint.is_none() && !region.bytes().all(is_sign) {
            return Err(AccessError::Region(shown(&region)));
        }
        Ok(Access {
            endpoint: endpoint.map(Address::parse).transpose()?,
            region,
            credentials: keys.credentials()?,
        })
    }

    /// Parses the URL of an origin, also `s3://bucket/prefix`.
    ///
    /// # Errors
    /// It is none, or has what can't be used.
    pub fn address(&self, text: &str) -> Result<Address, AddressError> {
        if !is_bucket(text) {
            return Address::parse(text);
        }
        let bucket = self.bucket(text);
        bucket.map_err(|why| AddressError::new(text, why))
    }

    /// Where the store is, with the path of the prefix, and the bucket.
    ///
    /// With an endpoint the name of the bucket stands in the path, as every store allows; at Amazon's it stands in the host's
    /// name, unless a dot in it would break the certificate.
    fn bucket(&self, text: &str) -> Result<Address, &'static str> {
        let (_, rest) = text
            .split_once("://")
            .ok_or("it does not begin with s3://")?;
        if rest.contains(['?', '#']) {
            return Err("it has a query or a fragment");
        }
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = (1..=255).contains(&name.len()) && name.bytes().all(in_name);
        if !is_name || name.starts_with('.') || s3::has_dots(prefix.as_bytes()) {
            return Err("it has no bucket, or a segment . or ..");
        }
        if self.endpoint.is_none() && !is_amazons(name) {
            return Err(
                "Amazon's buckets have names of 3 to 63 lower-case letters, digits, - and .",
            );
        }
        let host = format!("s3.{}.amazonaws.com", self.region);
        let amazon = |host: String| {
            Address::parse(&format!("https://{host}"))
                .map_err(|_| "no name of a host has that bucket")
        };
        let (mut address, path) = match &self.endpoint {
            Some(endpoint) => (endpoint.clone(), format!("{}/{name}/", endpoint.base)),
            None if name.contains('.') => (amazon(host)?, format!("/{name}/")),
            None => (amazon(format!("{name}.{host}"))?, "/".to_owned()),
        };
        let mut base = path.trim_end_matches('/').as_bytes().to_vec();
        if !prefix.is_empty() {
            base.push(b'/');
            s3::encode(prefix.as_bytes(), &mut base);
        }
        let scheme = if address.tls { "https" } else { "http" };
        let bucket = Bucket {
            origin: format!("{scheme}://{}", address.authority),
            path,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            region: self.region.clone(),
            credentials: self.credentials.clone(),
        };
        address.base = String::from_utf8_lossy(&base).into_owned();
        Ok(address.of_bucket(bucket, &format!("s3://{rest}")))
    }
}

/// Whether Amazon lets a bucket have this name. Other stores may have rules of their own.
fn is_amazons(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte| is_sign(byte) || b"-.".contains(&byte);
    let ends = [name.bytes().next(), name.bytes().last()];
    (3..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && ends.into_iter().flatten().all(is_sign)
}

/// Credentials as they are given.
#[derive(Default)]
struct Keys {
    id: Option<String>,
    secret: Option<String>,
    token: Option<String>,
}

impl Keys {
    fn read(file: &Path) -> Result<Keys, AccessError> {
        let name = || file.display().to_string();
        let failed = |why| AccessError::File { file: name(), why };
        let unreadable = |error| AccessError::Unreadable {
            file: name(),
            error,
        };
        let len = std::fs::metadata(file).map_err(unreadable)?.len();
        if len > CREDENTIALS_BYTES_MAX {
            return Err(failed("longer than 64 KiB; is it a file with credentials?"));
        }
        let text = std::fs::read(file).map_err(unreadable)?;
        let keys = Keys::parse(&String::from_utf8_lossy(&text));
        match keys.id.is_some() && keys.secret.is_some() {
            true => Ok(keys),
            false => Err(failed(
                "lines aws_access_key_id = ... and aws_secret_access_key = ... are missing",
            )),
        }
    }

    /// Lines `name = value`, before any section or in `[default]`, as ~/.aws/credentials has them; in capitals too, as in a file
    /// of variables.
    fn parse(text: &str) -> Keys {
        let mut keys = Keys::default();
        let mut ours = true;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                ours = line == "[default]";
            }
            let Some((name, value)) = line.split_once('=').filter(|_| ours) else {
                continue;
            };
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim().to_ascii_lowercase().as_str() {
                "aws_access_key_id" => keys.id = value,
                "aws_secret_access_key" => keys.secret = value,
                "aws_session_token" => keys.token = value,
                _ => {}
            }
        }
        keys
    }

    fn credentials(self) -> Result<Option<Credentials>, AccessError> {
        let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        match (self.id, self.secret, self.token) {
            (None, None, _) => Ok(None),
            (Some(_), None, _) => Err(AccessError::Half(id, secret)),
            (None, Some(_), _) => Err(AccessError::Half(secret, id)),
            (Some(id), Some(secret), None) => Ok(Some(Credentials::new(id, secret))),
            (Some(id), Some(secret), Some(token)) => {
                Ok(Some(Credentials::new_with_token(id, secret, token)))
            }
        }
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
