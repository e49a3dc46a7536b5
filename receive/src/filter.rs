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
        if let Some(pid) = pid {
            fs::metadata(format!("/proc/{pid}"))
                .map_err(|_| Failure::operator(format!("--pid {pid}: there is no such process")))?;
        }
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        Ok(Filter {
            ports: ports.to_vec(),
            pid,
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
    fn what_can_not_be_watched_is_named() {
        let error = Filter::of(&[], Some(u32::MAX)).expect_err("no such process");
        assert!(error.to_string().contains("--pid 4294967295"), "{error}");
        let many: Vec<u16> = (1..=65).collect();
        let error = Filter::of(&many, None).expect_err("too many");
        assert!(error.to_string().contains("64 ports"), "{error}");
    }
}
