//! The command line of `receive`, each option defined once.

use clap::{Args, Subcommand};

/// How long `--for` may watch, in seconds. More: refused, since a page is told each second without it.
const WATCH_S_MAX: u64 = 86_400;

/// A port of `--port`.
///
/// # Errors
/// It is none.
pub fn port(text: &str) -> Result<u16, String> {
    match text.trim().parse() {
        Ok(0) | Err(_) => Err(
            "not a port: write ports from 1 to 65535, such as 80,443; there are no ranges"
                .to_owned(),
        ),
        Ok(port) => Ok(port),
    }
}

/// `receive`.
#[derive(Debug, Subcommand)]
pub enum Receive {
    /// Measure how long segments wait for TCP and for their process, and who held a socket's lock
    Watch(Watch),
    /// Let a receiver that owns its socket's lock finish its call when its slice ends, then deduct the time, until stopped: by a
    /// scheduler for all normal tasks of the machine (sched_ext, Linux 6.19 or later)
    Guard(Guard),
    /// Show which settings bear on that: their present values, what changing them would do, what was measured
    Advise {
        /// Tell of this process, too
        #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
        pid: Option<u32>,
        /// A JSON object a line
        #[arg(long)]
        json: bool,
    },
}

/// `receive guard`.
#[derive(Debug, Args)]
pub struct Guard {
    /// Only services with these ports, at this end or the other, such as 80,443
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = port)]
    pub port: Vec<u16>,
    /// Only this process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Counts as a JSON object, at the end
    #[arg(long)]
    pub json: bool,
}

/// `receive watch`: a page each second until stopped, or one at the end.
#[derive(Debug, Args)]
pub struct Watch {
    /// Only services with these ports, at this end or the other, such as 80,443
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = port)]
    pub port: Vec<u16>,
    /// Only what this process receives
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Watch for a second, tell and end
    #[arg(long, conflicts_with = "seconds")]
    pub once: bool,
    /// Watch for so many seconds, tell and end
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=WATCH_S_MAX))]
    pub seconds: Option<u64>,
    /// A JSON object for each page
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_have_spaces_around_it_and_is_not_0_or_a_range() {
        assert_eq!((port("80"), port(" 443")), (Ok(80), Ok(443)));
        for text in ["", "0", "80-90", "65536", "http", "-1"] {
            let why = port(text).expect_err(text);
            assert!(why.contains("80,443"), "{text}: {why}");
        }
    }
}
