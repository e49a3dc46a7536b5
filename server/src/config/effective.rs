//! What holds, as a configuration file that says where each value came from.

use std::fmt::Write;

use super::layer::{Given, Layer, Origin};
use super::settings::{Setting, Shape};

/// Column at which comments stand where the value leaves room.
const COMMENT_COLUMN: usize = 40;

/// Valid TOML with a line for every option: its value, and as a comment its origin.
pub fn effective(given: &Layer) -> String {
    let mut text = String::new();
    let mut heading = None;
    for setting in Setting::all() {
        let Some(given) = given.get(&setting.key) else {
            continue;
        };
        let next = setting.arg.get_help_heading().map(str::to_owned);
        if next != heading {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}# {}", next.as_deref().unwrap_or_default());
            heading = next;
        }
        let line = assignment(&setting, given);
        let note = note(&setting, given);
        let _ = writeln!(text, "{line:COMMENT_COLUMN$} # {note}");
    }
    text
}

/// `key = value`, as a configuration file has it.
pub fn assignment(setting: &Setting, given: &Given) -> String {
    let mut texts = given.values.iter().map(|value| value.to_string_lossy());
    let value = match setting.shape {
        Shape::List => {
            let items: Vec<String> = texts.map(|text| quoted(&text)).collect();
            format!("[{}]", items.join(", "))
        }
        Shape::Table => {
            let items: Vec<String> = texts.filter_map(|text| entry(&text)).collect();
            match items.is_empty() {
                true => "{}".to_owned(),
                false => format!("{{ {} }}", items.join(", ")),
            }
        }
        shape => {
            let text = texts.next().unwrap_or_default();
            scalar(shape, &text)
        }
    };
    format!("{} = {value}", setting.key)
}

fn scalar(shape: Shape, text: &str) -> String {
    let is_number = !text.starts_with(['+', '-']) && text.parse::<i64>().is_ok();
    match shape {
        Shape::Boolean => matches!(text, "true" | "on" | "yes" | "1").to_string(),
        Shape::Integer | Shape::IntegerOrText if is_number => {
            let digits = text.trim_start_matches('0'); // TOML knows no leading zeros
            if digits.is_empty() { "0" } else { digits }.to_owned()
        }
        _ => quoted(text),
    }
}

/// `EXT=TYPE` as an entry of a table.
fn entry(text: &str) -> Option<String> {
    let (key, value) = text.split_once('=')?;
    Some(format!("{} = {}", quoted(key), quoted(value)))
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn note(setting: &Setting, given: &Given) -> String {
    let is_text = given.values.iter().all(|value| value.to_str().is_some());
    let origin = match &given.origin {
        Origin::CommandLine => format!("command line {}", setting.name()),
        origin => origin.to_string(),
    };
    match is_text {
        true => origin,
        false => format!("{origin}; not UTF-8, which TOML cannot write"),
    }
}
