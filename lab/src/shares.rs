//! The shares of the send memory (B_i) over time: `ackpace top` tells that of each connection, several times a second.

use crate::believed::top;
use crate::metrics::Values;
use crate::sampler::Sampler;
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_swarm::workload::Workload as Clients;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval between two samples: shares are divided anew once a second.
const SAMPLE_PAUSE: Duration = Duration::from_millis(250);

/// The shares of one class at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    /// Time since the start of the window.
    at_s: f64,
    /// Mean share of its connections that have one.
    share_bytes: f64,
}

/// What was sampled, by class.
#[derive(Debug, Default, PartialEq)]
pub struct Shares(BTreeMap<String, Vec<Sample>>);

/// A class with its addresses as numbers: the first, and the one behind the last.
type Addresses = (String, u32, u32);

/// Starts to sample; `None` for a server that doesn't answer, which is any other than ackpace.
pub fn sample(ackpace: &Path, clients: &Clients) -> Result<Option<Sampler<Shares>>> {
    let Ok(first) = top(ackpace) else {
        return Ok(None);
    };
    let (ackpace, classes) = (ackpace.to_owned(), addresses(clients)?);
    let (start, mut shares) = (Instant::now(), Shares::default());
    shares.add(0.0, &first, &classes);
    let sample = move |shares: &mut Shares| {
        let at_s = start.elapsed().as_secs_f64();
        shares.add(at_s, &top(&ackpace)?, &classes);
        Ok(())
    };
    Ok(Some(Sampler::start("shares", SAMPLE_PAUSE, shares, sample)))
}

/// The addresses of the classes that have some.
fn addresses(clients: &Clients) -> Result<Vec<Addresses>> {
    let mut all = Vec::new();
    for class in &clients.classes {
        if let Some((first, count)) = class.sources().map_err(LabError::Setup)? {
            let first = u32::from(first);
            all.push((class.name.clone(), first, first.saturating_add(count)));
        }
    }
    Ok(all)
}

impl Shares {
    fn add(&mut self, at_s: f64, answer: &Value, classes: &[Addresses]) {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for connection in answer["connections"].as_array().into_iter().flatten() {
            let Some(share_bytes) = connection["share_bytes"].as_f64() else {
                continue;
            };
            let peer = connection["peer"]
                .as_str()
                .and_then(|peer| peer.parse().ok());
            let Some(SocketAddr::V4(peer)) = peer else {
                continue;
            };
            let peer = u32::from(*peer.ip());
            let mut classes = classes.iter();
            if let Some((name, ..)) = classes.find(|(_, from, to)| (*from..*to).contains(&peer)) {
                let sum = sums.entry(name).or_default();
                *sum = (sum.0 + share_bytes, sum.1 + 1.0);
            }
        }
        for (name, (bytes, connections)) in sums {
            let share_bytes = bytes / connections;
            let samples = self.0.entry(name.to_owned()).or_default();
            samples.push(Sample { at_s, share_bytes });
        }
    }

    /// Adds the mean of each class and its coefficient of variation from `steady_s` on, and the mean variation of all.
    pub fn add_values(&self, steady_s: f64, values: &mut Values) {
        let mut all = Vec::new();
        for (class, samples) in &self.0 {
            let steady = samples.iter().filter(|sample| sample.at_s >= steady_s);
            let steady: Vec<f64> = steady.map(|sample| sample.share_bytes).collect();
            let Some((mean, variation)) = variation(&steady) else {
                continue;
            };
            values.set(&format!("share_mean_bytes@{class}"), mean);
            values.set(&format!("share_variation@{class}"), variation);
            all.push(variation);
        }
        if !all.is_empty() {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            values.set("share_variation", mean);
        }
    }

    /// Adds a curve for each class to those of the window: the mean of each second, 0 where it had no share.
    pub fn add_curves(&self, window: Duration, curves: &mut Value) {
        for (class, samples) in &self.0 {
            let of_second = |second: u64| {
                let mut sum = (0.0, 0.0);
                for sample in samples.iter().filter(|one| one.at_s as u64 == second) {
                    sum = (sum.0 + sample.share_bytes, sum.1 + 1.0);
                }
                if sum.1 > 0.0 { sum.0 / sum.1 } else { 0.0 }
            };
            let curve: Vec<f64> = (0..window.as_secs()).map(of_second).collect();
            curves[format!("share_mean_bytes@{class}")] = curve.into();
        }
    }
}

/// Mean, and standard deviation over mean; `None` without samples or with a mean of 0.
fn variation(samples: &[f64]) -> Option<(f64, f64)> {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|one| (one - mean).powi(2)).sum();
    (mean > 0.0).then(|| (mean, (squares / count).sqrt() / mean))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(shares: &[(&str, Option<f64>)]) -> Value {
        let connection =
            |(peer, share): &(&str, Option<f64>)| json!({ "peer": peer, "share_bytes": share });
        json!({ "connections": shares.iter().map(connection).collect::<Vec<_>>() })
    }

    #[test]
    fn shares_are_those_of_a_classs_addresses() {
        let classes = [("a".to_owned(), 0x0a01_0001, 0x0a01_0003)];
        let mut shares = Shares::default();
        let all = [
            ("10.1.0.1:99", Some(10.0)),
            ("10.1.0.2:7", Some(30.0)),
            ("10.1.0.2:8", None), // sends nothing now
            ("10.1.0.3:1", Some(99.0)),
            ("unix", Some(99.0)),
        ];
        shares.add(0.1, &answer(&all), &classes);
        shares.add(1.2, &answer(&[("10.1.0.1:99", Some(60.0))]), &classes);
        let mut values = Values::default();
        shares.add_values(0.0, &mut values);
        assert_eq!(values.get("share_mean_bytes@a"), Some(40.0));
        assert_eq!(values.get("share_variation"), Some(0.5));
        shares.add_values(1.0, &mut values);
        assert_eq!(
            values.get("share_variation@a"),
            Some(0.0),
            "the later one alone"
        );
        let mut curves = json!({});
        shares.add_curves(Duration::from_secs(3), &mut curves);
        assert_eq!(curves["share_mean_bytes@a"], json!([20.0, 60.0, 0.0]));
    }
}
