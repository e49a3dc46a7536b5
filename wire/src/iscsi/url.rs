//! The address of a disk: `iscsi://HOST[:PORT]/NAME/LUN`.

use std::fmt;
use std::net::Ipv6Addr;

use crate::limits::{ISCSI_LUN_MAX, ISCSI_NAME_BYTES_MAX};

/// The port of targets (RFC 7143 section 14).
pub const PORT: u16 = 3260;
/// Bytes of a host's name in DNS. Longer: it is refused.
const HOST_BYTES_MAX: usize = 253;

/// A logical unit of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an address; that of IPv6 without its brackets.
    pub host: String,
    /// The port, [`PORT`] where none is named.
    pub port: u16,
    /// The target's name in lower case: `iqn.2003-01.org.example:disk`, or of the form eui. or naa.
    pub target: String,
    /// The number of the logical unit, at most [`ISCSI_LUN_MAX`].
    pub lun: u16,
}

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It does not begin with `iscsi://`.
    Scheme,
    /// There is an `@` in front of the host.
    Credentials,
    /// The host is missing or malformed.
    Host,
    /// The port is no number from 1 to 65535.
    Port,
    /// It is not host, name and number.
    Parts,
    /// The name is none of a target.
    Name,
    /// The number of the logical unit.
    Lun,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressError::Scheme => "it does not begin with iscsi://; write iscsi://HOST/NAME/LUN",
            AddressError::Credentials => "credentials don't belong in an address; put the secret into a file",
            AddressError::Host => "the host is no name and no address; that of IPv6 stands in brackets",
            AddressError::Port => "the port is not a number from 1 to 65535",
            AddressError::Parts => "it needs three parts: iscsi://HOST/NAME/LUN",
            AddressError::Name => "the target's name does not begin with iqn., eui. or naa., is longer than 223 bytes, or has \
                other signs than letters, digits, '.', '-' and ':'",
            AddressError::Lun => "the logical unit is not a number from 0 to 16383",
        })
    }
}

impl std::error::Error for AddressError {}

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        const SCHEME: &str = "iscsi://";
        let begins = text.get(..SCHEME.len());
        if !begins.is_some_and(|begins| begins.eq_ignore_ascii_case(SCHEME)) {
            return Err(AddressError::Scheme);
        }
        let (portal, path) = text[SCHEME.len()..]
            .split_once('/')
            .ok_or(AddressError::Parts)?;
        if portal.contains('@') {
            return Err(AddressError::Credentials);
        }
        let (host, port) = host_and_port(portal)?;
        let (target, lun) = path.split_once('/').ok_or(AddressError::Parts)?;
        Ok(Address {
            host: host.to_owned(),
            port,
            target: target_name(target)?,
            lun: number(lun)
                .filter(|lun| *lun <= ISCSI_LUN_MAX)
                .ok_or(AddressError::Lun)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iscsi://")?;
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        write!(f, "/{}/{}", self.target, self.lun)
    }
}

/// The host, without brackets, and the port of `HOST[:PORT]`.
pub(super) fn host_and_port(portal: &str) -> Result<(&str, u16), AddressError> {
    let (host, behind) = match portal.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or(AddressError::Host)?;
            host.parse::<Ipv6Addr>().map_err(|_| AddressError::Host)?;
            (host, behind)
        }
        None => {
            let (host, behind) = portal.split_at(portal.find(':').unwrap_or(portal.len()));
            let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let is_host = (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(may_stand);
            is_host
                .then_some((host, behind))
                .ok_or(AddressError::Host)?
        }
    };
    let port = match behind.strip_prefix(':') {
        None if behind.is_empty() => PORT,
        None => return Err(AddressError::Host),
        Some(port) => number(port)
            .filter(|port| *port > 0)
            .ok_or(AddressError::Port)?,
    };
    Ok((host, port))
}

/// A target's name in lower case. Other letters than those of ASCII, which RFC 3722 allows, are refused: they would need
/// tables of Unicode.
fn target_name(name: &str) -> Result<String, AddressError> {
    let name = name.to_ascii_lowercase();
    let has_kind = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| name.starts_with(kind));
    let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    let is_name = has_kind && name.len() > 4 && name.len() <= ISCSI_NAME_BYTES_MAX;
    match is_name && name.bytes().all(may_stand) {
        true => Ok(name),
        false => Err(AddressError::Name),
    }
}

/// A number in digits alone.
fn number(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read() {
        for (text, host, port, lun) in [
            (
                "iscsi://10.0.0.1/iqn.2026-01.org.example:disk/1",
                "10.0.0.1",
                3260,
                1,
            ),
            (
                "ISCSI://san.example:860/iqn.2026-01.org.example:disk/0",
                "san.example",
                860,
                0,
            ),
            (
                "iscsi://[fd00::1]:3261/IQN.2026-01.org.example:DISK/16383",
                "fd00::1",
                3261,
                16383,
            ),
            (
                "iscsi://[::1]/iqn.2026-01.org.example:disk/007",
                "::1",
                3260,
                7,
            ),
        ] {
            let address: Address = text.parse().expect(text);
            let target = "iqn.2026-01.org.example:disk".to_owned();
            let host = host.to_owned();
            assert_eq!(
                address,
                Address {
                    host,
                    port,
                    target,
                    lun
                },
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        use AddressError::{Credentials, Host, Lun, Name, Parts, Port, Scheme};
        for (text, error) in [
            ("", Scheme),
            ("http://a/iqn.a/1", Scheme),
            ("iscsi:/é/iqn.a/1", Scheme),
            ("iscsi://a", Parts),
            ("iscsi://a/iqn.a", Parts),
            ("iscsi://u%p@a/iqn.a/1", Credentials),
            ("iscsi:///iqn.a/1", Host),
            ("iscsi://a b/iqn.a/1", Host),
            ("iscsi://[::1/iqn.a/1", Host),
            ("iscsi://[1.2.3.4]/iqn.a/1", Host),
            ("iscsi://[::1]1/iqn.a/1", Host),
            ("iscsi://a:/iqn.a/1", Port),
            ("iscsi://a:0/iqn.a/1", Port),
            ("iscsi://a:65536/iqn.a/1", Port),
            ("iscsi://a:+1/iqn.a/1", Port),
            ("iscsi://a/disk/1", Name),
            ("iscsi://a/iqn./1", Name),
            ("iscsi://a/iqn.a b/1", Name),
            ("iscsi://a/iqn.a/", Lun),
            ("iscsi://a/iqn.a/-1", Lun),
            ("iscsi://a/iqn.a/1/2", Lun),
            ("iscsi://a/iqn.a/16384", Lun),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
        let long = format!("iscsi://a/iqn.{}/1", "a".repeat(ISCSI_NAME_BYTES_MAX));
        assert_eq!(long.parse::<Address>(), Err(Name));
    }

    proptest! {
        #[test]
        fn an_address_is_read_as_it_is_written(text in "iscsi://([a-z.]{1,9}|\\[::[0-9a-f]{1,4}\\])(:[1-9][0-9]{0,3})?/iqn\\.[a-z0-9:.-]{1,9}/[0-9]{1,4}") {
            let address: Address = text.parse().expect("an address");
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn no_text_panics(text in "(iscsi://)?\\PC{0,40}") {
            let _ = text.parse::<Address>();
        }
    }
}
