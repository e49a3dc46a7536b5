//! What was counted, for the status and the metrics.

use std::collections::BTreeMap;
use std::fmt::Write;

use ackpace_share::outside::{Cause, HandsOff};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How `tune` stands: the answer to `tune status --json`. Names are stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Its process.
    pub pid: u32,
    /// The operator's choice.
    pub policy: String,
    /// Nothing is changed, only told.
    pub dry_run: bool,
    /// Sockets are held to their shares; if not, all together hold so little that nothing has to be divided.
    pub is_dividing: bool,
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
    /// For how long the one that is under way has hung; 0: it does not.
    pub stuck_s: u64,
    /// CPU time of the last one, with what followed from it.
    pub pass_cpu_us: u64,
    /// CPU time of all.
    pub cpu_us: u64,
}

/// The families of metrics: kind, name, field of the [`Tally`], label (`-`: none), help.
const FAMILIES: &str = "\
gauge budget_bytes budget_bytes - Send memory that is divided.
gauge shares_bytes shares_bytes - What the shares add up to.
gauge held_bytes held_bytes - Unsent and in flight in sockets with a share.
gauge before_bytes before_bytes - What is left of what they held at first.
gauge queued_bytes queued_bytes - Kernel memory for all that.
gauge sockets sockets - Sockets that match.
gauge sockets_sharing sharing - Sockets with a share.
gauge sockets_tuned tuned - Sockets that hold a setting of ours.
gauge sockets_clamped clamped - Sockets whose window is clamped.
gauge sockets_beyond beyond - Sockets beyond what is tuned at once.
gauge dividing is_dividing - 1 while sockets are held to their shares.
gauge short is_short - 1 if the budget is less than the minimum for the sockets.
counter void_total void - Orders for sockets that others changed or closed meanwhile.
counter refused_total refused - Orders that the kernel refused.
counter passes_total passes - Passes over all sockets.
gauge pass_stuck_seconds stuck_s - For how long the present pass has hung.
counter cpu_microseconds_total cpu_us - CPU time of all passes.
gauge sockets_left_alone left_alone why Sockets that are left alone, by reason.
counter changes_total changes cause Changes, by cause.
counter given_back_total given_back why Sockets whose original settings were restored, by reason.";

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
        let values = serde_json::to_value(self).unwrap_or_default();
        for line in FAMILIES.lines() {
            let mut words = line.splitn(5, ' ');
            let [kind, name, field, label, help] =
                std::array::from_fn(|_| words.next().unwrap_or_default());
            let _ = writeln!(text, "# HELP ackpace_host_tune_{name} {help}");
            let _ = writeln!(text, "# TYPE ackpace_host_tune_{name} {kind}");
            match &values[field] {
                Value::Object(values) => values.iter().for_each(|(of, value)| {
                    let _ = writeln!(text, "ackpace_host_tune_{name}{{{label}=\"{of}\"}} {value}");
                }),
                Value::Bool(is) => _ = writeln!(text, "ackpace_host_tune_{name} {}", u8::from(*is)),
                value => _ = writeln!(text, "ackpace_host_tune_{name} {value}"),
            }
        }
        text
    }

    /// For people.
    pub fn page(&self) -> String {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / 1_048_576.0);
        let list = |values: &BTreeMap<String, u64>| {
            let parts = values.iter().map(|(name, value)| format!("{name} {value}"));
            let parts: Vec<String> = parts.collect();
            match parts.is_empty() {
                true => "none".to_owned(),
                false => parts.join(", "),
            }
        };
        let when = |is: bool, text: &str| if is { text.to_owned() } else { String::new() };
        let beyond = self.beyond;
        format!(
            "process      {} divides {} {}{}\n\
             memory       shares {}, held {}; {} still queued from before tuning (kernel memory {})\n\
             sockets      {} match, {} share, {} {}, {} of them clamped\n{}{}\
             left alone   {}\n\
             changes      {}\n\
             restored     {}; {} orders obsolete, {} refused by the kernel\n\
             passes       {}, the last one took {} us of CPU time\n{}",
            self.pid,
            mib(self.budget_bytes),
            self.policy,
            match (self.dry_run, self.is_dividing) {
                (true, _) => ", dry run: nothing is changed",
                (false, true) => "",
                (false, false) => "; memory use is low, so no socket is limited",
            },
            mib(self.shares_bytes),
            mib(self.held_bytes),
            mib(self.before_bytes),
            mib(self.queued_bytes),
            self.sockets,
            self.sharing,
            self.tuned,
            match self.dry_run {
                true => "would be set",
                false => "tuned",
            },
            self.clamped,
            when(
                self.is_short,
                "             the budget is less than the minimum for these connections; usage may exceed it\n"
            ),
            when(
                beyond > 0,
                &format!("             {beyond} more are not tuned: too many at once\n")
            ),
            list(&self.left_alone),
            list(&self.changes),
            list(&self.given_back),
            self.void,
            self.refused,
            self.passes,
            self.pass_cpu_us,
            when(
                self.stuck_s > 0,
                &format!(
                    "             STUCK for {} s: a process holds the lock of its socket; nothing is divided meanwhile\n",
                    self.stuck_s
                )
            )
        )
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
        assert!(
            metrics.contains("# TYPE ackpace_host_tune_short gauge\nackpace_host_tune_short 0\n")
        );
        assert_eq!(
            metrics.matches("null").count(),
            0,
            "each family has its field"
        );
        let page = tally.page();
        assert!(
            page.contains("3.0 MiB") && page.contains("program_set_lowat 1"),
            "{page}"
        );
    }
}
