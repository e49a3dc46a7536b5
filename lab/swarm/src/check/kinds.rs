//! Checks the settings that each kind of client requires or excludes.

use super::{Verdict, check_above_zero};
use crate::workload::{Choice, Class, Kind};

/// Above this, full speed is meant. Below 1, a film would stall at every segment.
const TIMES_MAX: f64 = 1e6;

/// Checks the settings of the class's kind, and rejects those of other kinds.
pub fn check_kind(class: &Class) -> Verdict {
    let name = class.kind.name();
    if class.segments.is_some() && class.kind != Kind::Player {
        return Err("segments: only with kind = \"player\"".into());
    }
    if class.burst.is_some() && class.kind != Kind::Bursty {
        return Err("burst: only with kind = \"bursty\"".into());
    }
    if class.kind == Kind::Plain {
        return Ok(());
    }
    if class.receive_at_least_bytes.is_some() {
        return Err(format!(
            "receive_at_least_bytes: not with kind = \"{name}\""
        ));
    }
    match class.kind {
        Kind::SelfPaced | Kind::Player if class.rate.is_none() => {
            Err(format!("rate: needed with kind = \"{name}\""))
        }
        Kind::Player => check_player(class),
        Kind::Bursty => check_bursty(class),
        Kind::Plain | Kind::SelfPaced => Ok(()),
    }
}

fn check_player(class: &Class) -> Verdict {
    let Some(segments) = &class.segments else {
        return Err("segments: needed with kind = \"player\"".into());
    };
    check_above_zero("segments.film_s", segments.film_s)?;
    if let Some(times) = segments.times {
        if !(1.0..=TIMES_MAX).contains(&times) {
            return Err(format!(
                "segments.times: {times}; allowed are 1 to {TIMES_MAX}, or leave it out for full speed"
            ));
        }
    }
    if class.object.choice == Choice::Trace || class.object.len_bytes.is_none_or(|len| len == 0) {
        let what = "object.len_bytes: needed with kind = \"player\", above 0, and no trace";
        return Err(what.into());
    }
    let others = [
        ("part", class.part.is_some()),
        ("arrivals", class.arrivals.is_some()),
        ("think_s", class.think_s > 0.0),
        ("pause", class.pause.is_some()),
        ("abort", class.abort.is_some()),
        ("change", !class.change.is_empty()),
    ];
    refuse(&others, "player")
}

fn check_bursty(class: &Class) -> Verdict {
    let Some(burst) = &class.burst else {
        return Err("burst: needed with kind = \"bursty\"".into());
    };
    if burst.len_bytes == 0 {
        return Err("burst.len_bytes: 0; allowed are 1 and more".into());
    }
    check_above_zero("burst.every_s", burst.every_s)?;
    let others = [
        ("rate", class.rate.is_some()),
        ("change", !class.change.is_empty()),
    ];
    refuse(&others, "bursty")
}

fn refuse(others: &[(&str, bool)], kind: &str) -> Verdict {
    match others.iter().find(|(_, there)| *there) {
        None => Ok(()),
        Some((key, _)) => Err(format!("{key}: not with kind = \"{kind}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::verdict;

    const FILM: &str = "object = { choice = 'one', path = '/a.bin', len_bytes = 10 }";
    const RATE: &str = "rate = { bits_per_s = 8000 }";
    const SEGMENTS: &str = "segments = { film_s = 4, times = 4 }";
    const BURST: &str = "burst = { len_bytes = 1000, every_s = 2 }";

    fn with(kind: &str, lines: &[&str]) -> String {
        let lines = lines.join("\n");
        verdict(&format!("{FILM}\nclients = 2\nkind = '{kind}'\n{lines}"))
    }

    #[test]
    fn each_kind_is_content_with_what_it_needs() {
        assert_eq!(with("plain", &[]), "");
        assert_eq!(with("self-paced", &[RATE]), "");
        let buffer = "receive_buffer_bytes = 32768";
        assert_eq!(with("self-paced", &[RATE, buffer]), "");
        assert_eq!(with("player", &[RATE, SEGMENTS]), "");
        let full_speed = "segments = { film_s = 4 }";
        assert_eq!(with("player", &[RATE, full_speed, "requests_each = 9"]), "");
        assert_eq!(with("bursty", &[BURST]), "");
    }

    #[test]
    fn a_refusal_names_the_key_and_the_kind() {
        let least = "receive_at_least_bytes = 9";
        for (kind, lines, key) in [
            ("proxy", &[] as &[&str], "expected one of `plain`"),
            ("self-paced", &[], "rate: needed with kind = \"self-paced\""),
            ("player", &[SEGMENTS], "rate: needed with kind = \"player\""),
            ("player", &[RATE], "segments: needed"),
            (
                "plain",
                &[SEGMENTS],
                "segments: only with kind = \"player\"",
            ),
            ("self-paced", &[RATE, BURST], "burst: only with kind"),
            ("bursty", &[], "burst: needed with kind = \"bursty\""),
            ("bursty", &[BURST, RATE], "rate: not with kind = \"bursty\""),
            (
                "bursty",
                &[BURST, least],
                "receive_at_least_bytes: not with",
            ),
            (
                "bursty",
                &["burst = { len_bytes = 0, every_s = 2 }"],
                "burst.len_bytes: 0; allowed",
            ),
            (
                "bursty",
                &["burst = { len_bytes = 9, every_s = 0 }"],
                "burst.every_s: 0; allowed is above 0",
            ),
            (
                "bursty",
                &["burst = { bytes = 9, every_s = 1 }"],
                "unknown field `bytes`",
            ),
            (
                "player",
                &[RATE, "segments = { film_s = 0 }"],
                "segments.film_s: 0; allowed",
            ),
            (
                "player",
                &[RATE, "segments = { film_s = 4, times = 0.5 }"],
                "segments.times: 0.5; allowed are 1 to",
            ),
            (
                "player",
                &[RATE, SEGMENTS, "think_s = 1"],
                "think_s: not with kind = \"player\"",
            ),
            (
                "player",
                &[RATE, SEGMENTS, "part = { choice = 'seeks', every_s = 1 }"],
                "part: not with",
            ),
        ] {
            let said = with(kind, lines);
            assert!(said.contains(key), "{kind}, {lines:?}: {said}");
        }
        let unknown = verdict(&format!(
            "object = {{ choice = 'one', path = '/a' }}\nclients = 2\nkind = 'player'\n{RATE}\n{SEGMENTS}"
        ));
        assert!(unknown.contains("object.len_bytes: needed"), "{unknown}");
    }
}
