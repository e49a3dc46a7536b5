//! Addresses to listen on, in the forms that people type.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::value::{ValueError, shown, shown_path};

/// Longest path of a unix socket: `sun_path` with its closing NUL (unix(7)).
const UNIX_PATH_LEN_BYTES: usize = 107;
/// Longest name of a network interface: IFNAMSIZ of linux/if.h without its closing NUL.
const INTERFACE_LEN_BYTES: usize = 15;

/// An address to accept connections on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address.
    Tcp {
        /// Address and port; port 0 lets the kernel choose.
        addr: SocketAddr,
        /// Every address of the machine: `addr` is `[::]` and takes IPv4 too (IPV6_V6ONLY off, ipv6(7)). Where IPv6 is
        /// missing, `0.0.0.0` takes its place.
        all: bool,
        /// The interface of a link-local address, if it is given by name. Its number is asked for at the start; one that
        /// is given by number stands in `addr`.
        zone: Option<String>,
    },
    Unix(PathBuf),
    /// A listening socket that was inherited under this number.
    Fd(RawFd),
}

impl Listen {
    /// This machine only, at `port`.
    pub fn local(port: u16) -> Self {
        let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        Self::at(addr)
    }

    /// Just this address.
    pub fn at(addr: SocketAddr) -> Self {
        Self::Tcp {
            addr,
            all: false,
            zone: None,
        }
    }

    /// Reads the value of `--port`: this machine only, at that port.
    pub fn port(text: &str) -> Result<Self, ValueError> {
        match text.parse() {
            Ok(port) if is_number(text) => Ok(Self::local(port)),
            _ => Err(ValueError::new(format!(
                "{} is not a port: 0 to 65535",
                shown(text)
            ))),
        }
    }

    /// Reads `8080`, `:8080`, `1.2.3.4:80`, `[::]:8080`, `[fe80::1%eth0]:80`, `localhost:8080`, `unix:PATH` or `fd:3`. A
    /// path need not be UTF-8.
    pub fn parse(text: &OsStr) -> Result<Self, ValueError> {
        if let Some(path) = text.as_bytes().strip_prefix(b"unix:") {
            return unix(OsStr::from_bytes(path));
        }
        let text = text
            .to_str()
            .ok_or_else(|| unknown(&text.to_string_lossy()))?;
        if let Some(number) = text.strip_prefix("fd:") {
            return match number.parse() {
                Ok(fd @ 3..=65_535) if is_number(number) => Ok(Self::Fd(fd)),
                _ => Err(ValueError::new(format!(
                    "{} is not an inherited socket: write fd:3 to fd:65535",
                    shown(text)
                ))),
            };
        }
        if is_number(text) {
            return Ok(Self::local(port(text, text)?));
        }
        if let Some(number) = text.strip_prefix(':').filter(|rest| is_number(rest)) {
            let addr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port(number, text)?);
            let (all, zone) = (true, None);
            return Ok(Self::Tcp { addr, all, zone });
        }
        if let Some(number) = text
            .strip_prefix("localhost:")
            .filter(|rest| is_number(rest))
        {
            return Ok(Self::local(port(number, text)?));
        }
        match text.parse() {
            Ok(addr) => Ok(Self::at(addr)),
            Err(_) => zoned(text).ok_or_else(|| mistaken(text)),
        }
    }

    /// The same of TCP addresses only.
    pub fn parse_tcp(text: OsString) -> Result<Self, ValueError> {
        match Listen::parse(&text)? {
            listen @ Listen::Tcp { .. } => Ok(listen),
            Listen::Unix(_) | Listen::Fd(_) => Err(ValueError::new(format!(
                "{} is no TCP address, such as :2049",
                shown(&text.to_string_lossy())
            ))),
        }
    }

    /// Whether a socket at this place takes the address of `other`, too: `:8080` that of `127.0.0.1:8080`.
    pub fn takes(&self, other: &Listen) -> bool {
        let Self::Tcp { addr, all, zone } = self else {
            return self == other;
        };
        let Self::Tcp {
            addr: other,
            zone: others,
            ..
        } = other
        else {
            return false;
        };
        let same_family = addr.is_ipv4() == other.is_ipv4();
        // Port 0 asks for a different port each time.
        addr.port() != 0
            && addr.port() == other.port()
            && (*all
                || (addr, zone) == (other, others)
                || addr.ip().is_unspecified() && same_family)
    }

    /// The form that [`Listen::parse`] reads back to the same value.
    pub fn to_os_string(&self) -> OsString {
        match self {
            Self::Tcp {
                addr, all: true, ..
            } => format!(":{}", addr.port()).into(),
            Self::Tcp {
                addr,
                zone: Some(zone),
                ..
            } => format!("[{}%{zone}]:{}", addr.ip(), addr.port()).into(),
            Self::Tcp { addr, .. } => addr.to_string().into(),
            Self::Unix(path) => {
                let mut text = OsString::from("unix:");
                text.push(path);
                text
            }
            Self::Fd(fd) => format!("fd:{fd}").into(),
        }
    }
}

/// As it may be put into a message; [`Listen::to_os_string`] is the value itself.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", shown_path(path)),
            other => f.write_str(&other.to_os_string().to_string_lossy()),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn port(number: &str, text: &str) -> Result<u16, ValueError> {
    number
        .parse()
        .map_err(|_| ValueError::new(format!("{} has no valid port: 0 to 65535", shown(text))))
}

/// `[fe80::1%eth0]:80`: an address whose zone is the name of an interface.
fn zoned(text: &str) -> Option<Listen> {
    let (host, rest) = text.split_once('%')?;
    let (zone, port) = rest.split_once(']')?;
    let is_good = |byte: u8| byte.is_ascii_graphic() && !b"/:%".contains(&byte);
    if !(1..=INTERFACE_LEN_BYTES).contains(&zone.len()) || !zone.bytes().all(is_good) {
        return None;
    }
    let addr = format!("{host}]{port}").parse().ok()?;
    let (all, zone) = (false, Some(zone.to_owned()));
    Some(Listen::Tcp { addr, all, zone })
}

fn unix(path: &OsStr) -> Result<Listen, ValueError> {
    let shown_path = shown(&path.to_string_lossy());
    if path.is_empty() || path.as_bytes().contains(&0) {
        return Err(ValueError::new(format!(
            "unix:{shown_path} names no socket: write unix:/run/ackpace.sock"
        )));
    }
    if path.as_bytes().starts_with(b"@") {
        return Err(ValueError::new(format!(
            "unix:{shown_path} is an abstract socket elsewhere, which no user's rights protect; write a path, such as unix:/run/ackpace.sock \
             (or unix:./{shown_path})"
        )));
    }
    if path.len() > UNIX_PATH_LEN_BYTES {
        return Err(ValueError::new(format!(
            "unix:{shown_path} has {} bytes in its path: a unix socket can have {UNIX_PATH_LEN_BYTES}",
            path.len()
        )));
    }
    Ok(Listen::Unix(PathBuf::from(path)))
}

fn unknown(text: &str) -> ValueError {
    ValueError::new(format!(
        "{} is not an address: write 8080, :8080, 192.0.2.1:80, [::]:8080, unix:PATH or fd:3",
        shown(text)
    ))
}

/// The error for a text that is no address, with the address that was probably meant.
fn mistaken(text: &str) -> ValueError {
    let meant = if let Ok(ip) = text.parse::<IpAddr>() {
        SocketAddr::new(ip, 8080).to_string()
    } else if text == "localhost" {
        "localhost:8080".to_owned()
    } else if let Some(rest) = text.strip_prefix("*:").filter(|rest| is_number(rest)) {
        format!(":{rest}")
    } else if let Some((host, digits)) = text.rsplit_once(':').filter(|(_, n)| is_number(n)) {
        if host.parse::<IpAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        {
            return ValueError::new(format!("{} has no valid port: 0 to 65535", shown(text)));
        }
        let named = host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            && host.bytes().any(|b| b.is_ascii_alphabetic());
        if named {
            return ValueError::new(format!(
                "{} has a name in it, and names are not looked up: write an address, such as 192.0.2.1:{digits}",
                shown(text)
            ));
        }
        return unknown(text);
    } else {
        return unknown(text);
    };
    ValueError::new(format!(
        "{} is not an address: did you mean {meant}?",
        shown(text)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Listen, String> {
        Listen::parse(OsStr::new(text)).map_err(|e| e.to_string())
    }

    fn tcp(addr: &str) -> Result<Listen, String> {
        Ok(Listen::at(addr.parse().unwrap()))
    }

    #[test]
    fn where_tcp_is_needed_nothing_else_is_taken() {
        assert!(matches!(
            Listen::parse_tcp(":2049".into()),
            Ok(Listen::Tcp { all: true, .. })
        ));
        for wrong in ["unix:/run/nfs", "fd:3", "host"] {
            assert!(Listen::parse_tcp(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bare_port_is_for_this_machine_only() {
        assert_eq!(parse("8080"), tcp("127.0.0.1:8080"));
        assert_eq!(parse("0"), tcp("127.0.0.1:0"));
        assert_eq!(parse("65535"), tcp("127.0.0.1:65535"));
        assert_eq!(parse("localhost:80"), tcp("127.0.0.1:80"));
    }

    #[test]
    fn a_port_is_a_number_and_nothing_else() {
        let port = |text| Listen::port(text).map_err(|e| e.to_string());
        assert_eq!(port("0"), tcp("127.0.0.1:0"));
        assert_eq!(port("65535"), tcp("127.0.0.1:65535"));
        for bad in ["65536", "-1", "+80", ":80", "http"] {
            assert_eq!(port(bad), Err(format!("{bad} is not a port: 0 to 65535")));
        }
    }

    #[test]
    fn a_colon_and_a_port_is_for_all() {
        let addr = "[::]:8080".parse().unwrap();
        let (all, zone) = (true, None);
        assert_eq!(parse(":8080"), Ok(Listen::Tcp { addr, all, zone }));
        assert_eq!(parse("[::]:8080"), tcp("[::]:8080"));
        assert_eq!(parse("0.0.0.0:8080"), tcp("0.0.0.0:8080"));
    }

    #[test]
    fn addresses_sockets_and_descriptors_are_read() {
        assert_eq!(parse("1.2.3.4:80"), tcp("1.2.3.4:80"));
        assert_eq!(parse("[fe80::1%2]:80"), tcp("[fe80::1%2]:80"));
        assert_eq!(
            parse("unix:/run/a b.sock"),
            Ok(Listen::Unix("/run/a b.sock".into()))
        );
        assert_eq!(parse("unix:8080"), Ok(Listen::Unix("8080".into())));
        assert_eq!(parse("fd:3"), Ok(Listen::Fd(3)));
        assert_eq!(parse("fd:65535"), Ok(Listen::Fd(65_535)));
        let raw = OsStr::from_bytes(b"unix:/run/\xff");
        assert_eq!(Listen::parse(raw).unwrap().to_os_string(), raw);
    }

    #[test]
    fn a_link_local_address_has_a_zone_by_name_or_by_number() {
        let read = |text: &str| parse(text).map(|listen| listen.to_string());
        for text in [
            "[fe80::1%eth0]:80",
            "[fe80::1%wlp2s0.100-a]:0",
            "[fe80::1%3]:80",
        ] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        let too_long = format!("[fe80::1%{}]:80", "e".repeat(16));
        for bad in [
            "[fe80::1%]:80",
            "[fe80::1%eth0]",
            "[fe80::1%a b]:80",
            "[fe80::1%a/b]:80",
            "192.0.2.1%eth0:80",
            "fe80::1%eth0",
            &too_long,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let takes = |one: &str, other: &str| parse(one).unwrap().takes(&parse(other).unwrap());
        assert!(!takes("[fe80::1%a]:80", "[fe80::1%b]:80"));
        assert!(takes("[fe80::1%a]:80", "[fe80::1%a]:80") && takes(":80", "[fe80::1%a]:80"));
    }

    #[test]
    fn what_is_no_address_is_explained() {
        let err = |text: &str| parse(text).unwrap_err();
        let forms = "write 8080, :8080, 192.0.2.1:80, [::]:8080, unix:PATH or fd:3";
        for bad in ["http", "-1", "1.2.3", "http://x:80/", ":http", "8080 "] {
            assert_eq!(err(bad), format!("{bad} is not an address: {forms}"));
        }
        assert_eq!(err(""), format!("\"\" is not an address: {forms}"));
        assert_eq!(err("65536"), "65536 has no valid port: 0 to 65535");
        assert_eq!(err(":65536"), ":65536 has no valid port: 0 to 65535");
        assert_eq!(
            err("1.2.3.4:65536"),
            "1.2.3.4:65536 has no valid port: 0 to 65535"
        );
        assert_eq!(
            err("[::1]:65536"),
            "[::1]:65536 has no valid port: 0 to 65535"
        );
        assert_eq!(
            err("1.2.3.4"),
            "1.2.3.4 is not an address: did you mean 1.2.3.4:8080?"
        );
        assert_eq!(
            err("::1"),
            "::1 is not an address: did you mean [::1]:8080?"
        );
        assert_eq!(
            err("localhost"),
            "localhost is not an address: did you mean localhost:8080?"
        );
        assert_eq!(err("*:80"), "*:80 is not an address: did you mean :80?");
        assert_eq!(
            err("files.example.org:80"),
            "files.example.org:80 has a name in it, and names are not looked up: write an address, such as 192.0.2.1:80"
        );
    }

    #[test]
    fn a_place_for_all_addresses_takes_each_of_them() {
        let takes = |one: &str, other: &str| parse(one).unwrap().takes(&parse(other).unwrap());
        for one in [":80", "0.0.0.0:80", "127.0.0.1:80"] {
            assert!(takes(one, "127.0.0.1:80"), "{one}");
            assert!(!takes(one, "127.0.0.1:81"), "{one}");
        }
        assert!(
            takes(":80", "[::]:80") && takes(":80", "[::1]:80") && takes("[::]:80", "[::1]:80")
        );
        assert!(!takes("[::]:80", "127.0.0.1:80") && !takes("0.0.0.0:80", "[::1]:80"));
        assert!(!takes("127.0.0.1:80", ":80") && !takes(":0", ":0"));
        assert!(takes("unix:/a", "unix:/a") && !takes("unix:/a", "unix:/b"));
    }

    #[test]
    fn sockets_and_descriptors_have_bounds() {
        let err = |text: &str| parse(text).unwrap_err();
        for bad in ["fd:", "fd:2", "fd:-1", "fd:+3", "fd:65536", "fd:x"] {
            let expected = format!("{bad} is not an inherited socket: write fd:3 to fd:65535");
            assert_eq!(err(bad), expected);
        }
        assert_eq!(
            err("unix:"),
            "unix:\"\" names no socket: write unix:/run/ackpace.sock"
        );
        assert!(
            err("unix:@name")
                .contains("write a path, such as unix:/run/ackpace.sock (or unix:./@name)")
        );
        assert_eq!(parse("unix:./@name"), Ok(Listen::Unix("./@name".into())));
        assert!(parse(&format!("unix:{}", "s".repeat(107))).is_ok());
        assert_eq!(
            err(&format!("unix:{}", "s".repeat(108))),
            format!(
                "unix:{}… has 108 bytes in its path: a unix socket can have 107",
                "s".repeat(60)
            )
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn what_is_printed_reads_back_the_same(v4: u32, v6: u128, port: u16, fd in 3i32..65_536, path in "[^\0@][^\0]{0,19}", zone in "[a-z][a-z0-9.@-]{0,14}") {
            let v4 = SocketAddr::new(IpAddr::V4(v4.into()), port);
            let v6 = SocketAddr::new(IpAddr::V6(v6.into()), port);
            let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
            for listen in [
                Listen::at(v4),
                Listen::at(v6),
                Listen::Tcp { addr: any, all: true, zone: None },
                Listen::Tcp { addr: v6, all: false, zone: Some(zone) },
                Listen::Fd(fd),
                Listen::Unix(path.clone().into()),
            ] {
                prop_assert_eq!(Listen::parse(&listen.to_os_string()), Ok(listen));
            }
        }
    }
}
