//! Every error of a configuration file as a whole text, and what no text can do.

use super::*;
use crate::limits::LIST_LEN_MAX;
use proptest::prelude::*;

fn errors(text: &str) -> String {
    let errors = parse_config(text, Path::new("a.toml")).unwrap_err();
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn every_key_is_read_with_its_line() {
    let text = "\
root = \"/srv\"
listen = [\":80\", \"unix:/run/a.sock\"]
listing = false

workers = 0x4
memory_max = 1_073_741_824
rate_min = 0
[types]
md = \"text/markdown\"
\"tar.gz\" = \"application/gzip\"
";
    let layer = parse_config(text, Path::new("a.toml")).unwrap();
    let lines: Vec<String> = layer
        .iter()
        .map(|(key, given)| format!("{key} {:?} {}", given.values, given.origin))
        .collect();
    let expected = [
        "listen [\":80\", \"unix:/run/a.sock\"] a.toml:2",
        "listing [\"false\"] a.toml:3",
        "memory_max [\"1073741824\"] a.toml:6",
        "rate_min [\"0\"] a.toml:7",
        "root [\"/srv\"] a.toml:1",
        "types [\"md=text/markdown\", \"tar.gz=application/gzip\"] a.toml:8",
        "workers [\"4\"] a.toml:5",
    ];
    assert_eq!(lines, expected);
    assert_eq!(parse_config("", Path::new("a.toml")), Ok(Layer::new()));
}

#[test]
fn an_unknown_key_gets_the_nearest_or_where_all_are() {
    assert_eq!(
        errors("\nacess_log = \"off\"\n"),
        "a.toml:2:1: unknown key acess_log: did you mean access_log?"
    );
    assert_eq!(
        errors("  send-timeout = \"1s\""),
        "a.toml:1:3: unknown key send-timeout: did you mean send_timeout?"
    );
    assert_eq!(
        errors("port = 80"),
        "a.toml:1:1: unknown key port: write listen = [\"8080\"]"
    );
    assert_eq!(
        errors("[tls]\ncert = 1"),
        "a.toml:1:2: unknown key tls: no key is like it; `ackpace config` prints all of them, docs/configuration.md explains them"
    );
}

#[test]
fn a_value_out_of_range_gets_the_range() {
    assert_eq!(
        errors("workers = 65\nrate_min = -1\nheader_timeout = \"11min\"\nmemory_max = \"95%\""),
        "a.toml:1:11: workers: 65 is out of range: 1 to 64, or \"auto\"\n\
         a.toml:2:12: rate_min: -1 is not a whole number: 0 to 1000000\n\
         a.toml:3:18: header_timeout: 11min is out of range: 100ms to 10min\n\
         a.toml:4:14: memory_max: 95% is out of range: 16MiB or more, or 1% to 90%"
    );
    assert_eq!(
        errors("follow_symlinks = \"inner\"\nprecompressed = [\".zst\", \"gz\"]"),
        "a.toml:1:19: follow_symlinks: inner is not one of inside, all, none\n\
         a.toml:2:26: precompressed: gz is not one of .zst, .br, .gz"
    );
    assert_eq!(
        errors("types = { md = \"markdown\", \"a/b\" = \"text/plain\" }"),
        "a.toml:1:16: types: markdown is not a media type, such as text/markdown; charset=utf-8\n\
         a.toml:1:36: types: a/b is not an extension, such as md or tar.gz"
    );
    assert_eq!(
        errors("compare = \"prefetch=papr\"\nsend_memory = \"auto\""),
        "a.toml:1:11: compare: prefetch: papr is not one of paper, tdap, rate, fixed\n\
         a.toml:2:15: send_memory: auto is not a size: write bytes with B, KiB, MiB, GiB or TiB, or a percentage, such as 256MiB \
         or 25%, or kernel"
    );
    assert_eq!(
        errors("hide = [\"é\", \"\"]"),
        "a.toml:1:14: hide: \"\" matches no name: write a pattern for one name of a path, such as *.tmp"
    );
}

#[test]
fn a_wrong_type_gets_the_right_one_and_an_example() {
    for (line, expected) in [
        (
            "root = 1",
            "8: root: must be a string, not a whole number; write root = \".\"",
        ),
        (
            "listing = \"true\"",
            "11: listing: must be true or false, not a string; write listing = true",
        ),
        (
            "rate_min = \"100\"",
            "12: rate_min: must be a whole number, not a string; write rate_min = 100",
        ),
        (
            "workers = true",
            "11: workers: must be a string or a whole number, not true or false; write workers = \"auto\"",
        ),
        (
            "listen = \"8080\"",
            "10: listen: must be a list of strings, not a string; write listen = [\"8080\"]",
        ),
        (
            "listen = [8080]",
            "11: listen: must be a list of strings, not a whole number; write listen = [\"8080\"]",
        ),
        (
            "allow_roots = 2020-01-01",
            "15: allow_roots: must be a list of strings, not a date; write allow_roots = [\"/srv/other\"]",
        ),
        (
            "types = []",
            "9: types: must be a table of strings, not a list; write types = { \"md\" = \"text/markdown\" }",
        ),
        (
            "types.tar.gz = \"a/b\"",
            "7: types: must be a table of strings, not a table; write types = { \"md\" = \"text/markdown\" }",
        ),
        (
            "idle_timeout = 30",
            "16: idle_timeout: must be a string, not a whole number; write idle_timeout = \"30s\"",
        ),
        (
            "unix_mode = 0o660",
            "13: unix_mode: must be a string, not a whole number; write unix_mode = \"660\"",
        ),
        (
            "unix_mode = 0o7777",
            "13: unix_mode: must be a string, not a whole number; write unix_mode = \"umask\"",
        ),
        (
            "access_log = false",
            "14: access_log: must be a string, not true or false; write access_log = \"off\"",
        ),
        (
            "allow_roots = \"/srv/b\"",
            "15: allow_roots: must be a list of strings, not a string; write allow_roots = [\"/srv/b\"]",
        ),
        (
            "types = \"md=a/b\"",
            "9: types: must be a table of strings, not a string; write types = { \"md\" = \"a/b\" }",
        ),
    ] {
        assert_eq!(errors(line), format!("a.toml:1:{expected}"), "{line}");
    }
}

#[test]
fn an_error_of_syntax_has_line_and_column() {
    for (text, begin) in [
        ("workers = ", "1:11: not TOML: "),
        ("root = /srv", "1:8: not TOML: "),
        ("idle_timeout = 75s", "1:16: not TOML: "),
        ("workers = 1\nworkers = 2", "2:1: not TOML: duplicate key"),
        ("\n[types\na = 1", "2:7: not TOML: unclosed table"),
        ("root: \"x\"", "1:7: not TOML: "),
    ] {
        let errors = errors(text);
        assert!(errors.starts_with(&format!("a.toml:{begin}")), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn columns_count_characters() {
    assert_eq!(
        errors("hide = [\"äöü\", 1]"),
        "a.toml:1:16: hide: must be a list of strings, not a whole number; write hide = [\"1\"]"
    );
}

#[test]
fn bytes_that_are_no_text_are_named() {
    let errors = parse_bytes(b"root = \".\"\nhide = [\"\xff\"]", Path::new("a.toml")).unwrap_err();
    let expected = "a.toml:2:10: not UTF-8, so not TOML; save the file as UTF-8";
    assert_eq!(errors[0].to_string(), expected);
    assert_eq!(errors.len(), 1);
}

#[test]
fn bounds_hold_at_and_above() {
    let list = |len| format!("hide = [{}]", "\"x\",".repeat(len));
    assert!(parse_config(&list(LIST_LEN_MAX), Path::new("a.toml")).is_ok());
    let long = "a.toml:1:8: hide: 257 values are too many: 256 at most";
    assert_eq!(errors(&list(LIST_LEN_MAX + 1)), long);
    let file = |len: u64| format!("#{}", "x".repeat(len as usize - 1));
    assert!(parse_config(&file(CONFIG_BYTES_MAX), Path::new("a.toml")).is_ok());
    let long = "a.toml:1:1: longer than 1048576 bytes, so it is no configuration file";
    assert_eq!(errors(&file(CONFIG_BYTES_MAX + 1)), long);
    let many: String = (0..100).map(|n| format!("x{n} = 1\n")).collect();
    assert_eq!(errors(&many).lines().count(), CONFIG_ERRORS_MAX);
}

#[test]
fn deep_and_endless_texts_end_in_an_error() {
    let most = CONFIG_BYTES_MAX as usize;
    for text in [
        format!("{}=1", "a.".repeat(most / 2 - 2)),
        "[".repeat(most),
        format!("x = {}", "[".repeat(most - 4)),
        format!("x = {}", "{a=".repeat(most / 3 - 4)),
        "=\n".repeat(most / 2),
        "[[a]]\n".repeat(most / 6),
        format!("x = \"{}", "\\".repeat(most - 5)),
    ] {
        let errors = parse_config(&text, Path::new("a.toml")).unwrap_err();
        assert!((1..=CONFIG_ERRORS_MAX).contains(&errors.len()));
        assert!(errors.iter().all(|error| error.message.len() < 1000));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused_at_a_place_in_it(text in "(([a-z_]{1,12}|workers|hide|types) ?= ?[\\[\\]{}\"'a-z0-9=., ]*\n?|\\PC){0,8}") {
        if let Err(errors) = parse_config(&text, Path::new("a.toml")) {
            prop_assert!((1..=CONFIG_ERRORS_MAX).contains(&errors.len()));
            let lines: Vec<&str> = text.split('\n').collect();
            for error in errors {
                let line = lines.get(error.line - 1);
                let columns = line.map_or(0, |line| line.chars().count());
                prop_assert!((1..=columns + 1).contains(&error.column), "{error}");
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
