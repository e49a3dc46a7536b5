//! Files on a mounted unit: every way to write, and the same bytes afterwards.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::tgtd::LUN;
use crate::world::{World, check, pattern, read_anew, target, until, write_direct, write_synced};

#[test]
fn files_are_there_again_after_a_stop_and_the_file_system_is_sound() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let gateway = world.start(&["--format"]);
    let at = |name: &str| world.mount().join(name);
    let big = pattern(1, 20 << 20);
    fs::write(at("buffered"), &big).expect("room");
    write_direct(&at("direct"), &big).expect("room");
    write_synced(&at("synced"), &big[..12_345]).expect("room");
    for nth in 0..500 {
        fs::write(at(&format!("small-{nth}")), pattern(nth, 300)).expect("room");
    }
    let cut = File::create(at("cut")).expect("room");
    cut.write_all_at(&big, 0).expect("room");
    cut.set_len(5001).expect("shorter");
    cut.set_len(50_000).expect("longer");
    drop(cut);
    fs::remove_file(at("small-7")).expect("it is there");
    gateway.stop();
    assert!(!world.is_mounted());
    check(&tgtd);

    let gateway = world.start(&[]);
    assert!(read_anew(&at("buffered")) == big && read_anew(&at("direct")) == big);
    assert_eq!(read_anew(&at("synced")), &big[..12_345]);
    for nth in (0..500).filter(|nth| *nth != 7) {
        assert_eq!(read_anew(&at(&format!("small-{nth}"))), pattern(nth, 300));
    }
    assert!(!at("small-7").exists());
    let mut expected = big[..5001].to_vec();
    expected.resize(50_000, 0);
    assert_eq!(read_anew(&at("cut")), expected);
    gateway.stop();

    // Nothing is written where nothing may be.
    let before = fs::read(tgtd.disk()).expect("the disk");
    let gateway = world.start(&["--read-only"]);
    assert!(fs::read(at("synced")).is_ok() && fs::write(at("new"), b"x").is_err());
    gateway.stop();
    assert!(fs::read(tgtd.disk()).expect("the disk") == before);
}

#[test]
fn a_unit_without_ext4_is_told_and_only_an_empty_one_is_formatted() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let said = world.refused(&[]);
    assert!(
        said.contains("there is no ext4 on the unit: start with --format"),
        "{said}"
    );
    let disk = File::options()
        .write(true)
        .open(tgtd.disk())
        .expect("the disk");
    disk.write_all_at(b"x", (1 << 20) - 1).expect("room");
    let said = world.refused(&["--format"]);
    assert!(said.contains("--format: the unit is not empty"), "{said}");
    disk.write_all_at(b"\0", (1 << 20) - 1).expect("room");
    world.start(&["--format"]).stop();
    let said = world.refused(&["--format"]);
    assert!(said.contains("--format: the unit is not empty"), "{said}");
    check(&tgtd);
}

#[test]
fn a_damaged_file_system_is_told_with_the_cure_which_works() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    world.start(&["--format"]).stop();
    let disk = File::options()
        .write(true)
        .open(tgtd.disk())
        .expect("the disk");
    // Blocks of a group, in the superblock.
    disk.write_all_at(&[0xff; 4], 1024 + 0x20).expect("room");
    let said = world.refused(&[]);
    assert!(
        said.contains("damaged") && said.contains("--no-mount"),
        "{said}"
    );
    let gateway = world.try_start(&["--no-mount"]);
    let mut device = String::new();
    until("there is a device", || {
        let log = gateway.log();
        let line = log
            .lines()
            .find_map(|line| line.strip_prefix("gateway: /dev/"));
        device = line.map_or(String::new(), |line| {
            format!("/dev/{}", line.split(' ').next().unwrap_or_default())
        });
        !device.is_empty()
    });
    let mended = Command::new("e2fsck").args(["-f", "-y", &device]).output();
    let code = mended.expect("e2fsck").status.code();
    assert!(code.is_some_and(|code| code < 4), "{code:?}");
    gateway.stop();
    world.start(&[]).stop();
    check(&tgtd);
}

#[test]
fn what_can_not_be_is_told_before_anything_is_done() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let gateway = world.start(&["--format"]);
    let said = world.refused(&[]);
    assert!(said.contains("has this --runtime already"), "{said}");
    assert!(said.contains("give --runtime and --socket"), "{said}");
    // Another name of the host, and another disk with the socket of this one.
    let [runtime, socket] = ["run2", "socket2"].map(|name| world.path(name));
    let said = world.refused_beside("localhost", LUN, &runtime, &socket);
    assert!(said.contains("has this unit mounted already"), "{said}");
    let said = world.refused_beside("127.0.0.1", LUN + 1, &runtime, &world.socket());
    assert!(said.contains("another instance listens there"), "{said}");
    assert!(world.socket().exists());
    until("it is still there", || world.is_mounted());
    gateway.stop();
    fs::remove_dir(world.mount()).expect("it is empty");
    let said = world.refused(&[]);
    assert!(said.contains("make the folder"), "{said}");
}

#[test]
fn a_unit_that_is_unmounted_by_hand_is_given_back() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let mut gateway = world.start(&["--format"]);
    let status = Command::new("umount").arg(world.mount()).status();
    assert!(status.is_ok_and(|status| status.success()));
    assert!(gateway.wait().success(), "{}", gateway.log());
    assert!(gateway.log().contains("was unmounted, so this ends"));
    check(&tgtd);
}
