//! The listing of a directory with 50,000 entries, asked for again and again, and a visitor who wants
//! a small file. A server that lists in one go lets everybody wait; ours has to stay under 1 ms a turn.

use super::{Bench, check_congestion_control, progress, seconds};
use crate::corpus::{self, PROBE_LEN_BYTES};
use crate::cpu::Spent;
use crate::error::{LabError, Result};
use crate::load::{Framing, Load, Spec, Tally};
use crate::pages;
use crate::peers::{Contender, Running};
use crate::probe::{Latencies, Prober};
use crate::report::{self, Limit, Row};
use crate::verify;

/// Clients that fetch the listing.
const CLIENTS: usize = 4;
/// Who takes part.
const CONTENDERS: [Contender; 3] = [Contender::Ackpace, Contender::Nginx, Contender::Lighttpd];
const PATH: &str = "/many/";

/// Lengths of the worker's turns, as the server itself counted them from start to end.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Turns {
    /// Turns.
    pub count: u64,
    /// Longest.
    pub max_us: u64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Turns over 1 ms.
    pub over_1ms: u64,
}

/// A figure of one round.
type Value = fn(&Round) -> f64;

/// One contender in one round.
#[derive(Debug, serde::Serialize)]
pub struct Round {
    /// Number of the round.
    pub round: usize,
    /// Place in the order of the round.
    pub place: usize,
    /// Who.
    pub contender: Contender,
    /// The probe beside the listings.
    pub busy: Latencies,
    /// Share of the window in which the server's busiest thread was ready and others had its core.
    pub server_waited_share: f64,
    /// Listings completed a second.
    pub listings_per_s: f64,
    /// Length of one.
    pub listing_len_bytes: u64,
    /// Lengths of turns, of ackpace only.
    pub turns: Option<Turns>,
    /// What came.
    pub tally: Tally,
}

/// Runs all rounds.
pub fn run(bench: &Bench) -> Result<Vec<Round>> {
    let names = corpus::entry_names();
    let _cached = pages::Pinned::new(&bench.corpus.site.join("probe.bin"))?;
    let mut len_bytes = std::collections::HashMap::new();
    for contender in bench.order(&CONTENDERS, 0) {
        progress(&format!(
            "listing: checking every link of {}",
            contender.name()
        ));
        let server = contender.start(&bench.world, &bench.site())?;
        let len = verify::listing(contender.name(), server.address, PATH, &names)?;
        len_bytes.insert(contender, len);
        server.stop()?;
    }
    let mut rounds = Vec::new();
    for round in 0..bench.pace.rounds_latency {
        for (place, contender) in bench.order(&CONTENDERS, round).into_iter().enumerate() {
            let (nth, of) = (round + 1, bench.pace.rounds_latency);
            progress(&format!(
                "listing: round {nth} of {of}, {}",
                contender.name()
            ));
            let listing_len_bytes = len_bytes[&contender];
            let server = contender.start(&bench.world, &bench.site())?;
            let (busy, tally, spent) = window(bench, &server, listing_len_bytes)?;
            let turns = turns(contender, &server.stop()?)?;
            rounds.push(Round {
                round,
                place,
                contender,
                busy,
                server_waited_share: spent.waited_s / tally.elapsed_s,
                listings_per_s: tally.responses as f64 / tally.elapsed_s,
                listing_len_bytes,
                turns,
                tally,
            });
        }
    }
    progress("");
    Ok(rounds)
}

fn window(bench: &Bench, server: &Running, len_bytes: u64) -> Result<(Latencies, Tally, Spent)> {
    let who = server.name();
    let visitor = Prober::connect(who, server.address, "/probe.bin", PROBE_LEN_BYTES)?;
    let mut load = Load::start(Spec {
        who: who.into(),
        address: server.address,
        paths: vec![PATH.into()],
        connections: CLIENTS,
        framing: Framing::UntilClose(len_bytes),
        greeting: None,
    })?;
    check_congestion_control(&mut load, server)?;
    load.run_for(seconds(bench.pace.warm_up_s))?;
    let before = server.look()?;
    let busy = visitor.start();
    let tally = load.run_for(seconds(bench.pace.window_latency_s))?;
    let spent = server.spent_since(&before)?;
    Ok((busy.stop()?, tally, spent))
}

/// The line `turns: {...}` that ackpace writes when it ends. Without it the target can't be judged.
fn turns(contender: Contender, stderr: &str) -> Result<Option<Turns>> {
    if contender != Contender::Ackpace {
        return Ok(None);
    }
    let line = stderr
        .lines()
        .rev()
        .find_map(|line| line.split_once("turns: "));
    let Some((_, json)) = line else {
        let what = "no line `turns: {...}` at its end: the length of turns is unknown";
        return Err(LabError::contender(contender.name(), what));
    };
    let turns = serde_json::from_str(json.trim());
    turns
        .map(Some)
        .map_err(|error| LabError::contender(contender.name(), format!("turns: {error}")))
}

/// How much strangers took of the servers' time.
pub fn disturbance(rounds: &[Round]) -> Option<f64> {
    let waited = rounds.iter().map(|r| (r.contender, r.server_waited_share));
    report::disturbance(&waited.collect::<Vec<_>>())
}

/// The lines of the report.
pub fn rows(rounds: &[Round]) -> Vec<Row> {
    let case = "listing, 50,000";
    let of = |who: Contender, value: Value| -> Vec<f64> {
        rounds
            .iter()
            .filter(|r| r.contender == who)
            .map(value)
            .collect()
    };
    let mut rows = Vec::new();
    for peer in [Contender::Nginx, Contender::Lighttpd] {
        let metrics: [(&str, Value); 4] = [
            ("probe p50 ms", |r| r.busy.p50_us / 1e3),
            ("probe p99 ms", |r| r.busy.p99_us / 1e3),
            ("probe max ms", |r| r.busy.max_us / 1e3),
            ("listings/s", |r| r.listings_per_s),
        ];
        for (metric, value) in metrics {
            let (ours, theirs) = (of(Contender::Ackpace, value), of(peer, value));
            rows.push(Row::ratio(
                case,
                metric,
                peer.name(),
                &ours,
                &theirs,
                Limit::None,
            ));
        }
    }
    let turns: Vec<&Turns> = rounds
        .iter()
        .filter_map(|round| round.turns.as_ref())
        .collect();
    let over: u64 = turns.iter().map(|turns| turns.over_1ms).sum();
    let longest_us = turns.iter().map(|turns| turns.max_us).max();
    let count: u64 = turns.iter().map(|turns| turns.count).sum();
    if let Some(longest_us) = longest_us {
        rows.push(Some(Row::value(case, "turns", count as f64, Limit::None)));
        rows.push(Some(Row::value(
            case,
            "longest turn ms",
            longest_us as f64 / 1e3,
            Limit::None,
        )));
        rows.push(Some(Row::value(
            case,
            "turns over 1 ms",
            over as f64,
            Limit::Zero,
        )));
    }
    rows.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "debug turns: {\"count\":9,\"max_us\":812,\"p50_us\":3,\"p99_us\":90,\
        \"p999_us\":400,\"over_1ms\":0}\n";

    #[test]
    fn the_line_of_turns_is_read_wherever_it_stands() {
        let text = format!("serving x\n{LINE}bye\n");
        let got = turns(Contender::Ackpace, &text).unwrap().unwrap();
        assert_eq!(
            (got.count, got.max_us, got.p999_us, got.over_1ms),
            (9, 812, 400, 0)
        );
        assert_eq!(turns(Contender::Nginx, "").unwrap(), None);
    }

    #[test]
    fn a_missing_or_broken_line_of_turns_is_an_error() {
        assert!(turns(Contender::Ackpace, "serving x\n").is_err());
        assert!(turns(Contender::Ackpace, "turns: {\"count\":9}\n").is_err());
    }
}
