//! The effective configuration, as a configuration file with the origin of each value.

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

/// A TOML basic string. What acts on a terminal, such as a bidirectional mark, is escaped, too.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.escape_debug().len() > 1 && c != '\'' => {
                let _ = match u32::from(c) {
                    code @ ..0x1_0000 => write!(quoted, "\\u{code:04X}"),
                    code => write!(quoted, "\\U{code:08X}"),
                };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn line(key: &str, values: &[&str]) -> String {
        let settings = Setting::all();
        let setting = settings.iter().find(|setting| setting.key == key).unwrap();
        let values = values.iter().map(OsString::from).collect();
        assignment(
            setting,
            &Given {
                values,
                origin: Origin::Default,
            },
        )
    }

    #[test]
    fn each_shape_is_written_as_toml() {
        assert_eq!(
            line("root", &["a \"b\"\\\u{7f}\n"]),
            "root = \"a \\\"b\\\"\\\\\\u007F\\u000A\""
        );
        assert_eq!(
            line("root", &["\u{202e}\u{e0001}é's"]),
            "root = \"\\u202E\\U000E0001é's\""
        );
        assert_eq!(line("listing", &["off"]), "listing = false");
        assert_eq!(line("listing", &["yes"]), "listing = true");
        assert_eq!(line("rate_min", &["0100"]), "rate_min = 100");
        assert_eq!(line("rate_min", &["0"]), "rate_min = 0");
        assert_eq!(line("workers", &["auto"]), "workers = \"auto\"");
        assert_eq!(line("workers", &["08"]), "workers = 8");
        assert_eq!(
            line("memory_max", &["18446744073709551615"]),
            "memory_max = \"18446744073709551615\""
        );
        assert_eq!(line("hide", &[]), "hide = []");
        assert_eq!(line("hide", &[".git", "*~"]), "hide = [\".git\", \"*~\"]");
        assert_eq!(line("types", &[]), "types = {}");
        assert_eq!(
            line("types", &["tar.gz=a/b; c=d"]),
            "types = { \"tar.gz\" = \"a/b; c=d\" }"
        );
    }

    #[test]
    fn what_toml_cannot_write_is_said() {
        let values = vec![OsString::from_vec(b"/\xff".to_vec())];
        let given = Given {
            values,
            origin: Origin::CommandLine,
        };
        let layer = Layer::from([("root".to_owned(), given)]);
        let expected = "# What to serve\n\
            root = \"/\u{fffd}\"                              # command line DIR|FILE|URL; not UTF-8, which TOML cannot write\n";
        assert_eq!(effective(&layer), expected);
    }
}
