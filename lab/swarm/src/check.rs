//! Reads a workload and validates it. Each error names the key and what is allowed, and a value that is out of range.

mod kinds;
mod objects;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use self::kinds::check_kind;
use self::objects::{check_objects, check_part};
use super::workload::{Abort, Arrivals, Choice, Class, Rate, RateSpread, Workload};
use ackpace_lab_base::error::{Doing, LabError, Result};

/// Most clients of a run: each needs memory for two descriptors, and a port.
pub const CLIENTS_MAX: u32 = 1_000_000;
/// Most objects of a set with Zipf's law, which needs 8 bytes for each.
const ZIPF_COUNT_MAX: u32 = 4_000_000;
const SECONDS_MAX: f64 = 1e7;
/// Requests per second, or how many times faster than in its log a trace goes.
const TEMPO_MIN: f64 = 1e-6;
const TEMPO_MAX: f64 = 1e7;
/// 1 Tbit/s: a higher rate is a typing error.
const BITS_PER_S_MAX: u64 = 1_000_000_000_000;
/// One byte a second.
const BITS_PER_S_MIN: u64 = 8;

type Verdict = std::result::Result<(), String>;

impl Workload {
    /// Reads and checks a file; errors name the file, the key and the allowed values.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).doing(|| path.display().to_string())?;
        let named = |what: String| LabError::Setup(format!("{}: {what}", path.display()));
        let mut workload: Self =
            toml::from_str(&text).map_err(|error| named(error.to_string().trim_end().into()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for class in &mut workload.classes {
            if let Some(file) = &mut class.object.file {
                *file = folder.join(&*file);
            }
        }
        workload.check().map_err(named)?;
        Ok(workload)
    }

    /// Checks the workload. The error names the key and what is allowed.
    pub fn check(&self) -> std::result::Result<(), String> {
        check(self)
    }
}

impl Class {
    /// The first address of `source` and the number of addresses; `None` without `source`.
    ///
    /// # Errors
    /// The text is not a valid range of addresses; the error says what is allowed.
    pub fn sources(&self) -> std::result::Result<Option<(IpAddr, u32)>, String> {
        self.source.as_deref().map(parse_sources).transpose()
    }
}

/// Checks the workload; the error describes the first fault.
fn check(workload: &Workload) -> Verdict {
    check_seconds("warmup_s", workload.warmup_s)?;
    if let Some(duration_s) = workload.duration_s {
        check_above_zero("duration_s", duration_s)?;
    }
    if workload.classes.is_empty() {
        return Err("class: missing; at least one [[class]] is needed".into());
    }
    let mut clients = 0;
    for (nth, one) in workload.classes.iter().enumerate() {
        let named = |what| format!("class \"{}\": {what}", one.name);
        let plain = |c: char| c.is_ascii_graphic();
        if one.name.is_empty() || !one.name.chars().all(plain) {
            let what = "name: one or more visible ASCII characters, no blanks";
            return Err(format!("class number {}: {what}", nth + 1));
        }
        if workload.classes[..nth]
            .iter()
            .any(|other| other.name == one.name)
        {
            return Err(named("name: there is another class of this name".into()));
        }
        check_class(workload, one).map_err(named)?;
        clients += u64::from(workload.clients_of(one));
    }
    match clients {
        1.. if clients <= u64::from(CLIENTS_MAX) => Ok(()),
        _ => Err(format!(
            "clients: {clients} in all classes; allowed are 1 to {CLIENTS_MAX}"
        )),
    }
}

/// Parses "10.0.0.1-10.0.0.9", "10.0.0.0/24" (all its addresses but the first and the last) or one address;
/// returns the first address and their number.
fn parse_sources(text: &str) -> std::result::Result<(IpAddr, u32), String> {
    let wrong = || {
        format!(
            "source: \"{text}\"; allowed are IPv4 addresses as \"10.1.0.1\", \"10.1.0.1-10.1.3.232\" or \"10.1.0.0/24\""
        )
    };
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().map_err(|_| wrong());
    let (first, last) = if let Some((net, bits)) = text.split_once('/') {
        let bits: u32 = bits.parse().map_err(|_| wrong())?;
        if !(8..=30).contains(&bits) {
            return Err(wrong());
        }
        let size = 1u32 << (32 - bits);
        let net = u32::from(address(net)?) & !(size - 1);
        (net + 1, net + size - 2)
    } else if let Some((first, last)) = text.split_once('-') {
        (u32::from(address(first)?), u32::from(address(last)?))
    } else {
        let one = u32::from(address(text)?);
        (one, one)
    };
    let count = last.checked_sub(first).ok_or_else(wrong)?.saturating_add(1);
    Ok((IpAddr::V4(first.into()), count))
}

fn check_class(workload: &Workload, class: &Class) -> Verdict {
    check_size(workload, class)?;
    check_seconds("think_s", class.think_s)?;
    if let Some(max_s) = class.think_max_s {
        check_above_zero("think_max_s", max_s)?;
        if class.think_s <= 0.0 || class.think_s > max_s {
            return Err(format!(
                "think_max_s: {max_s}; think_s must be above 0 and at most think_max_s"
            ));
        }
    }
    check_above_zero("stall_s", class.stall_s)?;
    check_above_zero("timeout_s", class.timeout_s)?;
    class.sources()?;
    if let Some(rate) = &class.rate {
        check_rate(rate)?;
    }
    if let Some(start) = &class.start {
        check_seconds("start.after_s", start.after_s)?;
        check_seconds("start.over_s", start.over_s)?;
    }
    check_receiving(class)?;
    if class.requests_each == Some(0) {
        return Err("requests_each: 0; allowed are 1 and more, or leave it out".into());
    }
    check_kind(class)?; // what limits its clients: plain, self-paced, player, bursty
    let clients = workload.clients_of(class);
    check_objects(&class.object, clients)?;
    check_part(class.part.as_ref(), &class.object, clients)?;
    if let Some(load) = &class.arrivals {
        check_arrivals(load, class)?;
    }
    if let Some(pause) = &class.pause {
        check_part_of_one("pause.share", pause.share)?;
        check_seconds("pause.at_s", pause.at_s)?;
        check_above_zero("pause.for_s", pause.for_s)?;
        if let Some(every_s) = pause.every_s {
            check_above_zero("pause.every_s", every_s)?;
            if every_s <= pause.for_s {
                return Err(format!(
                    "pause.every_s: {every_s}; must be more than pause.for_s"
                ));
            }
        }
    }
    if let Some(one) = &class.abort {
        check_abort(one)?;
    }
    for change in &class.change {
        check_seconds("change.at_s", change.at_s)?;
        check_part_of_one("change.share", change.share)?;
        // 0: as fast as possible.
        if change.bits_per_s != 0 {
            check_bits("change.bits_per_s", change.bits_per_s)?;
        }
    }
    Ok(())
}

/// Checks the number of clients: absolute, or a share of all.
fn check_size(workload: &Workload, class: &Class) -> Verdict {
    match (class.clients, class.share) {
        (Some(_), None) => {}
        (None, Some(share)) => {
            check_part_of_one("share", share)?;
            if workload.clients.is_none() {
                return Err("share: needs `clients` at the top of the workload".into());
            }
        }
        (Some(_), Some(_)) => return Err("clients, share: give one of them".into()),
        (None, None) => return Err("clients: missing; give it, or `share`".into()),
    }
    Ok(())
}

/// Checks SO_RCVLOWAT and SO_RCVBUF of the clients' sockets.
fn check_receiving(class: &Class) -> Verdict {
    if let Some(bytes) = class.receive_at_least_bytes {
        if !(1..=1 << 20).contains(&bytes) {
            return Err(format!(
                "receive_at_least_bytes: {bytes}; allowed are 1 to 1048576"
            ));
        }
        if class.rate.is_some() {
            return Err(
                "receive_at_least_bytes: not with rate: clients with a rate read by a timer".into(),
            );
        }
    }
    if let Some(bytes) = class.receive_buffer_bytes {
        if !(4096..=1 << 30).contains(&bytes) {
            return Err(format!(
                "receive_buffer_bytes: {bytes}; allowed are 4096 to 1073741824"
            ));
        }
    }
    Ok(())
}

fn check_rate(rate: &Rate) -> Verdict {
    if rate.spread.is_none() {
        let others = [rate.min_bits_per_s, rate.max_bits_per_s];
        if others.iter().any(Option::is_some) || rate.alpha.is_some() {
            return Err(
                "rate.min_bits_per_s, .max_bits_per_s, .alpha: need rate.spread = \"uniform\" or \"pareto\""
                    .into(),
            );
        }
        let fixed = rate.bits_per_s;
        return check_bits("rate.bits_per_s", fixed.ok_or("rate.bits_per_s: missing")?);
    }
    if rate.bits_per_s.is_some() {
        return Err("rate.bits_per_s: not with rate.spread, which needs min and max".into());
    }
    let (Some(min), Some(max)) = (rate.min_bits_per_s, rate.max_bits_per_s) else {
        return Err("rate.min_bits_per_s, rate.max_bits_per_s: needed with rate.spread".into());
    };
    check_bits("rate.min_bits_per_s", min)?;
    check_bits("rate.max_bits_per_s", max)?;
    if min > max {
        return Err(format!(
            "rate.min_bits_per_s: {min}, above the max of {max}"
        ));
    }
    match (rate.spread, rate.alpha) {
        (Some(RateSpread::Uniform), Some(_)) => {
            Err("rate.alpha: only with rate.spread = \"pareto\"".into())
        }
        (_, Some(alpha)) if !(0.05..=20.0).contains(&alpha) => {
            Err(format!("rate.alpha: {alpha}; allowed are .05 to 20"))
        }
        _ => Ok(()),
    }
}

fn check_arrivals(arrivals: &Arrivals, class: &Class) -> Verdict {
    if class.think_s > 0.0 || class.requests_each.is_some() || !class.keep_alive {
        return Err(
            "arrivals: not with think_s, requests_each or keep_alive = false, which belong to a closed loop"
                .into(),
        );
    }
    match (arrivals.requests_per_s, arrivals.trace_speed) {
        (Some(rate), None) => check_tempo("arrivals.requests_per_s", rate),
        (None, Some(_)) if class.object.choice != Choice::Trace => {
            Err("arrivals.trace_speed: only with object.choice = \"trace\"".into())
        }
        (None, Some(speed)) => check_tempo("arrivals.trace_speed", speed),
        _ => Err("arrivals: give requests_per_s or trace_speed".into()),
    }
}

fn check_abort(abort: &Abort) -> Verdict {
    check_part_of_one("abort.share", abort.share)?;
    match (abort.after_bytes, abort.after_s) {
        (Some(_), None) => Ok(()),
        (None, Some(after_s)) => check_seconds("abort.after_s", after_s),
        _ => Err("abort: give after_bytes or after_s".into()),
    }
}

fn check_seconds(key: &str, value: f64) -> Verdict {
    match (0.0..=SECONDS_MAX).contains(&value) {
        true => Ok(()),
        false => Err(format!("{key}: {value}; allowed are 0 to {SECONDS_MAX}")),
    }
}

fn check_above_zero(key: &str, value: f64) -> Verdict {
    match value > 0.0 && value <= SECONDS_MAX {
        true => Ok(()),
        false => Err(format!(
            "{key}: {value}; allowed is above 0, up to {SECONDS_MAX}"
        )),
    }
}

/// Checks how fast requests arrive. Slower ones would come after the end of the clock, which counts microseconds in 64 bits.
fn check_tempo(key: &str, value: f64) -> Verdict {
    match (TEMPO_MIN..=TEMPO_MAX).contains(&value) {
        true => Ok(()),
        false => Err(format!(
            "{key}: {value}; allowed are {TEMPO_MIN} to {TEMPO_MAX}"
        )),
    }
}

fn check_part_of_one(key: &str, value: f64) -> Verdict {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err(format!("{key}: {value}; allowed are 0 to 1")),
    }
}

fn check_bits(key: &str, value: u64) -> Verdict {
    match (BITS_PER_S_MIN..=BITS_PER_S_MAX).contains(&value) {
        true => Ok(()),
        false => Err(format!(
            "{key}: {value}; allowed are {BITS_PER_S_MIN} to {BITS_PER_S_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict on a valid class with these lines added.
    pub fn verdict(more: &str) -> String {
        let text = format!("[[class]]\nname = 'a'\n{more}\n");
        match toml::from_str::<Workload>(&text) {
            Ok(workload) => workload.check().err().unwrap_or_default(),
            Err(error) => error.to_string(),
        }
    }

    const ONE: &str = "object = { choice = 'one', path = '/a.bin', len_bytes = 10 }";

    #[test]
    fn a_refusal_names_the_key_and_what_is_allowed() {
        let with = |more: &str| verdict(&format!("{ONE}\nclients = 2\n{more}"));
        assert_eq!(with(""), "");
        for (more, key) in [
            ("rat = 1", "unknown field `rat`"),
            (
                "rate = { bits_per_s = 7 }",
                "rate.bits_per_s: 7; allowed are 8",
            ),
            ("rate = { min_bits_per_s = 9 }", "rate.spread"),
            (
                "rate = { spread = 'normal' }",
                "expected `uniform` or `pareto`",
            ),
            ("share = 0.5", "clients, share: give one"),
            (
                "source = '10.0.0.9-10.0.0.1'",
                "source: \"10.0.0.9-10.0.0.1\"; allowed",
            ),
            ("stall_s = 0", "stall_s: 0; allowed is above 0"),
            ("think_s = nan", "think_s: NaN; allowed are 0"),
            ("think_max_s = 3.0", "think_max_s: 3; think_s must be"),
            (
                "think_s = 3.0\nthink_max_s = 2.0",
                "think_max_s: 2; think_s must be",
            ),
            (
                "receive_at_least_bytes = 0",
                "receive_at_least_bytes: 0; allowed are 1 to 1048576",
            ),
            (
                "receive_at_least_bytes = 9\nrate = { bits_per_s = 9000 }",
                "receive_at_least_bytes: not with rate",
            ),
            (
                "receive_buffer_bytes = 1",
                "receive_buffer_bytes: 1; allowed are 4096",
            ),
            ("part = { choice = 'ranges' }", "part.len_bytes: needed"),
            (
                "part = { choice = 'ranges', len_bytes = 11 }",
                "above object.len_bytes of 10",
            ),
            (
                "part = { choice = 'whole', every_s = 1 }",
                "part.every_s: only with",
            ),
            ("arrivals = { }", "arrivals: give"),
            (
                "arrivals = { requests_per_s = 1e-300 }",
                "; allowed are 0.000001 to 10000000",
            ),
            (
                "arrivals = { requests_per_s = nan }",
                "arrivals.requests_per_s: NaN; allowed",
            ),
            (
                "arrivals = { trace_speed = 2.0 }",
                "only with object.choice = \"trace\"",
            ),
            ("abort = { how = 'rst' }", "abort: give after_bytes"),
            (
                "abort = { how = 'kill' }",
                "expected one of `rst`, `fin`, `half-close`",
            ),
            (
                "pause = { at_s = 1, for_s = 2, every_s = 2 }",
                "pause.every_s: 2; must be more",
            ),
            (
                "pause = { at_s = 1, for_s = 2, every_s = nan }",
                "pause.every_s: NaN; allowed is above 0",
            ),
            (
                "pause = { at_s = 1, for_s = 2, every_s = inf }",
                "pause.every_s: inf; allowed is above 0",
            ),
            (
                "rate = { spread = 'uniform', min_bits_per_s = 8, max_bits_per_s = 9, alpha = 1.2 }",
                "rate.alpha: only with",
            ),
            (
                "rate = { spread = 'pareto', min_bits_per_s = 8, max_bits_per_s = 9, alpha = nan }",
                "rate.alpha: NaN; allowed are .05",
            ),
            (
                "change = [{ at_s = 1, bits_per_s = 1 }]",
                "change.bits_per_s: 1; allowed",
            ),
        ] {
            let said = with(more);
            assert!(said.contains(key), "{more}: {said}");
        }
    }

    #[test]
    fn a_workload_without_clients_or_classes_is_refused() {
        assert!(verdict(&format!("{ONE}\nclients = 0")).contains("allowed are 1 to"));
        assert!(verdict(ONE).contains("clients: missing"));
        assert!(
            Workload::default()
                .check()
                .unwrap_err()
                .contains("[[class]]")
        );
    }

    #[test]
    fn addresses_are_counted() {
        let first =
            |text: &str| parse_sources(text).map(|(address, count)| (address.to_string(), count));
        assert_eq!(first("10.1.0.1-10.1.3.232"), Ok(("10.1.0.1".into(), 1000)));
        assert_eq!(first("10.1.7.9/24"), Ok(("10.1.7.1".into(), 254)));
        assert_eq!(first("127.0.0.1"), Ok(("127.0.0.1".into(), 1)));
        assert!(first("10.0.0.0/31").is_err() && first("::1").is_err());
    }
}
