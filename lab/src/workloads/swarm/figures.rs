//! Converts the swarm's summary into figures of the lab.

use crate::metrics::Values;
use crate::watch::Work;
use ackpace_lab_base::error::{LabError, Result};
use ackpace_lab_swarm::summary::{ClassSummary, Summary};

/// Mean residence time in the cache by Little's law: cached bytes over the rate at which the disk adds bytes.
pub fn residence_s(values: &Values, cache_bytes: Option<u64>) -> Option<f64> {
    let disk_bytes_per_s = values.get("disk_bytes_per_s").filter(|rate| *rate > 0.0)?;
    Some(cache_bytes? as f64 / disk_bytes_per_s)
}

/// Bytes read from the disk for each byte that a client received.
pub fn disk_over_goodput(values: &Values) -> Option<f64> {
    let goodput = values
        .get("goodput_bytes_per_s")
        .filter(|rate| *rate > 0.0)?;
    Some(values.get("disk_bytes_per_s")? / goodput)
}

/// The work of the server as the clients saw it.
pub fn work(summary: &Summary) -> Work {
    Work {
        body_bytes: summary.classes.iter().map(|class| class.bytes).sum(),
        responses: summary.classes.iter().map(|class| class.completed).sum(),
    }
}

/// Adds the clients' figures: sums over all classes, the rest for each class. A single class also gives plain
/// keys.
pub fn add(values: &mut Values, summary: &Summary) {
    values.set("load_core_share", summary.cpu_s / summary.elapsed_s);
    let late = summary.timer_late_p99_us.map(|late_us| late_us as f64);
    values.set_some("clients_late_p99_us", late);
    let sum = |of: fn(&ClassSummary) -> u64| summary.classes.iter().map(of).sum::<u64>() as f64;
    values.set("errors", sum(|class| class.errors.values().sum()));
    values.set("responses", sum(|class| class.completed));
    values.set("stalls", sum(|class| class.stalls));
    for class in &summary.classes {
        if let [_] = &summary.classes[..] {
            add_class(values, class, "");
        } else {
            let at = format!("@{}", class.class);
            values.set(
                &format!("goodput_bytes_per_s{at}"),
                class.goodput_bytes_per_s,
            );
            values.set(&format!("stalls{at}"), class.stalls as f64);
            add_class(values, class, &at);
        }
    }
}

fn add_class(values: &mut Values, class: &ClassSummary, at: &str) {
    let mut set = |key: &str, value: Option<f64>| values.set_some(&format!("{key}{at}"), value);
    let each = &class.client_goodput_bytes_per_s;
    let some = |value: f64| (each.clients > 0).then_some(value);
    set("client_goodput_min_bytes_per_s", some(each.min));
    set("client_goodput_p50_bytes_per_s", some(each.p50));
    set("client_goodput_mean_bytes_per_s", some(each.mean));
    set("demand_met_min", class.demand_met.map(|met| met.min));
    set("demand_met_mean", class.demand_met.map(|met| met.mean));
    set("demand_met_p1", class.demand_met.map(|met| met.p1));
    set("demand_met_p50", class.demand_met.map(|met| met.p50));
    let us = |time: Option<u64>| time.map(|us| us as f64);
    set("ttfb_p50_us", us(class.ttfb_us.p50));
    set("ttfb_p99_us", us(class.ttfb_us.p99));
    set("completion_p50_us", us(class.completion_us.p50));
    set("completion_p99_us", us(class.completion_us.p99));
    set("jain", class.jain_min);
    set("jain_window", each.jain);
}

/// Fails for a contender that sent a wrong byte: it gets no figures.
pub fn refuse_wrong_bytes(who: &str, summary: &Summary) -> Result<()> {
    let failed = summary.classes.iter().find(|class| class.failed);
    match failed {
        None => Ok(()),
        Some(class) => {
            let first = class
                .first_errors
                .first()
                .map_or("wrong answers", String::as_str);
            Err(LabError::contender(
                who,
                format!("class {}: {first}", class.class),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(classes: &[&str]) -> Summary {
        let class = |name: &&str| ClassSummary {
            class: (*name).to_owned(),
            bytes: 500,
            completed: 2,
            errors: [("timeout".to_owned(), 3)].into(),
            ..ClassSummary::default()
        };
        Summary {
            seed: 1,
            elapsed_s: 2.0,
            cpu_s: 1.0,
            timer_late_p99_us: None,
            failed: false,
            classes: classes.iter().map(class).collect(),
        }
    }

    #[test]
    fn one_class_gives_plain_figures_and_several_give_theirs_by_name() {
        let mut values = Values::default();
        let mut one = summary(&["films"]);
        one.classes[0].ttfb_us.p50 = Some(70);
        add(&mut values, &one);
        assert_eq!(values.get("ttfb_p50_us"), Some(70.0));
        assert_eq!(values.get("load_core_share"), Some(0.5));
        let two = summary(&["fast", "slow"]);
        let mut values = Values::default();
        add(&mut values, &two);
        assert_eq!(values.get("errors"), Some(6.0));
        assert_eq!(values.get("stalls@slow"), Some(0.0));
        assert_eq!(values.get("ttfb_p50_us@slow"), None, "no answer, no time");
        assert_eq!(work(&two).body_bytes, 1000);
    }

    #[test]
    fn wrong_bytes_are_the_contenders_failure_and_named() {
        let mut wrong = summary(&["films"]);
        assert!(refuse_wrong_bytes("p", &wrong).is_ok());
        wrong.classes[0].failed = true;
        wrong.classes[0].first_errors = vec!["/a differs at byte 7".into()];
        let error = refuse_wrong_bytes("p", &wrong).unwrap_err().to_string();
        assert!(
            error.contains("p: class films: /a differs at byte 7"),
            "{error}"
        );
    }
}
