//! HTTP dates (RFC 9110 section 5.6.7): seconds since 1970 to text and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 31 December 9999, 23:59:59 UTC: the last second that the format can write.
const LAST_S: u64 = 253_402_300_799;

/// Appends `Sun, 06 Nov 1994 08:49:37 GMT`. Times past the year 9999 are written as its last second.
pub fn write(unix_s: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    let time = UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S));
    // Writing into memory cannot fail.
    let _ = write!(out, "{}", httpdate::HttpDate::from(time));
}

/// The seconds since 1970 of a date in one of the three formats of RFC 9110 section 5.6.7. `None` for any other
/// text or a date before 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let time: SystemTime = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{LAST_S, parse, write};
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn text(unix_s: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(unix_s, &mut out);
        out
    }

    #[test]
    fn all_three_formats_of_rfc_9110_section_5_6_7_are_read() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(date.as_bytes()), Some(784_111_777), "{date}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for date in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "\u{fc}",
        ] {
            assert_eq!(parse(date.as_bytes()), None, "{date}");
        }
    }

    #[test]
    fn the_ends_of_time_are_written() {
        assert_eq!(text(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn what_is_written_is_read_back(unix_s in 0..=LAST_S) {
            prop_assert_eq!(parse(&text(unix_s)), Some(unix_s));
        }
    }
}
