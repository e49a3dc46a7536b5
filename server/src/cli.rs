//! The commands of the binary. `main` calls `run`, one match over all commands; errors are printed in one place.

mod analyse;
mod cluster;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, ValueHint, value_parser};
use clap_complete::Shell;

use crate::admin::client::{self, Shown};
use crate::config::{self, LoadError, Loaded, Setting};
use crate::failure::Failure;
use crate::limits::CONFIG_ERRORS_MAX;
use crate::mistyped::{detached_boolean, mistyped, mistyped_alone};
use crate::options::{ServeOptions, shown, shown_path};
use crate::{descriptors, doctor, help, named_paths, serve};

const ABOUT: &str = "Serve files over HTTP at the pace of their acknowledgements";
const LONG_ABOUT: &str = "ackpace serves a directory, one file, or what another HTTP server or an S3 bucket has, over HTTP/1.1 to browsers, download tools, \
    package managers and players. It lets what TCP knows of each client decide what is read ahead and what is sent.\n\n\
    With a URL in place of a directory it is a gateway, a cache for GET and HEAD in front of that origin.\n\n\
    Without a command it serves: `ackpace DIR` is `ackpace serve DIR`. A directory that is named like a command is reached by `./`. \
    Without any option only this machine can reach the server; `--listen :8080` opens it to all.\n\n\
    SIGTERM and SIGINT stop the server after the answers under way.";
const AFTER_HELP: &str = "Every option is also a key of the configuration file and a variable, such as\n\
    send_timeout and ACKPACE_SEND_TIMEOUT. All about them: ackpace man | man -l -";

/// Runs one command of the command line `arguments`, whose first is the name of the program, in the environment
/// `variables`. Prints its output, and returns the exit code ([`Failure::exit_code`]).
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> ExitCode {
    match run(arguments, variables) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), Failure> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(value) = detached_boolean(&arguments) {
        return Err(Failure::operator(value));
    }
    let matches = raw(command())
        .try_get_matches_from(&arguments)
        .map_err(|error| mistyped(&command(), &arguments, error))?;
    match matches.subcommand() {
        None if matches.get_flag("test") => check(load(&matches, variables)?),
        None => match mistyped_alone(&command(), &matches) {
            Some(failure) => Err(failure),
            None => serve(&matches, variables),
        },
        Some(("serve", matches)) => serve(matches, variables),
        Some(("check", matches)) => check(load(matches, variables)?),
        Some(("config", matches)) => say(&config::effective(&load(matches, variables)?.given)),
        Some(("limits", matches)) => say(&serve::limits(&load(matches, variables)?)?),
        Some(("doctor", matches)) => doctor(load(matches, variables)?),
        Some(("top", matches)) => top(matches),
        Some(("why", matches)) => why(matches),
        Some(("cache", matches)) => cache(matches),
        Some(("cluster", matches)) => cluster::run(matches),
        Some(("completions", matches)) => completions(matches),
        Some(("man", _)) => man(),
        Some(("help", matches)) => print_help(matches),
        Some((name, _)) => Err(Failure::runtime(format!("no code for command {name}"))),
    }
}

/// The whole command line.
pub fn command() -> Command {
    let commands = [
        with_help(
            options(serve_command()),
            &["ackpace serve [OPTIONS] [DIR|FILE|URL]"],
            &[],
        ),
        looking(
            "check",
            "Tell whether the configuration is good, without serving",
        ),
        looking("config", "Print every value that holds, with its origin"),
        looking("limits", "Print every bound and the memory they add up to"),
        looking(
            "doctor",
            "Tell what kernel and rights allow, and which origins answer",
        ),
        top_command(),
        why_command(),
        cache_command(),
        cluster::command(),
        completions_command(),
        with_help(
            Command::new("man").about("Print the man page"),
            &["ackpace man"],
            &[],
        ),
        help_command(),
    ];
    let root = options(Command::new("ackpace"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(AFTER_HELP)
        .version(env!("CARGO_PKG_VERSION"))
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .arg(flag("test", 't', ArgAction::SetTrue).help("Same as `ackpace check`"))
        .arg(
            flag("version", 'V', ArgAction::Version)
                .long("version")
                .help("Print the version"),
        );
    let usage = ["ackpace [OPTIONS] [DIR|FILE|URL]", "ackpace COMMAND"];
    with_help(root, &usage, &commands).subcommands(commands)
}

fn serve_command() -> Command {
    Command::new("serve")
        .about("Serve a directory or file; also without `serve`")
        .after_help(AFTER_HELP)
}

fn help_command() -> Command {
    let about = Command::new("help").about("Print help, also of a command");
    let command = Arg::new("command")
        .value_name("COMMAND")
        .help("Which command");
    with_help(about.arg(command), &["ackpace help [COMMAND]"], &[])
}

fn top_command() -> Command {
    let about = "Show a running server: its workers, and who gets what, how fast";
    let command = Command::new("top").about(about).args([
        flag("number", 'n', ArgAction::Set)
            .long("number")
            .value_name("N")
            .value_parser(value_parser!(u16))
            .help("Connections at most, the fastest first [what fits, or 20; all with --json]"),
        switch("once", "Look once, not each second"),
        switch("json", "A JSON object a line, units in the names"),
        admin_argument(),
    ]);
    let usage = "ackpace top [-n N] [--once] [--json] [--admin PATH]";
    with_help(command, &[usage], &[])
}

fn why_command() -> Command {
    let connection = Arg::new("connection")
        .value_name("CONN|DEVICE")
        .help("ADDRESS:PORT of its client, or its name in `ackpace top`; a device's number in the metrics, its disk, such as sda, or the URL of an origin")
        .required(true);
    let about = "Explain a connection or a disk: what waits for what, and why";
    let command = Command::new("why").about(about).args([
        connection,
        switch("json", "A JSON object, units in the names"),
        admin_argument(),
    ]);
    let usage = "ackpace why [--json] [--admin PATH] CONN|DEVICE";
    with_help(command, &[usage], &[])
}

fn cache_command() -> Command {
    let what = Arg::new("what")
        .value_name("status|purge")
        .value_parser(["status", "purge"])
        .help("What is kept and was fetched; or forget what begins with PREFIX")
        .required(true);
    let prefix = Arg::new("prefix")
        .value_name("PREFIX")
        .help("Beginning of the paths to forget, as clients ask for them; / for all");
    let about = "Look at what a gateway keeps of its origins, or forget some of it";
    let command = Command::new("cache").about(about).args([
        what,
        prefix,
        switch(
            "stale",
            "Don't forget: ask the origin before it is sent again",
        ),
        switch("json", "A JSON object, units in the names"),
        admin_argument(),
    ]);
    let usage = [
        "ackpace cache status [--json] [--admin PATH]",
        "ackpace cache purge [--stale] [--json] [--admin PATH] PREFIX",
    ];
    with_help(command, &usage, &[])
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    let switch = Arg::new(name).long(name).action(ArgAction::SetTrue);
    switch.help(help).help_heading("General")
}

fn admin_argument() -> Arg {
    Arg::new("admin")
        .long("admin")
        .value_name("PATH")
        .value_hint(ValueHint::FilePath)
        .value_parser(OsStringValueParser::new())
        .help("Socket of the server; found if one server runs here")
        .help_heading("General")
}

fn completions_command() -> Command {
    let about = Command::new("completions").about("Print completions for a shell");
    let shell = Arg::new("shell")
        .value_name("SHELL")
        .help("Which shell")
        .required(true);
    let shell = shell.value_parser(value_parser!(Shell));
    with_help(about.arg(shell), &["ackpace completions SHELL"], &[])
}

/// A command that reads the configuration: it takes all options, but has a help page of its own.
fn looking(name: &'static str, about: &'static str) -> Command {
    let mut command = Command::new(name).about(about);
    let usage = format!("ackpace {name} [-c FILE]");
    if name == "config" {
        let effective = Arg::new("effective")
            .long("effective")
            .action(ArgAction::SetTrue);
        command =
            command.arg(effective.help("The same: all values, not only those that were given"));
    }
    let is_named = |arg: &Arg| matches!(arg.get_id().as_str(), "config" | "effective");
    let command = options(command)
        .mut_args(|arg| if is_named(&arg) { arg } else { arg.hide(true) })
        .after_help("All options of `ackpace serve` are taken too.");
    with_help(command, &[&usage], &[])
}

/// Adds the options of the server, and those that are not keys of the configuration.
fn options(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let after = command.get_after_help().cloned().unwrap_or_default();
    let config = flag("config", 'c', ArgAction::Set)
        .long("config")
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(OsStringValueParser::new())
        .help("Configuration file (TOML)");
    let port = flag("port", 'p', ArgAction::Append)
        .long("port")
        .value_name("N")
        .help("Short for --listen 127.0.0.1:N")
        .help_heading("Listening");
    let command = ServeOptions::augment_args(command).arg(port).arg(config);
    command.about(about).after_help(after)
}

fn flag(id: &'static str, short: char, action: ArgAction) -> Arg {
    Arg::new(id)
        .short(short)
        .action(action)
        .help_heading("General")
}

/// `-h` and `--help` print the same: a line for each option. The man page has the rest.
fn with_help(command: Command, usage: &[&str], commands: &[Command]) -> Command {
    let help = flag("help", 'h', ArgAction::HelpShort)
        .long("help")
        .help("Print this help");
    let command = command.disable_help_flag(true).arg(help);
    let page = help::page(&command, usage, commands);
    command
        .override_usage(usage.join("\n       "))
        .override_help(page)
}

/// The same command line with unparsed values, since each source of configuration checks them in the same way.
fn raw(command: Command) -> Command {
    let keys: Vec<String> = Setting::all()
        .iter()
        .map(|setting| setting.arg.get_id().to_string())
        .collect();
    let untyped = move |arg: Arg| {
        let is_ours = arg.get_id() == "port" || keys.iter().any(|key| arg.get_id() == key.as_str());
        if is_ours {
            arg.value_parser(OsStringValueParser::new())
        } else {
            arg
        }
    };
    let each = untyped.clone();
    command
        .mut_args(untyped)
        .mut_subcommands(move |command| command.mut_args(each.clone()))
}

fn load(
    matches: &ArgMatches,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, Failure> {
    let command_line = config::read_command_line(matches);
    let loaded = config::load(command_line, config::read_environment(variables));
    let loaded = loaded.map_err(|errors| {
        let may_pass = |error: &LoadError| matches!(error, LoadError::Unreadable { .. });
        let all_may_pass = errors.iter().all(may_pass);
        let mut lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if lines.len() >= CONFIG_ERRORS_MAX {
            lines.push("there may be more errors; mend these first".to_owned());
        }
        match all_may_pass {
            true => Failure::NotNow(lines),
            false => Failure::Operator(lines),
        }
    })?;
    for warning in &loaded.warnings {
        let _ = writeln!(std::io::stderr(), "ackpace: warning: {warning}");
    }
    Ok(loaded)
}

fn serve(
    matches: &ArgMatches,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), Failure> {
    let inherited = descriptors::inherited(); // before we open any
    let signals = serve::catch_signals()?; // first of all: a configuration may come from a pipe
    serve::run(load(matches, variables)?, signals, inherited)
}

fn check(loaded: Loaded) -> Result<(), Failure> {
    let say_all = |lines: Vec<String>| lines.iter().try_for_each(|line| say(&format!("{line}\n")));
    // First: a relative path may be why the check fails.
    say_all(named_paths::lines(&loaded.options))?;
    serve::check(&loaded)?;
    say_all(serve::cost(&loaded))?;
    say_all(doctor::lost_of_nfs(&loaded.options))?;
    match loaded.config {
        Some(path) => say(&format!("{}: good\n", shown_path(&path))),
        None => say("the configuration is good (no file was given)\n"),
    }
}

/// What is allowed and lost, and then, as `check` does, what is wrong.
fn doctor(loaded: Loaded) -> Result<(), Failure> {
    say(&doctor::page(&loaded))?;
    serve::check(&loaded)
}

/// The socket that was named; `ACKPACE_ADMIN` counts as for the server.
fn admin_path(matches: &ArgMatches) -> Option<PathBuf> {
    let variable = || std::env::var_os("ACKPACE_ADMIN").filter(|value| !value.is_empty());
    let given = matches.get_one::<OsString>("admin").cloned();
    let path = given.or_else(variable).map(PathBuf::from);
    path.filter(|path| path.as_os_str() != "auto" && path.as_os_str() != "off")
}

fn top(matches: &ArgMatches) -> Result<(), Failure> {
    let shown = Shown {
        json: matches.get_flag("json"),
        once: matches.get_flag("once"),
        most: matches.get_one::<u16>("number").copied().map(usize::from),
    };
    client::top(admin_path(matches).as_deref(), shown)
}

fn why(matches: &ArgMatches) -> Result<(), Failure> {
    let connection = matches.get_one::<String>("connection");
    let connection = connection.map_or("", String::as_str);
    client::why(
        admin_path(matches).as_deref(),
        connection,
        matches.get_flag("json"),
    )
}

fn cache(matches: &ArgMatches) -> Result<(), Failure> {
    let (path, prefix) = (admin_path(matches), matches.get_one::<String>("prefix"));
    let (stale, json) = (matches.get_flag("stale"), matches.get_flag("json"));
    let purges = matches
        .get_one::<String>("what")
        .is_some_and(|what| what == "purge");
    match (purges, prefix) {
        (true, Some(prefix)) => client::purge(path.as_deref(), prefix, stale, json),
        (true, None) => Err(Failure::operator(
            "name what to forget: a prefix such as /pub/, or / for all",
        )),
        (false, Some(_)) => Err(Failure::operator("status takes no prefix")),
        (false, None) => client::cache(path.as_deref(), json),
    }
}

fn completions(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(shell) = matches.get_one::<Shell>("shell") else {
        return Err(Failure::operator("name a shell"));
    };
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut command(), "ackpace", &mut script);
    say(&String::from_utf8_lossy(&script))
}

fn man() -> Result<(), Failure> {
    let mut command = command();
    command.build();
    let serve = command
        .find_subcommand("serve")
        .cloned()
        .unwrap_or_default();
    let page = config::manual(&command, &serve);
    say(&page.map_err(|error| Failure::runtime(error.to_string()))?)
}

fn print_help(matches: &ArgMatches) -> Result<(), Failure> {
    let mut command = command();
    command.build();
    let Some(name) = matches.get_one::<String>("command") else {
        return say_help(&mut command);
    };
    match command.find_subcommand_mut(name) {
        Some(command) => say_help(command),
        None => Err(Failure::operator(format!(
            "there is no command {}",
            shown(name)
        ))),
    }
}

fn say_help(command: &mut Command) -> Result<(), Failure> {
    let page = command.render_help().to_string();
    say(&format!("{}\n", page.trim_end()))
}

/// Prints to standard output. A reader that closes it early (`| head`) is no failure.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
