//! Decisions about a device as sentences.

use core::fmt;

use super::DeviceChange;
use crate::depth::{DepthBound, TrialOutcome};
use crate::units::{Bytes, Time};

impl fmt::Display for DeviceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DeviceChange::Target {
                from_us,
                to_us,
                bound,
                streams,
                rates_bytes_per_s,
            } => {
                let why = bound.sentence();
                let (from, to, rates) = (Time(from_us), Time(to_us), Bytes(rates_bytes_per_s));
                write!(
                    f,
                    "T_D goes from {from} to {to}, since {why}; {streams} streams take {rates}/s together"
                )
            }
            DeviceChange::Depth { from, to, bound } => depth(from, to, bound, f),
            DeviceChange::Tried(verdict) => tried(&verdict, f),
            DeviceChange::Memory {
                from_bytes,
                to_bytes,
            } => {
                let why = match from_bytes < to_bytes {
                    true => "which nobody else uses now",
                    false => "since others want the rest",
                };
                let (from, to) = (Bytes(from_bytes), Bytes(to_bytes));
                write!(
                    f,
                    "memory for reading ahead goes from {from} to {to}, {why}"
                )
            }
            DeviceChange::PoolTarget {
                from_percent,
                to_percent,
                used_bytes,
                memory_bytes,
            } => {
                let why = match from_percent < to_percent {
                    true => "streams run dry while the pool has room",
                    false => "the pool is full",
                };
                let (used, all) = (Bytes(used_bytes), Bytes(memory_bytes));
                write!(
                    f,
                    "memory is taken to hold {to_percent} % of what is calculated, not {from_percent} %, since {why}; \
                     {used} of {all} are in use"
                )
            }
            DeviceChange::ReadPath { stream, to, .. } => {
                let (worker, conn) = (stream.worker, stream.conn);
                let path = to.sentence();
                write!(
                    f,
                    "connection {worker}.{}.{} is now read for {path}",
                    conn.index, conn.generation
                )
            }
        }
    }
}

fn depth(from: usize, to: usize, bound: DepthBound, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "the device gets {to} reads at once (K), ")?;
    match from < to {
        true => write!(f, "up from {from}, and no more")?,
        false => write!(f, "down from {from}")?,
    }
    write!(f, ": {}", bound.sentence())
}

fn tried(verdict: &TrialOutcome, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let TrialOutcome {
        from,
        to,
        gain_permille,
        adopted,
    } = *verdict;
    let (whole, tenth) = (
        gain_permille.unsigned_abs() / 10,
        gain_permille.unsigned_abs() % 10,
    );
    let less = if gain_permille < 0 { "less" } else { "more" };
    let then = match adopted {
        true => "so it gets them from now on",
        false => "so nothing changes",
    };
    write!(
        f,
        "{to} reads at once (K) were measured against {from}: the device brings {whole}.{tenth} % {less}, {then}"
    )
}
