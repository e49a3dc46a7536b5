//! The receivers that options mean, as the programs in the kernel are told (`receive/src/bpf/receiver.h`).

use std::fmt::{Display, Formatter, Result as Formatted};
use std::fs;

use ackpace_host_base::bpf::Program;
use ackpace_host_base::failure::Failure;

/// The kernel's own range, where /proc does not tell another one.
const EPHEMERAL: (u16, u16) = (32_768, 60_999);
/// Ports of `--port`: few are meant. More: refused.
const PORTS_MAX: usize = 64;

/// Which receivers are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Ports of services, at either end; none: all connections.
    pub ports: Vec<u16>,
    /// This process alone.
    pub pid: Option<u32>,
    /// When that started, in ticks: its number may be another's later.
    started: Option<u64>,
    /// The local ports that the kernel chooses for clients, first and last.
    pub ephemeral: (u16, u16),
}

impl Filter {
    /// What these options mean.
    ///
    /// # Errors
    /// Too many ports, or no such process.
    pub fn of(ports: &[u16], pid: Option<u32>) -> Result<Filter, Failure> {
        if ports.len() > PORTS_MAX {
            return Err(Failure::operator(format!(
                "--port takes {PORTS_MAX} ports at most: leave it out to watch all"
            )));
        }
        let started = pid.map(|pid| {
            let there = started(pid);
            there.ok_or_else(|| Failure::operator(format!("--pid {pid}: there is no such process")))
        });
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        Ok(Filter {
            ports: ports.to_vec(),
            pid,
            started: started.transpose()?,
            ephemeral: ephemeral(&range.unwrap_or_default()).unwrap_or(EPHEMERAL),
        })
    }

    /// No receiver that can be: for a program that is only tried.
    pub fn nobody() -> Filter {
        Filter {
            ports: vec![0],
            ..Filter::default()
        }
    }

    /// The one process that is meant has ended.
    pub fn is_over(&self) -> bool {
        self.pid.is_some_and(|pid| started(pid) != self.started)
    }

    /// As a `struct meant`.
    pub fn meant(&self) -> [u32; 2] {
        [u32::from(!self.ports.is_empty()), self.pid.unwrap_or(0)]
    }

    /// Tells a program, before anything is attached: these ports, and its map `settings`.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn choose(&self, program: &Program, settings: &[u8]) -> Result<(), Failure> {
        program.choose_ports(&self.ports)?;
        program.set_only("settings", settings)
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        match ports.is_empty() {
            true => write!(f, "all ports")?,
            false => write!(f, "port {}", ports.join(", "))?,
        }
        match self.pid {
            Some(pid) => write!(f, " of process {pid}"),
            None => Ok(()),
        }
    }
}

/// When a process started (proc_pid_stat(5)); `None`: there is none of this number, or it has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok();
    start.filter(|_| !matches!(state, "Z" | "X"))
}

/// From `32768\t60999`.
fn ephemeral(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_range_is_read() {
        assert_eq!(ephemeral("32768\t60999\n"), Some((32_768, 60_999)));
        assert_eq!(ephemeral("1024"), None);
        assert_eq!(ephemeral("1 99999"), None);
    }

    #[test]
    fn a_process_is_over_when_it_ends_whoever_has_its_number_then() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("it starts");
        let mut filter = Filter::of(&[], Some(child.id())).expect("it runs");
        assert!(!filter.is_over());
        filter.started = filter.started.map(|ticks| ticks - 1);
        assert!(filter.is_over(), "another one");
        let filter = Filter::of(&[], Some(child.id())).expect("it runs");
        child.kill().expect("our own");
        child.wait().expect("our own");
        assert!(filter.is_over() && !Filter::nobody().is_over());
    }

    #[test]
    fn what_can_not_be_watched_is_named() {
        let error = Filter::of(&[], Some(u32::MAX)).expect_err("no such process");
        assert!(error.to_string().contains("--pid 4294967295"), "{error}");
        let many: Vec<u16> = (1..=65).collect();
        let error = Filter::of(&many, None).expect_err("too many");
        assert!(error.to_string().contains("64 ports"), "{error}");
    }
}
