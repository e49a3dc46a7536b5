//! The messages of a server that is ready: its addresses, how files will be read, and what this kernel lacks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ackpace_core::conn::{ResidencySource, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::front::site::Site;
use crate::needs;
use crate::options::{EtcdAt, Listen, ServeOptions, shown_path};
use crate::store::closing::Descriptor;
use crate::store::residency::cached_pages;

/// How long a piece of the first lines waits for room in the pipe that is standard output. Longer: nobody reads it, and the rest
/// is left out.
const GREETING_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Prints them on standard output, which may be closed, and what little memory and few descriptors cost. Where nobody reads
/// what is printed, such as after a restart into a pipe that is full, the rest is left out: the server is there for others.
pub fn print(
    options: &ServeOptions,
    site: &Site,
    urls: &[String],
    told: impl IntoIterator<Item = String>,
    cost: impl IntoIterator<Item = String>,
) {
    let lines = lines(options, site, urls).into_iter();
    let lines = lines.chain(cost).chain(cluster(options)).chain(told);
    let text: String = lines.map(|line| line + "\n").collect();
    if write_while_read(&io::stdout(), text.as_bytes()) == Err(Errno::AGAIN) {
        tracing::warn!(
            "standard output is not read: the first lines are left out; have somebody read it"
        );
    }
}

/// Writes `text` in pieces that a pipe which has room takes at once.
/// Errors: EAGAIN: there was no room for `GREETING_WAIT_MAX`. As write(2).
pub fn write_while_read(out: &impl AsFd, text: &[u8]) -> rustix::io::Result<()> {
    let wait_max = Timespec::try_from(GREETING_WAIT_MAX).ok();
    let mut rest = text;
    while !rest.is_empty() {
        let mut polled = [PollFd::new(out, PollFlags::OUT)];
        match poll(&mut polled, wait_max.as_ref()) {
            Ok(0) => return Err(Errno::AGAIN),
            Ok(_) => {}
            Err(Errno::INTR) => continue, // by a signal, which is obeyed soon
            Err(error) => return Err(error),
        }
        match rustix::io::write(out, &rest[..rest.len().min(libc::PIPE_BUF)]) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lines(options: &ServeOptions, site: &Site, urls: &[String]) -> Vec<String> {
    let served = match &site.gateway {
        Some(gateway) => gateway.to_string(),
        None => site.shown(site.root.only().unwrap_or_default()),
    };
    let served = shown_path(Path::new(&served));
    let served = if served.len() > 1 {
        served.trim_end_matches('/')
    } else {
        &served
    };
    let listens = options.listen.iter().zip(urls);
    let mut lines: Vec<String> = listens
        .map(|(listen, url)| format!("serving {served} at {url}{}", reach(listen, url)))
        .collect();
    if let Some(gateway) = &site.gateway {
        lines.push(gateway.keeps());
        lines.extend(gateway.slab.lost().map(str::to_owned));
        lines.extend(needs::lost());
        return lines;
    }
    for (path, dir) in site.root.places() {
        let (how, lost) = reading(site, dir, site.root.only());
        lines.push(format!("reading {}: {how}", shown_path(path)));
        lines.extend(lost.filter(|lost| !lines.contains(lost)));
    }
    lines.extend(needs::lost());
    lines
}

/// Where NFS is served, and how it is mounted.
pub fn nfs(addrs: &[SocketAddr]) -> impl Iterator<Item = String> + '_ {
    addrs.iter().map(|addr| {
        let port = addr.port();
        format!(
            "NFS at {addr} (mount -o vers=3,tcp,nolock,port={port},mountport={port} HOST:/ DIR)"
        )
    })
}

/// Of which cluster this server is a node.
fn cluster(options: &ServeOptions) -> Option<String> {
    let options = &options.cluster;
    let others: Vec<&str> = options.peer.iter().map(|peer| &*peer.name).collect();
    options.is_on().then(|| {
        format!(
            "node {} of a cluster with {}: TLS for them at {}, HTTP at the next port (ackpace cluster status)",
            options.node,
            match &options.cluster_etcd {
                EtcdAt::Off => others.join(", "),
                etcd if others.is_empty() => format!("the nodes that {etcd} lists"),
                etcd => format!("{} and the nodes that {etcd} lists", others.join(", ")),
            },
            options.cluster_listen
        )
    })
}

fn reach(listen: &Listen, url: &str) -> String {
    match listen {
        Listen::Tcp { addr, .. } if addr.ip().is_loopback() => {
            let port = url.rsplit(':').next().unwrap_or_default();
            format!(" (this machine only; --listen :{port} for all)")
        }
        Listen::Tcp { all: true, .. } => " (and at every other address of this machine)".to_owned(),
        Listen::Tcp { .. } | Listen::Unix(_) | Listen::Fd(_) => String::new(),
    }
}

/// How files at a place are read; and a message with cause and cure if a kernel feature is missing.
fn reading(site: &Site, dir: &OwnedFd, only: Option<&[u8]>) -> (String, Option<String>) {
    let cold = "the rest is read by one thread for each disk".to_owned();
    // The one file, or the directory itself, stands for what is below.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(dir, only.unwrap_or(b"."), flags, Mode::empty());
    let Ok(file) = opened.and_then(Descriptor::of) else {
        return (cold, None);
    };
    let device = site.devices.of(&file, file.file_system()).device;
    let asked = cached_pages(
        &file,
        Span {
            offset_bytes: 0,
            len_bytes: 1,
        },
    );
    match (device.residency(&file), asked) {
        (ResidencySource::Always, _) => ("from memory (tmpfs), by sendfile".to_owned(), None),
        (ResidencySource::Ask, _) => (
            format!("what is in the page cache goes out at once; {cold}"),
            None,
        ),
        (ResidencySource::Remember, asked) => (
            format!(
                "what it has read before goes out at once, while it is in the page cache; {cold}"
            ),
            asked.err().map(lost_cachestat),
        ),
    }
}

/// What is lost where cachestat(2) is refused, and what to do.
pub fn lost_cachestat(error: Errno) -> String {
    let cause = match error {
        Errno::PERM => {
            "refused for files of another user; run as their owner or with CAP_FOWNER".to_owned()
        }
        Errno::NOSYS => {
            "not there; it needs Linux 6.5 and a seccomp profile that allows it".to_owned()
        }
        error => format!("{error}; look at the seccomp profile"),
    };
    format!(
        "lost: cachestat(2): {cause}. Until then a window counts as cached once it was read here"
    )
}
