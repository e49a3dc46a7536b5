//! `ackpace doctor`: what this kernel and these rights allow the server, what is lost, and how to get it.

use std::fmt::Write;
use std::fs::{self, File};

use ackpace_core::conn::Span;

use crate::greeting;
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
    format!(
        "ok: congestion control {}; allowed: {}",
        read("tcp_congestion_control").trim(),
        read("tcp_allowed_congestion_control").trim()
    )
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
