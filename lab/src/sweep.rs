//! A sweep: axes with their values, and the points that they span.

use std::collections::BTreeMap;

/// One parameter that an experiment varies.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Axis {
    /// Name, as used by points and by placeholders `{NAME}` in contenders' options.
    pub name: &'static str,
    /// Label for readers, with its unit: "connections", "round trip ms".
    pub label: &'static str,
    /// Values, in the order of the figure.
    pub values: Vec<f64>,
    /// The values of a quick look; empty: all of them.
    pub quick: Vec<f64>,
    /// True if figures give it a logarithmic scale.
    pub logarithmic: bool,
    /// For an axis of kinds instead of amounts: the names of the values 0, 1, ...
    pub names: Vec<&'static str>,
}

impl Axis {
    /// An axis with a linear scale, whose quick look takes all values.
    pub fn new(name: &'static str, label: &'static str, values: &[f64]) -> Self {
        Self {
            name,
            label,
            values: values.to_vec(),
            quick: Vec::new(),
            logarithmic: false,
            names: Vec::new(),
        }
    }

    /// An axis of kinds: its values are 0, 1, ..., shown by their names.
    pub fn named(name: &'static str, label: &'static str, names: &[&'static str]) -> Self {
        let values: Vec<f64> = (0..names.len()).map(|nth| nth as f64).collect();
        Self {
            names: names.to_vec(),
            ..Self::new(name, label, &values)
        }
    }

    /// The text that shows a value.
    pub fn show(&self, value: f64) -> String {
        match self.names.get(value as usize) {
            Some(name) => (*name).to_owned(),
            None => value.to_string(),
        }
    }

    /// The same axis with fewer values for a quick look.
    pub fn quick(mut self, values: &[f64]) -> Self {
        self.quick = values.to_vec();
        self
    }

    /// The same axis with a logarithmic scale.
    pub fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    fn taken(&self, quick: bool) -> &[f64] {
        if quick && !self.quick.is_empty() {
            &self.quick
        } else {
            &self.values
        }
    }
}

/// One value for each axis.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Point(BTreeMap<&'static str, f64>);

impl Point {
    /// The value on an axis. 0 if the sweep has no such axis, which a test of all experiments rules out.
    pub fn get(&self, axis: &str) -> f64 {
        self.0.get(axis).copied().unwrap_or(0.0)
    }

    /// The value on an axis that counts items.
    pub fn count(&self, axis: &str) -> usize {
        self.get(axis) as usize
    }

    /// The same point with another value on one axis.
    pub fn with(&self, axis: &'static str, value: f64) -> Self {
        let mut point = self.clone();
        point.0.insert(axis, value);
        point
    }

    /// Axes and their values, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().map(|(name, value)| (*name, *value))
    }

    /// `text` with each `{NAME}` replaced by the value on that axis.
    pub fn fill(&self, text: &str) -> String {
        self.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{name}}}"), &value.to_string())
        })
    }

    /// "connections = 20, loss % = 0.1", in the order of the axes; empty for an experiment without a sweep.
    pub fn describe(&self, axes: &[Axis]) -> String {
        let parts = axes
            .iter()
            .filter(|axis| self.0.contains_key(axis.name))
            .map(|axis| match axis.show(self.get(axis.name)) {
                name if !axis.names.is_empty() => name,
                value => format!("{} = {value}", axis.label),
            });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// A point for tests.
    #[cfg(test)]
    pub fn of(values: &[(&'static str, f64)]) -> Self {
        Self(values.iter().copied().collect())
    }
}

/// All points of a sweep; the last axis varies fastest. Without axes: a single empty point.
pub fn expand(axes: &[Axis], quick: bool) -> Vec<Point> {
    let mut points = vec![Point::default()];
    for axis in axes {
        points = points
            .iter()
            .flat_map(|point| {
                let values = axis.taken(quick).iter();
                values.map(|value| point.with(axis.name, *value))
            })
            .collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> [Axis; 2] {
        [
            Axis::new("loss", "loss %", &[0.0, 0.1]),
            Axis::new("clients", "clients", &[1.0, 10.0, 100.0]).quick(&[10.0]),
        ]
    }

    #[test]
    fn a_sweep_is_every_value_with_every_other_the_last_axis_fastest() {
        let points = expand(&axes(), false);
        let texts: Vec<String> = points.iter().map(|p| p.describe(&axes())).collect();
        assert_eq!(
            texts,
            [
                "loss % = 0, clients = 1",
                "loss % = 0, clients = 10",
                "loss % = 0, clients = 100",
                "loss % = 0.1, clients = 1",
                "loss % = 0.1, clients = 10",
                "loss % = 0.1, clients = 100",
            ]
        );
    }

    #[test]
    fn a_quick_look_takes_fewer_values_and_no_axis_is_one_point() {
        let points = expand(&axes(), true);
        assert_eq!(points.len(), 2);
        assert_eq!(points[1], Point::of(&[("loss", 0.1), ("clients", 10.0)]));
        assert_eq!(expand(&[], false), [Point::default()]);
    }

    #[test]
    fn options_of_contenders_take_the_values_of_the_point() {
        let point = Point::of(&[("buffer", 64.0), ("share", 0.5)]);
        assert_eq!(point.fill("sndbuf={buffer}k"), "sndbuf=64k");
        assert_eq!(point.fill("{share} {other}"), "0.5 {other}");
    }
}
