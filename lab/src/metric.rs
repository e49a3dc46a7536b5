//! What a figure is: a key, words, a scale.

/// A figure that the lab measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name in the JSON file; its unit stands last.
    pub key: &'static str,
    /// Name in tables and figures, with the unit that it is shown in.
    pub label: &'static str,
    /// Shown value = measured value * scale.
    pub scale: f64,
    /// What it means and where it comes from.
    pub means: &'static str,
}

/// A line of the list.
pub const fn metric(
    key: &'static str,
    label: &'static str,
    scale: f64,
    means: &'static str,
) -> Metric {
    Metric {
        key,
        label,
        scale,
        means,
    }
}
