//! Durations: a whole number and a unit.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::value::{ValueError, shown};

/// Units from large to small, with their length.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// Reads `500ms`, `10s`, `2min` or `1h`.
pub fn parse(text: &str) -> Result<Duration, ValueError> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits_len);
    let not_a_duration = || {
        ValueError::new(format!(
            "{} is not a duration: write a whole number and ms, s, min or h, such as 10s",
            shown(text)
        ))
    };
    if digits.is_empty() {
        return Err(not_a_duration());
    }
    let hint = |unit| {
        ValueError::new(format!(
            "{} has no clear unit: write {digits}{unit} (units are ms, s, min and h)",
            shown(text)
        ))
    };
    match unit {
        "" => return Err(hint("s")),
        "m" => return Err(hint("min")),
        _ => (),
    }
    let (_, unit_ms) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(not_a_duration)?;
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(*unit_ms))
        .map(Duration::from_millis)
        .ok_or_else(|| ValueError::new(format!("{} is too long", shown(text))))
}

pub fn within(text: &str, range_ms: RangeInclusive<u64>) -> Result<Duration, ValueError> {
    let duration = parse(text)?;
    let (least, most) = (
        Duration::from_millis(*range_ms.start()),
        Duration::from_millis(*range_ms.end()),
    );
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (display(least), display(most));
    Err(ValueError::out_of_range(text, least, most))
}

/// The duration in the largest unit that gives a whole number. Less than a millisecond is dropped.
pub fn display(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    let exact = UNITS.iter().find(|(_, unit_ms)| ms % unit_ms == 0);
    let (name, unit_ms) = exact.unwrap_or(&("ms", 1));
    format!("{}{name}", ms / unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(duration: &str) -> String {
        parse(duration).unwrap_err().to_string()
    }

    #[test]
    fn each_unit_is_read_and_printed() {
        for (given, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("75s", 75_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(given), Ok(Duration::from_millis(ms)));
            assert_eq!(display(Duration::from_millis(ms)), given);
        }
        assert_eq!(display(Duration::from_secs(60)), "1min");
        assert_eq!(display(Duration::from_micros(1500)), "1ms");
    }

    #[test]
    fn durations_that_cannot_be_are_explained() {
        let usage = "write a whole number and ms, s, min or h, such as 10s";
        for bad in ["s", "-1s", "1.5s", "1 s", "1d", "soon", "1S"] {
            assert_eq!(text(bad), format!("{bad} is not a duration: {usage}"));
        }
        let units = "(units are ms, s, min and h)";
        assert_eq!(
            text("10"),
            format!("10 has no clear unit: write 10s {units}")
        );
        assert_eq!(
            text("5m"),
            format!("5m has no clear unit: write 5min {units}")
        );
        for long in ["99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(text(long), format!("{long} is too long"));
        }
    }

    #[test]
    fn bounds_hold_at_below_and_above() {
        let parse = |d| within(d, 1000..=60_000).map_err(|e| e.to_string());
        assert_eq!(
            parse("999ms"),
            Err("999ms is out of range: 1s to 1min".into())
        );
        assert_eq!(parse("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(
            parse("60001ms"),
            Err("60001ms is out of range: 1s to 1min".into())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn what_is_printed_reads_back_the_same(ms: u64) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&display(duration)), Ok(duration));
        }
    }
}
