//! Logs of servers and proxies, read: one line to an [`Entry`], many to the numbers of the DTCP paper's Tables 1 and 2
//! ([`Analyser`]). Squid's native format, common, combined, and the JSON that this server writes.
//!
//! Memory is bounded whatever the length of the log ([`MEMORY_BYTES`]).

mod analyser;
mod line;
mod sampled;

pub use self::analyser::{
    Analyser, CONNECTION_MS, FAULTS_SHOWN_MAX, Files, MEMORY_BYTES, Report, SERVERS_SHOWN_MAX,
    ServerRow, Totals,
};
pub use self::line::{Bad, Entry, LogFormat, parse};

#[cfg(test)]
mod tests;
