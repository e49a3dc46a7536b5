//! `receive watch`: attaches the program, waits, and tells what it has counted.

use std::fs;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::counters::Counters;
use super::page::page;
use super::report::Report;
use super::tracing::{ReceiverFilter, Tracing};
use crate::capabilities::{self, Capability};
use crate::clock::Clock;
use crate::failure::Failure;
use crate::limits::WATCH_PORTS_MAX;
use crate::options::Watch;
use crate::signals;

/// The kernel's own range, where /proc does not tell another one.
const EPHEMERAL: (u16, u16) = (32_768, 60_999);

/// Watches until it is stopped, or as long as it was told.
///
/// # Errors
/// What the operator has to mend, or what failed.
pub fn run(options: &Watch) -> Result<(), Failure> {
    let signals = signals::catch()?;
    let tracing = Tracing::open(&receiver_filter(&options.port, options.pid)?)?;
    capabilities::keep_only(&[Capability::Bpf])?;
    let stopped = signals.hear()?;
    let (clock, before) = (Clock::start(), Counters::now());
    let report = || -> Result<Report, Failure> {
        let namespace = Counters::now()
            .zip(before)
            .map(|(now, before)| now.since(before));
        let counted = tracing.counted()?;
        Ok(Report::of(counted, namespace, options.pid, clock.now().us))
    };
    let seconds = if options.once {
        Some(1)
    } else {
        options.seconds
    };
    say!(
        "receive: watches {}; Ctrl-C ends it",
        describe_receivers(&options.port, options.pid)
    );
    loop {
        let wait = Duration::from_secs(seconds.unwrap_or(1));
        let is_over = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        tell(&report()?, options.json);
        if is_over || seconds.is_some() {
            return Ok(());
        }
    }
}

fn tell(report: &Report, json: bool) {
    match json {
        true => tell!("{}", serde_json::to_string(report).unwrap_or_default()),
        false => tell!("{:.1} s:\n{}", report.watched_us as f64 / 1e6, page(report)),
    }
}

/// The receivers that these options mean, in words.
pub fn describe_receivers(ports: &[u16], pid: Option<u32>) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = match ports.is_empty() {
        true => "all ports".to_owned(),
        false => format!("port {}", ports.join(", ")),
    };
    match pid {
        Some(pid) => format!("{ports} of process {pid}"),
        None => ports,
    }
}

/// The receivers that these options mean, as the program in the kernel is told.
///
/// # Errors
/// Too many ports, or no such process.
pub fn receiver_filter(ports: &[u16], pid: Option<u32>) -> Result<ReceiverFilter, Failure> {
    if ports.len() > WATCH_PORTS_MAX {
        return Err(Failure::operator(format!(
            "--port takes {WATCH_PORTS_MAX} ports at most: leave it out to watch all"
        )));
    }
    if let Some(pid) = pid {
        fs::metadata(format!("/proc/{pid}"))
            .map_err(|_| Failure::operator(format!("--pid {pid}: there is no such process")))?;
    }
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    Ok(ReceiverFilter {
        ports: ports.to_vec(),
        pid,
        ephemeral: ephemeral(&range).unwrap_or(EPHEMERAL),
    })
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
        let error = receiver_filter(&[], Some(u32::MAX)).expect_err("no such process");
        let error = error.to_string();
        assert!(error.contains("--pid 4294967295"), "{error}");
        let many: Vec<u16> = (1..=65).collect();
        let error = receiver_filter(&many, None)
            .expect_err("too many")
            .to_string();
        assert!(error.contains("64 ports"), "{error}");
    }
}
