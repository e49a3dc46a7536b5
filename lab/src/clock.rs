//! Date of a run, in UTC.

use ackpace_wire::civil::Civil;
use std::time::{SystemTime, UNIX_EPOCH};

/// The current time as `YYYY-MM-DDTHH:MM:SSZ`.
pub fn now_utc() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    utc(now.map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970 as `YYYY-MM-DDTHH:MM:SSZ`.
pub fn utc(unix_s: u64) -> String {
    let mut text = Vec::new();
    Civil::from_unix_s(unix_s.try_into().unwrap_or(i64::MAX)).push_rfc3339(&mut text);
    text.push(b'Z');
    String::from_utf8(text).expect("a date is ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_ends_with_its_zone() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
    }
}
