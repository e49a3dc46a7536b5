//! A target that ends, hangs, is elsewhere, or wants to know who asks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::kills::under_load;
use crate::tgtd::Tgtd;
use crate::world::{World, check, pattern, read_anew, target, until, write_synced};

#[test]
fn a_target_that_restarts_under_load_is_waited_for() {
    let Some(mut tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let gateway = world.start(&["--format"]);
    under_load(&world, |goes_on| {
        for _ in 0..3 {
            tgtd.kill();
            tgtd.restart();
            goes_on();
        }
    });
    assert!(
        gateway.log().contains("no session with"),
        "{}",
        gateway.log()
    );
    gateway.stop();
    check(&tgtd);
}

#[test]
fn a_target_that_stays_away_costs_an_error_and_no_more() {
    let Some(mut tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let gateway = world.start(&["--format", "--patience", "2"]);
    let path = world.mount().join("before");
    write_synced(&path, &pattern(1, 1 << 20)).expect("room");
    tgtd.kill();
    let written = write_synced(&world.mount().join("meanwhile"), &pattern(2, 1 << 20));
    assert!(written.is_err(), "{written:?}");
    // The answer may come before the line: another process writes that.
    until("it says so", || {
        let said = gateway.log();
        said.contains("away for longer than --patience (2 s)")
    });
    let said = gateway.log();
    assert_eq!(said.matches("away for longer").count(), 1, "once: {said}");
    gateway.stop();
    assert!(!world.is_mounted());
    tgtd.restart();
    let gateway = world.start(&[]);
    assert!(read_anew(&path) == pattern(1, 1 << 20));
    gateway.stop();
    check(&tgtd);
}

#[test]
fn a_target_that_is_not_there_is_told_with_its_address() {
    let Some(mut tgtd) = target() else { return };
    let world = World::new(&tgtd);
    tgtd.kill();
    let said = world.refused(&["--patience", "1"]);
    assert!(
        said.contains("no session with iscsi://127.0.0.1:") && said.contains("refused"),
        "{said}"
    );
    assert!(said.contains("within 1 s"), "{said}");
}

#[test]
fn a_unit_that_may_not_be_written_is_mounted_only_to_read() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    world.start(&["--format"]).stop();
    tgtd.make_read_only();
    let said = world.refused(&[]);
    assert!(
        said.contains("write-protected: start with --read-only"),
        "{said}"
    );
    let gateway = world.start(&["--read-only"]);
    assert!(fs::read_dir(world.mount()).is_ok());
    gateway.stop();
}

const SECRET: &str = "a secret of 21 bytes.";
const TARGETS_SECRET: &str = "another of 20 bytes.";

fn with_accounts(tgtd: &Tgtd) {
    tgtd.account("web", SECRET);
    tgtd.bind_account("web", false);
    tgtd.account("san", TARGETS_SECRET);
    tgtd.bind_account("san", true);
}

#[test]
fn both_sides_prove_who_they_are_where_that_is_wanted() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    with_accounts(&tgtd);
    let file = |name: &str, secret: &str| {
        let path = world.path(name);
        fs::write(&path, format!("{secret}\n")).expect("our own folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our own file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (own, wrong, short) = (
        file("own", SECRET),
        file("wrong", TARGETS_SECRET),
        file("short", "x"),
    );
    let theirs = file("theirs", TARGETS_SECRET);
    let said = world.refused(&["--patience", "1"]);
    assert!(said.contains("no session with"), "{said}");
    let words = [
        "--patience",
        "1",
        "--chap-user",
        "web",
        "--chap-secret-file",
    ];
    let said = world.refused(&[&words[..], &[&wrong]].concat());
    assert!(said.contains("no session with"), "{said}");
    let said = world.refused(&[&words[..], &[&short]].concat());
    assert!(said.contains("less than 12 bytes"), "{said}");
    let mutual = ["--target-user", "san", "--target-secret-file", &theirs];
    let gateway = world.start(&[&words[2..], &[&own], &mutual[..], &["--format"]].concat());
    gateway.kill_answerer();
    let path = world.mount().join("file");
    write_synced(&path, &pattern(3, 1 << 20)).expect("room");
    until("it can be read", || read_anew(&path) == pattern(3, 1 << 20));
    gateway.stop();
    check(&tgtd);
}

#[test]
fn digests_are_used_where_they_are_wanted() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    tgtd.set("HeaderDigest", "CRC32C");
    tgtd.set("DataDigest", "CRC32C");
    let gateway = world.start(&["--format", "--header-digest", "--data-digest"]);
    let path = world.mount().join("file");
    write_synced(&path, &pattern(4, 3 << 20)).expect("room");
    assert!(read_anew(&path) == pattern(4, 3 << 20));
    gateway.stop();
    check(&tgtd);
}
