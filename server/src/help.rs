//! `--help`: one line for each option, in groups, for a terminal of 80 columns.
//!
//! The page is our own, since clap gives each of the longer options two lines, and so a page of twice the length.

use std::fmt::Write;

use clap::{Arg, Command};

const WIDTH_COLUMNS: usize = 80;
/// The column where the texts begin; a longer name puts its text on the next line.
const TEXT_COLUMN: usize = 32;

/// The help page of a command. `usage` has one form per line.
pub fn page(command: &Command, usage: &[&str], commands: &[Command]) -> String {
    let about = command.get_about().map(ToString::to_string);
    let mut page = format!("{}\n\n", about.unwrap_or_default());
    for (nth, form) in usage.iter().enumerate() {
        let label = if nth == 0 { "Usage:" } else { "" };
        let _ = writeln!(page, "{label:6} {form}");
    }
    if !commands.is_empty() {
        page.push_str("\nCommands:\n");
    }
    for command in commands {
        let about = command.get_about().map(ToString::to_string);
        let _ = writeln!(
            page,
            "  {:12} {}",
            command.get_name(),
            about.unwrap_or_default()
        );
    }
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .collect();
    let mut headings: Vec<&str> = Vec::new();
    for arg in &shown {
        if !headings.contains(&heading(arg)) {
            headings.push(heading(arg));
        }
    }
    for wanted in headings {
        let _ = writeln!(page, "\n{wanted}:");
        for arg in shown.iter().filter(|arg| heading(arg) == wanted) {
            line(&mut page, &name(arg), &text(arg));
        }
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(page, "\n{after}\n");
    }
    page
}

fn heading(arg: &Arg) -> &str {
    arg.get_help_heading().unwrap_or("Options")
}

/// The option as it is typed: `-l, --listen ADDR`.
pub fn name(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first());
    let value = value.filter(|_| arg.get_action().takes_values());
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = [short, long].into_iter().flatten().collect();
    match (flags.join(", "), value) {
        (flags, None) => flags,
        (flags, Some(value)) if flags.is_empty() => value.to_string(),
        (flags, Some(value)) if arg.is_require_equals_set() => format!("{flags}[={value}]"),
        (flags, Some(value)) => format!("{flags} {value}"),
    }
}

/// Its summary, the words to choose from, and the default.
fn text(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let takes_value = arg.get_action().takes_values() && !arg.is_require_equals_set();
    let choices = arg
        .get_possible_values()
        .into_iter()
        .filter(|_| takes_value);
    let choices: Vec<String> = choices.map(|value| value.get_name().to_owned()).collect();
    if !choices.is_empty() {
        let _ = write!(text, ": {}", choices.join(", "));
    }
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        let _ = write!(text, " [{}]", defaults.join(" "));
    }
    text
}

fn line(page: &mut String, name: &str, text: &str) {
    let mut line = format!("  {name}");
    let mut is_empty = true;
    if line.len() + 2 > TEXT_COLUMN {
        let _ = writeln!(page, "{line}");
        line.clear();
    }
    line = format!("{line:TEXT_COLUMN$}");
    for word in text.split(' ') {
        let columns = line.chars().count() + 1 + word.chars().count();
        if !is_empty && columns > WIDTH_COLUMNS {
            let _ = writeln!(page, "{line}");
            line = " ".repeat(TEXT_COLUMN);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(page, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ArgAction;

    #[test]
    fn a_page_has_a_line_for_each_option_and_wraps_long_texts() {
        let command = Command::new("x")
            .about("Does x")
            .after_help("The end.")
            .arg(
                Arg::new("DIR")
                    .value_name("DIR")
                    .help("Where")
                    .default_value("."),
            )
            .arg(
                Arg::new("a")
                    .short('a')
                    .long("all")
                    .help("Everything")
                    .action(ArgAction::SetTrue),
            )
            .arg(
                Arg::new("w")
                    .long("word")
                    .value_name("W")
                    .help("Which")
                    .value_parser(["b", "c"])
                    .default_value("b"),
            )
            .arg(
                Arg::new("long")
                    .long("quite-a-long-name-for-one")
                    .value_name("VALUE")
                    .help("Text ".repeat(12).trim_end().to_owned())
                    .help_heading("Other"),
            )
            .arg(Arg::new("hidden").long("hidden").hide(true));
        let expected = "\
Does x

Usage: x [DIR]
       x COMMAND

Commands:
  go           Goes

Options:
  DIR                           Where [.]
  -a, --all                     Everything
  --word W                      Which: b, c [b]

Other:
  --quite-a-long-name-for-one VALUE
                                Text Text Text Text Text Text Text Text Text
                                Text Text Text

The end.
";
        let go = [Command::new("go").about("Goes")];
        assert_eq!(page(&command, &["x [DIR]", "x COMMAND"], &go), expected);
    }
}
