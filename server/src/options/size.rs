//! Sizes of memory: bytes with an IEC suffix, or a share of the machine's memory.

use std::fmt;
use std::str::FromStr;

use super::value::{ValueError, shown};

/// Suffixes from small to large: the one printed, the ones also understood, and the power of two.
const UNITS: [(&str, &[&str], u32); 5] = [
    ("B", &["", "b"], 0),
    ("KiB", &["K", "k", "Ki"], 10),
    ("MiB", &["M", "m", "Mi"], 20),
    ("GiB", &["G", "g", "Gi"], 30),
    ("TiB", &["T", "t", "Ti"], 40),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Bytes(u64),
    /// So many hundredths of the smaller of RAM and cgroup limit, 1 to 100.
    Percent(u8),
    /// As much as the server chooses for this machine.
    Auto,
}

impl Size {
    /// The size in bytes on a machine where `ram_bytes`, the smaller of RAM and cgroup limit, can be used. `auto` has
    /// no bound.
    pub fn resolve(self, ram_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Auto => u64::MAX,
            // The quotient is at most `ram_bytes`, since a percentage is at most 100.
            Self::Percent(percent) => (u128::from(ram_bytes) * u128::from(percent) / 100) as u64,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => {
                let exact = |&&(_, _, shift): &&(_, _, u32)| bytes.trailing_zeros() >= shift;
                let (name, _, shift) = UNITS.iter().rev().find(exact).unwrap_or(&UNITS[0]);
                match bytes {
                    0 => f.write_str("0B"),
                    _ => write!(f, "{}{name}", bytes >> shift),
                }
            }
        }
    }
}

impl FromStr for Size {
    type Err = ValueError;

    /// Reads `268435456`, `64MiB` (also `64M`, always in powers of 1024) or `25%`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, suffix) = text.split_at(digits_len);
        let not_a_size = || {
            ValueError::new(format!(
                "{} is not a size: write bytes with B, KiB, MiB, GiB or TiB, or a percentage, such as 256MiB or 25%",
                shown(text)
            ))
        };
        if digits.is_empty() {
            return Err(not_a_size());
        }
        let too_big = || ValueError::new(format!("{} is more than any machine has", shown(text)));
        let number: u64 = digits.parse().map_err(|_| too_big())?;
        if suffix == "%" {
            return match u8::try_from(number) {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err(ValueError::out_of_range(text, "1%", "100%")),
            };
        }
        if let Some(letter) = ["KB", "kB", "MB", "GB", "TB"]
            .iter()
            .find(|u| **u == suffix)
        {
            return Err(ValueError::new(format!(
                "{} may mean 1000 or 1024: write {digits}{}iB",
                shown(text),
                letter[..1].to_uppercase()
            )));
        }
        let named = |&&(name, others, _): &&(&str, &[&str], u32)| {
            name == suffix || others.contains(&suffix)
        };
        let (_, _, shift) = UNITS.iter().find(named).ok_or_else(not_a_size)?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(too_big)?;
        Ok(Self::Bytes(bytes))
    }
}

/// A size of at least `least_bytes`; a percentage of at most `most_percent`.
pub fn within(text: &str, least_bytes: u64, most_percent: u8) -> Result<Size, ValueError> {
    let size: Size = text.parse()?;
    let fits = match size {
        Size::Bytes(bytes) => bytes >= least_bytes,
        Size::Percent(percent) => percent <= most_percent,
        Size::Auto => false,
    };
    if fits {
        return Ok(size);
    }
    Err(ValueError::new(format!(
        "{} is out of range: {} or more, or 1% to {most_percent}%",
        shown(text),
        Size::Bytes(least_bytes)
    )))
}

pub fn auto_or_within(text: &str, least_bytes: u64, most_percent: u8) -> Result<Size, ValueError> {
    match text {
        "auto" => Ok(Size::Auto),
        _ => within(text, least_bytes, most_percent),
    }
}

/// A size in bytes within bounds; a percentage of the memory is refused.
pub fn bytes_within(text: &str, least_bytes: u64, most_bytes: u64) -> Result<Size, ValueError> {
    match text.parse()? {
        size @ Size::Bytes(bytes) if (least_bytes..=most_bytes).contains(&bytes) => Ok(size),
        _ => {
            let (least, most) = (Size::Bytes(least_bytes), Size::Bytes(most_bytes));
            Err(ValueError::out_of_range(text, least, most))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(size: &str) -> String {
        size.parse::<Size>().unwrap_err().to_string()
    }

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (given, bytes) in [
            ("0", 0),
            ("7", 7),
            ("7B", 7),
            ("1K", 1024),
            ("1k", 1024),
            ("64KiB", 64 << 10),
            ("64M", 64 << 20),
            ("2GiB", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(given.parse(), Ok(Size::Bytes(bytes)), "{given}");
        }
        assert_eq!("25%".parse(), Ok(Size::Percent(25)));
        assert_eq!("100%".parse(), Ok(Size::Percent(100)));
    }

    #[test]
    fn sizes_that_cannot_be_are_explained() {
        let usage =
            "write bytes with B, KiB, MiB, GiB or TiB, or a percentage, such as 256MiB or 25%";
        for bad in ["MiB", "-1", "1.5GiB", "1 MiB", "1Q", "%", "half", "1%%"] {
            assert_eq!(text(bad), format!("{bad} is not a size: {usage}"));
        }
        assert_eq!(text(""), format!("\"\" is not a size: {usage}"));
        assert_eq!(text("5MB"), "5MB may mean 1000 or 1024: write 5MiB");
        assert_eq!(text("5kB"), "5kB may mean 1000 or 1024: write 5KiB");
        assert_eq!(text("0%"), "0% is out of range: 1% to 100%");
        assert_eq!(text("101%"), "101% is out of range: 1% to 100%");
        assert_eq!(
            text("16777216TiB"),
            "16777216TiB is more than any machine has"
        );
        let digits = "99999999999999999999";
        assert_eq!(
            text(digits),
            format!("{digits} is more than any machine has")
        );
    }

    #[test]
    fn bounds_hold_at_below_and_above() {
        let parse = |size| within(size, 16 << 20, 90).map_err(|e| e.to_string());
        let range = "is out of range: 16MiB or more, or 1% to 90%";
        assert_eq!(parse("16777215"), Err(format!("16777215 {range}")));
        assert_eq!(parse("16MiB"), Ok(Size::Bytes(16 << 20)));
        assert_eq!(parse("16777217"), Ok(Size::Bytes(16_777_217)));
        assert_eq!(parse("90%"), Ok(Size::Percent(90)));
        assert_eq!(parse("91%"), Err(format!("91% {range}")));
    }

    #[test]
    fn a_percentage_is_taken_of_the_memory_given() {
        assert_eq!(Size::Percent(25).resolve(24 << 30), 6 << 30);
        assert_eq!(Size::Percent(100).resolve(u64::MAX), u64::MAX);
        assert_eq!(Size::Percent(1).resolve(99), 0);
        assert_eq!(Size::Bytes(5).resolve(1), 5);
    }

    #[test]
    fn auto_is_a_size_only_where_it_means_something() {
        assert_eq!(auto_or_within("auto", 1, 90), Ok(Size::Auto));
        assert_eq!(auto_or_within("1%", 1, 90), Ok(Size::Percent(1)));
        assert!(within("auto", 1, 90).is_err() && bytes_within("auto", 1, 90).is_err());
        assert_eq!(Size::Auto.to_string(), "auto");
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn what_is_printed_reads_back_the_same(number: u32, shift in 0u32..41, percent in 1u8..=100) {
            for size in [Size::Bytes(u64::from(number) << shift.min(31)), Size::Bytes(u64::from(number)), Size::Percent(percent)] {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }
    }
}
