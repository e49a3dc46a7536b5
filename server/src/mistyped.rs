//! What is wrong with a command line that names something that does not exist, and what was probably meant.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command};

use crate::config::{Setting, Shape};
use crate::failure::Failure;
use crate::options::{nearest, shown};

/// `--listing false`, whose word would be taken for the directory; the right spelling.
pub fn detached_boolean(arguments: &[OsString]) -> Option<String> {
    let options = arguments.iter().take_while(|word| *word != "--");
    let pairs = options.clone().zip(options.skip(1));
    let is_boolean = |name: &OsString| {
        let all = Setting::all();
        let mut booleans = all.iter().filter(|setting| setting.shape == Shape::Boolean);
        booleans.any(|setting| *name == *setting.name())
    };
    let words = ["true", "false", "on", "off", "yes", "no"];
    let pairs = pairs.filter(|(_, value)| words.iter().any(|word| *value == word));
    let wrong = pairs.into_iter().find(|(name, _)| is_boolean(name));
    wrong.map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        format!("{name} {value}: write {name}={value}; a directory of that name is ./{value}")
    })
}

/// The option that was given and does not exist.
fn unknown(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) if error.kind() == ErrorKind::UnknownArgument => {
            Some(name)
        }
        _ => None,
    }
}

/// `--root DIR`: a key of the configuration file that is no option; what to write instead.
fn named_root(unknown: &str) -> Option<String> {
    (unknown == "--root").then(|| {
        "--root: there is no such option: the directory or file stands by itself, as in `ackpace serve DIR` (in the configuration \
         file it is the key root, in the environment ACKPACE_ROOT)"
            .to_owned()
    })
}

/// A misspelt command counts as a directory, and what follows it as a second one.
pub fn mistyped(all: &Command, arguments: &[OsString], error: clap::Error) -> Failure {
    if let Some(text) = unknown(&error).and_then(named_root) {
        return Failure::operator(text);
    }
    let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    let (Some(first), Some(second)) = (words.next(), words.next()) else {
        return error.into();
    };
    let names: Vec<&str> = all.get_subcommands().map(Command::get_name).collect();
    let known = |word: &str| word.starts_with('-') || names.contains(&word);
    if !error.use_stderr() || known(&first) || second.starts_with('-') {
        return error.into();
    }
    let (first, second) = (shown(&first), shown(&second));
    let near = nearest(&first, names);
    Failure::operator(match near {
        Some(near) => format!("there is no command {first}: did you mean {near}?"),
        None => format!(
            "{first} is no command, and one directory or file is served, not {first} and {second} (see ackpace --help)"
        ),
    })
}

/// A misspelt command without a second word: there is no directory of that name.
pub fn mistyped_alone(all: &Command, matches: &ArgMatches) -> Option<Failure> {
    let word = matches.get_one::<OsString>("root")?;
    if word.to_string_lossy().contains('/') {
        return None; // certainly a path
    }
    let names = all.get_subcommands().map(Command::get_name);
    let near = nearest(word.to_str()?, names)?;
    if Path::new(word).symlink_metadata().is_ok() {
        return None;
    }
    Some(Failure::operator(format!(
        "there is no directory or file {}: did you mean the command {near}?",
        shown(&word.to_string_lossy())
    )))
}
