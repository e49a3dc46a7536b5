//! What a node has to be like for connections to move: looked at by `ackpace-host doctor handoff`, and nothing is changed.
//!
//! Forwarding need not be on, since packets are sent on before the kernel routes them. IPv6 needs no setting like arp_ignore: a
//! node answers only for addresses of the device that is asked.

use std::ffi::CStr;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use ackpace_host_base::failure::Failure;

use super::switch::Settings;
use super::switch::routes;
use super::switch::wires::Device;

const VIP_CURE: &str =
    "ip addr add VIP/32 dev lo (IPv6: VIP/128), on each node, and on no other device";

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub what: &'static str,
    /// What was seen, if it is as it should be; or what was seen instead.
    pub seen: Result<String, String>,
    /// What is lost, if it is not.
    pub lost: &'static str,
    /// How to get it.
    pub cure: &'static str,
}

/// Looks at everything, in this thread's network namespace.
pub fn all(settings: &Settings) -> Vec<Check> {
    let devices = settings.devices();
    let told = match &devices {
        Ok(devices) => Ok(names(devices)),
        Err(why) => Err(why.to_string()),
    };
    let devices = devices.unwrap_or_default();
    let mut checks = vec![Check {
        what: "client-facing devices",
        seen: told,
        lost: "packets of a connection that has moved",
        cure: "ip link set DEVICE up; --device names those that receive clients' packets",
    }];
    checks.extend(settings.vips.iter().map(vip));
    if settings.vips.iter().any(|vip| vip.to_canonical().is_ipv4()) {
        checks.push(quiet_arp(&devices));
    }
    checks.push(reverse_path(&devices));
    checks.push(merged_by_device(&devices));
    let has_ipv6 = settings.vips.iter().any(|vip| vip.to_canonical().is_ipv6());
    checks.extend(
        settings
            .peers
            .iter()
            .map(|address| peer(*address, has_ipv6)),
    );
    checks
}

fn names(devices: &[Device]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
    names.join(", ")
}

/// Whether this node takes packets for a VIP, by an address that nobody on the segment can ask for.
fn vip(vip: &IpAddr) -> Check {
    let vip = vip.to_canonical();
    let on: Vec<String> = addresses()
        .into_iter()
        .filter(|(_, address)| *address == vip)
        .map(|(device, _)| device)
        .collect();
    let seen = match &*on {
        [] => Err(format!("{vip} is on no device")),
        [one] if one == "lo" => Ok(format!("{vip} is on lo")),
        _ => Err(format!("{vip} is on {}", on.join(" and "))),
    };
    Check {
        what: "VIP",
        seen,
        lost: "connections to it; on another device than lo, two nodes answer for it",
        cure: VIP_CURE,
    }
}

/// Whether sockets of this node can have this VIP.
///
/// # Errors
/// They can't: no connection can come to it, nor be restored. What to do.
pub fn takes(vip: IpAddr) -> Result<(), Failure> {
    let bound = UdpSocket::bind((vip.to_canonical(), 0));
    match bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable) {
        // Not for the operator's exit code: at the start of a machine it may come later.
        true => Err(Failure::runtime(format!(
            "{vip} is on no device of this node: {VIP_CURE}"
        ))),
        false => Ok(()),
    }
}

/// Devices and their addresses.
fn addresses() -> Vec<(String, IpAddr)> {
    let mut first = std::ptr::null_mut();
    let mut all = Vec::new();
    // SAFETY: it writes one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return all;
    }
    let mut next = first;
    // SAFETY: each is one of the list, which ends with null and is not freed yet.
    while let Some(one) = unsafe { next.as_ref() } {
        next = one.ifa_next;
        // SAFETY: a name that ends in zero, and an address or null, both of the list.
        let (name, address) = unsafe { (CStr::from_ptr(one.ifa_name), ip(one.ifa_addr)) };
        all.extend(address.map(|address| (name.to_string_lossy().into_owned(), address)));
    }
    // SAFETY: it came from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    all
}

/// # Safety
/// It is null, or an address of the family that it tells.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller says.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let told = &*address.cast::<libc::sockaddr_in>();
                Some(Ipv4Addr::from(told.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let told = &*address.cast::<libc::sockaddr_in6>();
                Some(Ipv6Addr::from(told.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// What the kernel goes by: the higher of that of the device and that of all.
fn setting(device: &str, name: &str) -> u32 {
    let read = |of: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/{name}"));
        text.ok().and_then(|text| text.trim().parse().ok())
    };
    read("all").max(read(device)).unwrap_or(0)
}

/// Whether no device answers for a VIP that is on lo, or asks in its name.
fn quiet_arp(devices: &[Device]) -> Check {
    let is_loud = |device: &&Device| {
        setting(&device.name, "arp_ignore") == 0 || setting(&device.name, "arp_announce") < 2
    };
    let loud: Vec<Device> = devices.iter().filter(is_loud).cloned().collect();
    Check {
        what: "ARP for VIPs",
        seen: if loud.is_empty() {
            Ok("no device answers for an address on lo".to_owned())
        } else {
            Err(format!("{} may answer for an address on lo", names(&loud)))
        },
        lost: "control over which node gets new connections",
        cure: "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
    }
}

/// A guest gets the client's packets from another node's device, which need not be the one that leads to the client.
fn reverse_path(devices: &[Device]) -> Check {
    let strict = |device: &&Device| setting(&device.name, "rp_filter") == 1;
    let strict: Vec<Device> = devices.iter().filter(strict).cloned().collect();
    let seen = match (&*strict, devices.len()) {
        ([], _) => Ok("not strict".to_owned()),
        (_, 1) => Ok("strict, but there is only one device".to_owned()),
        _ => Err(format!("strict on {}", names(&strict))),
    };
    Check {
        what: "rp_filter",
        seen,
        lost: "a client's packets that arrive on another device than the one that leads to it",
        cure: "sysctl -w net.ipv4.conf.all.rp_filter=2 (loose)",
    }
}

/// LRO can't be undone as GRO can, so the kernel must not send on what it has merged.
fn merged_by_device(devices: &[Device]) -> Check {
    let merged: Vec<Device> = devices.iter().filter(|it| has_lro(it)).cloned().collect();
    Check {
        what: "large receive offload",
        seen: if merged.is_empty() {
            Ok("off; GRO may stay on".to_owned())
        } else {
            Err(format!("on at {}", names(&merged)))
        },
        lost: "uploads of connections that have moved",
        cure: "ethtool -K DEVICE lro off",
    }
}

fn has_lro(device: &Device) -> bool {
    // linux/ethtool.h, linux/sockios.h
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETH_FLAG_LRO: u32 = 1 << 15;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else {
        return false;
    };
    let mut value = [ETHTOOL_GFLAGS, 0];
    // SAFETY: plain numbers, for which zeros are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in asked.ifr_name.iter_mut().zip(device.name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    asked.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: it reads the name and writes into the two numbers.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut asked) };
    told == 0 && value[1] & ETH_FLAG_LRO != 0
}

/// Whether packets reach a peer by its MAC.
fn peer(address: IpAddr, has_ipv6: bool) -> Check {
    let address = address.to_canonical();
    let seen = if UdpSocket::bind((address, 0)).is_ok() {
        Err(format!("{address} is this node itself"))
    } else if has_ipv6 && address.is_ipv4() {
        Err(format!("{address} takes no IPv6 clients"))
    } else {
        match routes::to(address) {
            None => Err(format!("no route to {address}")),
            Some(route) if route.has_gateway => {
                Err(format!("{address} is behind a router, by {}", route.device))
            }
            Some(route) => Ok(format!("{address} is on the segment of {}", route.device)),
        }
    };
    Check {
        what: "peer",
        seen,
        lost: "moves to this peer; it is relayed instead",
        cure: "an address of the peer on the same Ethernet segment; an IPv6 address takes clients of both kinds",
    }
}
