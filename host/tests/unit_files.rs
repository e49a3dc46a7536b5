//! The unit files of systemd start commands that there are, with the rights that those use and no others.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const BINARY: &str = env!("CARGO_BIN_EXE_ackpace-host");
const INSTALLED: &str = "/usr/local/bin/ackpace-host";

/// Each file, with the exit codes after which a restart does not help, and the rights that its program uses.
const UNITS: [(&str, &str, &str); 4] = [
    ("ackpace-host-tune.service", "2", RIGHTS),
    ("ackpace-host-guard.service", "1 2", RIGHTS),
    (
        "ackpace-host-handoff.service",
        "2",
        "CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE CAP_CHOWN",
    ),
    (
        GATEWAY,
        "2",
        "CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_IPC_LOCK CAP_SETUID CAP_SETGID CAP_CHOWN CAP_DAC_READ_SEARCH CAP_KILL",
    ),
];
const GATEWAY: &str = "ackpace-host-gateway.service";
/// What gives a unit a mount namespace, so that nobody else would see what it mounts (systemd.exec(5)).
const NAMESPACED: [&str; 14] = [
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "PrivateMounts",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectProc",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "InaccessiblePaths",
    "TemporaryFileSystem",
];
/// Those of programs that ask the kernel alone.
const RIGHTS: &str = "CAP_BPF CAP_PERFMON";

fn text(unit: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(unit);
    fs::read_to_string(path).expect("it is in the tree")
}

/// The values of a setting.
fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .collect()
}

#[test]
fn their_commands_are_understood() {
    for (unit, ..) in UNITS {
        let text = text(unit);
        let commands = ["ExecStart", "ExecStopPost"].map(|name| values(&text, name));
        assert_eq!(commands[0].len(), 1, "{unit}");
        for command in commands.concat() {
            let words = command.strip_prefix(INSTALLED).expect("that path");
            // An option that is not there is refused before help is given.
            let output = Command::new(BINARY)
                .args(words.split_whitespace())
                .arg("--help")
                .output()
                .expect("the binary of this package");
            assert!(output.status.success(), "{unit}: {command}: {output:?}");
        }
    }
}

#[test]
fn they_give_the_rights_that_are_used_and_what_all_can_do_without_is_taken() {
    for (unit, lasting, rights) in UNITS {
        let text = text(unit);
        assert_eq!(values(&text, "CapabilityBoundingSet"), [rights], "{unit}");
        let folders = values(&text, "RuntimeDirectory");
        assert!(folders[0].split(' ').any(|it| it == "ackpace-host"));
        // Each keeps its record there for the next start, and the others', too.
        let all = [
            "RuntimeDirectoryPreserve",
            "NoNewPrivileges",
            "MemoryDenyWriteExecute",
            "LockPersonality",
        ];
        for name in all {
            assert_eq!(values(&text, name), ["yes"], "{unit}: {name}");
        }
        if unit != GATEWAY {
            for name in ["ProtectHome", "PrivateTmp"] {
                assert_eq!(values(&text, name), ["yes"], "{unit}: {name}");
            }
            assert_eq!(values(&text, "ProtectSystem"), ["strict"], "{unit}");
        }
        assert_eq!(
            values(&text, "RestartPreventExitStatus"),
            [lasting],
            "{unit}"
        );
        let families = values(&text, "RestrictAddressFamilies");
        assert_eq!(families.len(), 1, "{unit}");
    }
    // They pin records, and programs, there.
    for (unit, ..) in [UNITS[0], UNITS[2]] {
        assert_eq!(values(&text(unit), "ReadWritePaths"), ["/sys/fs/bpf"]);
    }
    // A socket keeps the bounds of the unit that made it, and these are for the server.
    let handoff = text(UNITS[2].0);
    assert_eq!(values(&handoff, "IPAddressDeny"), [""; 0]);
    assert_eq!(values(&handoff, "Restart"), ["always"]);
}

#[test]
fn what_the_gateway_mounts_is_seen_and_its_memory_has_no_limit() {
    let text = text(GATEWAY);
    let limits = ["MemoryMax", "MemoryHigh", "Slice"];
    for name in NAMESPACED.iter().chain(&limits) {
        assert_eq!(values(&text, name), [""; 0], "{name}");
    }
    assert_eq!(values(&text, "Type"), ["notify"]);
    assert_eq!(values(&text, "Restart"), ["on-failure"]);
    // SIGTERM to all would end the process that answers before the rest is written.
    assert_eq!(values(&text, "KillMode"), ["mixed"]);
}

#[test]
fn systemd_finds_nothing_wrong_with_them() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: systemd_finds_nothing_wrong_with_them: systemd-analyze is not here");
        return;
    }
    let folder = env::temp_dir().join(format!("ackpace-units-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for temporary files");
    for (unit, ..) in UNITS {
        // It wants the command to be there.
        let path = folder.join(unit);
        fs::write(&path, text(unit).replace(INSTALLED, BINARY)).expect("our own folder");
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&path)
            .output()
            .expect("just now");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{unit}: {said}");
        assert!(!said.contains(unit), "{unit}: {said}");
    }
    fs::remove_dir_all(folder).expect("our own");
}
