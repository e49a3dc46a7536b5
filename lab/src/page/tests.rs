//! Checks the page of a small result as text.

use super::*;
use crate::environment::Cores;
use crate::experiment::Pace;
use crate::facts::Machine;
use crate::metrics::Values;
use crate::outcome::PlannedPoint;
use crate::peers::Identity;
use crate::place::Place;
use crate::rounds::{Failure, Round, Rounds};
use crate::sweep::expand;
use crate::workloads::{Swarm, Workload};

fn rounds(points: &[Point]) -> Vec<Round> {
    let mut rounds = Vec::new();
    for point in points {
        for (nth, who) in ["ackpace", "nginx"].iter().enumerate() {
            for round in 0..3 {
                let mut values = Values::default();
                values.set("goodput_bytes_per_s", 1e6 * (nth * 10 + round + 1) as f64);
                rounds.push(Round {
                    point: point.clone(),
                    round,
                    place: nth,
                    contender: (*who).to_owned(),
                    values,
                    detail: serde_json::Value::Null,
                });
            }
        }
    }
    rounds
}

fn outcome() -> Outcome {
    let axes = vec![Axis::new("clients", "clients", &[1.0, 10.0])];
    let points = expand(&axes, false);
    let rounds = rounds(&points);
    let failure = Failure {
        point: "clients = 10".into(),
        round: Some(1),
        contender: "h2o".into(),
        what: "h2o: <wrong> answer".into(),
        log_tail: "a line & another".into(),
    };
    let contender = |name: &str| Identity {
        name: name.into(),
        version: "1.0".into(),
        config: "sendfile on;".into(),
    };
    Outcome {
        experiment: "small",
        title: "A <title>",
        asks: "Why?",
        source: "TPF, Figure 0",
        date: "2026-01-02T03:04:05Z".into(),
        machine: Machine {
            kernel: "6.1".into(),
            distribution: "Debian".into(),
            cpu: "a CPU".into(),
            cores: 2,
            governor: None,
            memory_bytes: 8_000_000_000,
            load_average: "0".into(),
            congestion_control: "reno",
        },
        cores: Cores {
            server_core: 0,
            load_core: 1,
        },
        contenders: ["ackpace", "nginx", "h2o"].map(contender).to_vec(),
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 0.5,
            window_s: 1.0,
            window_quick_s: 1.0,
        },
        quick: false,
        points: points
            .into_iter()
            .map(|point| PlannedPoint {
                point,
                place: Place::memory(&[]),
                workload: Workload::Swarm(Swarm::new(Vec::new())),
            })
            .collect(),
        axes,
        disturbance: Some(0.01),
        rows: Vec::new(),
        rounds: Rounds {
            rounds,
            failures: vec![failure],
        },
    }
}

/// An experiment with this axis, these rules and these figures.
fn experiment(judged: &'static str, figures: Vec<Figure>) -> Experiment {
    Experiment {
        sweep: outcome().axes,
        judged,
        figures,
        ..crate::experiments::all().remove(0)
    }
}

#[test]
fn a_figure_over_time_has_a_mark_for_each_second_that_was_kept() {
    let mut outcome = outcome();
    for round in &mut outcome.rounds.rounds {
        round.detail =
            serde_json::json!({"curves": {"goodput_bytes_per_s@film": [1e6, 2e6, 3e6, 4e6]}});
    }
    let figures = crate::experiment::curves(&["goodput_bytes_per_s@film"]);
    let page = render(&outcome, &experiment("", figures));
    assert!(page.contains("<figcaption>goodput MB/s (film)</figcaption>"));
    assert!(page.contains("seconds of the window = 4"), "{page}");
    let figures = page.split("<section class=figures>").nth(1).unwrap();
    let figures = figures.split("</section>").next().unwrap();
    // Two contenders that have rounds, four seconds.
    assert_eq!(figures.matches("class=mark").count(), 2 * 4);
}

#[test]
fn classes_are_the_values_of_an_axis_or_the_lines_of_a_contender() {
    let mut outcome = outcome();
    for round in &mut outcome.rounds.rounds {
        let times = if round.contender == "nginx" { 2.0 } else { 6.0 };
        round.values.set("goodput_bytes_per_s@1k", 1e6 * times);
        round.values.set("goodput_bytes_per_s@1m", 2e6 * times);
        round.detail = serde_json::json!({"curves": {
            "goodput_bytes_per_s@1k": [1e6, 2e6],
            "goodput_bytes_per_s@1m": [3e6, 4e6],
        }});
    }
    let metric = "goodput_bytes_per_s";
    let figure = |over| Figure { metric, over };
    let gain = figure(Over::Classes(
        &[("1k", 1.0), ("1m", 1024.0)],
        "document KB",
        "nginx",
    ));
    let curves = figure(Over::SecondsByClass(&["1k", "1m"]));
    let page = render(&outcome, &experiment("", vec![gain, curves]));
    let ratio = "ackpace: 3.00 goodput MB/s over nginx&#39;s";
    assert!(page.contains(&ratio.replace("&#39;", "'")), "{page}");
    assert!(page.contains("document KB = 1024"));
    assert!(page.contains("<figcaption>goodput MB/s, nginx</figcaption>"));
    assert!(!page.contains("goodput MB/s, h2o"), "it has no rounds");
    assert!(page.contains("1m: 4.00 goodput MB/s"), "{page}");
}

#[test]
fn a_page_is_whole_by_itself_and_hides_no_failure() {
    let page = render(&outcome(), &experiment("goodput_bytes_per_s", Vec::new()));
    for outside in ["<script", "http://", "https://", "src=", "@import"] {
        assert!(
            !page.contains(outside),
            "{outside} in a page that stands alone"
        );
    }
    assert!(page.contains("A &lt;title&gt;") && page.contains("TPF, Figure 0"));
    assert!(page.contains("h2o failed at clients = 10</strong>: h2o: &lt;wrong&gt; answer"));
    assert!(page.contains("<pre>a line &amp; another</pre>"));
    assert_eq!(
        page.matches("<polyline").count(),
        3,
        "a line for each contender"
    );
    assert_eq!(
        page.matches("class=mark").count(),
        4 + 3,
        "in the picture, and in the legend"
    );
    for tag in [
        "figure", "section", "table", "details", "svg", "g", "div", "tr",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{tag}>")).count(),
            "<{tag}>"
        );
    }
}
