//! What is measured: one file for each case, and what they share.

pub mod cached;
pub mod listing;
pub mod stall;

use crate::corpus::Corpus;
use crate::error::{LabError, Result};
use crate::load::Load;
use crate::peers::{Contender, Running, Site};
use crate::world::{self, World};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that a case needs.
pub struct Bench {
    /// Cores.
    pub world: World,
    /// Files.
    pub corpus: Corpus,
    /// The ackpace binary.
    pub ackpace: PathBuf,
    /// Scratch directory of the servers.
    pub scratch: PathBuf,
    /// Who takes part at all.
    pub contenders: Vec<Contender>,
    /// How long and how often.
    pub pace: Pace,
}

/// How long and how often.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Pace {
    /// Rounds where parity is the question.
    pub rounds_cached: usize,
    /// Rounds of the latency cases.
    pub rounds_latency: usize,
    /// Load before each window.
    pub warm_up_s: f64,
    /// Window of the cached case.
    pub window_cached_s: f64,
    /// Window of the latency cases.
    pub window_latency_s: f64,
}

impl Bench {
    /// Those of `wanted` that take part, in the order of round `round`: it rotates, and every other
    /// time around it is reversed, so that nobody always follows the same neighbour.
    pub fn order(&self, wanted: &[Contender], round: usize) -> Vec<Contender> {
        let taking_part = wanted
            .iter()
            .copied()
            .filter(|who| self.contenders.contains(who));
        rotated(taking_part.collect(), round)
    }

    /// The site of the cached cases.
    pub fn site(&self) -> Site<'_> {
        Site {
            root: &self.corpus.site,
            scratch: &self.scratch,
            ackpace: &self.ackpace,
            cgroup: None,
        }
    }
}

fn rotated(mut order: Vec<Contender>, round: usize) -> Vec<Contender> {
    let n = order.len();
    if n > 0 {
        order.rotate_left(round % n);
        if round / n % 2 == 1 {
            order.reverse();
        }
    }
    order
}

/// Checks reno on both sides of a live connection. A server that is busy may accept late: the load
/// goes on until it did.
fn check_congestion_control(load: &mut Load, server: &Running) -> Result<()> {
    for _ in 0..200 {
        let Some(socket) = load.socket() else {
            return Ok(());
        };
        if world::congestion_control_checked(socket, &server.pids()?)? {
            return Ok(());
        }
        load.run_for(Duration::from_millis(20))?;
    }
    let what = "did not accept the first connection: congestion control unchecked";
    Err(LabError::contender(server.name(), what))
}

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// One line on the terminal that the next one overwrites; nothing where nobody looks.
fn progress(text: &str) {
    use std::io::{IsTerminal, Write};
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[K{text}");
        let _ = out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_has_each_place_equally_often() {
        let all = [Contender::Ackpace, Contender::Nginx, Contender::Lighttpd];
        for place in 0..3 {
            for who in all {
                let times = (0..6).filter(|round| rotated(all.to_vec(), *round)[place] == who);
                assert_eq!(times.count(), 2, "{who:?} at place {place}");
            }
        }
        assert!(rotated(Vec::new(), 3).is_empty());
    }
}
