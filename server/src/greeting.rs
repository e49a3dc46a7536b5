//! What the server says when it is ready: where it is reached, how the files will be read, and what
//! this kernel lacks.

use std::io::Write;

use ackpace_core::conn::Oracle;
use ackpace_core::limits::{READS_IN_FLIGHT_MAX, WINDOW_BYTES};
use ackpace_core::units::MIB;

use crate::front::site::Site;
use crate::options::{Listen, ServeOptions};

/// Prints it on standard output, where nobody may be listening.
pub fn print(options: &ServeOptions, site: &Site, urls: &[String]) {
    let mut out = std::io::stdout().lock();
    for line in lines(options, site, urls) {
        if writeln!(out, "{line}").is_err() {
            return;
        }
    }
    let _ = out.flush();
}

fn lines(options: &ServeOptions, site: &Site, urls: &[String]) -> Vec<String> {
    let served = site.shown(site.root.only().unwrap_or_default());
    let served = if served.len() > 1 {
        served.trim_end_matches('/')
    } else {
        &served
    };
    let mut lines: Vec<String> = options
        .listen
        .iter()
        .zip(urls)
        .map(|(listen, url)| format!("serving {served} at {url}{}", reach(listen)))
        .collect();
    let (how, lost) = reading(site);
    lines.push(format!("reading {}: {how}", site.root.path().display()));
    lines.extend(lost);
    lines
}

fn reach(listen: &Listen) -> String {
    match listen {
        Listen::Tcp { addr, .. } if addr.ip().is_loopback() => {
            format!(" (this machine only; --listen :{} for all)", addr.port())
        }
        Listen::Tcp { all: true, .. } => " (and at every other address of this machine)".to_owned(),
        Listen::Tcp { .. } | Listen::Unix(_) | Listen::Fd(_) => String::new(),
    }
}

/// How the root is read, and the line for each lost kernel feature with its cause and cure.
fn reading(site: &Site) -> (String, Option<String>) {
    let cold = format!(
        "cold windows of {} MiB by the disk thread, {READS_IN_FLIGHT_MAX} at once",
        WINDOW_BYTES / MIB
    );
    let probe = match site.root.only() {
        Some(name) => rustix::fs::openat(
            site.root.dir(),
            name,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        ),
        None => rustix::fs::openat(
            site.root.dir(),
            ".",
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        ),
    };
    let Ok(probe) = probe else {
        return (cold, None);
    };
    let Ok(stat) = rustix::fs::fstat(&probe) else {
        return (cold, None);
    };
    let device = site.devices.of(&probe, stat.st_dev);
    if device.memory {
        return ("from memory (tmpfs), by sendfile".to_owned(), None);
    }
    let span = ackpace_core::conn::Span {
        offset_bytes: 0,
        len_bytes: 1,
    };
    match (
        device.oracle(&probe),
        crate::store::residency::cached_pages(&probe, span),
    ) {
        (Oracle::Ask | Oracle::Always, _) | (_, Ok(_)) => (
            format!("cached windows by sendfile, {cold}; cachestat(2) tells which"),
            None,
        ),
        (Oracle::Remember, Err(error)) => {
            let lost = match error {
                rustix::io::Errno::PERM => "lost: cachestat(2) is refused since the files belong to another user; run as \
                     their owner or with CAP_FOWNER. Until then each window is read once through the disk thread"
                    .to_owned(),
                error => format!(
                    "lost: cachestat(2): {error}; it needs Linux 6.5 and a seccomp profile that allows it. Until then each \
                     window is read once through the disk thread"
                ),
            };
            (
                format!("windows that were read before by sendfile, {cold}"),
                Some(lost),
            )
        }
    }
}
