//! A second measurement of T_wait, to compare with that of `ackpace-host receive watch`. It uses the kernel's function
//! tracing (Documentation/trace/fprobetrace.rst) instead of BPF, hooks other functions, and identifies buffers by their
//! addresses instead of sequence numbers.
//!
//! A buffer arrives at TCP (`tcp_v4_rcv`, the paper's point A) and is processed (`tcp_v4_do_rcv`, its point B), at once or
//! from the backlog. A buffer that is merged into the last one of the backlog (`skb_try_coalesce` returns true) is
//! processed with that one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use ackpace_lab_base::error::{Doing, LabError, Result};
use serde::{Deserialize, Serialize};

const TRACING: &str = "/sys/kernel/tracing";
/// Only events of this group are recorded.
const GROUP: &str = "ackpace";
/// The ring of each core. Full: the oldest are lost, and counted; the comparison is void then.
const RING_KB: &str = "131072";
/// Length of the TCP header with timestamps, as all segments with data have here.
const HEADER_BYTES: u64 = 32;
/// Payload of such a segment on Ethernet. Devices hand over several segments in one buffer.
const SEGMENT_BYTES: u64 = 1_448;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: &str = "1";
/// Upper ends of the first five bins of the paper's Table 4, microseconds.
const ENDS_US: [u64; 5] = [1_000, 10_000, 100_000, 200_000, 1_000_000];

/// Results of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Segments by T_wait: < 1 ms, 1-10 ms, 10-100 ms, 100-200 ms, 200 ms-1 s, > 1 s.
    pub bins: [u64; 6],
    /// Segments that were merged into others on the backlog; they are in the bins.
    pub merged: u64,
    /// Events that the ring lost.
    pub lost: u64,
}

/// A tracing instance that records. Dropping it removes it.
#[derive(Debug)]
pub struct Reference {
    instance: PathBuf,
    port: u16,
}

impl Reference {
    /// Begins to record the buffers that arrive for the receiver at this port.
    ///
    /// # Errors
    /// This kernel can't.
    pub fn start(port: u16) -> Result<Reference> {
        let instance = Path::new(TRACING).join("instances").join(GROUP);
        fs::create_dir(&instance).doing(|| instance.display().to_string())?;
        let reference = Reference { instance, port };
        let probes = [
            "f:ackpace/arrives tcp_v4_rcv skb=skb len=skb->len",
            "f:ackpace/processed tcp_v4_do_rcv skb=skb port=sk->__sk_common.skc_num state=sk->__sk_common.skc_state",
            "f:ackpace/merges skb_try_coalesce%return to=to from=from done=$retval",
        ];
        let events = Path::new(TRACING).join("dynamic_events");
        for probe in probes {
            append(&events, probe)?;
        }
        reference.set("trace_clock", "mono")?;
        reference.set("buffer_size_kb", RING_KB)?;
        reference.set("events/ackpace/enable", "1")?;
        Ok(reference)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, value).doing(|| format!("{value} to {}", path.display()))
    }

    /// Ends the recording, and returns its results.
    ///
    /// # Errors
    /// The files of tracing can't be read, or have another form.
    pub fn end(self) -> Result<Seen> {
        self.set("events/ackpace/enable", "0")?;
        let path = self.instance.join("trace");
        let file = File::open(&path).doing(|| path.display().to_string())?;
        let mut buffers = Buffers::new(self.port);
        for line in BufReader::new(file).lines() {
            buffers.hear(&line.doing(|| path.display().to_string())?)?;
        }
        let mut seen = buffers.seen;
        for core in fs::read_dir(self.instance.join("per_cpu")).doing(|| "per_cpu".to_owned())? {
            let path = core.doing(|| "per_cpu".to_owned())?.path().join("stats");
            let stats = fs::read_to_string(&path).doing(|| path.display().to_string())?;
            seen.lost += lost(&stats);
        }
        Ok(seen)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.set("events/ackpace/enable", "0");
        let _ = fs::remove_dir(&self.instance);
        let events = Path::new(TRACING).join("dynamic_events");
        for probe in ["arrives", "processed", "merges"] {
            let _ = append(&events, &format!("-:{GROUP}/{probe}"));
        }
    }
}

fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = File::options()
        .append(true)
        .open(path)
        .doing(|| path.display().to_string())?;
    std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes())
        .doing(|| format!("'{line}' to {}", path.display()))
}

/// Of `per_cpu/cpuN/stats`.
fn lost(stats: &str) -> u64 {
    let values = stats.lines().filter_map(|line| line.split_once(": "));
    let lost =
        values.filter(|(name, _)| matches!(*name, "overrun" | "dropped events" | "commit overrun"));
    lost.filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since_us: u64,
    segments: u64,
}

/// Buffers by their addresses. One that TCP drops stays until its address is used again, so there are never more than the
/// kernel has had at once.
#[derive(Debug)]
struct Buffers {
    port: String,
    waiting: HashMap<String, Waiting>,
    merged: HashMap<String, Vec<Waiting>>,
    seen: Seen,
}

impl Buffers {
    fn new(port: u16) -> Buffers {
        Buffers {
            port: port.to_string(),
            waiting: HashMap::new(),
            merged: HashMap::new(),
            seen: Seen::default(),
        }
    }

    /// A line such as `sender-77 [000] b.s2. 12.345678: arrives: (tcp_v4_rcv+0x4/0x10) skb=0xff00 len=1480`.
    fn hear(&mut self, line: &str) -> Result<()> {
        if line.starts_with('#') {
            return Ok(());
        }
        let event = Event::parse(line);
        let done = event.and_then(|event| self.on(&event));
        done.ok_or_else(|| LabError::Setup(format!("not a line of tracing: {line}")))
    }

    fn on(&mut self, event: &Event) -> Option<()> {
        match event.name {
            "arrives" => {
                let bytes = event
                    .field("len")?
                    .parse::<u64>()
                    .ok()?
                    .saturating_sub(HEADER_BYTES);
                let skb = event.field("skb")?.to_owned();
                self.merged.remove(&skb);
                self.waiting.remove(&skb);
                if bytes > 0 {
                    let segments = bytes.div_ceil(SEGMENT_BYTES);
                    let since_us = event.at_us;
                    self.waiting.insert(skb, Waiting { since_us, segments });
                }
            }
            "merges" => {
                let (to, from) = (event.field("to")?, event.field("from")?);
                // After TCP has processed them, buffers are merged again, which does not matter.
                if event.field("done")? != "0" && self.waiting.contains_key(to) {
                    if let Some(of) = self.waiting.remove(from) {
                        self.seen.merged += of.segments;
                        self.merged.entry(to.to_owned()).or_default().push(of);
                    }
                }
            }
            "processed" => {
                let skb = event.field("skb")?;
                let first = self.waiting.remove(skb);
                let rest = self.merged.remove(skb).unwrap_or_default();
                let is_meant =
                    event.field("port")? == self.port && event.field("state")? == ESTABLISHED;
                for of in first.into_iter().chain(rest).filter(|_| is_meant) {
                    let waited_us = event.at_us.saturating_sub(of.since_us);
                    let bin = ENDS_US.iter().take_while(|end| waited_us >= **end).count();
                    self.seen.bins[bin] += of.segments;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

struct Event<'a> {
    at_us: u64,
    name: &'a str,
    fields: &'a str,
}

impl<'a> Event<'a> {
    fn parse(line: &'a str) -> Option<Event<'a>> {
        let (before, after) = line.split_once(": ")?;
        let (name, fields) = after.split_once(": ")?;
        let (s, us) = before.rsplit(' ').next()?.split_once('.')?;
        Some(Event {
            at_us: s.parse::<u64>().ok()? * 1_000_000 + us.parse::<u64>().ok()?,
            name,
            fields,
        })
    }

    fn field(&self, wanted: &str) -> Option<&'a str> {
        let mut pairs = self
            .fields
            .split(' ')
            .filter_map(|word| word.split_once('='));
        Some(pairs.find(|(name, _)| *name == wanted)?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str]) -> Seen {
        let mut buffers = Buffers::new(5_301);
        for line in lines {
            buffers.hear(line).expect("a line");
        }
        buffers.seen
    }

    fn arrives(at: &str, skb: &str, len: u64) -> String {
        format!("  send-77 [000] b.s2. {at}: arrives: (tcp_v4_rcv+0x4/0xdc0) skb={skb} len={len}")
    }

    fn processed(at: &str, skb: &str) -> String {
        format!(
            "  recv-78 [001] ...1. {at}: processed: (tcp_v4_do_rcv+0x4/0x2a0) skb={skb} port=5301 state=1"
        )
    }

    fn merges(to: &str, from: &str, done: &str) -> String {
        let at = "(tcp_add_backlog+0x1/0x2 <- skb_try_coalesce)";
        format!("  send-77 [000] b.s2. 1.5: merges: {at} to={to} from={from} done={done}")
    }

    #[test]
    fn a_segment_waits_from_its_arrival_until_tcp_has_it() {
        let lines = [
            arrives("1.000000", "0xa", 1_480),
            processed("1.000999", "0xa"),
            arrives("2.000000", "0xa", 32 + 3 * 1_448),
            processed("2.001000", "0xa"),
            arrives("3.000000", "0xb", 32),
            processed("4.000000", "0xb"),
        ];
        let bins = seen(&lines.each_ref().map(String::as_str)).bins;
        assert_eq!(bins, [1, 3, 0, 0, 0, 0], "an ACK has no data");
    }

    #[test]
    fn what_is_merged_waits_as_long_as_what_it_is_merged_into() {
        let lines = [
            arrives("1.000000", "0xa", 1_480),
            arrives("1.195000", "0xb", 1_480),
            merges("0xa", "0xb", "1"),
            arrives("1.198000", "0xb", 1_480),
            merges("0xa", "0xb", "0"),
            processed("1.200000", "0xa"),
            processed("1.300000", "0xb"),
            // The receive queue merges what TCP has had.
            merges("0xa", "0xb", "1"),
        ];
        let seen = seen(&lines.each_ref().map(String::as_str));
        assert_eq!(seen.bins, [0, 1, 0, 1, 1, 0]);
        assert_eq!(seen.merged, 1);
    }

    #[test]
    fn other_sockets_and_broken_lines_do_not_count() {
        let other = processed("1.1", "0xa").replace("5301", "5302");
        let opening = processed("1.2", "0xb").replace("state=1", "state=10");
        let lines = [
            arrives("1.0", "0xa", 99),
            other,
            arrives("1.0", "0xb", 99),
            opening,
        ];
        assert_eq!(seen(&lines.each_ref().map(String::as_str)), Seen::default());
        let mut buffers = Buffers::new(1);
        assert!(buffers.hear("# a comment").is_ok());
        assert!(buffers.hear("nothing").is_err());
        assert!(
            buffers.hear("x [0] 1.0: arrives: (a) len=7").is_err(),
            "no buffer"
        );
    }

    #[test]
    fn lost_events_are_counted() {
        let stats =
            "entries: 12\noverrun: 3\ncommit overrun: 0\ndropped events: 4\nread events: 9\n";
        assert_eq!(lost(stats), 7);
    }
}
