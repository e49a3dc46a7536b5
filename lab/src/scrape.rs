//! ackpace's own counters in a window: reads its metrics from within its network.

use crate::metrics::Values;
use crate::testbed::Testbed;
use ackpace_lab_base::error::Result;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// Port of the metrics in the server's own network: the value of `--metrics`.
pub const PORT: &str = "9100";
/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The counters, each summed over all labels, and the keys of the figures that they become.
const COUNTERS: [(&str, &str); 3] = [
    ("ackpace_disk_delayed_wants_total", "delayed_reads"),
    ("ackpace_disk_delayed_bytes_total", "delayed_read_bytes"),
    ("ackpace_congestion_signals_total", "congestion_signals"),
];

/// The counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scrape([f64; COUNTERS.len()]);

impl Scrape {
    /// Reads them; `None` without an emulated network, and for a server without metrics: a peer, or ackpace without
    /// `--metrics`.
    pub fn take(testbed: &Testbed) -> Result<Option<Scrape>> {
        let Some(wan) = &testbed.instruments.wan else {
            return Ok(None);
        };
        wan.server()
            .run(|| Ok(page().ok().map(|page| Scrape::read(&page))))
    }

    /// Adds the differences between the two readings to the figures.
    pub fn add(before: Option<Scrape>, after: Option<Scrape>, values: &mut Values) {
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        for (nth, (_, key)) in COUNTERS.iter().enumerate() {
            values.set(key, after.0[nth] - before.0[nth]);
        }
    }

    fn read(page: &str) -> Scrape {
        Scrape(COUNTERS.map(|(name, _)| {
            let of_name = |line: &&str| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            let values = page.lines().filter(of_name);
            let numbers = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            numbers.sum()
        }))
    }
}

fn page() -> std::io::Result<String> {
    let port = PORT.parse().unwrap_or_default();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_up_and_the_difference_is_the_windows() {
        let page = |first: u64| {
            format!(
                "# TYPE ackpace_congestion_signals counter\nackpace_congestion_signals_total{{signal=\"ecn\"}} {first}\n\
                 ackpace_congestion_signals_total{{signal=\"timeout\"}} 4\nackpace_disk_delayed_wants_total{{device=\"0\"}} 7\n"
            )
        };
        let (before, after) = (Scrape::read(&page(3)), Scrape::read(&page(40)));
        assert_eq!(before.0, [7.0, 0.0, 7.0]);
        let mut values = Values::default();
        Scrape::add(Some(before), Some(after), &mut values);
        assert_eq!(values.get("congestion_signals"), Some(37.0));
        assert_eq!(values.get("delayed_reads"), Some(0.0));
        let mut none = Values::default();
        Scrape::add(None, Some(after), &mut none);
        assert_eq!(none.get("delayed_reads"), None, "a server without metrics");
    }
}
