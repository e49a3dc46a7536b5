//! Validates a host with an optional port (RFC 9110 section 7.2, RFC 3986 section 3.2.2).

use std::net::Ipv6Addr;

/// True for `host` and `host:port`, where host is a name, an IPv4 address or a bracketed IP literal.
///
/// Narrower than the grammar where the rest would only help attackers: no empty host (RFC 9110 section 4.2.1),
/// no empty label, no user information (section 4.2.4), and no port above 65535.
pub fn is_valid(text: &[u8]) -> bool {
    if let Some(rest) = text.strip_prefix(b"[") {
        let Some(end) = rest.iter().position(|&byte| byte == b']') else {
            return false;
        };
        return is_literal(&rest[..end]) && is_port_suffix(&rest[end + 1..]);
    }
    let end = text.iter().position(|&b| b == b':').unwrap_or(text.len());
    is_name(&text[..end]) && is_port_suffix(&text[end..])
}

/// True if [`is_valid`] holds and a port is given: the only form that CONNECT accepts (RFC 9112 section 3.2.3).
pub fn is_valid_with_port(text: &[u8]) -> bool {
    is_valid(text) && text.last().is_some_and(u8::is_ascii_digit) && {
        let after_literal = text.iter().rposition(|&b| b == b']').map_or(0, |at| at + 1);
        text[after_literal..].contains(&b':')
    }
}

/// Nothing, a lone colon (RFC 3986 allows it), or a colon and a port.
fn is_port_suffix(text: &[u8]) -> bool {
    let Some(digits) = text.strip_prefix(b":") else {
        return text.is_empty();
    };
    digits.len() <= 5
        && digits.iter().all(u8::is_ascii_digit)
        && digits
            .iter()
            .fold(0u32, |port, digit| port * 10 + u32::from(digit - b'0'))
            <= 65535
}

/// A registered name or an IPv4 address. It may end in one dot; two dots may not touch.
fn is_name(text: &[u8]) -> bool {
    let labels = text.strip_suffix(b".").unwrap_or(text);
    !labels.is_empty()
        && labels
            .split(|&b| b == b'.')
            .all(|label| !label.is_empty() && is_pct_encoded_or(label, is_name_byte))
}

/// The text between the brackets: an IPv6 address, checked by its alphabet only, or `v1.future`.
fn is_literal(text: &[u8]) -> bool {
    if let [b'v' | b'V', rest @ ..] = text {
        let Some(dot) = rest.iter().position(|&b| b == b'.') else {
            return false;
        };
        let (version, address) = (&rest[..dot], &rest[dot + 1..]);
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && !address.is_empty()
            && address.iter().all(|&b| is_name_byte(b) || b == b':');
    }
    // Some clients send the zone of a link-local address, `%eth0` or `%25eth0` (RFC 6874), which means nothing here.
    let at = text.iter().position(|&b| b == b'%').unwrap_or(text.len());
    let (address, zone) = text.split_at(at);
    let is_address =
        std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    is_address && (zone.is_empty() || zone.len() > 1 && zone[1..].iter().all(|&b| is_name_byte(b)))
}

/// unreserved / sub-delims (RFC 3986 section 2), without the dot, which separates labels.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_~!$&'()*+,;=.".contains(&byte)
}

fn is_pct_encoded_or(text: &[u8], allowed: fn(u8) -> bool) -> bool {
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match (byte, tail) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                after
            }
            _ if allowed(byte) => tail,
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{is_valid, is_valid_with_port};

    #[test]
    fn names_addresses_and_ports_are_hosts() {
        for host in [
            "l",
            "L.example.com",
            "example.com:",
            "example.com.:88",
            "host_with_underscore",
            "a%20b",
            "127.0.0.1",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:8080",
            "[::ffff:12.30.67.89]:1",
            "[v1F.a:b!$]",
            "[fe80::1%eth0]:8080",
            "[fe80::1%25eth0]",
        ] {
            assert!(is_valid(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for host in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "a\\b",
            "user@host",
            "a:1.2",
            "a:65536",
            "a:123456",
            "a:1:2",
            "a%2",
            "a%zz",
            "[::1",
            "[fe80::1%]",
            "[fe80::1%a b]",
            "[%eth0]",
            "[::1].",
            "[::1]x",
            "[]",
            "[v.a]",
            "[v1.]",
            "[1::2::3]",
            "x[::1]",
            "a,b c",
            "\u{e4}",
            "a#",
            "a?b",
        ] {
            assert!(!is_valid(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn connect_needs_a_port() {
        assert!(is_valid_with_port(b"localhost:8080"));
        assert!(is_valid_with_port(b"[::1]:1"));
        for target in ["localhost", "localhost:", "/", "[::1]", "*"] {
            assert!(!is_valid_with_port(target.as_bytes()), "{target}");
        }
    }
}
