//! The environment: variables `ACKPACE_*` to a layer of raw values.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::layer::{Given, Layer, LoadError, Origin};
use super::settings::{Setting, nearest};
use crate::options::{Listen, ValueError, shown};

const PREFIX: &str = "ACKPACE_";
/// Variables that are no key of the configuration file.
const CONFIG: &str = "ACKPACE_CONFIG";
const PORT: &str = "ACKPACE_PORT";

/// What the environment says.
#[derive(Debug, Default)]
pub struct Environment {
    /// Its values.
    pub layer: Layer,
    /// The configuration file that it names.
    pub config: Option<OsString>,
    /// One sentence for each variable that starts with `ACKPACE_` and means nothing.
    pub warnings: Vec<String>,
    /// One for each value that is wrong.
    pub errors: Vec<LoadError>,
}

/// Reads the variables. An empty one counts as not set, but makes a list empty; the values of a list stand between commas.
pub fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
    let settings = Setting::all();
    let mut read = Environment::default();
    let mut ours: Vec<(String, OsString)> = variables
        .into_iter()
        .filter(|(name, _)| name.as_bytes().starts_with(PREFIX.as_bytes()))
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .collect();
    ours.sort();
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
        let checks = values.iter().map(|value| setting.check(value));
        let checks = std::iter::once(setting.check_len(values.len())).chain(checks);
        let errors: Vec<ValueError> = checks.filter_map(Result::err).collect();
        if errors.is_empty() {
            let place = self.layer.entry(setting.key.clone());
            let origin = Origin::Environment(name);
            let given = place.or_insert(Given {
                values: Vec::new(),
                origin,
            });
            given.values.extend(values);
            return;
        }
        let place = |error| LoadError::Value {
            place: name.clone(),
            error,
        };
        self.errors.extend(errors.into_iter().map(place));
    }

    /// A port adds a place to listen at to those of `ACKPACE_LISTEN`.
    fn port(&mut self, value: &OsStr) {
        if value.is_empty() {
            return;
        }
        match Listen::port(&value.to_string_lossy()) {
            Ok(listen) => {
                let place = self.layer.entry("listen".to_owned());
                let origin = Origin::Environment(PORT.to_owned());
                let given = place.or_insert(Given {
                    values: Vec::new(),
                    origin,
                });
                given.values.push(listen.to_os_string());
            }
            Err(error) => {
                let place = PORT.to_owned();
                self.errors.push(LoadError::Value { place, error });
            }
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
