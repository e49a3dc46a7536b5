//! `ackpace doctor`: what this kernel and these rights allow the server, what is lost, and how to get it.

use std::fmt::Write;
use std::fs::{self, File};

use ackpace_core::conn::Span;

use crate::greeting;
use crate::options::ServeOptions;
use crate::store::residency::cached_pages;
use crate::store::ring::{self, Ring};

/// A line for each thing.
pub fn page() -> String {
    let mut page = String::new();
    for line in [
        kernel(),
        io_uring(),
        cachestat(),
        congestion_controls(),
        descriptors(),
        others(),
    ] {
        let _ = writeln!(page, "{line}");
    }
    page
}

fn kernel() -> String {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release
        .split(|sign: char| !sign.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (5, 14) => {
            format!("lost: Linux {release}: 5.14 or later is supported")
        }
        _ => format!("ok: Linux {release}"),
    }
}

fn io_uring() -> String {
    match Ring::<()>::new(1) {
        Ok(_) => "ok: io_uring reads disks past the page cache".to_owned(),
        Err(error) => ring::refusal(&error),
    }
}

fn cachestat() -> String {
    let start = Span {
        offset_bytes: 0,
        len_bytes: 1,
    };
    // Our own binary is a file as good as any; another user's is refused where those of the site may not be.
    match File::open("/proc/self/exe").map(|file| cached_pages(&file, start)) {
        Ok(Err(error)) => greeting::lost_cachestat(error),
        _ => "ok: cachestat(2) tells what is in the page cache".to_owned(),
    }
}

fn congestion_controls() -> String {
    let read =
        |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let (who, which) = match may_administer_the_net() {
        true => ("available", "tcp_available_congestion_control"),
        false => ("allowed", "tcp_allowed_congestion_control"),
    };
    format!(
        "ok: congestion control {}; {who} to this user: {}",
        read("tcp_congestion_control").trim(),
        read(which).trim()
    )
}

/// Whether the process has CAP_NET_ADMIN, and so every congestion control (tcp_set_congestion_control() in the kernel).
fn may_administer_the_net() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> CAP_NET_ADMIN & 1 == 1)
}

/// By the defaults: `ackpace check` tells it of a configuration.
fn descriptors() -> String {
    let told = crate::serve::tell_descriptors(&ServeOptions::default_values());
    told.unwrap_or_else(|| "lost: memory: not enough for a start with the defaults".to_owned())
}

fn others() -> String {
    "see also: 'ackpace-host doctor', for what it can do for other programs (docs/host-tune.md)"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_what_is_there_or_lost() {
        for line in page().lines() {
            let begins = ["ok: ", "lost: ", "see also: "]
                .iter()
                .any(|word| line.starts_with(word));
            assert!(begins, "{line}");
        }
    }
}
