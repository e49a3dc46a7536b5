//! What the real binary refuses: wrong usage, wrong values and what this machine lacks, each with its place and exit code.

mod common;
#[path = "common/run.rs"]
mod run;

use common::directory;
use run::{Run, ackpace};

/// Whether this is all that may be printed before something is refused: the paths, by `check`, and by others nothing.
fn says_only_paths(arguments: &[&str], stdout: &str) -> bool {
    let keys = ["root: /", "allow_roots: /", "access_log: /"];
    let is_path = |line: &str| keys.iter().any(|key| line.starts_with(key));
    match arguments.first() {
        Some(&"check") => stdout.starts_with("root: /") && stdout.lines().all(is_path),
        _ => stdout.is_empty(),
    }
}

#[test]
fn everything_wrong_is_said_at_once_with_exit_code_2() {
    let directory = directory("wrong");
    std::fs::write(directory.join("a.toml"), "workers = 65\nlisting = 1\n").unwrap();
    let variables = [("ACKPACE_RATE_MIN", "fast"), ("ACKPACE_CONFIG", "a.toml")];
    let run = Run(&directory, &variables);
    let expected = "\
ackpace: --send-timeout: 5 has no clear unit: write 5s (units are ms, s, min and h)
ackpace: --port: 70000 is not a port: 0 to 65535
ackpace: ACKPACE_RATE_MIN: fast is not a whole number: 0 to 1000000
ackpace: a.toml:1:11: workers: 65 is out of range: 1 to 64, or \"auto\"
ackpace: a.toml:2:11: listing: must be true or false, not a whole number; write listing = true
";
    for command in [
        &["check"][..],
        &["-t"],
        &["serve"],
        &[],
        &["limits"],
        &["config", "--effective"],
    ] {
        let arguments = [command, &["--send-timeout", "5", "-p", "70000"]].concat();
        assert_eq!(
            run.run(&arguments),
            (2, String::new(), expected.into()),
            "{command:?}"
        );
    }
}

#[test]
fn files_that_are_no_configuration_are_named() {
    let directory = directory("files");
    std::fs::write(directory.join("latin1.toml"), b"root = \"\xe4\"").unwrap();
    std::fs::write(directory.join("long.toml"), "#".repeat((1 << 20) + 1)).unwrap();
    std::fs::write(directory.join("most.toml"), "#".repeat(1 << 20)).unwrap();
    let run = Run(&directory, &[]);
    for (file, expected) in [
        (
            "missing.toml",
            "missing.toml: cannot read the configuration file: No such file or directory (os error 2)",
        ),
        (
            ".",
            ".: cannot read the configuration file: Is a directory (os error 21)",
        ),
        (
            "latin1.toml",
            "latin1.toml:1:9: not UTF-8, so not TOML; save the file as UTF-8",
        ),
        (
            "long.toml",
            "long.toml: longer than 1048576 bytes, so it is no configuration file",
        ),
    ] {
        // What can't be read now may be there later; what it says stays wrong.
        let code = if expected.contains("cannot read") {
            75
        } else {
            2
        };
        let (ended, stdout, stderr) = run.run(&["check", "-c", file]);
        assert_eq!(
            (ended, stdout, stderr),
            (code, String::new(), format!("ackpace: {expected}\n"))
        );
    }
    assert_eq!(run.run(&["check", "-c", "most.toml"]).0, 0);
}

#[test]
fn wrong_usage_has_exit_code_2_and_help_has_0() {
    for arguments in [
        &["--nonsense"][..],
        &["completions"],
        &["-c"],
        &["--workers=1", "--workers=2"],
    ] {
        let (code, stdout, stderr) = ackpace("usage", arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
    let (code, _, stderr) = ackpace("usage", &["--send-timeuot", "1s"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("--send-timeout"), "{stderr}");
}

#[test]
fn misspelt_commands_and_detached_values_are_named() {
    for (arguments, expected) in [
        (
            &["serv", "tree"][..],
            "ackpace: there is no command serv: did you mean serve?\n",
        ),
        (
            &["docter"],
            "ackpace: there is no directory or file docter: did you mean the command doctor?\n",
        ),
        (
            &["a", "b"],
            "ackpace: a is no command, and one directory or file is served, not a and b (see ackpace --help)\n",
        ),
        (
            &["--listing", "false", "tree"],
            "ackpace: --listing false: write --listing=false; a directory of that name is ./false\n",
        ),
        (
            &["--compare", "send=eagre"],
            "ackpace: --compare: send: eagre is not one of eager, margin\n",
        ),
    ] {
        let (code, stdout, stderr) = ackpace("misspelt", arguments);
        assert_eq!((code, stdout.as_str(), stderr.as_str()), (2, "", expected));
    }
}

#[test]
fn check_refuses_what_serve_refuses() {
    let arguments = [
        "check",
        "--congestion-control",
        "vegasx",
        "--access-log=log",
    ];
    let (code, stdout, stderr) = ackpace("check_all", &arguments);
    assert!(code == 2 && says_only_paths(&arguments, &stdout));
    // The paths are there also where the check fails.
    assert!(stdout.contains("/log\n"), "{stdout}");
    assert!(stderr.contains("vegasx"), "{stderr}");
}

#[test]
fn a_root_that_is_not_there_has_exit_code_75() {
    for arguments in [
        &["./serve"][..],
        &["serve", "nowhere"],
        &["check", "nowhere"],
    ] {
        let (code, stdout, stderr) = ackpace("root", arguments);
        assert_eq!(code, 75, "{arguments:?}");
        assert!(says_only_paths(arguments, &stdout), "{stdout}");
        let name = arguments[arguments.len() - 1];
        assert!(stderr.contains(name.trim_start_matches("./")), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_told_with_the_option_that_names_it() {
    let directory = directory("places");
    let text = "root = \"gone\"\n\nallow_roots = [\"lost\"]\n";
    std::fs::write(directory.join("a.toml"), text).unwrap();
    std::fs::write(directory.join("b.toml"), "allow_roots = [\"lost\"]\n").unwrap();
    let lost =
        "lost: No such file or directory (os error 2); name a directory that this user may enter";
    let gone = "gone: No such file or directory (os error 2); name a directory or a file that this user may read";
    for (arguments, variables, expected) in [
        (
            &["--allow-roots", "lost"][..],
            &[][..],
            format!("--allow-roots: {lost}"),
        ),
        (
            &[],
            &[("ACKPACE_ALLOW_ROOTS", "lost")],
            format!("ACKPACE_ALLOW_ROOTS: {lost}"),
        ),
        (
            &["-c", "b.toml"],
            &[],
            format!("b.toml:1: allow_roots: {lost}"),
        ),
        (
            &["-c", "a.toml", "--allow-roots="],
            &[],
            format!("a.toml:1: root: {gone}"),
        ),
        (&["gone"], &[], format!("DIR|FILE|URL: {gone}")),
        (
            &[],
            &[("ACKPACE_ROOT", "gone")],
            format!("ACKPACE_ROOT: {gone}"),
        ),
    ] {
        let run = Run(&directory, variables);
        for command in ["serve", "check"] {
            let arguments = [&[command], arguments].concat();
            let (code, stdout, stderr) = run.run(&arguments);
            let expected = format!("ackpace: {expected}\n");
            assert_eq!((code, stderr), (75, expected), "{arguments:?}");
            assert!(says_only_paths(&arguments, &stdout), "{stdout}");
        }
    }
}

#[test]
fn a_value_that_this_machine_refuses_is_told_with_where_it_was_given() {
    let directory = directory("refused");
    let text = "# a log\naccess_log = \"gone/log\"\ncongestion_control = [\"vegasx\"]\n";
    std::fs::write(directory.join("a.toml"), text).unwrap();
    std::fs::write(directory.join("taken"), "a file").unwrap();
    std::fs::write(directory.join("b.toml"), "listen = [\"unix:taken\"]\n").unwrap();
    std::fs::write(directory.join("c.toml"), "admin = \"gone/admin\"\n").unwrap();
    let text = "workers = 2\nmemory_max = \"16M\"\n";
    std::fs::write(directory.join("d.toml"), text).unwrap();
    let run = |expected: i32, variables: &[(&str, &str)], arguments: &[&str]| {
        let directory = &directory;
        let run = Run(directory, variables);
        let (code, stdout, stderr) = run.run(arguments);
        assert_eq!(code, expected, "{arguments:?}: {stderr}");
        assert!(says_only_paths(arguments, &stdout), "{stdout}");
        stderr
    };
    // One of them stays wrong.
    let told = run(2, &[], &["check", "-c", "a.toml"]);
    let (control, log) = told.split_once('\n').expect("two lines");
    assert!(
        control.starts_with("ackpace: a.toml:3: congestion_control: vegasx: "),
        "{told}"
    );
    let gone = "gone/log: No such file or directory (os error 2); name a file";
    assert!(
        log.starts_with(&format!("ackpace: a.toml:2: access_log: {gone}")),
        "{told}"
    );
    let port = "--listen=127.0.0.1:0";
    for (variables, arguments, begin) in [
        (
            &[("ACKPACE_ACCESS_LOG", "gone/log")][..],
            &["check"][..],
            format!("ACKPACE_ACCESS_LOG: {gone}"),
        ),
        (
            &[],
            &["serve", port, "--access-log=gone/log"],
            format!("--access-log {gone}"),
        ),
        (
            &[],
            &["serve", "-c", "b.toml"],
            "b.toml:1: listen: unix:taken: the path exists and is not a socket".to_owned(),
        ),
        (
            &[],
            &["serve", "--listen=unix:taken"],
            "--listen unix:taken: the path exists".to_owned(),
        ),
        (
            &[],
            &["check", "-c", "d.toml"],
            "d.toml:2: memory_max: 16MiB is 16 MiB here, and 2 workers".to_owned(),
        ),
        (
            &[("ACKPACE_MEMORY_MAX", "16M")],
            &["limits", "--workers=2"],
            "ACKPACE_MEMORY_MAX: 16MiB is 16 MiB here, and 2 workers".to_owned(),
        ),
        (
            &[],
            &["serve", "--workers=2", "--memory-max=16M"],
            "--memory-max 16MiB is 16 MiB here, and 2 workers".to_owned(),
        ),
        (
            &[],
            &["serve", port, "-c", "c.toml"],
            "c.toml:1: admin: gone/admin: ".to_owned(),
        ),
    ] {
        let may_pass = begin.contains("gone");
        let told = run(if may_pass { 75 } else { 2 }, variables, arguments);
        assert!(told.starts_with(&format!("ackpace: {begin}")), "{told}");
    }
}

#[test]
fn a_refused_path_can_do_nothing_to_the_terminal() {
    let directory = directory("escapes");
    std::fs::write(directory.join("taken\u{1b}[2J"), "a file").unwrap();
    let text = "access_log = \"gone/\\u001b[2J\"\n";
    std::fs::write(directory.join("a.toml"), text).unwrap();
    let port = "--listen=127.0.0.1:0";
    for (variables, arguments, begin) in [
        (
            &[][..],
            &["check", "--access-log=gone/\u{1b}[2J"][..],
            "--access-log gone/\\u{1b}[2J: ",
        ),
        (
            &[("ACKPACE_ACCESS_LOG", "gone/\u{1b}[2J")],
            &["check"],
            "ACKPACE_ACCESS_LOG: gone/\\u{1b}[2J: ",
        ),
        (
            &[],
            &["check", "-c", "a.toml"],
            "a.toml:1: access_log: gone/\\u{1b}[2J: ",
        ),
        (
            &[],
            &["serve", "--listen=unix:gone/\u{1b}[2J"],
            "--listen unix:gone/\\u{1b}[2J: No such file",
        ),
        (
            &[],
            &["serve", "--listen=unix:taken\u{1b}[2J"],
            "--listen unix:taken\\u{1b}[2J: the path exists and is not a socket",
        ),
        (
            &[],
            &["serve", "-l=unix:a\u{1b}[2J", "-l=unix:a\u{1b}[2J"],
            "listen (command line): unix:a\\u{1b}[2J is there twice",
        ),
        (
            &[],
            &["serve", port, "--admin=gone/\u{1b}[2J"],
            "--admin gone/\\u{1b}[2J: ",
        ),
        (
            &[],
            &["serve", "gone\u{1b}[2J/"],
            "DIR|FILE|URL: gone\\u{1b}[2J/: ",
        ),
    ] {
        let run = Run(&directory, variables);
        let (code, stdout, stderr) = run.run(arguments);
        let may_pass = begin.contains("gone");
        let expected = if may_pass { 75 } else { 2 };
        assert_eq!(code, expected, "{arguments:?}: {stderr}");
        assert!(says_only_paths(arguments, &stdout), "{stdout}");
        assert!(stderr.starts_with(&format!("ackpace: {begin}")), "{stderr}");
        assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'));
    }
    let (code, _, stderr) = ackpace("escapes_top", &["top", "--once", "--admin=gone/\u{1b}[2J"]);
    assert_ne!(code, 0);
    assert!(stderr.contains("gone/\\u{1b}[2J: "), "{stderr:?}");
}

#[test]
fn a_root_that_is_given_as_an_option_is_told_where_it_belongs() {
    for arguments in [
        &["serve", "--root", "/srv/a"][..],
        &["--root", "/srv/a"],
        &["check", "--root=/srv/a\u{1b}", "-l", "8080"],
    ] {
        let (code, stdout, stderr) = ackpace("root_option", arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        let begin = "ackpace: --root: there is no such option: the directory or file stands by itself, as in `ackpace serve DIR` ";
        assert!(stderr.starts_with(begin), "{stderr}");
    }
}
