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

#[test]
fn a_vip_that_no_device_has_is_told_at_the_start() {
    let words = "handoff --vip 127.0.0.1,203.0.113.9 --port 80 --node a --for 0:0";
    let output = run(&words.split(' ').collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let cure = "203.0.113.9 is on no device of this node: ip addr add VIP/32 dev lo";
    assert!(said.contains(cure), "{said}");
}
