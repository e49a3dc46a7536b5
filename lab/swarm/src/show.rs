//! Formats the lines of a swarm for people.

use std::fmt::Write;

use super::summary::{ClassSummary, Line, Second, Spread, Summary, Times};

/// A line as text, including line ends.
pub fn text(line: &Line) -> String {
    match line {
        Line::Begin(begin) => format!(
            "seed {}: {} clients, {} thread(s), server {}\n",
            begin.seed, begin.clients, begin.threads, begin.target
        ),
        Line::Second(second) => of_second(second),
        Line::Fault(fault) => format!("{}: {}: {}\n", fault.class, fault.error, fault.text),
        Line::Answer(answer) => {
            let refused = answer.refused.as_deref();
            let outcome = refused.map_or("done".into(), |why| format!("refused: {why}"));
            format!("{} at {:.3} s: {outcome}\n", answer.command, answer.at_s)
        }
        Line::Summary(summary) => of_summary(summary),
    }
}

fn of_second(second: &Second) -> String {
    let mut text = format!("{:4} s", second.at_s);
    for class in &second.classes {
        let mbit = class.bytes as f64 * 8e-6;
        let mut part = format!(
            "  {}: {mbit:.1} Mbit/s {} done",
            class.class, class.completed
        );
        if class.errors > 0 {
            write!(part, " {} errors", class.errors).expect("a String takes everything");
        }
        text += &part;
    }
    text + "\n"
}

fn of_summary(summary: &Summary) -> String {
    let mut text = format!(
        "{:.1} s, {:.2} s of CPU, own timers late by {} (p99)\n",
        summary.elapsed_s,
        summary.cpu_s,
        ms(summary.timer_late_p99_us)
    );
    for class in &summary.classes {
        text += &of_class(class);
    }
    text
}

fn of_class(class: &ClassSummary) -> String {
    let verdict = if class.failed {
        "  FAILED: wrong answers"
    } else {
        ""
    };
    let mut rows = vec![
        format!("{} ({} clients){verdict}", class.class, class.clients),
        format!(
            "{} bytes, {:.1} Mbit/s; client {}",
            class.bytes,
            class.goodput_bytes_per_s * 8e-6,
            spread(&class.client_goodput_bytes_per_s, 8e-6, " Mbit/s")
        ),
        format!(
            "{} requests, {} completed ({:.1}/s), {} aborted, {} seeks, {} connections",
            class.requests,
            class.completed,
            class.completed_per_s,
            class.aborted,
            class.seeks,
            class.connects
        ),
        format!("first byte {}", times(&class.ttfb_us)),
        format!("last byte  {}", times(&class.completion_us)),
    ];
    if let Some(met) = &class.demand_met {
        rows.push(format!("demand met {}", spread(met, 100.0, " %")));
    }
    if let Some(jain) = class.jain_min {
        rows.push(format!("Jain's index, worst 2 s: {jain:.3}"));
    }
    if class.stalls > 0 {
        rows.push(format!(
            "{} stalls of {:.1} s together",
            class.stalls, class.stalled_s
        ));
    }
    let errors = class.errors.iter();
    rows.extend(errors.map(|(kind, count)| format!("errors: {kind} {count}")));
    rows.extend(class.first_errors.iter().map(|text| format!("  {text}")));
    rows.join("\n    ") + "\n"
}

fn spread(spread: &Spread, factor: f64, unit: &str) -> String {
    let Spread {
        min, p1, p50, mean, ..
    } = spread;
    let [min, p1, p50, mean] = [min, p1, p50, mean].map(|value| value * factor);
    format!("min {min:.2}, p1 {p1:.2}, p50 {p50:.2}, mean {mean:.2}{unit}")
}

fn times(times: &Times) -> String {
    let [p50, p99, p999, max] = [times.p50, times.p99, times.p999, times.max].map(ms);
    format!("p50 {p50}, p99 {p99}, p999 {p999}, max {max}")
}

fn ms(us: Option<u64>) -> String {
    us.map_or("-".into(), |us| format!("{:.2} ms", us as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::FaultLine;

    #[test]
    fn a_class_that_failed_says_so_and_why() {
        let class = ClassSummary {
            class: "slow".into(),
            failed: true,
            errors: [("wrong-byte".to_owned(), 2)].into(),
            first_errors: vec!["wrong-byte: GET /a: offset 5".into()],
            ..ClassSummary::default()
        };
        let text = of_class(&class);
        for part in [
            "slow (0 clients)  FAILED",
            "wrong-byte 2",
            "GET /a: offset 5",
            "p50 -",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let line = Line::Fault(FaultLine {
            class: "slow".into(),
            error: "reset".into(),
            text: "GET /a".into(),
        });
        assert_eq!(super::text(&line), "slow: reset: GET /a\n");
    }
}
