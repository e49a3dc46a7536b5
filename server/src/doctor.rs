//! `ackpace doctor`: what this kernel and these rights allow a server with this configuration, what is lost, and how to get
//! it.

mod nfs;
mod origins;

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use ackpace_core::conn::Span;
use ackpace_core::units::MIB;

use crate::config::{Layer, Loaded};
use crate::limits::{CGROUP_PERCENT, MACHINE_PERCENT};
use crate::options::{ServeOptions, Size};
use crate::shares::{Shares, descriptors_allowed};
use crate::store::residency::cached_pages;
use crate::store::ring::{self, Ring};
use crate::{greeting, memory, needs, serve, sites};

/// A line for each thing. What a server with these options would refuse, `ackpace check` tells ([`crate::serve::check`]).
pub fn page(loaded: &Loaded) -> String {
    let (options, given) = (&loaded.options, &loaded.given);
    let mut lines = vec![
        kernel(),
        io_uring(),
        cachestat(&options.root),
        congestion_controls(),
    ];
    lines.extend(mounted());
    if let Ok(shares) = serve::divided(options) {
        lines.push(memory(&shares, options, given));
        lines.push(shares.tell_descriptors(given, descriptors_allowed()));
        lines.extend(gateway(&shares, options, given));
    }
    lines.extend(nfs::lines(options));
    lines.push(others());
    lines.into_iter().map(|line| line + "\n").collect()
}

/// What is lost of NFS now and may be there later, so that the server starts without it.
pub fn lost_of_nfs(options: &ServeOptions) -> Vec<String> {
    let lines = nfs::lines(options).into_iter();
    lines.filter(|line| line.starts_with("lost: ")).collect()
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

fn cachestat(root: &Path) -> String {
    let start = Span {
        offset_bytes: 0,
        len_bytes: 1,
    };
    // The root stands for what is below it, as at a start. Without one, our own binary is a file as good as any.
    let open = |path: &Path| {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
    };
    let file = open(root).or_else(|_| open(Path::new("/proc/self/exe")));
    match file.map(|file| cached_pages(&file, start)) {
        Ok(Err(error)) => greeting::lost_cachestat(error),
        _ => "ok: cachestat(2) tells what is in the page cache".to_owned(),
    }
}

fn mounted() -> Vec<String> {
    let lost = needs::lost();
    match lost.is_empty() {
        true => vec!["ok: /proc and /sys are mounted".to_owned()],
        false => lost,
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

fn memory(shares: &Shares, options: &ServeOptions, given: &Layer) -> String {
    if let Some(cost) = shares.cost(options.connections_max, given) {
        return format!("lost: {cost}");
    }
    let of = match options.memory_max {
        Size::Auto if memory::usable().by_cgroup => {
            format!("{CGROUP_PERCENT} % of the cgroup's limit")
        }
        Size::Auto => format!("{MACHINE_PERCENT} % of RAM"),
        given => format!("memory_max = {given}"),
    };
    format!(
        "ok: {} MiB of memory ({of}) are enough for {} connections of a worker",
        shares.memory_bytes / MIB,
        shares.connections_per_worker
    )
}

/// What a gateway needs. Options that make none are told by the check that follows.
fn gateway(shares: &Shares, options: &ServeOptions, given: &Layer) -> Vec<String> {
    if !options.has_origin() {
        return Vec::new();
    }
    let site = sites::site(options, given, shares, &Arc::new(shares.ledger()));
    let gateway = site.ok().and_then(|site| site.gateway);
    gateway.map_or_else(Vec::new, |gateway| origins::lines(&gateway))
}

fn others() -> String {
    "see also: 'ackpace-host doctor', for what it can do for other programs (docs/host-tune.md)"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, CommandLine, Environment};

    #[test]
    fn each_line_says_what_is_there_or_lost() {
        let loaded = config::load(CommandLine::default(), Environment::default());
        for line in page(&loaded.expect("the defaults")).lines() {
            let begins = ["ok: ", "lost: ", "see also: "]
                .iter()
                .any(|word| line.starts_with(word));
            assert!(begins, "{line}");
        }
    }
}
