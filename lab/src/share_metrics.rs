//! Metrics of the division of send memory: the figures of `shares.rs`.

use crate::metric::{Metric, metric};

/// The metrics.
pub const SHARE_METRICS: &[Metric] = &[
    metric(
        "share_mean_bytes",
        "share KB",
        1e-3,
        "B_i, the share of the send memory that a connection of a class has (`ackpace top`, four times a second), mean over time",
    ),
    metric(
        "share_variation",
        "variation of B_i",
        1.0,
        "standard deviation of B_i over its mean, in the steady part of the window; without a class: mean of the classes",
    ),
];
