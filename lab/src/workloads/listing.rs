//! Repeated listings of a directory with 50,000 entries, and a visitor who wants a small file. A server that
//! lists in one go blocks everybody else; ackpace must keep each turn below 1 ms.

use super::downloads::first;
use super::{RoundResult, RoundTimes, check_congestion_control};
use crate::corpus;
use crate::metrics::Values;
use crate::peers::{Contender, Kind, Running};
use crate::probe::Prober;
use crate::testbed::Testbed;
use crate::watch::{Watch, Work};
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_swarm::load::{Framing, Load, Spec};
use ackpace_lab_swarm::verify;

const PATH: &str = "/many/";

/// Listings and a visitor.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Listing {
    /// Number of clients that fetch the listing.
    pub clients: usize,
}

/// Durations of the worker's turns, counted by the server itself over its lifetime.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Turns {
    /// Number of turns.
    count: u64,
    /// Longest turn.
    max_us: u64,
    /// Median.
    p50_us: u64,
    /// 99th percentile.
    p99_us: u64,
    /// 99.9th percentile.
    p999_us: u64,
    /// Turns over 1 ms.
    over_1ms: u64,
}

impl Listing {
    pub(super) fn verify(&self, server: &Running) -> Result<()> {
        verify::listing(&server.name, server.address, PATH, &corpus::entry_names()).map(|_| ())
    }

    pub(super) fn run(
        &self,
        contender: &Contender,
        server: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let who = server.name.clone();
        let (path, len_bytes) = first(corpus::PROBE);
        let names = corpus::entry_names();
        let listing_len_bytes = verify::listing(&who, server.address, PATH, &names)?;
        let visitor = Prober::connect(&who, server.address, &path, len_bytes)?;
        let mut load = Load::start(Spec {
            who: who.clone(),
            address: server.address,
            paths: vec![PATH.into()],
            connections: self.clients,
            framing: Framing::UntilClose(listing_len_bytes),
            greeting: None,
        })?;
        check_congestion_control(&mut load, &server, testbed)?;
        load.run_for(times.warm_up)?;
        let watch = Watch::begin(&server, &testbed.instruments, false)?;
        let busy = visitor.start();
        let tally = load.run_for(times.window)?;
        let mut values = watch.end()?.values(Work {
            body_bytes: tally.body_bytes,
            responses: 0,
        });
        let busy = busy.stop()?;
        values.set("probe_p50_us", busy.p50_us);
        values.set("probe_p99_us", busy.p99_us);
        values.set("probe_max_us", busy.max_us);
        values.set("probes", busy.count as f64);
        let per_s = |of: f64| of / tally.elapsed_s;
        values.set("load_core_share", per_s(tally.load_cpu_s));
        values.set("listings_per_s", per_s(tally.responses as f64));
        drop(load); // a draining server would wait for it
        let log = super::finish(server, &mut values)?;
        let turns = match contender.kind {
            Kind::Ackpace => Some(turns(&who, &log)?),
            _ => None,
        };
        if let Some(turns) = &turns {
            add_turns(&mut values, turns);
        }
        let detail = serde_json::json!({ "tally": tally, "busy": busy, "turns": turns });
        Ok(RoundResult { values, detail })
    }
}

fn add_turns(values: &mut Values, turns: &Turns) {
    values.set("turns", turns.count as f64);
    values.set("turn_max_us", turns.max_us as f64);
    values.set("turns_over_1ms", turns.over_1ms as f64);
}

/// Parses the line `turns: {...}` that ackpace writes when it ends. Without it the target can't be judged.
fn turns(who: &str, log: &str) -> Result<Turns> {
    let line = log
        .lines()
        .rev()
        .find_map(|line| line.split_once("turns: "));
    let Some((_, json)) = line else {
        let what = "no line `turns: {...}` at its end: the length of turns is unknown";
        return Err(LabError::contender(who, what));
    };
    serde_json::from_str(json.trim())
        .map_err(|error| LabError::contender(who, format!("turns: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "debug turns: {\"count\":9,\"max_us\":812,\"p50_us\":3,\"p99_us\":90,\
        \"p999_us\":400,\"over_1ms\":0}\n";

    #[test]
    fn the_line_of_turns_is_read_wherever_it_stands() {
        let got = turns("ackpace", &format!("serving x\n{LINE}bye\n")).unwrap();
        assert_eq!((got.count, got.max_us, got.p999_us), (9, 812, 400));
        let mut values = Values::default();
        add_turns(&mut values, &got);
        assert_eq!(values.get("turns_over_1ms"), Some(0.0));
    }

    #[test]
    fn a_missing_or_broken_line_of_turns_is_an_error() {
        assert!(turns("ackpace", "serving x\n").is_err());
        assert!(turns("ackpace", "turns: {\"count\":9}\n").is_err());
    }
}
