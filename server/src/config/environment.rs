//! The environment: turns variables `ACKPACE_*` into a layer of raw values.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::layer::{Layer, LoadError, Origin, give, give_port};
use super::settings::Setting;
use crate::options::{nearest, shown};

const PREFIX: &str = "ACKPACE_";
/// Variables that are no keys of the configuration file.
const CONFIG: &str = "ACKPACE_CONFIG";
const PORT: &str = "ACKPACE_PORT";

/// The values from the environment.
#[derive(Debug, Default)]
pub struct Environment {
    /// Its values.
    pub layer: Layer,
    /// The configuration file that `ACKPACE_CONFIG` names.
    pub config: Option<OsString>,
    /// One sentence for each variable that starts with `ACKPACE_` and means nothing.
    pub warnings: Vec<String>,
    pub errors: Vec<LoadError>,
}

/// Reads the variables. An empty one counts as not set, but makes a list empty; commas separate the values of a list.
pub fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
    let settings = Setting::all();
    let mut read = Environment::default();
    let mut ours: Vec<(String, OsString)> = variables
        .into_iter()
        .filter(|(name, _)| name.as_bytes().starts_with(PREFIX.as_bytes()))
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .collect();
    ours.sort();
    let (others, ours): (Vec<_>, Vec<_>) = ours
        .into_iter()
        .partition(|(name, value)| is_of_a_service(name, value));
    read.warnings
        .extend(others.first().map(|(name, _)| left_out(name, &others)));
    for (name, value) in ours {
        let known = settings.iter().find(|setting| setting.variable() == name);
        match (name.as_str(), known) {
            (CONFIG, _) => read.config = Some(value).filter(|value| !value.is_empty()),
            (PORT, _) => read.port(&value),
            (_, Some(setting)) => read.setting(setting, name, value),
            (_, None) => read.warnings.push(unknown(&name, &settings)),
        }
    }
    read
}

impl Environment {
    fn setting(&mut self, setting: &Setting, name: String, value: OsString) {
        let values = match (setting.shape.is_list(), value.is_empty()) {
            (true, _) => split(&value),
            (false, true) => return,
            (false, false) => vec![value],
        };
        let errors = setting.errors(&values);
        if errors.is_empty() {
            let origin = Origin::Environment(name);
            return give(&mut self.layer, &setting.key, values, origin);
        }
        let place = |error| LoadError::Value {
            place: name.clone(),
            error,
        };
        self.errors.extend(errors.into_iter().map(place));
    }

    /// A port adds an address to listen on to those of `ACKPACE_LISTEN`.
    fn port(&mut self, value: &OsStr) {
        if value.is_empty() {
            return;
        }
        let origin = Origin::Environment(PORT.to_owned());
        if let Err(error) = give_port(&mut self.layer, value, origin) {
            let place = PORT.to_owned();
            self.errors.push(LoadError::Value { place, error });
        }
    }
}

/// The values between commas; none if the whole is empty.
fn split(value: &OsStr) -> Vec<OsString> {
    if value.is_empty() {
        return Vec::new();
    }
    let parts = value.as_bytes().split(|byte| *byte == b',');
    parts
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}

/// Whether Kubernetes sets this variable in each pod for a Service with a name such as `ackpace` or `ackpace-eu`.
fn is_of_a_service(name: &str, value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    let is_url = ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme));
    let is_numbered =
        |(_, port): (&str, &str)| port.starts_with(|sign: char| sign.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT") && is_url
        || name.split_once("_PORT_").is_some_and(is_numbered)
}

fn left_out(first: &str, all: &[(String, OsString)]) -> String {
    format!(
        "variables that Kubernetes sets for a Service are left out: {} ({} in all); enableServiceLinks: false in the pod's spec \
         ends that",
        shown(first),
        all.len()
    )
}

fn unknown(name: &str, settings: &[Setting]) -> String {
    let names: Vec<String> = settings.iter().map(Setting::variable).collect();
    let known = names.iter().map(String::as_str).chain([CONFIG, PORT]);
    let keys = known.filter_map(|name| name.strip_prefix(PREFIX));
    let wrong = name.strip_prefix(PREFIX).unwrap_or_default();
    let hint = match nearest(wrong, keys) {
        Some(near) => format!("did you mean {PREFIX}{near}?"),
        None => "docs/configuration.md names those that do".to_owned(),
    };
    format!("the variable {} means nothing: {hint}", shown(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
        read(variables.iter().map(pair))
    }

    fn values(read: &Environment, key: &str) -> Vec<OsString> {
        read.layer
            .get(key)
            .map_or_else(Vec::new, |given| given.values.clone())
    }

    #[test]
    fn variables_give_values_and_lists_stand_between_commas() {
        let read = environment(&[
            ("ACKPACE_WORKERS", "3"),
            ("ACKPACE_HIDE", ".git,*.tmp"),
            ("ACKPACE_INDEX", ""),
            ("ACKPACE_IDLE_TIMEOUT", ""),
            ("ACKPACE_TYPES", "md=text/markdown,x=a/b"),
            ("ACKPACE_COMPARE", "prefetch=paper,cancel=off"),
            ("ACKPACE_CONFIG", "a.toml"),
            ("PATH", "/bin"),
        ]);
        assert_eq!(values(&read, "workers"), ["3"]);
        assert_eq!(values(&read, "hide"), [".git", "*.tmp"]);
        assert_eq!(values(&read, "types"), ["md=text/markdown", "x=a/b"]);
        assert_eq!(values(&read, "compare"), ["prefetch=paper,cancel=off"]);
        assert_eq!(read.layer["index"].values, Vec::<OsString>::new());
        assert!(!read.layer.contains_key("idle_timeout"));
        assert_eq!(read.config, Some("a.toml".into()));
        assert!(read.errors.is_empty() && read.warnings.is_empty());
        let origin = read.layer["workers"].origin.to_string();
        assert_eq!(origin, "environment ACKPACE_WORKERS");
    }

    #[test]
    fn a_port_is_added_to_the_places_to_listen_at() {
        let both = environment(&[("ACKPACE_PORT", "81"), ("ACKPACE_LISTEN", ":80,fd:3")]);
        assert_eq!(values(&both, "listen"), [":80", "fd:3", "127.0.0.1:81"]);
        let port = environment(&[("ACKPACE_PORT", "81")]);
        assert_eq!(values(&port, "listen"), ["127.0.0.1:81"]);
        assert!(
            environment(&[("ACKPACE_PORT", ""), ("ACKPACE_CONFIG", "")])
                .layer
                .is_empty()
        );
    }

    #[test]
    fn wrong_values_are_named_with_their_variable() {
        let read = environment(&[
            ("ACKPACE_WORKERS", "65"),
            ("ACKPACE_LISTEN", "80,http"),
            ("ACKPACE_PORT", "x"),
            ("ACKPACE_LISTING", "maybe"),
        ]);
        let errors: Vec<String> = read.errors.iter().map(ToString::to_string).collect();
        let expected = [
            "ACKPACE_LISTEN: http is not an address: write 8080, :8080, 192.0.2.1:80, [::]:8080, unix:PATH or fd:3",
            "ACKPACE_LISTING: maybe is not true or false",
            "ACKPACE_PORT: x is not a port: 0 to 65535",
            "ACKPACE_WORKERS: 65 is out of range: 1 to 64, or \"auto\"",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn variables_that_kubernetes_sets_for_a_service_are_left_out_with_one_line() {
        let read = environment(&[
            ("ACKPACE_PORT", "tcp://10.43.0.7:8080"),
            ("ACKPACE_PORT_8080_TCP", "tcp://10.43.0.7:8080"),
            ("ACKPACE_PORT_8080_TCP_ADDR", "10.43.0.7"),
            ("ACKPACE_PORT_8080_TCP_PORT", "8080"),
            ("ACKPACE_PORT_8080_TCP_PROTO", "tcp"),
            ("ACKPACE_SERVICE_HOST", "10.43.0.7"),
            ("ACKPACE_SERVICE_PORT", "8080"),
            ("ACKPACE_SERVICE_PORT_HTTP", "8080"),
            ("ACKPACE_METRICS_PORT", "tcp://[fd00::7]:9100"),
            ("ACKPACE_METRICS_SERVICE_HOST", "fd00::7"),
            ("ACKPACE_WORKERS", "3"),
        ]);
        assert!(read.errors.is_empty(), "{:?}", read.errors);
        assert_eq!(values(&read, "workers"), ["3"]);
        assert!(!read.layer.contains_key("listen"));
        let [warning] = read.warnings.as_slice() else {
            panic!("{:?}", read.warnings);
        };
        let begin = "variables that Kubernetes sets for a Service are left out: ACKPACE_METRICS_PORT (10 in all)";
        assert!(warning.starts_with(begin), "{warning}");
    }

    #[test]
    fn variables_that_mean_nothing_are_warned_of() {
        let read = environment(&[
            ("ACKPACE_WORKER", "1"),
            ("ACKPACE_X", "1"),
            ("ACKPACE_PROT", "1"),
        ]);
        let expected = [
            "the variable ACKPACE_PROT means nothing: did you mean ACKPACE_PORT?",
            "the variable ACKPACE_WORKER means nothing: did you mean ACKPACE_WORKERS?",
            "the variable ACKPACE_X means nothing: docs/configuration.md names those that do",
        ];
        assert_eq!(read.warnings, expected);
        assert!(read.layer.is_empty());
    }

    #[test]
    fn a_value_that_is_not_utf8_can_be_a_path_but_no_number() {
        let raw = OsString::from_vec(b"/srv/\xff".to_vec());
        let read = read([
            ("ACKPACE_ROOT".into(), raw.clone()),
            ("ACKPACE_RATE_MIN".into(), raw.clone()),
        ]);
        assert_eq!(values(&read, "root"), [raw]);
        assert_eq!(
            read.errors[0].to_string(),
            "ACKPACE_RATE_MIN: /srv/\u{fffd} is not UTF-8"
        );
    }
}
