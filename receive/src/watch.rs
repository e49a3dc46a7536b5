//! `receive watch`: attaches the program, waits, and tells what it has counted.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use ackpace_host_base::bpf::{Aligned, Entry, Program};
use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::clock::{Clock, monotonic_ns};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::Fields;
use ackpace_host_base::lines::{Lines, To};
use ackpace_host_base::{object, signals};

use crate::counters::Counters;
use crate::filter::Filter;
use crate::options::Watch;
use crate::page::page;
use crate::report::{Counted, Receiver, Report};
use crate::rows::{Sender, Service, Watched, Who};

static OBJECT: &Aligned<[u8]> = object!("receive");
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint or a function that the program uses: Linux 5.17 or \
                     later has all";

/// Pages that wait for a reader, some of up to a megabyte. More: dropped.
const PAGES_WAITING_MAX: usize = 8;

/// Watches until it is stopped, or as long as it was told.
///
/// # Errors
/// What the operator has to mend, or what failed.
pub fn run(options: &Watch) -> Result<(), Failure> {
    let signals = signals::catch()?;
    let filter = Filter::of(&options.port, options.pid)?;
    let program = open(&filter)?;
    capabilities::keep_only(CapabilitySet::BPF)?;
    let stopped = signals.hear()?;
    let (clock, before) = (Clock::start(), Counters::now());
    let report = || -> Result<Report, Failure> {
        let namespace = Counters::now()
            .zip(before)
            .map(|(now, before)| now.since(before));
        Ok(Report::of(
            counted(&program)?,
            namespace,
            options.pid,
            clock.now().us,
        ))
    };
    let seconds = if options.once {
        Some(1)
    } else {
        options.seconds
    };
    let mut lines = Lines::of_at_most(PAGES_WAITING_MAX);
    lines.write(
        To::Errors,
        format!("receive: watches {filter}; Ctrl-C ends it"),
    );
    loop {
        let wait = Duration::from_secs(seconds.unwrap_or(1));
        let is_stopped = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
        lines.write(To::Output, told(&report()?, options.json));
        if is_stopped || lines.is_closed() {
            return Ok(());
        }
        if seconds.is_some() || filter.is_over() {
            lines.finish(&stopped);
            return Ok(());
        }
    }
}

fn told(report: &Report, json: bool) -> String {
    match json {
        true => serde_json::to_string(report).unwrap_or_default(),
        false => format!("{:.1} s:\n{}", report.watched_us as f64 / 1e6, page(report)),
    }
}

/// Attaches the program that watches.
///
/// # Errors
/// The kernel refuses; what to do.
pub fn open(filter: &Filter) -> Result<Program, Failure> {
    let mut program = Program::load(OBJECT, NEEDS, None)?;
    // A `struct settings`.
    let mut settings = filter.meant().map(u32::to_ne_bytes).concat();
    let ports = [filter.ephemeral.0, filter.ephemeral.1];
    settings.extend(ports.map(u16::to_ne_bytes).concat());
    filter.choose(&program, &settings)?;
    program.attach()?;
    Ok(program)
}

/// All that it has counted so far.
fn counted(program: &Program) -> Result<Counted, Failure> {
    let missed = program.only("missed")?;
    let mut missed = Fields(&missed);
    let entries = |map| program.entries(map).map(Vec::into_iter);
    let row = |(key, value): Entry| {
        let who = Who::parse(&key);
        (who, Receiver::parse(who, &value))
    };
    let rows = entries("rows")?.map(row);
    let watched = entries("watched")?.map(|(_, value)| Watched::parse(&value, monotonic_ns()));
    let senders = entries("senders")?;
    let senders = senders.map(|(key, value)| (Service::parse(&key), Sender::parse(&value)));
    Ok(Counted {
        rows: rows.collect(),
        watched: watched.collect(),
        senders: senders.collect(),
        missed_rows: missed.long(),
        missed_connections: missed.long(),
    })
}
