//! The real binary as a user meets it: help, version, configuration, checks.

mod common;
#[path = "common/run.rs"]
mod run;

use std::path::Path;
use std::process::Stdio;

use common::directory;
use run::{Run, ackpace};

/// A successful run that says nothing on standard error.
fn good(test: &str, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = ackpace(test, arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
    stdout
}

/// Every long option of `ackpace serve`, from the page that has them all.
fn options() -> Vec<String> {
    let page = include_str!("../../docs/configuration.md");
    let keys = page.lines().filter_map(|line| line.strip_prefix("### "));
    let long = keys
        .filter(|key| *key != "root")
        .map(|key| format!("--{}", key.replace('_', "-")));
    long.collect()
}

#[test]
fn help_has_every_option_and_fits_a_terminal() {
    let help = good("help", &["--help"]);
    assert!(options().len() < 57, "root is one more key");
    for option in options() {
        assert!(help.contains(&format!(" {option}")), "{option}");
    }
    for heading in [
        "What to serve",
        "Gateway",
        "Listening",
        "Sending",
        "Logging",
        "NFS",
        "Cluster",
        "Watching",
        "Time limits",
        "Resources",
        "Comparison",
        "General",
    ] {
        assert!(help.contains(&format!("\n{heading}:\n")), "{heading}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 80));
    assert!(help.lines().count() < 134, "short help");
    assert_eq!(good("help", &["-h"]), help);
    assert_eq!(good("help", &["help"]), help);
}

#[test]
fn each_command_has_help() {
    for command in [
        "serve",
        "check",
        "config",
        "limits",
        "top",
        "why",
        "completions",
        "man",
        "help",
    ] {
        let help = good("command_help", &[command, "--help"]);
        assert!(
            help.contains(&format!("\nUsage: ackpace {command}")),
            "{help}"
        );
        assert_eq!(good("command_help", &["help", command]), help);
    }
    let (code, _, stderr) = ackpace("command_help", &["help", "nonsense"]);
    assert_eq!(
        (code, stderr.as_str()),
        (2, "ackpace: there is no command nonsense\n")
    );
}

#[test]
fn version_is_that_of_the_package() {
    let expected = format!("ackpace {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(good("version", &["--version"]), expected);
    assert_eq!(good("version", &["-V"]), expected);
}

#[test]
fn the_man_page_has_every_option_and_the_long_texts() {
    let page = good("man", &["man"]);
    assert!(page.contains(".TH ackpace 1"), "{page}");
    for option in options() {
        assert!(page.contains(&option.replace('-', "\\-")), "{option}");
    }
    for section in [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "TIME LIMITS",
        "EXIT STATUS",
    ] {
        assert!(
            page.contains(&format!(".SH {section}"))
                || page.contains(&format!(".SH \"{section}\"")),
            "{section}"
        );
    }
    assert!(page.contains("a paused player is not dead"));
}

#[test]
fn completions_know_every_option() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = good("completions", &["completions", shell]);
        for option in options() {
            let name = option.trim_start_matches('-');
            assert!(script.contains(name), "{shell}: {option}");
        }
    }
    let (code, _, stderr) = ackpace("completions", &["completions", "sh"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("bash"), "{stderr}");
}

#[test]
fn nobody_reading_to_the_end_is_no_failure() {
    let directory = directory("pipe");
    let run = Run(&directory, &[]);
    let mut child = run
        .command(&["man"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn check_says_what_is_good() {
    let directory = directory("check");
    std::fs::write(directory.join("a.toml"), "listing = false\n").unwrap();
    let run = Run(&directory, &[]);
    let root = directory.canonicalize().unwrap();
    let root = format!("root: {}\n", root.display());
    // So few connections that their descriptors are allowed everywhere.
    for arguments in [
        ["check", "--connections-max=16", "-c", "a.toml"],
        ["-t", "--connections-max=16", "-c", "a.toml"],
        ["-t", "--connections-max=16", "--config", "a.toml"],
    ] {
        assert_eq!(
            run.run(&arguments),
            (0, format!("{root}a.toml: good\n"), String::new())
        );
    }
    let (code, stdout, _) = run.run(&["check", "--connections-max=16", "--access-log=log"]);
    let log = root.replacen("root: ", "access_log: ", 1);
    let log = format!("{}/log\n", log.trim_end());
    assert_eq!(
        (code, stdout),
        (
            0,
            format!("{root}{log}the configuration is good (no file was given)\n")
        )
    );
    // What the start would say of too little memory, this says, too.
    let few = ["check", "--workers=1", "--memory-max=32M"];
    let (code, stdout, stderr) = run.run(&few);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let by_option = "\nlittle memory: 32 MiB (--memory-max) are enough";
    assert!(stdout.contains(by_option), "{stdout}");
    std::fs::write(directory.join("b.toml"), "memory_max = \"32M\"\n").unwrap();
    let (_, stdout, _) = run.run(&["check", "--workers=1", "-c", "b.toml"]);
    let by_file = "\nlittle memory: 32 MiB (b.toml:1: memory_max) are enough";
    assert!(stdout.contains(by_file), "{stdout}");
}

#[test]
fn doctor_examines_what_the_configuration_names() {
    let directory = directory("doctor");
    let text = "connections_max = 40\nworkers = 1\nmemory_max = \"64MiB\"\n";
    std::fs::write(directory.join("a.toml"), text).unwrap();
    std::fs::write(directory.join("b.toml"), "\nroot = \"gone\"\n").unwrap();
    std::fs::write(directory.join("c.toml"), "rooot = \"gone\"\n").unwrap();
    let run = Run(&directory, &[]);
    let (code, stdout, stderr) = run.run(&["doctor", "-c", "a.toml"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for part in [
        "\nok: 64 MiB of memory (memory_max = 64MiB) are enough for 40 connections of a worker\n",
        " descriptors are allowed (ulimit -Hn), enough for 40 connections\n",
    ] {
        assert!(stdout.contains(part), "no {part:?} in {stdout}");
    }
    let asked = ["--workers=2", "--memory-max=200M", "--connections-max=2000"];
    let (_, stdout, _) = run.run(&[&["doctor"], &asked[..]].concat());
    let begin = "\nlost: little memory: 200 MiB (--memory-max) are enough for ";
    assert!(stdout.contains(begin), "{stdout}");
    let (code, stdout, stderr) = run.run(&["doctor", "--config=b.toml"]);
    assert_eq!(code, 75, "{stdout}");
    assert!(stdout.contains("ok: Linux "), "{stdout}");
    assert!(
        stderr.starts_with("ackpace: b.toml:2: root: gone: No such file"),
        "{stderr}"
    );
    let (code, stdout, stderr) = run.run(&["doctor", "-c", "c.toml"]);
    let expected = "ackpace: c.toml:1:1: unknown key rooot: did you mean root?\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (2, "", expected));
}

#[test]
fn config_prints_all_values_by_itself() {
    assert_eq!(
        good("config", &["config"]),
        good("config", &["config", "--effective"])
    );
}

#[test]
fn variables_that_mean_nothing_are_warned_of() {
    let directory = directory("variables");
    let variables = [("ACKPACE_WORKER", "2"), ("HOME", "/")];
    let run = Run(&directory, &variables);
    let (code, _, stderr) = run.run(&["config", "--effective"]);
    let expected = "ackpace: warning: the variable ACKPACE_WORKER means nothing: did you mean ACKPACE_WORKERS?\n";
    assert_eq!((code, stderr.as_str()), (0, expected));
}

const SOURCES: &str = "\
# a configuration
workers = 2
rate_min = 7
listen = [\":80\", \"[::1]:81\"]
idle_timeout = \"2min\"
[types]
\"tar.gz\" = \"application/gzip\"
";

#[test]
fn effective_prints_every_value_with_its_origin() {
    let directory = directory("effective");
    std::fs::write(directory.join("a.toml"), SOURCES).unwrap();
    let variables = [
        ("ACKPACE_RATE_MIN", "8"),
        ("ACKPACE_HIDE", ".git,*.tmp"),
        ("ACKPACE_WORKERS", "3"),
    ];
    let run = Run(&directory, &variables);
    let arguments = [
        "config",
        "--effective",
        "-c",
        "a.toml",
        "--workers",
        "4",
        "-l",
        "unix:a b",
        "-p",
        "82",
        "--compare",
        "cancel=off",
        "--index=",
        "dir",
    ];
    let (code, stdout, stderr) = run.run(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for line in [
        "root = \"dir\"                             # command line DIR|FILE|URL",
        "index = []                               # command line --index",
        "listing = true                           # default",
        "hide = [\".git\", \"*.tmp\"]                 # environment ACKPACE_HIDE",
        "types = { \"tar.gz\" = \"application/gzip\" } # a.toml:6",
        "listen = [\"unix:a b\", \"127.0.0.1:82\"]    # command line --listen",
        "idle_timeout = \"2min\"                    # a.toml:5",
        "rate_min = 8                             # environment ACKPACE_RATE_MIN",
        "workers = 4                              # command line --workers",
        "memory_max = \"auto\"                      # default",
        "compare = \"cancel=off\"                   # command line --compare",
    ] {
        assert!(
            stdout.lines().any(|printed| printed == line),
            "{line}\nis not in\n{stdout}"
        );
    }
}

#[test]
fn effective_reads_back_to_the_same_values() {
    let directory = directory("read_back");
    std::fs::write(directory.join("a.toml"), SOURCES).unwrap();
    let run = Run(&directory, &[("ACKPACE_LISTING", "off")]);
    let odd = "a \"quoted\" # name\\\n\u{1}";
    let arguments = [
        "config",
        "--effective",
        "-c",
        "a.toml",
        "--memory-max=64M",
        "--hide=#*#",
        odd,
    ];
    let (code, first, _) = run.run(&arguments);
    assert_eq!(code, 0);
    std::fs::write(directory.join("b.toml"), &first).unwrap();
    let run = Run(&directory, &[]);
    let (code, second, stderr) = run.run(&["config", "--effective", "-c", "b.toml"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let values = |page: &str| -> Vec<String> {
        let value = |line: &str| {
            line.rsplit_once(" # ")
                .map(|(value, _)| value.trim_end().to_owned())
        };
        page.lines().filter_map(value).collect()
    };
    assert_eq!(values(&first), values(&second));
    assert_eq!(values(&first).len(), options().len() + 1);
    assert!(second.contains("# b.toml:2\n") && !second.contains("# default"));
}

#[test]
fn the_example_is_a_good_configuration() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ackpace.example.toml");
    let stdout = good("example", &["check", "-c", example.to_str().unwrap()]);
    let good = format!("{}: good\n", example.display());
    assert!(stdout.ends_with(&good), "{stdout}");
}

#[test]
fn the_unit_file_names_options_that_there_are_and_lets_openat2_pass() {
    let unit = include_str!("../ackpace.service");
    let start = "ExecStart=/usr/local/bin/ackpace serve ";
    let words = unit.lines().find_map(|line| line.strip_prefix(start));
    let words: Vec<&str> = words.expect("a start").split(' ').collect();
    good("unit", &[&["config"], &words[..]].concat());
    // systemd refuses openat2(2) under them.
    let refusing = |line: &&str| {
        ["RestrictSUIDSGID=", "DynamicUser="]
            .iter()
            .any(|key| line.starts_with(key))
    };
    assert_eq!(unit.lines().find(refusing), None);
}
