//! Reads a web server's log as a workload: tab-separated, with a header line, optionally gzipped.
//!
//! It uses the columns `time` (whole seconds), `method`, `url`, `response` and `bytes`, and the rows of GETs
//! answered by 200 with a body. Objects are numbered in the order of their first rows, because URLs of old
//! servers are not always valid file names (one may be a folder of another). An object is as long as its
//! longest row.

use flate2::read::MultiGzDecoder;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use ackpace_lab_base::error::{Doing, LabError, Result};

/// Most unpacked bytes of a log, 4 GiB; a longer one is refused.
const LOG_LEN_BYTES_MAX: u64 = 4 << 30;

/// The requests and objects of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Requests in the order of time.
    pub rows: Vec<Row>,
    /// Lengths of the objects, indexed by number.
    pub lens_bytes: Vec<u64>,
    /// Time from the start of the first second to the end of the last.
    pub span_us: u64,
}

/// A request of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Time since the first row. Rows of one second are spread evenly over it.
    pub at_us: u64,
    /// Number of the object.
    pub object: u32,
}

impl Trace {
    /// Reads a log; it is gzipped if its name ends with ".gz".
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).doing(|| path.display().to_string())?;
        let packed = path.extension().is_some_and(|end| end == "gz");
        let bytes: Box<dyn Read> = match packed {
            true => Box::new(MultiGzDecoder::new(file)),
            false => Box::new(file),
        };
        let mut lines = Vec::new();
        let mut left = bytes.take(LOG_LEN_BYTES_MAX);
        let mut reader = BufReader::new(&mut left);
        loop {
            let mut line = Vec::new();
            let got = reader.read_until(b'\n', &mut line);
            if got.doing(|| path.display().to_string())? == 0 {
                break;
            }
            // Some browsers sent bytes that are not UTF-8.
            lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        let named = |what: String| LabError::Setup(format!("{}: {what}", path.display()));
        if left.limit() == 0 {
            return Err(named("more than 4 GiB of log".into()));
        }
        Self::of_lines(lines.iter().map(String::as_str)).map_err(named)
    }

    fn of_lines<'a>(mut lines: impl Iterator<Item = &'a str>) -> std::result::Result<Self, String> {
        let names: Vec<&str> = lines.next().unwrap_or("").split('\t').collect();
        let column = |name: &str| {
            let at = names.iter().position(|column| *column == name);
            at.ok_or_else(|| format!("column `{name}`: missing; the first line names the columns"))
        };
        let [time, method, url] = [column("time")?, column("method")?, column("url")?];
        let [response, bytes] = [column("response")?, column("bytes")?];
        let (mut numbers, mut lens_bytes, mut seconds) = (HashMap::new(), Vec::new(), Vec::new());
        for (nth, line) in lines.enumerate() {
            let fields: Vec<&str> = line.split('\t').collect();
            let field = |at: usize| fields.get(at).copied().unwrap_or("");
            if field(method) != "GET" || field(response) != "200" {
                continue;
            }
            let second: u64 = field(time).parse().map_err(|_| {
                format!("line {}: time: \"{}\"; whole seconds", nth + 2, field(time))
            })?;
            let len_bytes: u64 = field(bytes).parse().unwrap_or(0); // "-": no body
            if len_bytes == 0 {
                continue;
            }
            let object = *numbers.entry(field(url)).or_insert_with(|| {
                lens_bytes.push(0);
                lens_bytes.len() - 1
            });
            lens_bytes[object] = len_bytes.max(lens_bytes[object]);
            seconds.push((second, object as u32));
        }
        seconds.sort_by_key(|(second, _)| *second); // stable: keeps the order within a second
        let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else {
            return Err("no row is a GET answered by 200 with a body".into());
        };
        Ok(Self {
            span_us: (last.0 - first.0 + 1) * 1_000_000,
            rows: spread(&seconds),
            lens_bytes,
        })
    }
}

/// Spreads the rows of each second evenly over it.
fn spread(seconds: &[(u64, u32)]) -> Vec<Row> {
    let first = seconds.first().map_or(0, |(second, _)| *second);
    let mut rows = Vec::with_capacity(seconds.len());
    for same in seconds.chunk_by(|a, b| a.0 == b.0) {
        for (nth, (second, object)) in same.iter().enumerate() {
            let part_us = 1_000_000 * nth as u64 / same.len() as u64;
            rows.push(Row {
                at_us: (second - first) * 1_000_000 + part_us,
                object: *object,
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LOG: &str = "host\ttime\tmethod\turl\tresponse\tbytes\n\
        a\t100\tGET\t/x\t200\t10\n\
        b\t102\tGET\t/y\t200\t70\n\
        a\t100\tGET\t/x\t304\t0\n\
        c\t102\tHEAD\t/z\t200\t9\n\
        c\t101\tGET\t/x\t200\t30\n\
        c\t102\tGET\t/x\t200\t20\n\
        c\t102\tGET\t/w\t404\t-\n";

    #[test]
    fn whole_gets_are_taken_in_the_order_of_time_and_spread_over_their_second() {
        let trace = Trace::of_lines(LOG.lines()).unwrap();
        let rows: Vec<_> = trace
            .rows
            .iter()
            .map(|row| (row.at_us, row.object))
            .collect();
        assert_eq!(
            rows,
            [(0, 0), (1_000_000, 0), (2_000_000, 1), (2_500_000, 0)]
        );
        assert_eq!((trace.lens_bytes, trace.span_us), (vec![30, 70], 3_000_000));
    }

    #[test]
    fn a_packed_log_is_the_same_log() {
        let path =
            std::env::temp_dir().join(format!("ackpace-trace-{}.tsv.gz", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gzip.write_all(LOG.as_bytes()).unwrap();
        gzip.finish().unwrap();
        let read = Trace::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), Trace::of_lines(LOG.lines()).unwrap());
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let of = |text: &str| Trace::of_lines(text.lines()).unwrap_err();
        assert!(of("").contains("`time`: missing"));
        assert!(of("time\tmethod\turl\tresponse\n").contains("`bytes`"));
        assert!(of("time\tmethod\turl\tresponse\tbytes\n").contains("no row"));
        assert!(of("time\tmethod\turl\tresponse\tbytes\nx\tGET\t/\t200\t1\n").contains("line 2"));
    }
}
