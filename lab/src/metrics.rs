//! The list of metrics: each figure of a round has a key, and each key a label for readers.

use std::collections::BTreeMap;

/// Figures of one contender in one round, by the keys of [`all`]. "KEY@NAME" is the figure of one class of
/// clients, or of one set of files.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(transparent)]
pub struct Values(BTreeMap<String, f64>);

impl Values {
    /// Sets a figure; a later value replaces an earlier one.
    pub fn set(&mut self, key: &str, value: f64) {
        self.0.insert(key.to_owned(), value);
    }

    /// Sets a figure if there is one.
    pub fn set_some(&mut self, key: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Adds all figures of `others`.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The figure of a key.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.0.get(key).copied()
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

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

/// All metrics, in the order of tables: `metrics.tsv`.
pub fn all() -> impl Iterator<Item = Metric> {
    let lines = include_str!("metrics.tsv").lines().skip(1);
    lines.filter_map(|line| {
        let mut fields = line.split('\t');
        Some(Metric {
            key: fields.next()?,
            label: fields.next()?,
            scale: fields.next()?.parse().ok()?,
            means: fields.next()?,
        })
    })
}

/// The metric of a key, also of the key of a class or set. `None` for an unknown name.
pub fn find(key: &str) -> Option<Metric> {
    let key = key.split('@').next().unwrap_or(key);
    all().find(|metric| metric.key == key)
}

/// The label of a key: "goodput MB/s", "goodput MB/s (films)".
pub fn label(key: &str) -> String {
    let label = find(key).map_or(key, |metric| metric.label);
    match key.split_once('@') {
        None => label.to_owned(),
        Some((_, class)) => format!("{label} ({class})"),
    }
}

/// The factor from the measured to the shown value.
pub fn scale(key: &str) -> f64 {
    find(key).map_or(1.0, |metric| metric.scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_listed_once() {
        let mut keys: Vec<_> = all().map(|metric| metric.key).collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert_eq!(all, include_str!("metrics.tsv").lines().count() - 1);
        assert_eq!(find("jain").unwrap().label, "Jain's index");
        assert!(find("no_such").is_none());
        assert_eq!(label("goodput_bytes_per_s@films"), "goodput MB/s (films)");
        assert_eq!(scale("goodput_bytes_per_s@films"), 1e-6);
    }
}
