//! `doctor`: what this kernel and these rights allow, what is lost without, and how to get it.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use ackpace_core::sndbuf::outside::Setting;
use serde::Serialize;

use ackpace_host_base::capabilities::{self, Capability};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::tell;
use ackpace_receive::filter::Filter;
use ackpace_receive::{exact, guard, priority, watch};

use crate::cgroups;
use crate::kernel::{Kernel, Order, has_bpf};
use crate::matching::Matching;
use crate::place;
use crate::snapshot::{Answer, Outcome, View};

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub what: String,
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
    fn new(
        what: &str,
        ok: bool,
        seen: impl Into<String>,
        lost: &'static str,
        cure: &'static str,
    ) -> Finding {
        Finding {
            what: what.to_owned(),
            ok,
            seen: seen.into(),
            lost: (!ok).then_some(lost),
            cure: (!ok).then_some(cure),
        }
    }

    fn line(&self) -> String {
        let mark = if self.ok { "ok  " } else { "LOST" };
        let mut line = format!("{mark} {:24} {}", self.what, self.seen);
        if let (Some(lost), Some(cure)) = (self.lost, self.cure) {
            line += &format!("\n     lost: {lost}\n     cure: {cure}");
        }
        line
    }
}

/// Looks at everything and tells.
pub fn run(json: bool) {
    for finding in findings() {
        match json {
            true => tell!("{}", serde_json::to_string(&finding).unwrap_or_default()),
            false => tell!("{}", finding.line()),
        }
    }
}

const TUNE: &str = "'tune'";
const WATCH: &str = "'receive watch'";
const GUARD: &str = "'receive guard'";

fn findings() -> Vec<Finding> {
    let mut findings = vec![kernel(), built(), btf()];
    findings.extend([Capability::Bpf, Capability::Perfmon].map(right));
    findings.push(lockdown());
    match tried() {
        Ok(seen) => {
            findings.push(Finding::new("iterator over TCP", true, seen, "", ""));
            findings.push(setting());
        }
        Err(why) => findings.push(Finding::new(
            "iterator over TCP",
            false,
            why.to_string(),
            TUNE,
            "what stands above; then ask again",
        )),
    }
    findings.extend([
        tracepoints(),
        lost_locks(),
        raising(),
        real_time(),
        scheduler(),
    ]);
    findings.extend([records(), cgroup_kind(), congestion_controls(), lowat()]);
    findings
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let ok = version(&release).is_some_and(|version| version >= (5, 16));
    Finding::new("kernel", ok, release, TUNE, "Linux 5.16 or later")
}

/// Major and minor of a release, such as `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|sign: char| !sign.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn built() -> Finding {
    let seen = if has_bpf() {
        "in this binary"
    } else {
        "not in this binary"
    };
    let cure = "apt-get install clang-14 libbpf-dev libelf-dev zlib1g-dev pkg-config make, then cargo build --release \
                -p ackpace-host --features bpf";
    Finding::new("programs for the kernel", has_bpf(), seen, TUNE, cure)
}

fn btf() -> Finding {
    let path = "/sys/kernel/btf/vmlinux";
    let read = fs::File::open(path);
    let seen = read
        .as_ref()
        .map_or_else(|error| format!("{path}: {error}"), |_| path.to_owned());
    let cure =
        "a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have; and /sys in a container";
    Finding::new("types of the kernel (BTF)", read.is_ok(), seen, TUNE, cure)
}

fn right(capability: Capability) -> Finding {
    let (name, cure) = match capability {
        Capability::Bpf => (
            "CAP_BPF",
            "run it as root, or AmbientCapabilities=CAP_BPF CAP_PERFMON in its unit",
        ),
        _ => (
            "CAP_PERFMON",
            "run it as root, or AmbientCapabilities=CAP_BPF CAP_PERFMON in its unit",
        ),
    };
    // CAP_SYS_ADMIN implies both.
    let ok = capabilities::has(capability) || capabilities::has(Capability::SysAdmin);
    let seen = if ok { "held" } else { "not held" };
    Finding::new(name, ok, seen, TUNE, cure)
}

fn lockdown() -> Finding {
    let seen = match fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(text) => text.trim().to_owned(),
        Err(_) => "not told (securityfs is not mounted, or the kernel has none)".to_owned(),
    };
    let ok = !seen.contains("[confidentiality]");
    Finding::new(
        "lockdown",
        ok,
        seen,
        TUNE,
        "lockdown=integrity, not confidentiality, on the kernel's command line",
    )
}

/// Loads the program and looks once.
fn tried() -> Result<String, Failure> {
    let mut kernel = Kernel::open(None)?;
    let mut view = View::default();
    kernel.snapshot(&mut view)?;
    Ok(format!(
        "works; {} sockets in this network namespace",
        view.matched()
    ))
}

/// Attaches the program that watches receivers, and detaches it.
fn tracepoints() -> Finding {
    let (ok, seen) = match watch::open(&Filter::nobody()) {
        Ok(_) => (true, "attached, and detached".to_owned()),
        Err(why) => (false, why.to_string()),
    };
    let cure = "what stands above, and Linux 5.17 or later; then ask again";
    Finding::new("tracepoints of receivers", ok, seen, WATCH, cure)
}

/// Attaches the program of the guard, and detaches it.
fn lost_locks() -> Finding {
    let (ok, seen) = match guard::open(&Filter::nobody()) {
        Ok(_) => (true, "attached, and detached".to_owned()),
        Err(why) => (false, why.to_string()),
    };
    let cure = "what stands above, and Linux 6.3 or later; then ask again";
    Finding::new("tracepoints of lost locks", ok, seen, GUARD, cure)
}

fn raising() -> Finding {
    let ok = capabilities::has(Capability::SysNice);
    let seen = if ok { "held" } else { "not held" };
    let cure = "run it as root, or AmbientCapabilities=CAP_SYS_NICE in its unit";
    Finding::new("CAP_SYS_NICE", ok, seen, GUARD, cure)
}

/// Tries it on a thread that ends.
fn real_time() -> Finding {
    let ok = std::thread::spawn(priority::become_real_time)
        .join()
        .unwrap_or(false);
    let seen = if ok { "allowed" } else { "refused" };
    let lost = "some milliseconds of each extra turn on a busy machine: the guard then waits for a core itself";
    let cure = "CAP_SYS_NICE; and in version 1, a CPU cgroup with cpu.rt_runtime_us above 0, as the topmost one has";
    Finding::new("real time for the guard", ok, seen, lost, cure)
}

fn scheduler() -> Finding {
    let told = exact::can_schedule();
    let ok = told.is_ok();
    let seen = told.err().unwrap_or_else(|| "none is in charge".to_owned());
    let cure =
        "Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT, and no other scheduler of that kind";
    Finding::new(
        "schedulers by BPF",
        ok,
        seen,
        "'receive guard --exact', an experiment",
        cure,
    )
}

fn setting() -> Finding {
    let cure = "Linux 5.16 or later, whose iterator may set socket options";
    match set_and_given_back() {
        Ok(()) => Finding::new(
            "options set by it",
            true,
            "set on a connection of our own, and undone",
            "",
            "",
        ),
        Err(why) => Finding::new(
            "options set by it",
            false,
            why,
            "'tune', but for --dry-run",
            cure,
        ),
    }
}

/// Sets both options on a connection of our own, and undoes it.
fn set_and_given_back() -> Result<(), String> {
    let told = |error: io::Error| format!("a connection to itself: {error}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(told)?;
    let address = listener.local_addr().map_err(told)?;
    let client = TcpStream::connect(address).map_err(told)?;
    let failed = |failure: Failure| failure.to_string();
    let mut kernel = Kernel::open(None).map_err(failed)?;
    let port = client.local_addr().map_err(told)?.port();
    let matching = Matching {
        ports: vec![port],
        ..Matching::default()
    };
    kernel.select(&matching).map_err(failed)?;
    let mut view = View::default();
    kernel.snapshot(&mut view).map_err(failed)?;
    // It has sent nothing yet.
    let seen = view.quiet.first().ok_or("our own connection is not seen")?;
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
    kernel.carry_out(&[order], answered).map_err(failed)?;
    let set = lowat_of(&client);
    kernel.restore().map_err(failed)?;
    match (done, set, lowat_of(&client)) {
        (true, 34_567, 0) => Ok(()),
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

fn records() -> Finding {
    let seen = match (place::is_bpf_fs(), place::may_mount()) {
        (true, _) => "mounted at /sys/fs/bpf",
        (false, true) => "none at /sys/fs/bpf yet; 'tune' mounts it",
        (false, false) => "none at /sys/fs/bpf",
    };
    let ok = place::is_bpf_fs() || place::may_mount();
    let cure = "mount -t bpf bpf /sys/fs/bpf, in the mount namespace of the machine";
    Finding::new(
        "place for records",
        ok,
        seen,
        "undoing changes after a kill, and so 'tune'",
        cure,
    )
}

fn cgroup_kind() -> Finding {
    let mounted = cgroups::mounted();
    let seen = match &mounted {
        Some(path) => format!("version 2 at {}", path.display()),
        None => "version 1 alone".to_owned(),
    };
    let cure =
        "systemd.unified_cgroup_hierarchy=1 on the kernel's command line; or --port and --address";
    Finding::new("cgroups", mounted.is_some(), seen, "'tune --cgroup'", cure)
}

fn congestion_controls() -> Finding {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let used = read("tcp_congestion_control");
    let mut seen = format!("{used}, of {}", read("tcp_available_congestion_control"));
    if used.starts_with("bbr") {
        seen += "; a bbr socket is never clamped below its path's product";
    }
    Finding::new(
        "congestion control",
        !used.is_empty(),
        seen,
        "nothing is known of it",
        "/proc of this machine",
    )
}

fn lowat() -> Finding {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_notsent_lowat");
    let seen = match text.as_deref().map(str::trim) {
        Ok("4294967295") => "not set".to_owned(),
        Ok(bytes) => format!("{bytes} B: no socket is set above that"),
        Err(_) => "not told".to_owned(),
    };
    Finding::new("tcp_notsent_lowat", true, seen, "", "")
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
        for finding in findings() {
            let line = finding.line();
            assert_eq!(finding.ok, !line.contains("cure: "), "{line}");
            assert!(finding.ok || line.len() > 60, "{line}");
        }
    }
}
