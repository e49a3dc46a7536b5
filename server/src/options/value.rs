//! The common part of all option values: one error type and the parsers of plain values.

use std::path::Path;

/// Why a value was refused. The text names the value, what is wrong and what is allowed; the caller puts the place
/// (file and line, variable or option) in front of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn out_of_range(got: &str, least: impl ToString, most: impl ToString) -> Self {
        Self(format!(
            "{} is out of range: {} to {}",
            shown(got),
            least.to_string(),
            most.to_string()
        ))
    }
}

/// Whether a terminal does something else with it than show it: control characters, and the marks that turn the direction
/// of a line.
pub fn acts_on_a_terminal(char: char) -> bool {
    char.is_control() || matches!(char, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// `text` as it may be put into a message: without what acts on a terminal, and cut to a readable length.
pub fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    escaped(text, SHOWN_CHARS)
}

/// `path` as it may be put into a message: as [`shown`], but whole, up to the longest that Linux knows.
pub fn shown_path(path: &Path) -> String {
    const PATH_CHARS: usize = 4096;
    escaped(&path.to_string_lossy(), PATH_CHARS)
}

/// The first `most` characters of `text`; those that act on a terminal as Rust writes them (`\n`, `\u{1b}`).
fn escaped(text: &str, most: usize) -> String {
    let mut safe: String = text
        .chars()
        .take(most)
        .flat_map(|c| {
            let escaped = acts_on_a_terminal(c).then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    if text.chars().nth(most).is_some() {
        safe.push('…');
    }
    if safe.is_empty() {
        safe.push_str("\"\"");
    }
    safe
}

pub fn whole(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, ValueError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ValueError::new(format!(
            "{} is not a whole number: {} to {}",
            shown(text),
            range.start(),
            range.end()
        )));
    }
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(ValueError::out_of_range(text, range.start(), range.end())),
    }
}

/// `true` or `false`; people also write on/off, yes/no and 1/0 in the environment.
pub fn boolean(text: &str) -> Result<bool, ValueError> {
    match text {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(ValueError::new(format!(
            "{} is not true or false",
            shown(text)
        ))),
    }
}

pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const COMPARED_CHARS: usize = 40; // twice the longest name
    let folded: String = wrong
        .chars()
        .take(COMPARED_CHARS)
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect();
    let distance = |name: &str| strsim::damerau_levenshtein(&folded, &name.to_ascii_lowercase());
    names
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= name.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: std::fmt::Debug>(result: Result<T, ValueError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn whole_numbers_hold_their_range() {
        assert_eq!(text(whole("0", 1..=64)), "0 is out of range: 1 to 64");
        assert_eq!(whole("1", 1..=64), Ok(1));
        assert_eq!(whole("64", 1..=64), Ok(64));
        assert_eq!(text(whole("65", 1..=64)), "65 is out of range: 1 to 64");
        let huge = "99999999999999999999";
        assert_eq!(
            text(whole(huge, 1..=64)),
            "99999999999999999999 is out of range: 1 to 64"
        );
    }

    #[test]
    fn what_is_no_whole_number_is_named() {
        for bad in ["-1", "+1", "1.5", "1k", "", " 1", "١"] {
            let expected = format!("{} is not a whole number: 1 to 64", shown(bad));
            assert_eq!(text(whole(bad, 1..=64)), expected);
        }
    }

    #[test]
    fn booleans_have_four_spellings_each() {
        for yes in ["true", "on", "yes", "1"] {
            assert_eq!(boolean(yes), Ok(true));
        }
        for no in ["false", "off", "no", "0"] {
            assert_eq!(boolean(no), Ok(false));
        }
        assert_eq!(text(boolean("maybe")), "maybe is not true or false");
    }

    #[test]
    fn shown_text_is_short_and_harmless() {
        assert_eq!(shown("plain"), "plain");
        assert_eq!(shown(""), "\"\"");
        assert_eq!(shown("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(shown("/srv/\u{202e}gpj\n"), "/srv/\\u{202e}gpj\\n");
        assert_eq!(shown(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
        assert_eq!(shown(&"x".repeat(60)), "x".repeat(60));
    }

    #[test]
    fn shown_paths_are_whole_and_harmless() {
        let path = format!("/{}/\u{202e}\u{1b}]0;t\u{7}\n", "x".repeat(100));
        let expected = format!("/{}/\\u{{202e}}\\u{{1b}}]0;t\\u{{7}}\\n", "x".repeat(100));
        assert_eq!(shown_path(Path::new(&path)), expected);
        let endless = "x".repeat(5000);
        assert_eq!(
            shown_path(Path::new(&endless)),
            format!("{}…", "x".repeat(4096))
        );
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = [
            "access_log",
            "access_log_format",
            "listen",
            "listing",
            "root",
        ];
        let nearest = |wrong| nearest(wrong, names);
        assert_eq!(nearest("acess_log"), Some("access_log"));
        assert_eq!(nearest("access-log-format"), Some("access_log_format"));
        assert_eq!(nearest("Listing"), Some("listing"));
        assert_eq!(nearest("lisetn"), Some("listen"));
        assert_eq!(nearest("tls"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest(&"listen".repeat(1000)), None);
    }
}
