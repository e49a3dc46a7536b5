//! The page of a scrape and the table of docs/operating/metrics.md, both made from the catalog of metrics.
//!
//! The page is OpenMetrics 1.0 (or the older text format 0.0.4).

use std::fmt::Write;

use super::catalog::metrics;
use super::metric::{Metric, MetricType, SampleSource, Value};
use super::{Board, questions};
use crate::front::site::Site;
use crate::log;
use crate::nfs_tally;
use crate::store::slab::Slab;
use crate::turns::Turns;
use crate::unit::Unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Form {
    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

pub fn render(board: &Board, form: Form) -> String {
    questions::census(board);
    let mut page = Page {
        text: String::with_capacity(32 << 10),
        form,
    };
    page.build();
    for metric in metrics() {
        page.metric(metric, board);
    }
    if form == Form::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

struct Page {
    text: String,
    form: Form,
}

impl Page {
    /// The release, in the form of Prometheus' own exporters.
    fn build(&mut self) {
        let (kind, family) = match self.form {
            Form::OpenMetrics => ("info", "ackpace_build"),
            Form::Text => ("gauge", "ackpace_build_info"),
        };
        let version = env!("CARGO_PKG_VERSION");
        let _ = write!(
            self.text,
            "# TYPE {family} {kind}\n# HELP {family} The release of the server.\nackpace_build_info{{version=\"{version}\"}} 1\n"
        );
    }

    fn metric(&mut self, metric: &Metric, board: &Board) {
        self.describe(metric);
        let workers = || board.workers.iter().enumerate();
        match metric.source {
            SampleSource::One(value) => self.sample(metric, "", value(board)),
            SampleSource::Worker(value) => {
                for (worker, channel) in workers() {
                    self.sample(metric, &format!("worker=\"{worker}\""), value(channel));
                }
            }
            SampleSource::WorkerBy(label, names, value) => {
                for (worker, channel) in workers() {
                    for (at, name) in names().into_iter().enumerate() {
                        let labels = format!("worker=\"{worker}\",{label}=\"{name}\"");
                        self.sample(metric, &labels, value(channel, at));
                    }
                }
            }
            SampleSource::By(label, names, value) => {
                for (at, name) in names().into_iter().enumerate() {
                    let values = board.workers.iter().map(|channel| value(channel, at));
                    let sum = values.fold(Value::Whole(0), Value::plus);
                    self.sample(metric, &format!("{label}=\"{name}\""), sum);
                }
            }
            SampleSource::Disk(value) => {
                for (device, handle) in board.shared.disks.started() {
                    self.sample(
                        metric,
                        &format!("device=\"{device}\""),
                        value(handle.tally()),
                    );
                }
            }
            SampleSource::Gateway(label, names, value) => {
                if let Some(gateway) = &board.shared.site.gateway {
                    self.by(metric, label, names, |at| value(gateway, at));
                }
            }
            SampleSource::Slab(label, names, value) => {
                if let Some(slab) = slab(&board.shared.site) {
                    self.by(metric, label, names, |at| value(slab, at));
                }
            }
            SampleSource::Cluster(label, names, value) => {
                if let Some(cluster) = &board.shared.cluster {
                    self.by(metric, label, names, |at| value(cluster, at));
                }
            }
            SampleSource::Nfs(label, names, value) => {
                self.nfs(metric, label, names, (board, value))
            }
            SampleSource::Unit(label, names, value) => {
                self.unit(metric, label, names, (board, value));
            }
            SampleSource::Origin(value) => {
                let gateway = board.shared.site.gateway.iter();
                let origins = gateway.flat_map(|of| of.origins.iter().zip(&of.tally.origins));
                for (origin, tally) in origins {
                    self.sample(metric, &format!("origin=\"{origin}\""), value(tally));
                }
            }
            SampleSource::Log(value) => self.logs(metric, (board, value)),
            SampleSource::Turns => self.turns(metric, board),
        }
    }

    /// The lengths of turns, over all workers.
    fn turns(&mut self, metric: &Metric, board: &Board) {
        let turns = Turns::default();
        let workers = board.workers.iter();
        workers.for_each(|channel| turns.merge(&channel.tally.turns));
        self.histogram(metric.name, &turns);
    }

    fn logs(&mut self, metric: &Metric, (board, value): (&Board, fn(&log::Counts) -> Value)) {
        let logs = [
            ("access", board.access_log.counts()),
            ("diagnostics", board.diagnostics.counts()),
        ];
        for (log, counts) in logs {
            self.sample(metric, &format!("log=\"{log}\""), value(&counts));
        }
    }

    /// Sums over the threads of NFS, if there are some.
    fn nfs(
        &mut self,
        metric: &Metric,
        label: &str,
        names: &[&str],
        (board, value): (&Board, fn(&nfs_tally::Tally, usize) -> Value),
    ) {
        let threads = &board.shared.nfs;
        let sum = |at: usize| {
            let values = threads.iter().map(|tally| value(tally, at));
            values.fold(Value::Whole(0), Value::plus)
        };
        match label {
            _ if threads.is_empty() => {}
            "" => self.sample(metric, "", sum(0)),
            label => self.by(metric, label, names, sum),
        }
    }

    /// Of the iSCSI unit, if there is one.
    fn unit(
        &mut self,
        metric: &Metric,
        label: &str,
        names: &[&str],
        (board, value): (&Board, fn(&Unit, usize) -> Value),
    ) {
        match (&board.shared.site.unit, label) {
            (None, _) => {}
            (Some(unit), "") => self.sample(metric, "", value(unit, 0)),
            (Some(unit), label) => self.by(metric, label, names, |at| value(unit, at)),
        }
    }

    /// A sample for each value of a label.
    fn by(&mut self, metric: &Metric, label: &str, names: &[&str], value: impl Fn(usize) -> Value) {
        for (at, name) in names.iter().enumerate() {
            self.sample(metric, &format!("{label}=\"{name}\""), value(at));
        }
    }

    fn describe(&mut self, metric: &Metric) {
        let (Metric { name, help, .. }, unit) = (metric, metric.unit());
        let (kind, total) = match (metric.kind, self.form) {
            (MetricType::Counter, Form::OpenMetrics) => ("counter", ""),
            (MetricType::Counter, Form::Text) => ("counter", "_total"),
            (MetricType::Gauge, _) => ("gauge", ""),
            (MetricType::Histogram, _) => ("histogram", ""),
        };
        let _ = writeln!(self.text, "# TYPE ackpace_{name}{total} {kind}");
        if self.form == Form::OpenMetrics {
            let _ = writeln!(self.text, "# UNIT ackpace_{name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP ackpace_{name}{total} {help}");
    }

    fn sample(&mut self, metric: &Metric, labels: &str, value: Value) {
        let total = if metric.kind == MetricType::Counter {
            "_total"
        } else {
            ""
        };
        let _ = write!(self.text, "ackpace_{}{total}", metric.name);
        if !labels.is_empty() {
            let _ = write!(self.text, "{{{labels}}}");
        }
        let _ = match value {
            Value::Whole(value) => writeln!(self.text, " {value}"),
            Value::Us(us) => writeln!(self.text, " {}", seconds(us)),
        };
    }

    /// Bucket bounds are powers of two in microseconds: exact, since the lengths of turns are counted by those.
    fn histogram(&mut self, name: &str, turns: &Turns) {
        for power in 2..=20 {
            let (le, below) = (seconds(1 << power), turns.below(power));
            let _ = writeln!(self.text, "ackpace_{name}_bucket{{le=\"{le}\"}} {below}");
        }
        let count = turns.count();
        let sum = seconds(turns.sum_us());
        let _ = write!(
            self.text,
            "ackpace_{name}_bucket{{le=\"+Inf\"}} {count}\nackpace_{name}_sum {sum}\nackpace_{name}_count {count}\n"
        );
    }
}

/// The memory for payload, if there is some.
fn slab(site: &Site) -> Option<&Slab> {
    let of_gateway = site.gateway.as_ref().map(|gateway| &*gateway.slab);
    of_gateway.or(site.unit.as_ref().map(|unit| &*unit.slab))
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/operating/metrics.md.
    fn table() -> String {
        let mut text = String::from("| metric | labels | what it says |\n|---|---|---|\n");
        let _ = writeln!(
            text,
            "| `ackpace_build_info` | `version` | Always 1; the release stands in the label. |"
        );
        for metric in metrics() {
            let total = match metric.kind {
                MetricType::Counter => "_total",
                MetricType::Gauge | MetricType::Histogram => "",
            };
            let labels = match metric.source {
                SampleSource::One(_) => String::new(),
                SampleSource::Worker(_) => "`worker`".to_owned(),
                SampleSource::WorkerBy(label, ..) => format!("`worker`, `{label}`"),
                SampleSource::By(label, ..) => format!("`{label}`"),
                SampleSource::Disk(_) => "`device`".to_owned(),
                SampleSource::Gateway(label, ..) | SampleSource::Slab(label, ..) => {
                    format!("`{label}`")
                }
                SampleSource::Cluster(label, ..) => format!("`{label}`"),
                SampleSource::Nfs("", ..) | SampleSource::Unit("", ..) => String::new(),
                SampleSource::Nfs(label, ..) | SampleSource::Unit(label, ..) => {
                    format!("`{label}`")
                }
                SampleSource::Origin(_) => "`origin`".to_owned(),
                SampleSource::Log(_) => "`log`".to_owned(),
                SampleSource::Turns => "`le`".to_owned(),
            };
            let Metric { name, help, .. } = metric;
            let _ = writeln!(text, "| `ackpace_{name}{total}` | {labels} | {help} |");
        }
        text
    }

    #[test]
    fn the_table_of_the_docs_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating/metrics.md");
        let page = std::fs::read_to_string(path).expect("a page of the docs");
        let (start, end) = (
            "<!-- metrics: made from server/src/admin/catalog.rs -->\n",
            "<!-- end of metrics -->",
        );
        let (before, rest) = page.split_once(start).expect("the start of the table");
        let (found, after) = rest.split_once(end).expect("the end of the table");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let page = format!("{before}{start}{}{end}{after}", table());
            std::fs::write(path, page).expect("the docs can be written");
        } else {
            assert_eq!(
                found,
                table(),
                "UPDATE_DOCS=1 cargo test -p ackpace writes it anew"
            );
        }
    }

    #[test]
    fn seconds_have_six_places() {
        assert_eq!(seconds(1_500_002), "1.500002");
    }
}
