//! The configuration file: turns TOML text into a layer of raw values, or reports every error with its place.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use clap::ValueHint;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, de};

use super::effective::assignment;
use super::layer::{ConfigError, Given, Layer, Origin};
use super::settings::{Setting, Shape};
use crate::limits::{CONFIG_BYTES_MAX, CONFIG_ERRORS_MAX};
use crate::options::{UnixMode, ValueError, nearest, shown};

/// Reads a configuration file with the name `path` from its bytes.
pub fn parse_bytes(bytes: &[u8], path: &Path) -> Result<Layer, Vec<ConfigError>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse_config(text, path),
        Err(error) => {
            let (good, _) = bytes.split_at(error.valid_up_to());
            let good = String::from_utf8_lossy(good); // all of it is UTF-8
            let place = Position { text: &good, path };
            Err(vec![place.error(
                good.len(),
                "not UTF-8, so not TOML; save the file as UTF-8",
            )])
        }
    }
}

/// Reads a configuration file with the name `path` from its text. Never panics, whatever the text.
/// Errors: Everything that is wrong, in the order of the file: at most [`CONFIG_ERRORS_MAX`] errors; of syntax, the first one
/// alone.
pub fn parse_config(text: &str, path: &Path) -> Result<Layer, Vec<ConfigError>> {
    let place = Position { text, path };
    if text.len() as u64 > CONFIG_BYTES_MAX {
        let problem =
            format!("longer than {CONFIG_BYTES_MAX} bytes, so it is no configuration file");
        return Err(vec![place.error(0, &problem)]);
    }
    let table = syntax(&place)?;
    let mut reading = ConfigReader {
        place: &place,
        settings: Setting::all(),
        layer: Layer::new(),
        errors: Vec::new(),
    };
    for (key, value) in table.get_ref() {
        reading.entry(key, value);
    }
    let ConfigReader { layer, errors, .. } = reading;
    if errors.is_empty() {
        return Ok(layer);
    }
    Err(place.errors(errors))
}

fn syntax<'t>(place: &Position<'t>) -> Result<Spanned<DeTable<'t>>, Vec<ConfigError>> {
    DeTable::parse(place.text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let message: Vec<&str> = error.message().lines().collect();
        let problem = format!("not TOML: {}", message.join("; "));
        vec![place.error(span.start, &problem)]
    })
}

/// Turns offsets in a text into lines and columns.
struct Position<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Position<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn error(&self, at: usize, message: &str) -> ConfigError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ConfigError {
            path: self.path.to_owned(),
            line: self.line(before.len()),
            column: 1 + before[line_start..].chars().count(),
            message: message.to_owned(),
        }
    }

    fn errors(&self, mut problems: Vec<(usize, String)>) -> Vec<ConfigError> {
        problems.sort();
        problems.dedup();
        problems.truncate(CONFIG_ERRORS_MAX);
        let errors = problems
            .iter()
            .map(|(at, message)| self.error(*at, message));
        errors.collect()
    }
}

struct ConfigReader<'a> {
    place: &'a Position<'a>,
    settings: Vec<Setting>,
    layer: Layer,
    errors: Vec<(usize, String)>,
}

impl ConfigReader<'_> {
    fn entry(&mut self, key: &Spanned<de::DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let Some(setting) = self.settings.iter().find(|s| s.key == name) else {
            let message = self.unknown(name);
            self.errors.push((key.span().start, message));
            return;
        };
        match values(setting, value) {
            Ok(values) => {
                let line = self.place.line(key.span().start);
                let path = self.place.path.to_owned();
                let origin = Origin::File { path, line };
                self.layer.insert(name.to_owned(), Given { values, origin });
            }
            Err(problems) => {
                let named = |(span, text): (Range<usize>, String)| {
                    (span.start, format!("{}: {text}", setting.key))
                };
                self.errors.extend(problems.into_iter().map(named));
            }
        }
    }

    fn unknown(&self, name: &str) -> String {
        let keys = self.settings.iter().map(|s| s.key.as_str());
        let hint = match nearest(name, keys) {
            _ if name == "port" => "write listen = [\"8080\"]".to_owned(),
            Some(near) => format!("did you mean {near}?"),
            None => "no key is like it; `ackpace config` prints all of them, docs/configuration.md explains them".to_owned(),
        };
        format!("unknown key {}: {hint}", shown(name))
    }
}

type Problem = (Range<usize>, String);

/// The raw values that `value` gives to `setting`, or everything that is wrong with it.
fn values(setting: &Setting, value: &Spanned<DeValue<'_>>) -> Result<Vec<OsString>, Vec<Problem>> {
    let wrong_type = |span: Range<usize>, found: &DeValue<'_>, meant: Option<OsString>| {
        let (wanted, found) = (wanted(setting.shape), describe(found));
        let example = example(setting, meant);
        (
            span,
            format!("must be {wanted}, not {found}; write {example}"),
        )
    };
    let checked = |span: Range<usize>, text: String| match setting.check(OsStr::new(&text)) {
        Ok(()) => Ok(OsString::from(text)),
        Err(error) => Err((span, error.to_string())),
    };
    let items: Vec<Result<OsString, Problem>> = match (setting.shape, value.get_ref()) {
        (Shape::List, DeValue::Array(array)) => {
            let item = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => checked(item.span(), text.to_string()),
                other => Err(wrong_type(item.span(), other, meant(setting, other))),
            };
            len(setting, value, array.len())?;
            array.iter().map(item).collect()
        }
        (Shape::Table, DeValue::Table(table)) => {
            len(setting, value, table.len())?;
            let item = |(key, item): (&Spanned<de::DeString<'_>>, &Spanned<DeValue<'_>>)| match item
                .get_ref()
            {
                DeValue::String(text) => checked(item.span(), format!("{}={text}", key.get_ref())),
                other => Err(wrong_type(item.span(), other, None)),
            };
            table.iter().map(item).collect()
        }
        (Shape::Boolean, DeValue::Boolean(answer)) => {
            vec![checked(value.span(), answer.to_string())]
        }
        (Shape::Integer | Shape::IntegerOrText, DeValue::Integer(number)) => {
            vec![checked(value.span(), decimal(number))]
        }
        (Shape::Text | Shape::IntegerOrText, DeValue::String(text)) => {
            vec![checked(value.span(), text.to_string())]
        }
        (_, other) => vec![Err(wrong_type(value.span(), other, meant(setting, other)))],
    };
    let (good, bad): (Vec<_>, Vec<_>) = items.into_iter().partition(Result::is_ok);
    if bad.is_empty() {
        return Ok(good.into_iter().flatten().collect());
    }
    Err(bad.into_iter().filter_map(Result::err).collect())
}

fn len(setting: &Setting, value: &Spanned<DeValue<'_>>, len: usize) -> Result<(), Vec<Problem>> {
    let problem = |error: ValueError| vec![(value.span(), error.to_string())];
    setting.check_len(len).map_err(problem)
}

/// The number in decimal digits, as it would be typed.
fn decimal(number: &de::DeInteger<'_>) -> String {
    match i128::from_str_radix(number.as_str(), number.radix()) {
        Ok(value) => value.to_string(),
        Err(_) => number.to_string(),
    }
}

/// The type that options of a shape take.
fn wanted(shape: Shape) -> &'static str {
    match shape {
        Shape::Boolean => "true or false",
        Shape::Integer => "a whole number",
        Shape::IntegerOrText => "a string or a whole number",
        Shape::Text => "a string",
        Shape::List => "a list of strings",
        Shape::Table => "a table of strings",
    }
}

/// A correct line for the option: with the value that was meant, if that is known.
fn example(setting: &Setting, meant: Option<OsString>) -> String {
    let values = vec![meant.unwrap_or_else(|| setting.example())];
    let origin = Origin::Default;
    assignment(setting, &Given { values, origin })
}

/// What a value of the wrong type was meant to be, as it would be typed: the port in `listen = 8080`, the seconds in
/// `idle_timeout = 30`, the octal digits in `unix_mode = 0o660`. A number is no path.
fn meant(setting: &Setting, found: &DeValue<'_>) -> Option<OsString> {
    use ValueHint::{AnyPath, DirPath, FilePath};
    let is_path = matches!(setting.arg.get_value_hint(), AnyPath | DirPath | FilePath);
    let texts = match found {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Integer(number) if number.radix() == 10 && !is_path => {
            let digits = decimal(number);
            vec![digits.clone(), format!("{digits}s")]
        }
        DeValue::Integer(number) if number.radix() == 8 && setting.takes::<UnixMode>() => {
            vec![number.as_str().to_owned()]
        }
        _ => Vec::new(),
    };
    let mut texts = texts.into_iter().map(OsString::from);
    texts.find(|text| setting.check(text).is_ok())
}

fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests;
