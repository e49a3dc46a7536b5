//! `doctor`: what this kernel and these rights allow, what is lost without, and how to get it.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use ackpace_share::outside::Setting;
use rustix::net::sockopt;
use serde::Serialize;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::tell;
use ackpace_receive::filter::Filter;
use ackpace_receive::{guard, watch};

use crate::cgroups;
use crate::handoff::switch::{self, Settings};
use crate::handoff::{self, checks};
use crate::kernel::{Order, has_bpf};
use crate::matching::Matching;
use crate::options::About;
use crate::place;
use crate::snapshot::{Answer, Outcome, View};
use crate::tune;

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was seen.
    pub seen: String,
    /// What is lost, if it is not.
    pub lost: Option<&'static str>,
    /// How to get it.
    pub cure: Option<&'static str>,
}

impl Finding {
    fn line(&self) -> String {
        let mark = if self.ok { "ok  " } else { "LOST" };
        let mut line = format!("{mark} {:26} {}", self.what, self.seen);
        if let (Some(lost), Some(cure)) = (self.lost, self.cure) {
            line += &format!("\n     lost: {lost}\n     cure: {cure}");
        }
        line
    }
}

/// Looks at everything, or what is needed for one command, and tells. Whether nothing is lost. `cluster`: whose connections are to
/// move; without VIPs, nothing of that is looked at but what the kernel allows.
pub fn run(about: Option<About>, cluster: &Settings, json: bool) -> bool {
    let findings = findings(about, cluster);
    for finding in &findings {
        match json {
            true => tell!("{}", serde_json::to_string(finding).unwrap_or_default()),
            false => tell!("{}", finding.line()),
        }
    }
    findings.iter().all(|finding| finding.ok)
}

const ALL: &str = "'tune', 'receive watch', 'receive guard' and 'handoff'";
const TUNE: &str = "'tune'";
const WATCH: &str = "'receive watch'";
const GUARD: &str = "'receive guard'";
const HANDOFF: &str = "'handoff'";

/// What was found.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Adds one. `seen`: what was seen, if it is as it should be; or what was seen instead.
    fn look(
        &mut self,
        what: &'static str,
        seen: Result<String, String>,
        lost: &'static str,
        cure: &'static str,
    ) {
        let ok = seen.is_ok();
        self.0.push(Finding {
            what,
            ok,
            seen: seen.unwrap_or_else(|seen| seen),
            lost: (!ok).then_some(lost),
            cure: (!ok).then_some(cure),
        });
    }
}

fn findings(about: Option<About>, cluster: &Settings) -> Vec<Finding> {
    let mut all = Findings::default();
    let is_meant = |command| about.is_none_or(|about| about == command);
    of_programs(&mut all);
    if is_meant(About::Tune) {
        of_tune(&mut all);
    }
    if is_meant(About::Receive) {
        of_receive(&mut all);
    }
    if is_meant(About::Handoff) {
        of_handoff(&mut all, cluster);
    }
    all.0
}

/// What it takes to load a program, and whether that works.
fn of_programs(all: &mut Findings) {
    all.look("kernel", kernel((5, 16)), ALL, "Linux 5.16 or later");
    all.look(
        "programs for the kernel",
        either(has_bpf(), "in this binary", "not in this binary"),
        ALL,
        "apt-get install clang-14 libbpf-dev libelf-dev zlib1g-dev pkg-config make, then cargo build --release \
         -p ackpace-host --features bpf",
    );
    all.look(
        "types of the kernel (BTF)",
        is_there("/sys/kernel/btf/vmlinux"),
        ALL,
        "a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have; and /sys in a container",
    );
    let cure = "run it as root; a unit keeps both by CapabilityBoundingSet=CAP_BPF CAP_PERFMON";
    all.look("CAP_BPF", held(CapabilitySet::BPF), ALL, cure);
    all.look("CAP_PERFMON", held(CapabilitySet::PERFMON), ALL, cure);
    all.look(
        "lockdown",
        lockdown(),
        ALL,
        "lockdown=integrity, not confidentiality, on the kernel's command line",
    );
}

fn of_tune(all: &mut Findings) {
    let looked = looked().map_err(told);
    let can_look = looked.is_ok();
    all.look(
        "iterator over TCP",
        looked,
        TUNE,
        "fix the items above and run doctor again",
    );
    if can_look {
        all.look(
            "options set by it",
            set_and_given_back(),
            "'tune', but for --dry-run",
            "Linux 5.16 or later, whose iterator may set socket options",
        );
    }
    of_machine(all);
}

fn of_receive(all: &mut Findings) {
    let attached = |tried: Result<(), Failure>| match tried {
        Ok(()) => Ok("attached, and detached".to_owned()),
        Err(why) => Err(told(why)),
    };
    let nobody = Filter::nobody();
    all.look(
        "tracepoints of receivers",
        attached(watch::open(&nobody).map(drop)),
        WATCH,
        "fix the items above, take Linux 5.17 or later, and run doctor again",
    );
    all.look(
        "schedulers by BPF",
        guard::can_schedule().map(|()| "none is in charge".to_owned()),
        GUARD,
        "Linux 6.19 or later with CONFIG_SCHED_CLASS_EXT, and no other scheduler of that kind",
    );
}

fn of_handoff(all: &mut Findings, cluster: &Settings) {
    let cure = "run it as root; a unit keeps all three by CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE";
    let rights = [
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
    ];
    for (name, right) in rights {
        let seen = either(capabilities::has(right), "held", "not held");
        all.look(name, seen, HANDOFF, cure);
    }
    all.look(
        "programs on devices (tcx)",
        kernel((6, 6)).and_then(|release| match switch::can_load() {
            Ok(()) => Ok(format!("{release} takes them")),
            Err(why) => Err(told(why)),
        }),
        HANDOFF,
        "Linux 6.6 or later; fix the items above and run doctor again",
    );
    all.look(
        "connections that freeze",
        handoff::trial().map_err(|why| why.text),
        HANDOFF,
        "fix the items above and run doctor again",
    );
    if cluster.vips.is_empty() {
        return;
    }
    for check in checks::all(cluster) {
        all.look(check.what, check.seen, check.lost, check.cure);
    }
}

fn of_machine(all: &mut Findings) {
    all.look(
        "place for records",
        match (place::is_bpf_fs(), place::may_mount()) {
            (true, _) => Ok("mounted at /sys/fs/bpf".to_owned()),
            (false, true) => Ok("none at /sys/fs/bpf yet; 'tune' mounts it".to_owned()),
            (false, false) => Err("none at /sys/fs/bpf".to_owned()),
        },
        "undoing changes after a kill, and so 'tune'",
        place::MOUNT,
    );
    all.look(
        "lock and record",
        place::may_write().map(|()| "their folders may be written".to_owned()),
        TUNE,
        "run it as root",
    );
    all.look(
        "cgroups",
        match cgroups::mounted() {
            Some(path) => Ok(format!("version 2 at {}", path.display())),
            None => Err("version 1 alone".to_owned()),
        },
        "'tune --cgroup'",
        "systemd.unified_cgroup_hierarchy=1 on the kernel's command line; or --port and --address",
    );
    all.look(
        "congestion control",
        congestion_controls(),
        "nothing is known of it",
        "/proc of this machine",
    );
    all.look("tcp_notsent_lowat", Ok(lowat()), "", "");
}

fn either(ok: bool, yes: &str, no: &str) -> Result<String, String> {
    match ok {
        true => Ok(yes.to_owned()),
        false => Err(no.to_owned()),
    }
}

fn told(why: Failure) -> String {
    why.to_string()
}

fn kernel(least: (u32, u32)) -> Result<String, String> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let ok = version(&release).is_some_and(|version| version >= least);
    either(ok, &release, &release)
}

/// Major and minor of a release, such as `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|sign: char| !sign.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn is_there(path: &str) -> Result<String, String> {
    let opened = fs::File::open(path).map_err(|error| format!("{path}: {error}"));
    opened.map(|_| path.to_owned())
}

/// CAP_SYS_ADMIN implies the others.
fn held(capability: CapabilitySet) -> Result<String, String> {
    let ok = capabilities::has(capability) || capabilities::has(CapabilitySet::SYS_ADMIN);
    either(ok, "held", "not held")
}

fn lockdown() -> Result<String, String> {
    let text = fs::read_to_string("/sys/kernel/security/lockdown");
    let none = |_| "not told (securityfs is not mounted, or the kernel has none)".to_owned();
    let seen = text.map_or_else(none, |text| text.trim().to_owned());
    either(!seen.contains("[confidentiality]"), &seen, &seen)
}

/// Loads the program and looks once.
fn looked() -> Result<String, Failure> {
    let mut passes = tune::passes(None, &Matching::default())?;
    let mut sockets = 0;
    passes.look(0, &mut View::default(), |view| sockets += view.matched())?;
    Ok(format!(
        "works; {sockets} sockets in this network namespace"
    ))
}

/// Sets both options on a connection of our own, and undoes it.
fn set_and_given_back() -> Result<String, String> {
    let broken = |error: io::Error| format!("a connection to itself: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(broken)?;
    let address = listener.local_addr().map_err(broken)?;
    let client = TcpStream::connect(address).map_err(broken)?;
    let port = client.local_addr().map_err(broken)?.port();
    let matching = Matching {
        ports: vec![port],
        ..Matching::default()
    };
    let mut passes = tune::passes(None, &matching).map_err(told)?;
    // It has sent nothing yet. Others may have its port, too.
    let own = sockopt::socket_cookie(&client).map_err(|error| broken(error.into()))?;
    let mut seen = None;
    let looked = passes.look(0, &mut View::default(), |view| {
        seen = seen.or(view.quiet.iter().find(|it| it.cookie == own).copied())
    });
    looked.map_err(told)?;
    let seen = seen.ok_or("our own connection is not seen")?;
    let to = Setting {
        clamp_segments: 12,
        lowat_bytes: 34_567,
    };
    let order = Order {
        cookie: seen.cookie,
        from: seen.now,
        to: Some(to),
    };
    let mut done = false;
    let answered = |answer: Answer| done = answer.outcome == Outcome::Done;
    passes.carry_out(&[order], answered).map_err(told)?;
    let set = lowat_of(&client);
    passes.restore().map_err(told)?;
    match (done, set, lowat_of(&client)) {
        (true, 34_567, 0) => Ok("set on a connection of our own, and undone".to_owned()),
        (false, ..) => Err("the kernel refuses".to_owned()),
        (true, set, back) => Err(format!(
            "TCP_NOTSENT_LOWAT was {set}, and {back} after it was undone"
        )),
    }
}

fn lowat_of(stream: &TcpStream) -> u32 {
    let (mut bytes, mut len) = (0u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, which `bytes` has.
    unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw mut bytes).cast(),
            &raw mut len,
        );
    }
    bytes
}

fn congestion_controls() -> Result<String, String> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let used = read("tcp_congestion_control");
    let mut seen = format!("{used}, of {}", read("tcp_available_congestion_control"));
    if used.starts_with("bbr") {
        seen += "; a bbr socket is never clamped below its path's product";
    }
    either(!used.is_empty(), &seen, &seen)
}

fn lowat() -> String {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_notsent_lowat");
    match text.as_deref().map(str::trim) {
        Ok("4294967295") => "not set".to_owned(),
        Ok(bytes) => format!("{bytes} B: no socket is set above that"),
        Err(_) => "not told".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version("5.9-rc1"), Some((5, 9)));
        assert!(version("10.0") > version("9.30"));
        assert_eq!(version("linux"), None);
    }

    #[test]
    fn each_thing_that_is_lost_has_a_cure() {
        assert!(
            findings(Some(About::Tune), &Settings::default())
                .iter()
                .all(|it| it.lost != Some(GUARD))
        );
        let cluster = Settings {
            vips: vec!["192.0.2.1".parse().expect("an address")],
            peers: vec!["192.0.2.2".parse().expect("an address")],
            ..Settings::default()
        };
        for finding in findings(None, &cluster) {
            let line = finding.line();
            assert_eq!(finding.ok, !line.contains("cure: "), "{line}");
            assert!(finding.ok || line.len() > 60, "{line}");
        }
    }
}
