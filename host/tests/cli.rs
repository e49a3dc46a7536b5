//! What the command line answers without any right or kernel feature.

use std::process::{Command, Output};

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ackpace-host"))
        .args(words)
        .output()
        .expect("the binary of this package")
}

#[test]
fn what_is_mistyped_is_refused_with_exit_code_2() {
    for words in [
        &["tune", "--bugdet", "1MiB"][..],
        &["tun"],
        &["tune", "--budget", "much"],
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
}
