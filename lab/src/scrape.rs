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

/// What ackpace says of the unit of a target whose files it serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    hits: f64,
    misses: f64,
    through_mount: f64,
    allocated_bytes: f64,
    kept_bytes: f64,
}

impl Unit {
    /// Reads it; `None` for a server without a unit or without `--metrics`.
    pub fn take(testbed: &Testbed) -> Result<Option<Self>> {
        let read = || Ok(page().ok().and_then(|page| Self::read(&page)));
        match &testbed.instruments.wan {
            Some(wan) => wan.server().run(read),
            None => read(),
        }
    }

    /// Adds the figures of a window, and those of its end.
    pub fn add(before: Option<Self>, after: Option<Self>, values: &mut Values) {
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        let hits = after.hits - before.hits;
        let through_mount = after.through_mount - before.through_mount;
        let all = hits + through_mount + after.misses - before.misses;
        if all > 0.0 {
            values.set("unit_hit_share", hits / all);
            values.set("unit_mount_share", through_mount / all);
        }
        if after.kept_bytes > 0.0 {
            let over_kept = after.allocated_bytes / after.kept_bytes;
            values.set("allocated_over_kept", over_kept);
        }
    }

    fn read(page: &str) -> Option<Self> {
        let number = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
            page.lines().find_map(value)
        };
        let mounted = page
            .lines()
            .filter(|line| line.starts_with("ackpace_lun_mount_reads_total"));
        let mounted = mounted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Some(Self {
            hits: number("ackpace_lun_looked_reads_total{result=\"hit\"}")?,
            misses: number("ackpace_lun_looked_reads_total{result=\"miss\"}")?,
            through_mount: mounted.sum(),
            allocated_bytes: number("ackpace_slab_bytes{of=\"allocated\"}")?,
            kept_bytes: number("ackpace_slab_bytes{of=\"kept\"}")?,
        })
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
    fn shares_are_those_of_the_window_and_memory_that_of_its_end() {
        let page = |hits: u64| {
            format!(
                "ackpace_lun_looked_reads_total{{result=\"hit\"}} {hits}\nackpace_lun_looked_reads_total{{result=\"miss\"}} 10\n\
                 ackpace_lun_mount_reads_total{{why=\"away\"}} {hits}\nackpace_lun_mount_reads_total{{why=\"young\"}} 1\n\
                 ackpace_slab_bytes{{of=\"allocated\"}} 110\nackpace_slab_bytes{{of=\"kept\"}} 100\n"
            )
        };
        let mut values = Values::default();
        Unit::add(Unit::read(&page(5)), Unit::read(&page(15)), &mut values);
        assert_eq!(values.get("unit_hit_share"), Some(0.5));
        assert_eq!(values.get("unit_mount_share"), Some(0.5));
        assert_eq!(values.get("allocated_over_kept"), Some(1.1));
        assert_eq!(Unit::read("ackpace_up 1\n"), None);
    }

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
