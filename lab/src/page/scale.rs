//! Axes: map values to positions, and choose the ticks.

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    /// Positions of `low` and of `high`.
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Values with a tick.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// An axis for a metric: from 0 (or a power of ten below the smallest value) to a round number above the
    /// largest.
    pub fn measure(values: &[f64], from: f64, to: f64, logarithmic: bool) -> Self {
        let high = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        if logarithmic && least.is_finite() {
            let (low, high) = (least.log10().floor() as i32, high.log10().ceil() as i32);
            let high = high.max(low + 1);
            let step = ((high - low) / 6 + 1) as usize;
            let ticks = (low..=high).step_by(step).map(|power| 10f64.powi(power));
            return Self {
                low: 10f64.powi(low),
                high: 10f64.powi(high),
                from,
                to,
                logarithmic,
                ticks: ticks.collect(),
            };
        }
        let step = round_step(if high > 0.0 { high } else { 1.0 });
        let count = (high / step * (1.0 - 1e-9)).floor() as usize + 1;
        Self {
            low: 0.0,
            high: step * count as f64,
            from,
            to,
            logarithmic: false,
            ticks: (0..=count).map(|nth| step * nth as f64).collect(),
        }
    }

    /// An axis for the values of a sweep: a tick at each value, and a margin at both ends.
    pub fn sweep(values: &[f64], from: f64, to: f64, logarithmic: bool) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let logarithmic = logarithmic && low > 0.0;
        let (low, high) = match (low < high, logarithmic) {
            (true, _) => (low, high),
            (false, true) => (low / 2.0, low * 2.0),
            (false, false) => (low - 1.0, low + 1.0),
        };
        let margin = (to - from) * 0.06;
        Self {
            low,
            high,
            from: from + margin,
            to: to - margin,
            logarithmic,
            ticks: values.to_vec(),
        }
    }

    /// Position of a value; values beyond the ends are clamped.
    pub fn place(&self, value: f64) -> f64 {
        let (low, high, value) = if self.logarithmic {
            let value = value.max(self.low);
            (self.low.ln(), self.high.ln(), value.ln())
        } else {
            (self.low, self.high, value)
        };
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }
}

/// A step of 1, 2 or 5 times a power of ten; three to eight of them reach `high`.
fn round_step(high: f64) -> f64 {
    let power = 10f64.powf((high / 3.0).log10().floor());
    let most = [5.0, 2.0, 1.0].map(|times| times * power);
    most.into_iter()
        .find(|step| high / step >= 3.0)
        .unwrap_or(power)
}

/// The label of a tick, without superfluous digits.
pub fn label(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 && value % 1e5 == 0.0 {
        return format!("{}M", value / 1e6);
    }
    if size >= 10_000.0 && value % 100.0 == 0.0 {
        return format!("{}k", value / 1e3);
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() {
        "0".into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_starts_at_zero_and_ends_at_a_round_number() {
        let scale = Scale::measure(&[3.2, 17.0], 100.0, 0.0, false);
        assert_eq!(scale.ticks, [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!((scale.place(0.0), scale.place(20.0)), (100.0, 0.0));
        assert_eq!(scale.place(10.0), 50.0);
        let exact = Scale::measure(&[1.0], 0.0, 1.0, false);
        assert_eq!(exact.ticks.last(), Some(&1.0));
        let none = Scale::measure(&[], 0.0, 1.0, false);
        assert!(none.ticks.len() >= 2);
    }

    #[test]
    fn labels_have_no_useless_digits() {
        let all = [0.0, 0.1, 1.5, 20.0, 1000.0, 20_000.0, 2_500_000.0].map(label);
        assert_eq!(all, ["0", "0.1", "1.5", "20", "1000", "20k", "2.5M"]);
    }
}
