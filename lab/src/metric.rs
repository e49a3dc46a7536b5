//! The definition of a metric: a key, a label, a scale and a meaning.

/// A quantity that the lab measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name in the JSON file, with the unit as its suffix.
    pub key: &'static str,
    /// Name in tables and figures, with the unit in which it is shown.
    pub label: &'static str,
    /// Factor from the measured to the shown value.
    pub scale: f64,
    /// Its meaning and its source.
    pub means: &'static str,
}

/// Builds one entry of the list.
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
