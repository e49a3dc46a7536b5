//! Compares a server's estimates of its clients' rates with the true ones. `ackpace top` reports them while the
//! clients read.

use crate::metrics::Values;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::stats::median;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The server's admin socket. One path is enough, since only one run is active at a time.
pub const ADMIN_SOCKET: &str = "/run/ackpace-lab.sock";
/// Most connections that `ackpace top` reports.
const CONNECTIONS_MAX: &str = "20000";
const DOING: &str = "ackpace top --json";

/// The estimated rates (B_n) of all connections with an active response, in bytes per second. What arrived
/// in the last seconds (`rate_bytes_per_s`) is another figure: it contains what a burst left in the receive buffer.
pub fn ask(ackpace: &Path) -> Result<Vec<f64>> {
    let answer = top(ackpace)?;
    rates(&answer).ok_or_else(|| LabError::Setup(format!("{DOING}: no rates: {answer}")))
}

/// What `ackpace top --json` says of the server at [`ADMIN_SOCKET`].
pub fn top(ackpace: &Path) -> Result<Value> {
    let mut top = Command::new(ackpace);
    top.args(["top", "--once", "--json", "--number", CONNECTIONS_MAX]);
    let output = top.args(["--admin", ADMIN_SOCKET]).output();
    let output = output.doing(|| DOING.into())?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        LabError::Setup(format!("{DOING}: {}", said.trim()))
    })
}

fn rates(answer: &Value) -> Option<Vec<f64>> {
    let rates = answer["connections"].as_array()?.iter();
    rates
        .map(|connection| connection["believed_bytes_per_s"].as_f64())
        .collect()
}

/// Adds the errors of the estimates to the figures. `true_bytes_per_s` is what each client takes.
pub fn compare(believed: &[f64], true_bytes_per_s: f64, after: &str, values: &mut Values) {
    if believed.is_empty() || true_bytes_per_s <= 0.0 {
        return;
    }
    let ratios = believed.iter().map(|rate| rate / true_bytes_per_s);
    let errors: Vec<f64> = ratios.clone().map(|ratio| (ratio - 1.0).abs()).collect();
    // A client without an estimate has an infinite factor.
    let mut factors: Vec<f64> = ratios.map(|ratio| ratio.max(1.0 / ratio)).collect();
    factors.sort_by(f64::total_cmp);
    let nth = (factors.len() * 95).div_ceil(100) - 1;
    values.set_some(&format!("believed_{after}_error_share"), median(&errors));
    values.set(&format!("believed_{after}_factor_p95"), factors[nth]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_median_and_a_factor_counts_in_both_directions() {
        let mut values = Values::default();
        let mut believed = vec![110.0; 18];
        believed.extend([25.0, 100.0]);
        compare(&believed, 100.0, "3s", &mut values);
        let error = values.get("believed_3s_error_share").expect("some");
        assert!((error - 0.1).abs() < 1e-9, "{error}");
        let factor = values.get("believed_3s_factor_p95").expect("some");
        assert!((factor - 1.1).abs() < 1e-9, "{factor}");
        believed[0] = 25.0;
        compare(&believed, 100.0, "3s", &mut values);
        assert_eq!(values.get("believed_3s_factor_p95"), Some(4.0));
    }

    #[test]
    fn an_answer_has_an_estimate_for_each_connection() {
        let answer = r#"{"version":1,"connections":[{"rate_bytes_per_s":9,"believed_bytes_per_s":7},{"rate_bytes_per_s":9,"believed_bytes_per_s":0}],"left_out":0}"#;
        let answer = serde_json::from_str(answer).expect("JSON");
        assert_eq!(rates(&answer), Some(vec![7.0, 0.0]));
        assert_eq!(rates(&serde_json::json!({ "error": "no" })), None);
    }
}
