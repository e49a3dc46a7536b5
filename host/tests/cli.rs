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

#[test]
fn a_gateway_without_a_disk_or_a_folder_is_refused() {
    const DISK: &str = "iscsi://192.0.2.9/iqn.2026-01.org.example:disk/1";
    for (words, why) in [
        (&["--mount", "/srv"][..], "--iscsi"),
        (&["--iscsi", DISK], "<--mount <DIR>|--no-mount>"),
        (
            &["--iscsi", "http://a/b/1", "--mount", "/srv"],
            "iscsi://HOST",
        ),
        (
            &["--iscsi", "iscsi://u@a/iqn.a/1", "--mount", "/srv"],
            "put the secret into a file",
        ),
        (&["--iscsi", DISK, "--no-mount", "--format"], "--format"),
        (
            &[
                "--iscsi",
                DISK,
                "--mount",
                "/srv",
                "--format",
                "--read-only",
            ],
            "--read-only",
        ),
        (
            &["--iscsi", DISK, "--mount", "/srv", "--chap-user", "web"],
            "--chap-secret-file",
        ),
        (
            &["--iscsi", DISK, "--mount", "/srv", "--patience", "0"],
            "--patience",
        ),
        (
            &["--iscsi", DISK, "--mount", "/srv", "--initiator", "me"],
            "write iqn.",
        ),
    ] {
        let output = run(&[&["gateway"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}
