//! Whose sockets are tuned: by local port, by local address, by cgroup. A socket has to fit each kind that is given.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What was given; all empty: every socket of the network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matching {
    /// Local ports.
    pub ports: Vec<u16>,
    /// Prefixes of local addresses.
    pub prefixes: Vec<Prefix>,
    /// A cgroup, with all below it.
    pub cgroup: Option<PathBuf>,
}

/// All of IPv4.
const IPV4: Prefix = Prefix {
    bits: 96,
    octets: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0],
};

impl Matching {
    /// Prefixes, and whether an address matches whose longest prefix that is. A prefix of IPv6 means no IPv4 address.
    pub fn longest_prefixes(&self) -> Vec<(Prefix, bool)> {
        let mut all: Vec<(Prefix, bool)> = self.prefixes.iter().map(|it| (*it, true)).collect();
        if !all.is_empty() && !self.prefixes.contains(&IPV4) {
            all.push((IPV4, false));
        }
        all
    }
}

/// A prefix of addresses; IPv4 as `::ffff:0:0/96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// Leading bits that count.
    pub bits: u32,
    /// The address.
    pub octets: [u8; 16],
}

impl FromStr for Prefix {
    type Err = String;

    /// `10.1.2.3`, `10.0.0.0/8`, `2001:db8::/32`.
    fn from_str(text: &str) -> Result<Prefix, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("{text}: not an address, such as 10.0.0.0/8 or 2001:db8::1"))?;
        let (octets, before, most): (Ipv6Addr, u32, u32) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 96, 32),
            IpAddr::V6(v6) => (v6, 0, 128),
        };
        let bits = bits.map_or(Ok(most), |bits| {
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            bits.ok_or_else(|| format!("{text}: a prefix of this kind has 0 to {most} bits"))
        })?;
        let mask = u128::MAX.checked_shl(128 - before - bits).unwrap_or(0);
        Ok(Prefix {
            bits: before + bits,
            octets: (octets.to_bits() & mask).to_be_bytes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_ipv6_means_no_ipv4_address() {
        let of = |text: &str| Matching {
            prefixes: text.split(' ').map(|it| it.parse().expect(it)).collect(),
            ..Matching::default()
        };
        assert_eq!(Matching::default().longest_prefixes(), []);
        let any = of("::/0").longest_prefixes();
        assert_eq!((any.len(), any[1]), (2, (IPV4, false)));
        let both = of("::/0 0.0.0.0/0").longest_prefixes();
        assert!(both.iter().all(|(_, matches)| *matches), "{both:?}");
    }

    #[test]
    fn prefixes_are_read_and_wrong_ones_named() {
        for (text, bits, first, last) in [
            ("10.1.0.0/16", 112, 0, 0),
            ("10.1.2.3/16", 112, 0, 0),
            ("10.1.2.3/0", 96, 0, 0),
            ("2001:db8::7/0", 0, 0, 0),
            ("10.1.2.3", 128, 0, 3),
            ("0.0.0.0/0", 96, 0, 0),
            ("2001:db8::7", 128, 0x20, 7),
            ("2001:db8::/32", 32, 0x20, 0),
        ] {
            let prefix: Prefix = text.parse().expect(text);
            assert_eq!(
                (prefix.bits, prefix.octets[0], prefix.octets[15]),
                (bits, first, last),
                "{text}"
            );
        }
        for text in ["", "10.1", "10.1.2.3/33", "::1/129", "::1/x", "host"] {
            let error = text.parse::<Prefix>().expect_err(text);
            assert!(error.starts_with(text), "{error}");
        }
    }
}
