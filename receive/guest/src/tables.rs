//! The log of a run as tables: shares and ratios, since times of an emulated machine mean nothing elsewhere.

use std::fs;
use std::path::Path;

use ackpace_lab_base::error::{Doing, LabError, Result};

use crate::case::{Case, Help, Outcome};

/// Prints them.
///
/// # Errors
/// There is no case in the log.
pub fn tell(log: &Path) -> Result<()> {
    let text = fs::read(log).doing(|| log.display().to_string())?;
    let text = String::from_utf8_lossy(&text);
    let outcomes = outcomes(&text);
    if outcomes.is_empty() {
        return Err(LabError::Setup(format!(
            "{}: no case came to its end",
            log.display()
        )));
    }
    for line in text
        .lines()
        .filter(|line| line.starts_with("FAILED ") || line.starts_with("GUEST "))
    {
        println!("{line}");
    }
    print!("{}", page(&outcomes));
    Ok(())
}

fn outcomes(text: &str) -> Vec<Outcome> {
    let cases = text.lines().filter_map(|line| line.strip_prefix("CASE "));
    cases
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn page(outcomes: &[Outcome]) -> String {
    let named = |name: &str| -> Vec<&Outcome> {
        outcomes
            .iter()
            .filter(|one| one.case.name == name)
            .collect()
    };
    let mut page = guards(&named("guard"));
    page += &table_7(&named("table-7"));
    page
}

/// The world of a case, in words.
fn world(case: &Case) -> String {
    let slice_ms = case.slice_us as f64 / 1e3;
    format!("{}, slice {slice_ms} ms", case.preempt)
}

fn with<'a>(
    outcomes: &[&'a Outcome],
    help: Help,
    is_meant: impl Fn(&Case) -> bool,
) -> Vec<&'a Outcome> {
    let meant = outcomes
        .iter()
        .filter(|one| one.case.help == help && is_meant(&one.case));
    meant.copied().collect()
}

fn each(some: &[&Outcome], of: impl Fn(&Outcome) -> String) -> String {
    some.iter()
        .map(|one| of(one))
        .collect::<Vec<_>>()
        .join(", ")
}

fn guards(outcomes: &[&Outcome]) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n| 10 loops | | T_wait from 10 ms on, % | from 200 ms on, % | RTO | CPU over the fair share, points | \
         core lost with the lock, of these 10 ms or longer | bytes over those of the first line |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut worlds: Vec<String> = Vec::new();
    for one in outcomes {
        let world = world(&one.case);
        if !worlds.contains(&world) {
            worlds.push(world);
        }
    }
    let rows = [
        (Help::None, "as it is"),
        (Help::Scheduler, "its scheduler alone"),
        (Help::Guard, "`guard`"),
    ];
    for name in worlds {
        let without = with(outcomes, Help::None, |case| world(case) == name);
        for (help, word) in rows {
            let some = with(outcomes, help, |case| world(case) == name);
            if some.is_empty() {
                continue;
            }
            let ratio = match without.is_empty() {
                true => String::new(),
                false => format!("{:.2}", bytes(&some) / bytes(&without).max(1.0)),
            };
            text += &format!(
                "| {name} | {word} | {} | {} | {} | {} | {} | {ratio} |\n",
                each(&some, |one| format!("{:.2}", late(&one.watched.to_tcp, 2))),
                each(&some, |one| format!("{:.2}", late(&one.watched.to_tcp, 4))),
                each(&some, |one| one.senders.timeouts.to_string()),
                each(&some, |one| format!(
                    "{:+.2}",
                    100.0 * (share(one) - fair(one))
                )),
                each(&some, lost)
            );
        }
    }
    text
}

fn lost(one: &Outcome) -> String {
    let core = &one.watched.core;
    let long: u64 = core.off_owning[2..].iter().sum();
    format!("{long} of {}", core.lost_owning)
}

fn table_7(outcomes: &[&Outcome]) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n| loops | fair, % | as it is | `guard` | the paper's rule | `guard` itself, % of a core | RTO as it is, with `guard` |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (loops, paper) in [(1, "52.58"), (3, "28.38"), (4, "23.8"), (9, "13.86")] {
        let all =
            [Help::None, Help::Guard].map(|help| with(outcomes, help, |case| case.loops == loops));
        let shares = all
            .each_ref()
            .map(|some| each(some, |one| format!("{:.2}", 100.0 * share(one))));
        let timeouts = all.each_ref().map(|some| {
            let timeouts: u64 = some.iter().map(|one| one.senders.timeouts).sum();
            timeouts.to_string()
        });
        let (window, guard) = all[1].iter().fold((0, 0), |sum, one| {
            (sum.0 + one.window_us, sum.1 + one.guard_us)
        });
        text += &format!(
            "| {loops} | {:.2} | {} | {paper} | {:.2} | {} |\n",
            100.0 / f64::from(loops + 1),
            shares.join(" | "),
            100.0 * guard as f64 / window.max(1) as f64,
            timeouts.join(", ")
        );
    }
    text
}

/// How many of a hundred segments are in this bin or a later one.
fn late(bins: &[u64; 6], from: usize) -> f64 {
    let late: u64 = bins[from..].iter().sum();
    100.0 * late as f64 / bins.iter().sum::<u64>().max(1) as f64
}

/// What the receiver had of what it and the loops had. A host that takes the core from all of them changes nothing.
fn share(one: &Outcome) -> f64 {
    one.receiver_us as f64 / (one.receiver_us + one.loops_us).max(1) as f64
}

fn fair(one: &Outcome) -> f64 {
    1.0 / f64::from(one.case.loops + 1)
}

fn bytes(some: &[&Outcome]) -> f64 {
    some.iter()
        .map(|one| one.received_bytes as f64)
        .sum::<f64>()
        / some.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Core, Watched};
    use crate::proc::Senders;

    fn outcome(name: &str, loops: u32, help: Help) -> Outcome {
        let watched = Watched {
            to_tcp: [80, 10, 6, 3, 1, 0],
            core: Core {
                lost_owning: 5,
                lost_free: 1,
                off_owning: [1, 1, 2, 0, 1, 0],
            },
            ..Watched::default()
        };
        Outcome {
            case: Case {
                name: name.to_owned(),
                preempt: "lazy".to_owned(),
                slice_us: 1_400,
                loops,
                buffer_bytes: 1,
                call_bytes: 1,
                help,
                seconds: 10,
            },
            window_us: 10_000_000,
            received_bytes: if help == Help::Guard { 30 } else { 20 },
            receiver_us: 100,
            loops_us: 900,
            guard_us: 50_000,
            senders: Senders {
                timeouts: 2,
                spurious: 1,
                probes: 0,
            },
            watched,
            turns: serde_json::Value::Null,
        }
    }

    #[test]
    fn a_log_becomes_tables() {
        let all = [
            outcome("guard", 9, Help::None),
            outcome("guard", 9, Help::Guard),
            outcome("table-7", 9, Help::Guard),
        ];
        let lines = all.map(|one| format!("CASE {}\n", serde_json::to_string(&one).expect("text")));
        let text = format!("[ 1.0] boot\n{}CASE broken\n", lines.concat());
        let page = page(&outcomes(&text));
        for line in [
            "| lazy, slice 1.4 ms | as it is | 10.00 | 1.00 | 2 | +0.00 | 3 of 5 | 1.00 |\n",
            "| lazy, slice 1.4 ms | `guard` | 10.00 | 1.00 | 2 | +0.00 | 3 of 5 | 1.50 |\n",
            "| 9 | 10.00 |  | 10.00 | 13.86 | 0.50 | 0, 2 |\n",
        ] {
            assert!(page.contains(line), "{line}\nis not in\n{page}");
        }
    }
}
