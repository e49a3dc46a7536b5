//! Profiles the server's core by perf(1), and groups the kernel's functions by purpose.

use crate::metrics::Values;
use crate::peers::Running;
use crate::testbed::Testbed;
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Path in Debian's package (linux-perf).
pub const PROGRAM: &str = "/usr/bin/perf";
/// Samples per second: odd, to stay out of step with the kernel's ticks.
const SAMPLES_PER_S: &str = "1999";

/// Prefixes of kernel function names, grouped by purpose. The first match counts, so narrower prefixes come
/// first. The groups are those of TPF's Figure 12.
const GROUPS: &[(&str, &str)] = &[
    (
        "profile_copy_share",
        "rep_movs copy_ _copy_ __copy_ memcpy __memcpy csum_partial clear_page",
    ),
    (
        "profile_ip_share",
        "ip_ __ip_ ip6_ ipv4_ nf_ dev_ __dev_ netif_ __netif_ net_rx net_tx process_backlog napi_ __napi_ \
         tun_ loopback_ validate_xmit qdisc __qdisc pfifo sch_ fib_ neigh_ veth_ enqueue_to_backlog",
    ),
    (
        "profile_scheduling_share",
        "schedule __schedule try_to_wake ttwu __wake_up wake_up ep_ __ep_ do_epoll enqueue_ dequeue_ \
         pick_ update_curr update_load update_rq sched_ select_task __switch_to finish_task \
         prepare_to_wait sock_def_write sock_def_read sk_stream_write_space eventpoll default_wake \
         autoremove_wake hrtimer __hrtimer do_idle cpuidle native_sched psi_ set_next put_prev switch_mm \
         finish_wait",
    ),
    (
        "profile_tcp_share",
        "tcp_ __tcp_ bictcp cubictcp reno bbr sk_ __sk_ sock_ __sock_ inet_ lock_sock release_sock \
         __release_sock skb_ __skb_ do_tcp splice_to_socket kernel_send",
    ),
    (
        "profile_memory_share",
        "kmem_ __kmem kmalloc __kmalloc kfree __kfree slab __slab ___slab alloc_ __alloc free_ __free \
         get_page put_page folio_ __folio filemap_ __filemap xas_ page_ rmqueue mem_cgroup __mem_cgroup \
         find_get release_pages splice_ shmem_ lru_ memset __memset obj_cgroup try_charge",
    ),
];

/// A running profile.
pub struct Profile {
    child: Child,
    data: PathBuf,
    /// Names of the server's processes, and of the kernel threads of its core (idle, ksoftirqd), which process
    /// packets.
    programs: Vec<String>,
}

impl Profile {
    /// Starts to sample a server's core.
    pub fn start(testbed: &Testbed, server: &Running) -> Result<Self> {
        let core = server.core;
        let mut programs = vec!["swapper".to_owned(), format!("ksoftirqd/{core}")];
        for pid in server.pids()? {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            programs.extend(name.map(|name| name.trim().to_owned())); // or it just ended
        }
        let data = testbed.scratch().join("perf.data");
        let child = Command::new(PROGRAM)
            .args([
                "record",
                "-q",
                "-F",
                SAMPLES_PER_S,
                "-C",
                &core.to_string(),
                "-o",
            ])
            .arg(&data)
            .args(["sleep", "3600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self {
            child: child.doing(|| PROGRAM.into())?,
            data,
            programs,
        })
    }

    /// Ends the profile and sets the share of each group.
    pub fn end(mut self, values: &mut Values) -> Result<()> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        self.child.wait().doing(|| PROGRAM.into())?;
        let report = Command::new(PROGRAM)
            .args([
                "report",
                "-q",
                "--stdio",
                "--no-children",
                "-g",
                "none",
                "-F",
                "overhead,comm,sym",
                "-t",
                "\t",
                "-i",
            ])
            .arg(&self.data)
            .output()
            .doing(|| PROGRAM.into())?;
        let _ = std::fs::remove_file(&self.data);
        let text = String::from_utf8_lossy(&report.stdout);
        let shares = shares(&text, &self.programs);
        if shares.is_empty() {
            let why = String::from_utf8_lossy(&report.stderr);
            return Err(LabError::Setup(format!(
                "perf gave no samples: {}",
                why.trim()
            )));
        }
        for (group, share) in shares {
            values.set(group, share);
        }
        Ok(())
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = self.child.kill(); // usually it has already ended
        let _ = self.child.wait();
    }
}

/// Shares of the groups from perf's report: `OVERHEAD %<tab>PROGRAM<tab>[k] FUNCTION`. The idle loop and other
/// programs are left out.
fn shares(report: &str, programs: &[String]) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    let mut total = 0.0;
    for line in report.lines() {
        let mut fields = line.split('\t').map(str::trim);
        let (Some(overhead), Some(program), Some(symbol)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if !programs.iter().any(|name| program == name) {
            continue;
        }
        let Ok(percent) = overhead.trim_end_matches('%').parse::<f64>() else {
            continue;
        };
        let group = match symbol.strip_prefix("[k] ") {
            None => "profile_program_share",
            Some(function) if is_idle(function) => continue,
            Some(function) => group_of(function),
        };
        total += percent;
        match sums.iter_mut().find(|(name, _)| *name == group) {
            Some((_, sum)) => *sum += percent,
            None => sums.push((group, percent)),
        }
    }
    sums.into_iter()
        .map(|(group, sum)| (group, sum / total))
        .collect()
}

fn is_idle(function: &str) -> bool {
    [
        "pv_native_safe_halt",
        "native_safe_halt",
        "default_idle",
        "acpi_idle",
        "intel_idle",
        "mwait_idle",
        "haltpoll",
    ]
    .iter()
    .any(|idle| function.starts_with(idle))
}

fn group_of(function: &str) -> &'static str {
    let fits = |prefix: &str| function.starts_with(prefix);
    let mut groups = GROUPS.iter();
    let group = groups.find(|(_, prefixes)| prefixes.split_whitespace().any(fits));
    group.map_or("profile_other_share", |(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_sorted_into_groups_and_the_idle_core_is_left_out() {
        let report = "    40.00%\tswapper\t[k] pv_native_safe_halt\n\
            30.00%\tnginx\t[k] rep_movs_alternative\n\
            15.00%\tswapper\t[k] tcp_sendmsg_locked\n\
            10.00%\tnginx\t[.] ngx_http_handler\n\
            5.00%\tnginx\t[k] entry_SYSCALL_64\n\
            90.00%\trustc\t[.] main\n\
            nonsense\n";
        let shares = shares(report, &["swapper".into(), "nginx".into()]);
        let of = |name: &str| shares.iter().find(|(group, _)| *group == name).unwrap().1;
        assert_eq!(of("profile_copy_share"), 0.5);
        assert_eq!(of("profile_tcp_share"), 0.25);
        assert!((of("profile_program_share") - 1.0 / 6.0).abs() < 1e-9);
        assert!((of("profile_other_share") - 5.0 / 60.0).abs() < 1e-9);
    }
}
