//! What was counted, for the status and the metrics.

use std::collections::BTreeMap;
use std::fmt::Write;

use ackpace_share::outside::{Cause, HandsOff};
use serde::{Deserialize, Serialize};

/// How `tune` stands: the answer to `tune status --json`. Names are stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Its process.
    pub pid: u32,
    /// The operator's choice.
    pub policy: String,
    /// Nothing is changed, only told.
    pub dry_run: bool,
    /// The memory that is divided.
    pub budget_bytes: u64,
    /// What the shares add up to.
    pub shares_bytes: u64,
    /// What the sockets with a share held when they were last sampled, unsent and in flight.
    pub held_bytes: u64,
    /// Beside that, what is left of what sockets held when they were first seen.
    pub before_bytes: u64,
    /// What the kernel's memory for that is (`sk_wmem_queued`).
    pub queued_bytes: u64,
    /// Sockets that match.
    pub sockets: u64,
    /// Those with a share now.
    pub sharing: u64,
    /// Those that hold a setting of ours now.
    pub tuned: u64,
    /// Of these, those whose window is clamped.
    pub clamped: u64,
    /// Sockets beyond what is tuned at once.
    pub beyond: u64,
    /// The budget is below what the sockets have at least.
    pub is_short: bool,
    /// Sockets that are left alone now, by reason.
    pub left_alone: BTreeMap<String, u64>,
    /// Changes so far, by cause.
    pub changes: BTreeMap<String, u64>,
    /// Sockets that were given back what they had, by reason.
    pub given_back: BTreeMap<String, u64>,
    /// Orders that were void, since somebody else changed the socket meanwhile, or it closed.
    pub void: u64,
    /// Orders that the kernel refused.
    pub refused: u64,
    /// Passes over all sockets so far.
    pub passes: u64,
    /// CPU time of the last one, with what followed from it.
    pub pass_cpu_us: u64,
    /// CPU time of all.
    pub cpu_us: u64,
}

impl Tally {
    /// Counts a change.
    pub fn changed(&mut self, cause: Cause) {
        *self.changes.entry(cause.name().to_owned()).or_default() += 1;
    }

    /// Counts one that was given back.
    pub fn gave_back(&mut self, why: HandsOff) {
        *self.given_back.entry(why.name().to_owned()).or_default() += 1;
    }

    /// In the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        for (name, help, value) in self.gauges() {
            family(&mut text, name, "gauge", help, [(String::new(), value)]);
        }
        for (name, help, value) in self.counters() {
            family(&mut text, name, "counter", help, [(String::new(), value)]);
        }
        for (name, kind, help, label, values) in [
            (
                "sockets_left_alone",
                "gauge",
                "Sockets that are left alone, by reason.",
                "why",
                &self.left_alone,
            ),
            (
                "changes_total",
                "counter",
                "Changes, by cause.",
                "cause",
                &self.changes,
            ),
            (
                "given_back_total",
                "counter",
                "Sockets given back what they had, by reason.",
                "why",
                &self.given_back,
            ),
        ] {
            let labelled = values
                .iter()
                .map(|(name, value)| (format!("{{{label}=\"{name}\"}}"), *value));
            family(&mut text, name, kind, help, labelled);
        }
        text
    }

    fn gauges(&self) -> [(&'static str, &'static str, u64); 11] {
        [
            (
                "budget_bytes",
                "Send memory that is divided.",
                self.budget_bytes,
            ),
            (
                "shares_bytes",
                "What the shares add up to.",
                self.shares_bytes,
            ),
            (
                "held_bytes",
                "Unsent and in flight in sockets with a share.",
                self.held_bytes,
            ),
            (
                "before_bytes",
                "What is left of what they held at first.",
                self.before_bytes,
            ),
            (
                "queued_bytes",
                "Kernel memory for all that.",
                self.queued_bytes,
            ),
            ("sockets", "Sockets that match.", self.sockets),
            ("sockets_sharing", "Sockets with a share.", self.sharing),
            (
                "sockets_tuned",
                "Sockets that hold a setting of ours.",
                self.tuned,
            ),
            (
                "sockets_clamped",
                "Sockets whose window is clamped.",
                self.clamped,
            ),
            (
                "sockets_beyond",
                "Sockets beyond what is tuned at once.",
                self.beyond,
            ),
            (
                "short",
                "1 if the budget is below what the sockets have at least.",
                self.is_short.into(),
            ),
        ]
    }

    fn counters(&self) -> [(&'static str, &'static str, u64); 4] {
        [
            (
                "void_total",
                "Orders for sockets that others changed or closed meanwhile.",
                self.void,
            ),
            (
                "refused_total",
                "Orders that the kernel refused.",
                self.refused,
            ),
            ("passes_total", "Looks at all sockets.", self.passes),
            (
                "cpu_microseconds_total",
                "CPU time of all passes.",
                self.cpu_us,
            ),
        ]
    }

    /// For people.
    pub fn page(&self) -> String {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / 1_048_576.0);
        let list = |values: &BTreeMap<String, u64>| -> String {
            let parts: Vec<String> = values
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            if parts.is_empty() {
                "none".to_owned()
            } else {
                parts.join(", ")
            }
        };
        let mut page = String::new();
        let dry = if self.dry_run {
            ", dry run: nothing is changed"
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "process      {} divides {} {}{dry}",
            self.pid,
            mib(self.budget_bytes),
            self.policy
        );
        let _ = writeln!(
            page,
            "memory       shares {}, held {} and from before {} (kernel memory {})",
            mib(self.shares_bytes),
            mib(self.held_bytes),
            mib(self.before_bytes),
            mib(self.queued_bytes)
        );
        let _ = writeln!(
            page,
            "sockets      {} match, {} share, {} tuned, {} of them clamped",
            self.sockets, self.sharing, self.tuned, self.clamped
        );
        if self.is_short {
            let _ = writeln!(
                page,
                "             the budget is below what they have at least"
            );
        }
        if self.beyond > 0 {
            let _ = writeln!(
                page,
                "             {} more are beyond what is tuned at once",
                self.beyond
            );
        }
        let _ = writeln!(page, "left alone   {}", list(&self.left_alone));
        let _ = writeln!(page, "changes      {}", list(&self.changes));
        let _ = writeln!(
            page,
            "given back   {}; void {}, refused {}",
            list(&self.given_back),
            self.void,
            self.refused
        );
        let _ = writeln!(
            page,
            "passes       {}, the last one took {} us of CPU time",
            self.passes, self.pass_cpu_us
        );
        page
    }
}

/// A family of metrics, whose values have these labels.
fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    values: impl IntoIterator<Item = (String, u64)>,
) {
    let _ = writeln!(text, "# HELP ackpace_host_tune_{name} {help}");
    let _ = writeln!(text, "# TYPE ackpace_host_tune_{name} {kind}");
    for (labels, value) in values {
        let _ = writeln!(text, "ackpace_host_tune_{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_told_to_programs_people_and_scrapers() {
        let mut tally = Tally {
            budget_bytes: 3 << 20,
            ..Tally::default()
        };
        tally.changed(Cause::Joined);
        tally.changed(Cause::Joined);
        tally.gave_back(HandsOff::Lowat);
        let json = serde_json::to_string(&tally).expect("numbers and names");
        assert_eq!(
            serde_json::from_str::<Tally>(&json).expect("the same"),
            tally
        );
        let metrics = tally.metrics();
        assert!(
            metrics.contains("ackpace_host_tune_changes_total{cause=\"joined\"} 2\n"),
            "{metrics}"
        );
        assert!(
            metrics.contains("ackpace_host_tune_budget_bytes 3145728\n"),
            "{metrics}"
        );
        let page = tally.page();
        assert!(
            page.contains("3.0 MiB") && page.contains("program_set_lowat 1"),
            "{page}"
        );
    }
}
