//! Calendar dates of Unix times, always UTC, for listings and logs.
//!
//! A file system may store any i64 as a time. Each one gets a date with a four-digit year, which keeps
//! fixed-width formats fixed: times outside the years 0 to 9999 are clamped.

const S_PER_DAY: i64 = 86_400;
/// 0000-01-01T00:00:00Z.
const FIRST_UNIX_S: i64 = -62_167_219_200;
/// 9999-12-31T23:59:59Z.
const LAST_UNIX_S: i64 = 253_402_300_799;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A moment in the proleptic Gregorian calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// 0 to 9999.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
}

impl Civil {
    /// The date of a Unix time in seconds, clamped to the years 0 to 9999.
    pub fn from_unix_s(unix_s: i64) -> Civil {
        let unix_s = unix_s.clamp(FIRST_UNIX_S, LAST_UNIX_S);
        let (days, second_of_day) = (unix_s.div_euclid(S_PER_DAY), unix_s.rem_euclid(S_PER_DAY));
        // Count in years that begin in March: the leap day is then the last day of its year, and the months
        // before it follow a regular pattern of 153 days in every five months.
        let day_of_eras = days + 719_468; // days since 0000-03-01
        let era = day_of_eras.div_euclid(146_097); // 400 years
        let day_of_era = day_of_eras.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        Civil {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (second_of_day / 3_600) as u8,
            minute: (second_of_day / 60 % 60) as u8,
            second: (second_of_day % 60) as u8,
        }
    }

    /// The Unix time in seconds; `None`: there is no such day or time.
    pub fn unix_s(&self) -> Option<i64> {
        let march = i64::from((self.month + 9) % 12); // months since March
        let year = self.year - i64::from(self.month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        let second = i64::from(self.hour) * 3_600 + i64::from(self.minute) * 60;
        let unix_s = days * S_PER_DAY + second + i64::from(self.second);
        // A 31st of June is the 1st of July there.
        (Civil::from_unix_s(unix_s) == *self).then_some(unix_s)
    }

    /// The number of a month that is written as in the logs of servers: `Oct`.
    pub fn month_of(name: [u8; 3]) -> Option<u8> {
        let at = MONTHS.iter().position(|month| month.as_bytes() == name)?;
        Some(at as u8 + 1)
    }

    /// `2026-11-21`.
    pub fn push_date(&self, out: &mut Vec<u8>) {
        push_padded(self.year as u64, 4, out);
        out.push(b'-');
        push_padded(self.month.into(), 2, out);
        out.push(b'-');
        push_padded(self.day.into(), 2, out);
    }

    /// `16:48`.
    pub fn push_minutes(&self, out: &mut Vec<u8>) {
        push_padded(self.hour.into(), 2, out);
        out.push(b':');
        push_padded(self.minute.into(), 2, out);
    }

    /// `16:48:38`.
    pub fn push_seconds(&self, out: &mut Vec<u8>) {
        self.push_minutes(out);
        out.push(b':');
        push_padded(self.second.into(), 2, out);
    }

    /// `2026-11-21T16:48:38`, RFC 3339 without its zone: the caller adds a fraction if it has one, then `Z`.
    pub fn push_rfc3339(&self, out: &mut Vec<u8>) {
        self.push_date(out);
        out.push(b'T');
        self.push_seconds(out);
    }

    /// `21/Nov/2026:16:48:38 +0000`, the date of the common log format.
    pub fn push_common_log(&self, out: &mut Vec<u8>) {
        push_padded(self.day.into(), 2, out);
        out.push(b'/');
        out.extend_from_slice(self.month_name().as_bytes());
        out.push(b'/');
        push_padded(self.year as u64, 4, out);
        out.push(b':');
        self.push_seconds(out);
        out.extend_from_slice(b" +0000");
    }

    fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month - 1)]
    }
}

/// Appends `value` in decimal.
pub(crate) fn push_decimal(value: u64, out: &mut Vec<u8>) {
    push_padded(value, 1, out);
}

/// Appends `value` in decimal with at least `width` (at most 20) digits.
pub(crate) fn push_padded(value: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20]; // u64::MAX has 20
    let mut at = digits.len();
    let mut rest = value;
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[at.min(digits.len() - width)..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn text(unix_s: i64, push: impl Fn(&Civil, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&Civil::from_unix_s(unix_s), &mut out);
        String::from_utf8(out).expect("dates are ASCII")
    }

    #[test]
    fn known_dates_come_out_in_every_format_and_others_are_moved_to_the_nearest_end() {
        for (unix_s, expected) in [
            (951_782_400, "2000-02-29T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
            (FIRST_UNIX_S, "0000-01-01T00:00:00"),
            (i64::MAX, "9999-12-31T23:59:59"),
            (LAST_UNIX_S, "9999-12-31T23:59:59"),
        ] {
            assert_eq!(text(unix_s, Civil::push_rfc3339), expected);
        }
        assert_eq!(text(4_107_542_400, Civil::push_date), "2100-03-01"); // 2100 is no leap year
        let common = text(971_211_336, Civil::push_common_log);
        assert_eq!(common, "10/Oct/2000:20:55:36 +0000");
    }

    #[test]
    fn numbers_are_padded_and_never_cut() {
        let mut out = Vec::new();
        for (value, width) in [(0, 1), (7, 2), (123, 2), (u64::MAX, 1), (0, 20)] {
            push_padded(value, width, &mut out);
            out.push(b' ');
        }
        assert_eq!(out, b"0 07 123 18446744073709551615 00000000000000000000 ");
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn each_second_has_one_date_and_dates_grow_with_time(unix_s in FIRST_UNIX_S..LAST_UNIX_S) {
            prop_assert_eq!(Civil::from_unix_s(unix_s).unix_s(), Some(unix_s));
            let [this, next] = [unix_s, unix_s + 1].map(|s| text(s, Civil::push_rfc3339));
            prop_assert!(this < next, "{this} is not before {next}");
            let civil = Civil::from_unix_s(unix_s);
            prop_assert!((1..=12).contains(&civil.month) && (1..=31).contains(&civil.day));
        }
    }
}
