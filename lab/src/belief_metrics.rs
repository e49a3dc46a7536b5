//! Metrics of a server's estimates of its clients' rates: the figures of `believed.rs`.

use crate::metric::{Metric, metric};

/// The metrics, taken 3 and 10 seconds after the clients begin.
pub const BELIEF_METRICS: &[Metric] = &[
    metric(
        "believed_3s_error_share",
        "error after 3 s",
        1.0,
        "what the server believes a client to take, 3 s after all have begun, over what each takes in the window: how far from 1 it is, median of the clients",
    ),
    metric(
        "believed_3s_factor_p95",
        "factor after 3 s",
        1.0,
        "the same as a factor, too much or too little; 95th percentile of the clients",
    ),
    metric(
        "believed_10s_error_share",
        "error after 10 s",
        1.0,
        "the error, 10 s after all have begun",
    ),
    metric(
        "believed_10s_factor_p95",
        "factor after 10 s",
        1.0,
        "the factor, 10 s after all have begun",
    ),
];
