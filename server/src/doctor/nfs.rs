//! What `ackpace doctor` says of NFS: whether the programs and the target answer that it takes. Folders and exports are told by the check
//! that follows.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use std::{fs, io};

use ackpace_wire::gateway::Hello;
use ackpace_wire::iscsi::Address;

use crate::lun;
use crate::nfs::Broker;
use crate::options::{ServeOptions, UnitAt, shown_path};

/// How long a target may take to accept a connection. Longer: the operator is told, and can try again.
const STEP_MAX: Duration = Duration::from_secs(3);
/// Addresses of a target that are tried. More: the first ones.
const ADDRESSES_MAX: usize = 4;

/// A line for each thing.
pub fn lines(options: &ServeOptions) -> Vec<String> {
    let mut lines = Vec::new();
    if options.nfs_options.is_writable() {
        let path = &options.nfs_options.nfs_broker;
        let hello = Broker::new(path).hello();
        lines.push(broker(&shown_path(path), hello.err().map(io::Error::from)));
    }
    if let UnitAt::At(target) = &options.iscsi.iscsi {
        let socket = &options.iscsi.iscsi_gateway;
        let told = lun::ask(socket);
        let strange = told.as_ref().ok().and_then(|hello| {
            let is_there = fs::metadata(&options.root).map(|root| root.dev() == hello.device);
            strange(hello, target, is_there.ok())
        });
        lines.push(gateway(&shown_path(socket), told));
        lines.extend(strange);
        let place = (target.host.as_str(), target.port);
        lines.push(unit(&target.to_string(), connect(place)));
    }
    lines
}

fn broker(path: &str, refused: Option<io::Error>) -> String {
    match refused {
        None => format!("ok: ackpace-host files at {path} changes files for NFS clients"),
        Some(error) => format!(
            "lost: ackpace-host files at {path}: {error}. Without it NFS clients can't write: start it (docs/host-files.md)"
        ),
    }
}

fn gateway(socket: &str, told: io::Result<Hello>) -> String {
    match told {
        Ok(Hello { mount, url, .. }) => {
            format!("ok: ackpace-host gateway at {socket} has mounted {url} at {mount}")
        }
        Err(error) => format!(
            "lost: ackpace-host gateway at {socket}: {error}. Until it answers, READs go through the mount, if there is one \
             (docs/host-gateway.md)"
        ),
    }
}

/// If what is mounted is not what is asked for. `is_there`: the folder that is served is on the mount; `None`: it can't be seen.
fn strange(hello: &Hello, target: &Address, is_there: Option<bool>) -> Option<String> {
    let is_other = |at: Address| (at.target, at.lun) != (target.target.clone(), target.lun);
    if hello.url.parse::<Address>().is_ok_and(is_other) {
        return Some(format!(
            "lost: the gateway has mounted {}, and iscsi is {target}: READs go through the mount; give both programs the same unit",
            hello.url
        ));
    }
    (is_there == Some(false)).then(|| {
        format!(
            "lost: the folder that is served is not on {}: its READs do not come from the target; serve that, or a folder below",
            hello.mount
        )
    })
}

fn unit(url: &str, connected: io::Result<()>) -> String {
    match connected {
        Ok(()) => format!(
            "ok: target {url}: its port is open; no login was tried, a running server's log tells of that"
        ),
        Err(error) => format!(
            "lost: target {url}: {error}. Until it can be reached, READs of NFS clients wait, and fail after half a minute"
        ),
    }
}

fn connect(place: (&str, u16)) -> io::Result<()> {
    let mut failed = io::Error::other(format!("{} has no address", place.0));
    for address in place.to_socket_addrs()?.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&address, STEP_MAX) {
            Ok(_) => return Ok(()),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    fn of(words: &str) -> Vec<String> {
        let line = format!("ackpace {words}");
        lines(&Line::parse_from(line.split_whitespace()).options)
    }

    #[test]
    fn what_is_not_asked_for_is_not_looked_at() {
        assert!(of("--nfs 127.0.0.1:0").is_empty());
        assert!(of("--nfs-export /=*,rw").is_empty());
    }

    #[test]
    fn another_unit_or_a_folder_elsewhere_is_told() {
        let target: Address = "iscsi://a/iqn.2026-01.org.example:disk/1"
            .parse()
            .expect("an address");
        let hello = |url: &str| Hello {
            url: url.to_owned(),
            mount: "/srv/disk".to_owned(),
            ..Hello::default()
        };
        let same = hello("iscsi://b:3261/iqn.2026-01.org.example:disk/1");
        assert_eq!(strange(&same, &target, Some(true)), None);
        let other = hello("iscsi://a/iqn.2026-01.org.example:disk/2");
        let told = [
            strange(&other, &target, Some(true)),
            strange(&same, &target, Some(false)),
        ];
        let [Some(unit), Some(folder)] = told else {
            panic!("{told:?}");
        };
        assert!(
            unit.contains("disk/2") && folder.contains("/srv/disk"),
            "{unit} {folder}"
        );
    }

    #[test]
    fn who_does_not_answer_is_lost() {
        let target = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = target.local_addr().expect("an address").port();
        let words = format!(
            "--nfs 127.0.0.1:0 --nfs-export /=*,rw --nfs-broker /nowhere/files --iscsi-gateway /nowhere/gateway \
             --iscsi iscsi://127.0.0.1:{port}/iqn.2026-01.org.example:disk/1"
        );
        let is = |lines: &[String]| -> Vec<bool> {
            lines.iter().map(|line| line.starts_with("ok: ")).collect()
        };
        let told = of(&words);
        assert_eq!(is(&told), [false, false, true], "{told:?}");
        drop(target);
        let told = of(&words);
        assert_eq!(is(&told), [false, false, false], "{told:?}");
        assert!(
            told.iter().all(|line| line.starts_with("lost: ")),
            "{told:?}"
        );
    }
}
