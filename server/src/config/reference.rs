//! Pages made from the definition of the options: docs/configuration.md, the example file, the man page.

use std::fmt::Write;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::effective::assignment;
use super::layer::{Given, Origin};
use super::settings::{Setting, Shape};
use crate::help;

/// The rules by which the sources of values combine; the same sentences in every page.
const RULES: [(&str, &str); 6] = [
    (
        "Which value holds",
        "The command line overrides the environment, the environment the configuration file, and that the default. \
         `ackpace config --effective` prints every value with its origin; `ackpace check` lists all wrong values at once, and then all \
         that this machine lacks for them. \
         There is no configuration file unless `-c FILE` or `ACKPACE_CONFIG` names one.",
    ),
    (
        "Configuration file",
        "The file is TOML. A key is the long name of the option with `_` for `-`. With an unknown key, a wrong type or a value out of range \
         the server does not start, and names file, line and column. The file may have 1 MiB, a list 256 values.",
    ),
    (
        "Environment",
        "A variable is named `ACKPACE_` and the key in capitals. Commas separate the values of a list, so a value with a comma needs another source. \
         An empty variable counts as not set, except that it makes a list empty. \
         The server warns of a variable that starts with `ACKPACE_` and means nothing. Variables that Kubernetes sets for a Service \
         whose name begins with `ackpace` (`ACKPACE_PORT=tcp://...`) are left out with one warning.",
    ),
    (
        "Lists",
        "On the command line, repeat the option for each value of a list; commas have no meaning there, and one empty value (`--hide=`) makes the list empty. \
         A list replaces that of a lower source, and the default too.",
    ),
    (
        "Durations and sizes",
        "A duration is a whole number and `ms`, `s`, `min` or `h`. A size is a whole number of bytes or one with `KiB`, `MiB`, `GiB` or `TiB`, always powers of 1024 \
         (`32M` and `32MiB` are the same, as with `K`, `G` and `T`), or a percentage of the smaller of RAM and the cgroup's limit.",
    ),
    (
        "Booleans",
        "The file has TOML's `true` and `false`. On the command line and in the environment `on`, `yes` and `1`, `off`, `no` and `0` mean the same. \
         On the command line the value follows a `=`: `--listing=false`.",
    ),
];

/// Exit codes and their meanings.
const EXITS: [(&str, &str); 4] = [
    (
        "0",
        "The command did its work; a server was stopped and drained.",
    ),
    ("1", "Something failed while running."),
    (
        "2",
        "The command line or the configuration is wrong. Nothing was served.",
    ),
    (
        "75",
        "The system refuses what the configuration names, now: an address is not there yet or is taken, a directory, a file or a \
         socket is missing or forbidden. Nothing was served; a later start may do.",
    ),
];

/// docs/configuration.md: every option with effect, default and range.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration\n\nEvery option of `ackpace serve`: on the command line, in the environment and in the configuration file.\n\
         This page is made from the definitions in `server/src/options/serve.rs`; a test compares the two, and\n\
         `UPDATE_DOCS=1 cargo test -p ackpace` writes it anew. A file to start from: [ackpace.example.toml](ackpace.example.toml).\n",
    );
    for (title, text) in RULES {
        let _ = write!(page, "\n## {title}\n\n{text}\n");
    }
    let _ = write!(
        page,
        "\n## Only on the command line\n\n\
         - `-c, --config FILE` (or `ACKPACE_CONFIG`): the configuration file.\n\
         - `-p, --port N` (or `ACKPACE_PORT`): short for `--listen 127.0.0.1:N`; added to what `--listen` says.\n\
         - `-t`: the same as `ackpace check`.\n\
         - The directory, file or URL has no option of its own. A directory or file that is named like a command is reached by `./`.\n"
    );
    let mut heading = None;
    for setting in Setting::all() {
        let next = setting.arg.get_help_heading().map(str::to_owned);
        if next != heading {
            let _ = write!(page, "\n## {}\n", next.as_deref().unwrap_or_default());
            heading = next;
        }
        page.push_str(&section(&setting));
    }
    page.push_str("\n## Exit codes\n\n");
    for (code, text) in EXITS {
        let _ = writeln!(page, "- `{code}`: {text}");
    }
    page
}

fn section(setting: &Setting) -> String {
    let mut text = format!(
        "\n### {}\n\n`{}` · `{}` · `{}`\n",
        setting.key,
        help::name(&setting.arg),
        setting.variable(),
        default(setting),
    );
    for paragraph in long_help(setting).split("\n\n") {
        let _ = write!(text, "\n{paragraph}\n");
    }
    text
}

fn long_help(setting: &Setting) -> String {
    let long = setting.arg.get_long_help().or(setting.arg.get_help());
    long.map(ToString::to_string).unwrap_or_default()
}

fn default(setting: &Setting) -> String {
    let given = Given {
        values: setting.defaults(),
        origin: Origin::Default,
    };
    assignment(setting, &given)
}

/// docs/ackpace.example.toml: every key with its default, commented out.
pub fn example() -> String {
    let mut text = String::from(
        "# A configuration of ackpace: every key, with its default. Take away the # of a line to change it.\n\
         # docs/configuration.md explains each; `ackpace check -c FILE` reads a file without serving.\n",
    );
    let mut heading = None;
    for setting in Setting::all() {
        let next = setting.arg.get_help_heading().map(str::to_owned);
        if next != heading {
            let _ = write!(text, "\n## {}\n", next.as_deref().unwrap_or_default());
            heading = next;
        }
        let short = setting.arg.get_help().map(ToString::to_string);
        let _ = write!(text, "\n# {}.\n", short.unwrap_or_default());
        if !setting.choices().is_empty() {
            let _ = writeln!(
                text,
                "# One{} of {}.",
                of_several(&setting),
                setting.choices().join(", ")
            );
        }
        let _ = writeln!(text, "#{}", default(&setting));
    }
    text
}

fn of_several(setting: &Setting) -> &'static str {
    match setting.shape {
        Shape::List => " or more",
        _ => "",
    }
}

/// The man page ackpace(1) as roff. `command` is the whole command line; `serve` the command that has all options.
pub fn manual(command: &Command, serve: &Command) -> std::io::Result<String> {
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .title("ackpace")
        .section("1")
        .manual("ackpace");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in ["[OPTIONS] [DIR|FILE|URL]", "COMMAND [OPTIONS]"] {
        roff.text([bold("ackpace"), roman(format!(" {line}"))]);
        roff.control("br", []);
    }
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().map(ToString::to_string);
    paragraphs(&mut roff, &about.unwrap_or_default());
    roff.control("SH", ["COMMANDS"]);
    for command in command.get_subcommands() {
        let about = command.get_about().map(ToString::to_string);
        item(&mut roff, command.get_name(), &about.unwrap_or_default());
    }
    roff.to_writer(&mut page)?;
    Man::new(serve.clone()).render_options_section(&mut page)?;
    let mut roff = Roff::new();
    for (title, text) in RULES {
        roff.control("SH", [title.to_uppercase().as_str()]);
        paragraphs(&mut roff, &text.replace('`', ""));
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, text) in EXITS {
        item(&mut roff, code, text);
    }
    roff.to_writer(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn paragraphs(roff: &mut Roff, text: &str) {
    for paragraph in text.split("\n\n") {
        roff.control("PP", []);
        roff.text([roman(paragraph.to_owned())]);
    }
}

fn item(roff: &mut Roff, name: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(name.to_owned())]);
    roff.text([roman(text.to_owned())]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse_config;
    use std::path::{Path, PathBuf};

    /// Compares a page of docs/ with the text generated from the code; with UPDATE_DOCS=1 writes it instead.
    fn compare(name: &str, expected: &str) {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, expected).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == expected,
            "docs/{name} is old: UPDATE_DOCS=1 cargo test -p ackpace"
        );
    }

    #[test]
    fn the_page_of_options_is_up_to_date() {
        compare("configuration.md", &reference());
    }

    #[test]
    fn the_example_is_up_to_date() {
        compare("ackpace.example.toml", &example());
    }

    #[test]
    fn the_page_has_every_option() {
        let page = reference();
        for setting in Setting::all() {
            assert!(
                page.contains(&format!("\n### {}\n", setting.key)),
                "{}",
                setting.key
            );
            let long = long_help(&setting);
            assert!(
                long.contains("\n\nDefault: "),
                "{}: why this default?",
                setting.key
            );
            assert!(long.contains("Range: "), "{}: which values?", setting.key);
        }
    }

    #[test]
    fn a_range_is_the_same_in_the_page_and_in_the_error() {
        let wrong = ["999999999", "999999h", "100%"];
        let mut compared = 0;
        for setting in Setting::all()
            .iter()
            .filter(|setting| !setting.shape.is_list())
        {
            let errors = wrong
                .iter()
                .filter_map(|wrong| setting.check(wrong.as_ref()).err());
            for error in errors.map(|error| error.to_string()) {
                if let Some((_, range)) = error.split_once(" is out of range: ") {
                    let expected = format!("Range: {range}.");
                    assert!(
                        long_help(setting).contains(&expected),
                        "{}: {expected}",
                        setting.key
                    );
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 15, "5 durations, 4 numbers and 6 sizes");
    }

    #[test]
    fn the_example_holds_the_defaults() {
        let is_key =
            |line: &&str| line.starts_with('#') && line.contains(" = ") && !line.starts_with("# ");
        let text = example();
        let lines: Vec<&str> = text.lines().filter(is_key).map(|line| &line[1..]).collect();
        let layer = parse_config(&lines.join("\n"), Path::new("example")).unwrap();
        for setting in Setting::all() {
            assert_eq!(
                layer[&setting.key].values,
                setting.defaults(),
                "{}",
                setting.key
            );
        }
        assert!(
            parse_config(&text, Path::new("example"))
                .unwrap()
                .is_empty()
        );
    }
}
