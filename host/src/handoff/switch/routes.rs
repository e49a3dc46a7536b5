//! Which device leads to an address, by the kernel's main table of routes (/proc/net/route, /proc/net/ipv6_route).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const FLAG_UP: u32 = 1;
const FLAG_GATEWAY: u32 = 2;
const FLAG_REJECT: u32 = 0x200;

/// The way to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The name of the device.
    pub device: String,
    /// It leads through a router, so the address is not on this segment.
    pub has_gateway: bool,
}

struct Line {
    to: u128,
    prefix_bits: u32,
    metric: u32,
    route: Route,
}

/// The route to an address, as this thread's network namespace has it; `None`: there is none.
pub fn to(address: IpAddr) -> Option<Route> {
    let read = |name: &str| {
        let path = format!("/proc/thread-self/net/{name}");
        fs::read_to_string(path).unwrap_or_default()
    };
    match address.to_canonical() {
        IpAddr::V4(address) => to_ipv4(&read("route"), address),
        IpAddr::V6(address) => to_ipv6(&read("ipv6_route"), address),
    }
}

/// By the text of /proc/net/route.
pub fn to_ipv4(table: &str, address: Ipv4Addr) -> Option<Route> {
    let lines = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // In the byte order of the machine.
        let word = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let network = |at: usize| word(at).map(|bits| u32::from_be_bytes(bits.to_ne_bytes()));
        Some(Line {
            to: u128::from(network(1)?),
            prefix_bits: network(7)?.leading_ones(),
            metric: fields.get(6)?.parse().ok()?,
            route: route(fields.first()?, word(3)?)?,
        })
    });
    longest(lines, u128::from(u32::from(address)), 32)
}

/// By the text of /proc/net/ipv6_route.
pub fn to_ipv6(table: &str, address: Ipv6Addr) -> Option<Route> {
    let lines = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let word = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        Some(Line {
            to: u128::from_str_radix(fields.first()?, 16).ok()?,
            prefix_bits: word(1)?,
            metric: word(5)?,
            route: route(fields.get(9)?, word(8)?)?,
        })
    });
    longest(lines, u128::from(address), 128)
}

fn route(device: &str, flags: u32) -> Option<Route> {
    let usable = flags & FLAG_UP != 0 && flags & FLAG_REJECT == 0;
    usable.then(|| Route {
        device: device.to_owned(),
        has_gateway: flags & FLAG_GATEWAY != 0,
    })
}

/// The longest prefix wins, then the least metric.
fn longest(lines: impl Iterator<Item = Line>, address: u128, bits: u32) -> Option<Route> {
    let matches = |line: &Line| {
        let rest = bits.saturating_sub(line.prefix_bits);
        rest >= bits || line.to >> rest == address >> rest
    };
    let best = |line: &Line| (line.prefix_bits, u32::MAX - line.metric);
    lines
        .filter(matches)
        .max_by_key(best)
        .map(|line| line.route)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth1\t0001A8C0\t00000000\t0001\t0\t0\t200\t00FFFFFF\t0\t0\t0\n\
        eth2\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
        eth3\t0701A8C0\t00000000\t0201\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
    const IPV6: &str = "fd991000000000000000000000000000 40 00000000000000000000000000000000 00 \
        00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";

    #[test]
    fn the_longest_prefix_wins() {
        let device = |address: &str| {
            let route = match address.parse().expect("an address") {
                IpAddr::V4(address) => to_ipv4(IPV4, address),
                IpAddr::V6(address) => to_ipv6(IPV6, address),
            };
            route.map(|route| (route.device, route.has_gateway))
        };
        let found = |device: &str, has_gateway| Some((device.to_owned(), has_gateway));
        assert_eq!(device("10.0.0.1"), found("eth0", true));
        assert_eq!(
            device("192.168.1.7"),
            found("eth2", false),
            "a lower metric"
        );
        assert_eq!(device("fd99:1000::7"), found("eth1", false));
        assert_eq!(device("fd99:1000:0:1::7"), found("eth0", true));
        assert_eq!(to_ipv4("", Ipv4Addr::LOCALHOST), None);
        assert_eq!(to_ipv6("not a table", Ipv6Addr::LOCALHOST), None);
    }
}
