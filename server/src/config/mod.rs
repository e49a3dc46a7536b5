//! Builds one set of options from command line, environment and file.
//!
//! Each source becomes a [`Layer`] of raw values that the option's own parser has checked. The layers override each
//! other (command line over environment over file over default), and only the remaining values are parsed for good. Of
//! all files, only the configuration file is opened here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Command, FromArgMatches};

use crate::limits::CONFIG_BYTES_MAX;
use crate::options::{Compare, Listen, LogTarget, MetricsAt, SendMemory, ServeOptions, ValueError};

mod cluster;
mod effective;
mod environment;
mod file;
mod iscsi;
mod layer;
mod reference;
mod settings;

pub use effective::effective;
pub(crate) use environment::{Environment, read as read_environment};
pub use file::{parse_bytes, parse_config};
pub(crate) use layer::LoadError;
use layer::give_port;
pub use layer::{ConfigError, Given, Layer, Origin};
pub use reference::{example, manual, reference};
pub(crate) use settings::{Setting, Shape};

#[derive(Debug, Default)]
pub(crate) struct CommandLine {
    /// Its values.
    pub layer: Layer,
    /// The configuration file that `-c` names.
    pub config: Option<OsString>,
    /// One error for each value that is wrong.
    pub errors: Vec<LoadError>,
}

/// The options, and where they came from.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The effective options.
    pub options: ServeOptions,
    /// The raw value of every option, and its origin.
    pub given: BTreeMap<String, Given>,
    /// The configuration file that was read.
    pub config: Option<PathBuf>,
    /// Oddities that do not prevent the start, one sentence each.
    pub warnings: Vec<String>,
}

/// Lays command line over environment over configuration file over defaults.
/// Errors: All that is wrong in any of them, at once. A wrong value is an error even where another source overrides it.
pub(crate) fn load(
    command_line: CommandLine,
    environment: Environment,
) -> Result<Loaded, Vec<LoadError>> {
    let mut errors = command_line.errors;
    errors.extend(environment.errors);
    let config = command_line
        .config
        .or(environment.config)
        .map(PathBuf::from);
    let file = match config
        .as_deref()
        .map_or_else(|| Ok(Layer::new()), read_file)
    {
        Ok(layer) => layer,
        Err(more) => {
            errors.extend(more);
            Layer::new()
        }
    };
    let mut given = defaults();
    for layer in [file, environment.layer, command_line.layer] {
        given.extend(layer);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let options = parse(&given).map_err(|error| vec![error])?;
    check_together(&options, &given).map_err(|error| vec![error])?;
    let mut warnings = environment.warnings;
    warnings.extend(idle(&options, &given));
    Ok(Loaded {
        options,
        given,
        config,
        warnings,
    })
}

fn read_file(path: &Path) -> Result<Layer, Vec<LoadError>> {
    let unreadable = |error| {
        let path = path.to_owned();
        vec![LoadError::Unreadable { path, error }]
    };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        let path = path.to_owned();
        return Err(vec![LoadError::TooLong {
            path,
            most_bytes: CONFIG_BYTES_MAX,
        }]);
    }
    let wrap = |errors: Vec<ConfigError>| errors.into_iter().map(LoadError::File).collect();
    parse_bytes(&bytes, path).map_err(wrap)
}

fn defaults() -> Layer {
    let given = |setting: Setting| {
        let values = setting.defaults();
        (
            setting.key,
            Given {
                values,
                origin: Origin::Default,
            },
        )
    };
    Setting::all().into_iter().map(given).collect()
}

/// The options that these values give; each value was checked before.
fn parse(given: &Layer) -> Result<ServeOptions, LoadError> {
    let mut command = ServeOptions::augment_args(Command::new("ackpace").no_binary_name(true));
    let mut arguments = Vec::new();
    let mut positional = Vec::new();
    for setting in Setting::all() {
        let values = given
            .get(&setting.key)
            .map_or(&[][..], |given| &given.values);
        if values.is_empty() {
            let none: [&str; 0] = [];
            command = command.mut_arg(setting.arg.get_id().as_str(), |arg| {
                arg.default_values(none)
            });
        }
        match setting.arg.is_positional() {
            true => positional.extend(setting.arguments(values)),
            false => arguments.extend(setting.arguments(values)),
        }
    }
    arguments.push("--".into());
    arguments.extend(positional);
    let matches = command.try_get_matches_from(arguments);
    let options = matches.and_then(|matches| ServeOptions::from_arg_matches(&matches));
    options.map_err(|error| LoadError::Value {
        place: "options".to_owned(),
        error: ValueError::new(error.to_string()),
    })
}

/// Checks what one value alone can't show: there is an address to listen on, and none is given twice.
fn check_together(options: &ServeOptions, given: &Layer) -> Result<(), LoadError> {
    let fail = |key: &str, text: String| {
        let place = format!("{key} ({})", origin(given, key));
        Err(LoadError::Value {
            place,
            error: ValueError::new(text),
        })
    };
    if options.listen.is_empty() {
        let text = "no place to listen at; give one, such as 127.0.0.1:8080";
        return fail("listen", text.to_owned());
    }
    for (at, listen) in options.listen.iter().enumerate() {
        for earlier in &options.listen[..at] {
            let (wide, narrow) = match earlier.takes(listen) {
                true => (earlier, listen),
                false => (listen, earlier),
            };
            if wide.takes(narrow) {
                return fail("listen", both(wide, narrow));
            }
        }
    }
    if let Some(text) = twice_of_nfs(options) {
        return fail("nfs", text);
    }
    if let MetricsAt::Tcp(metrics) = &options.metrics {
        let taken = |listen: &&Listen| listen.takes(metrics) || metrics.takes(listen);
        if let Some(listen) = options.listen.iter().find(taken) {
            let text = format!("{metrics} is taken by listen = {listen}: choose another port");
            return fail("metrics", text);
        }
    }
    if let Some((key, text)) = cluster::wrong(options).or_else(|| iscsi::wrong(options)) {
        return fail(key, text);
    }
    for (at, one) in options.types.iter().enumerate() {
        let earlier = &options.types[..at];
        if earlier.iter().any(|other| other.extension == one.extension) {
            return fail("types", format!("{} is there twice", one.extension));
        }
    }
    Ok(())
}

/// What else takes a place at which NFS is to be served.
fn twice_of_nfs(options: &ServeOptions) -> Option<String> {
    let takes = |a: &Listen, b: &Listen| a.takes(b) || b.takes(a);
    for (at, nfs) in options.nfs_options.nfs.iter().enumerate() {
        let mut earlier = options.nfs_options.nfs[..at].iter();
        if let Some(earlier) = earlier.find(|earlier| takes(earlier, nfs)) {
            return Some(both(earlier, nfs));
        }
        if let Some(listen) = options.listen.iter().find(|listen| takes(listen, nfs)) {
            return Some(format!(
                "{nfs} is taken by listen = {listen}: choose another port"
            ));
        }
        if let MetricsAt::Tcp(metrics) = &options.metrics {
            if takes(metrics, nfs) {
                return Some(format!(
                    "{nfs} is taken by metrics = {metrics}: choose another port"
                ));
            }
        }
    }
    None
}

/// Where the value of an option was given, for messages that begin with it: `--allow-roots`, `ACKPACE_ALLOW_ROOTS`,
/// `a.toml:3: allow_roots`.
pub(crate) fn place(given: &Layer, key: &str) -> String {
    match origin(given, key) {
        Origin::CommandLine => name(key),
        Origin::Environment(name) => name.clone(),
        origin @ Origin::File { .. } => format!("{origin}: {key}"),
        origin @ Origin::Default => format!("{key} ({origin})"),
    }
}

/// A message about a value, with which it begins: `--listen fd:9: it is not open`, `a.toml:3: listen: fd:9: it is not open`. A
/// default is told by the option that overrides it.
pub(crate) fn refused(given: &Layer, key: &str, message: &dyn std::fmt::Display) -> String {
    let named = named(given, key);
    match origin(given, key) {
        Origin::CommandLine | Origin::Default => format!("{named} {message}"),
        Origin::Environment(_) | Origin::File { .. } => format!("{named}: {message}"),
    }
}

/// Whether any source gave this option, if only the value that is its default.
pub(crate) fn is_given(given: &Layer, key: &str) -> bool {
    *origin(given, key) != Origin::Default
}

/// As [`place`], but a default is told by the option that overrides it.
pub(crate) fn named(given: &Layer, key: &str) -> String {
    match origin(given, key) {
        Origin::Default => name(key),
        _ => place(given, key),
    }
}

fn origin<'a>(given: &'a Layer, key: &str) -> &'a Origin {
    let given = given.get(key);
    given.map_or(&Origin::Default, |given| &given.origin)
}

/// How the option with this key is written on the command line.
fn name(key: &str) -> String {
    let all = Setting::all();
    let setting = all.iter().find(|setting| setting.key == key);
    setting.map_or_else(|| key.to_owned(), Setting::name)
}

fn both(wide: &Listen, narrow: &Listen) -> String {
    match wide == narrow {
        true => format!("{narrow} is there twice"),
        false => format!("{wide} takes {narrow}, too: leave one of them out"),
    }
}

/// Options that were given and do nothing: who relies on one should know.
fn idle(options: &ServeOptions, given: &Layer) -> Vec<String> {
    let is_unix = |at: &Listen| matches!(at, Listen::Unix(_));
    let nfs = &options.nfs_options;
    let (has_nfs, no_nfs) = (!nfs.nfs.is_empty(), "nfs is not given");
    let no_writes = "no nfs_export is rw, or nfs is not given";
    let idle = [
        ("nfs_export", has_nfs, no_nfs),
        ("nfs_key", has_nfs, no_nfs),
        ("nfs_broker", nfs.is_writable(), no_writes),
        (
            "unix_mode",
            options.listen.iter().any(is_unix),
            "no unix socket is listened at",
        ),
        (
            "access_log_format",
            options.access_log != LogTarget::Off,
            "access_log is off",
        ),
    ];
    let defaults = defaults();
    let warning = |(key, used, why): (&str, bool, &str)| {
        let given = given.get(key).filter(|_| !used)?;
        let differs = defaults
            .get(key)
            .is_none_or(|default| default.values != given.values);
        differs.then(|| format!("{key} ({}) changes nothing: {why}", given.origin))
    };
    // These words of `compare` need a divided memory.
    let is_undivided = options.send_memory == SendMemory::Kernel
        && options.compare.share != Compare::default().share;
    let share = is_undivided.then(|| {
        let place = origin(given, "compare");
        format!("compare ({place}): share or send_need does nothing without a size as send_memory")
    });
    let idle = idle.into_iter().chain(elsewhere(options));
    idle.filter_map(warning).chain(share).collect()
}

/// The keys that count without an origin only, or only with one: whether they are used, and if not, why.
fn elsewhere(options: &ServeOptions) -> impl Iterator<Item = (&'static str, bool, &'static str)> {
    let (has_origin, has_bucket) = (options.has_origin(), options.has_bucket());
    let of_origins = [
        "cache_dir",
        "cache_size",
        "s3_endpoint",
        "s3_credentials_file",
    ];
    let of_directories = [
        "follow_symlinks",
        "allow_roots",
        "hide",
        "precompressed",
        "types",
    ];
    let of_origins = of_origins.map(|key| (key, has_origin, "no origin is served"));
    let keeps = has_origin || options.iscsi.is_on() || options.cluster.is_on();
    let of_payload = ["cache_memory", "slab_dir"].map(|key| (key, keeps, "no origin is served"));
    let in_vain = "origins are served, and no directory";
    let of_directories = of_directories.map(|key| (key, !has_origin, in_vain));
    let of_folders = ["index", "listing"].map(|key| (key, !has_origin || has_bucket, in_vain));
    let both = of_directories.into_iter().chain(of_folders);
    of_payload.into_iter().chain(of_origins).chain(both)
}

/// Takes the raw values of options out of `matches`.
pub(crate) fn read_command_line(matches: &clap::ArgMatches) -> CommandLine {
    let mut read = CommandLine::default();
    let raw = |id: &str| -> Vec<OsString> {
        let typed = matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
        let values = matches.get_raw(id).filter(|_| typed);
        values.into_iter().flatten().map(OsStr::to_owned).collect()
    };
    for setting in Setting::all() {
        let id = setting.arg.get_id().as_str();
        let mut values = raw(id);
        if values.is_empty() {
            continue;
        }
        if setting.shape.is_list() && values == [OsStr::new("")] {
            values.clear();
        }
        let place = |error| LoadError::Value {
            place: setting.name(),
            error,
        };
        let errors = setting.errors(&values).into_iter();
        read.errors.extend(errors.map(place));
        let origin = Origin::CommandLine;
        read.layer
            .insert(setting.key.clone(), Given { values, origin });
    }
    read.config = raw("config").pop();
    for value in raw("port") {
        if let Err(error) = give_port(&mut read.layer, &value, Origin::CommandLine) {
            let place = "--port".to_owned();
            read.errors.push(LoadError::Value { place, error });
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Workers;

    fn layer(origin: &Origin, pairs: &[(&str, &[&str])]) -> Layer {
        let given = |(key, values): &(&str, &[&str])| {
            let values = values.iter().map(OsString::from).collect();
            (
                key.to_string(),
                Given {
                    values,
                    origin: origin.clone(),
                },
            )
        };
        pairs.iter().map(given).collect()
    }

    fn from_command_line(pairs: &[(&str, &[&str])]) -> CommandLine {
        CommandLine {
            layer: layer(&Origin::CommandLine, pairs),
            ..CommandLine::default()
        }
    }

    fn from_environment(pairs: &[(&str, &[&str])]) -> Environment {
        let origin = Origin::Environment("ACKPACE_X".to_owned());
        Environment {
            layer: layer(&origin, pairs),
            ..Environment::default()
        }
    }

    #[test]
    fn the_command_line_goes_before_the_environment() {
        let command_line = from_command_line(&[("workers", &["1"]), ("hide", &["a"])]);
        let environment = from_environment(&[("workers", &["2"]), ("rate_min", &["5"])]);
        let loaded = load(command_line, environment).unwrap();
        assert_eq!(loaded.options.workers, Workers::Count(1));
        assert_eq!(loaded.options.rate_min_bytes_per_s, 5);
        assert_eq!(loaded.options.hide, ["a"]);
        assert_eq!(loaded.given["workers"].origin, Origin::CommandLine);
        assert_eq!(
            loaded.given["rate_min"].origin.to_string(),
            "environment ACKPACE_X"
        );
        assert_eq!(loaded.given["root"].origin, Origin::Default);
    }

    #[test]
    fn defaults_are_those_of_the_definition() {
        let loaded = load(CommandLine::default(), Environment::default()).unwrap();
        let command = ServeOptions::augment_args(Command::new("x").no_binary_name(true));
        let matches = command
            .try_get_matches_from(Vec::<OsString>::new())
            .unwrap();
        let defined = ServeOptions::from_arg_matches(&matches).unwrap();
        assert_eq!(loaded.options, defined);
        assert_eq!(loaded.given.len(), Setting::all().len());
    }

    #[test]
    fn an_empty_list_replaces_the_default() {
        let loaded = load(
            from_command_line(&[("hide", &[]), ("index", &[])]),
            Environment::default(),
        );
        let options = loaded.unwrap().options;
        assert!(options.hide.is_empty() && options.index.is_empty());
    }

    #[test]
    fn what_was_given_and_does_nothing_is_told() {
        let warned = |pairs: &[(&str, &[&str])]| {
            let loaded = load(from_command_line(pairs), Environment::default());
            loaded.unwrap().warnings
        };
        let log = "access_log_format (command line) changes nothing: access_log is off";
        assert_eq!(warned(&[("access_log_format", &["json"])]), [log]);
        assert!(warned(&[("access_log_format", &["combined"])]).is_empty());
        let export = ("nfs_export", &["/=127.0.0.1"][..]);
        let told = "nfs_export (command line) changes nothing: nfs is not given";
        assert_eq!(warned(&[export]), [told]);
        let nfs = ("nfs", &["127.0.0.1:2049"][..]);
        assert!(warned(&[export, nfs]).is_empty());
        let told =
            "nfs_broker (command line) changes nothing: no nfs_export is rw, or nfs is not given";
        assert_eq!(warned(&[export, nfs, ("nfs_broker", &["/run/b"])]), [told]);
        let told =
            "compare (command line): share or send_need does nothing without a size as send_memory";
        assert_eq!(warned(&[("compare", &["share=window"])]), [told]);
        let divided = ("send_memory", &["1MiB"][..]);
        let good = "prefetch=rate,prefetch_time=5s,send_need=paper";
        assert!(warned(&[("compare", &[good]), divided]).is_empty());
    }

    #[test]
    fn a_place_is_what_the_operator_wrote() {
        let path = PathBuf::from("a.toml");
        let origins = [
            (Origin::CommandLine, "--allow-roots", "DIR|FILE|URL"),
            (
                Origin::Environment("ACKPACE_X".to_owned()),
                "ACKPACE_X",
                "ACKPACE_X",
            ),
            (
                Origin::File { path, line: 3 },
                "a.toml:3: allow_roots",
                "a.toml:3: root",
            ),
            (Origin::Default, "allow_roots (default)", "root (default)"),
        ];
        for (origin, allow_roots, root) in origins {
            let given = layer(&origin, &[("allow_roots", &["/a"]), ("root", &["/b"])]);
            assert_eq!(place(&given, "allow_roots"), allow_roots);
            assert_eq!(place(&given, "root"), root);
        }
        assert_eq!(place(&Layer::new(), "root"), "root (default)");
    }

    #[test]
    fn odd_roots_are_roots() {
        for root in ["-", "--", "-l", "--listen", "serve", "a b"] {
            let loaded = load(
                from_command_line(&[("root", &[root])]),
                Environment::default(),
            );
            assert_eq!(loaded.unwrap().options.root, Path::new(root));
        }
    }

    #[test]
    fn what_only_the_whole_can_tell_is_told() {
        let error = |pairs: &[(&str, &[&str])]| {
            let errors = load(from_command_line(pairs), Environment::default()).unwrap_err();
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let none = "listen (command line): no place to listen at; give one, such as 127.0.0.1:8080";
        assert_eq!(error(&[("listen", &[])]), [none]);
        let twice = "listen (command line): 127.0.0.1:80 is there twice";
        assert_eq!(error(&[("listen", &["80", "81", "127.0.0.1:80"])]), [twice]);
        for (nfs, text) in [
            (
                "80",
                "127.0.0.1:80 is taken by listen = 127.0.0.1:80: choose another port",
            ),
            ("81", "127.0.0.1:81 is there twice"),
        ] {
            let given = [("listen", &["80"][..]), ("nfs", &[nfs, "81"][..])];
            assert_eq!(error(&given), [format!("nfs (command line): {text}")]);
        }
        let both = "listen (command line): :80 takes 127.0.0.1:80, too: leave one of them out";
        assert_eq!(error(&[("listen", &[":80", "80"])]), [both]);
        assert_eq!(error(&[("listen", &["80", ":80"])]), [both]);
        let taken =
            "metrics (command line): 127.0.0.1:80 is taken by listen = :80: choose another port";
        assert_eq!(
            error(&[("listen", &[":80"]), ("metrics", &["80"])]),
            [taken]
        );
        let twice = "types (command line): md is there twice";
        assert_eq!(error(&[("types", &["md=a/b", "MD=c/d"])]), [twice]);
        assert!(
            load(
                from_command_line(&[("listen", &["0", "0"])]),
                Environment::default()
            )
            .is_ok()
        );
    }
}
