//! The initiator against tgtd, the target of the distribution, over loopback.

mod disk;
mod kept;
mod tgtd;

use ackpace_wire::iscsi::scsi::{Capacity, Inquiry, luns};
use ackpace_wire::iscsi::{Chap, Command, Failure, LoginError, Moved, Mutual, Outcome, Settings};

use disk::{Disk, Task, log_in, settings};
use tgtd::{BLOCK_BYTES, LUN, Tgtd};

const MIB: usize = 1 << 20;

fn pattern(seed: usize) -> Vec<u8> {
    (0..MIB)
        .map(|at| (at / 251 + at * 7 + seed) as u8)
        .collect()
}

/// A read, or a write, of 1 MiB in pieces of so many bytes, all under way at once.
fn pieces(lba: u64, piece_bytes: usize, data: Option<&[u8]>) -> Vec<Task> {
    let blocks = (piece_bytes / BLOCK_BYTES as usize) as u32;
    let piece = |at: usize| {
        let lba = lba + (at / BLOCK_BYTES as usize) as u64;
        let block_bytes = BLOCK_BYTES;
        match data {
            None => Task {
                command: Command::Read {
                    lba,
                    blocks,
                    block_bytes,
                },
                memory: vec![0; piece_bytes],
            },
            Some(data) => Task {
                command: Command::Write {
                    lba,
                    blocks,
                    block_bytes,
                },
                memory: data[at..at + piece_bytes].to_vec(),
            },
        }
    };
    (0..MIB).step_by(piece_bytes).map(piece).collect()
}

/// Writes 1 MiB, makes it last, reads it again.
fn write_sync_read(disk: &mut Disk, seed: usize) {
    let data = pattern(seed);
    for piece_bytes in [MIB, 64 << 10, 8 << 10] {
        let lba = (seed % 7 * MIB / BLOCK_BYTES as usize) as u64;
        let done = disk
            .run(pieces(lba, piece_bytes, Some(&data)))
            .expect("writes");
        assert!(
            done.iter()
                .all(|(outcome, _)| *outcome == Outcome::Good { len_bytes: 0 }),
            "{done:?}"
        );
        disk.one(Command::Synchronize { lba: 0, blocks: 0 });
        let done = disk.run(pieces(lba, piece_bytes, None)).expect("reads");
        let read: Vec<u8> = done.into_iter().flat_map(|(_, memory)| memory).collect();
        assert!(read == data, "other bytes, in pieces of {piece_bytes}");
    }
}

#[test]
fn a_disk_is_found_written_and_read() {
    let Some(tgtd) = Tgtd::start() else { return };
    let mut disk = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
    disk.one(Command::TestUnitReady);
    let inquiry = Inquiry::parse(&disk.one(Command::Inquiry { page: None }));
    assert!(
        inquiry.is_some_and(|inquiry| inquiry.is_disk && inquiry.name.contains("VIRTUAL-DISK"))
    );
    let capacity = Capacity::parse(&disk.one(Command::ReadCapacity)).expect("a capacity");
    assert_eq!(
        (capacity.len_bytes(), capacity.block_bytes),
        (tgtd::DISK_BYTES, BLOCK_BYTES)
    );
    assert_eq!(luns(&disk.one(Command::ReportLuns)), [0, LUN]);
    write_sync_read(&mut disk, 1);
    disk.ping();
    disk.log_out();
}

#[test]
fn digests_are_agreed_on_and_right_on_both_sides() {
    let Some(tgtd) = Tgtd::start() else { return };
    for (header_digests, data_digests) in [(false, true), (true, false), (true, true)] {
        // tgtd offers what it is told to.
        let word = |digests| if digests { "CRC32C" } else { "None" };
        tgtd.set("HeaderDigest", word(header_digests));
        tgtd.set("DataDigest", word(data_digests));
        let settings = Settings {
            header_digests,
            data_digests,
            ..settings(&tgtd)
        };
        let mut disk = Disk::connect(&tgtd, &settings, LUN).expect("a login");
        let agreed = *disk.agreed();
        assert_eq!(
            (agreed.header_digests, agreed.data_digests),
            (header_digests, data_digests)
        );
        write_sync_read(&mut disk, 2);
        assert_eq!(disk.crcs > 0, data_digests);
        disk.log_out();
    }
}

#[test]
fn every_way_to_send_a_write_is_understood() {
    let Some(tgtd) = Tgtd::start() else { return };
    for (initial_r2t, immediate) in [("Yes", "Yes"), ("Yes", "No"), ("No", "Yes"), ("No", "No")] {
        tgtd.set("InitialR2T", initial_r2t);
        tgtd.set("ImmediateData", immediate);
        tgtd.set("FirstBurstLength", "65536");
        tgtd.set("MaxOutstandingR2T", "2");
        let mut disk = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
        let agreed = *disk.agreed();
        assert_eq!(agreed.initial_r2t, initial_r2t == "Yes");
        assert_eq!(agreed.immediate_data, immediate == "Yes");
        write_sync_read(&mut disk, 3);
        disk.log_out();
    }
}

#[test]
fn chap_lets_in_who_has_the_secret() {
    let Some(tgtd) = Tgtd::start() else { return };
    tgtd.account("me", "my secret is long");
    tgtd.bind_account("me", false);
    tgtd.account("it", "its secret is long");
    tgtd.bind_account("it", true);
    let with = |secret: &str, its_secret: Option<&str>| {
        let chap = Chap {
            name: "me".to_owned(),
            secret: secret.as_bytes().to_vec(),
            mutual: its_secret.map(|its_secret| Mutual {
                name: "it".to_owned(),
                secret: its_secret.as_bytes().to_vec(),
                challenge: *b"sixteen bytes ok",
                id: 7,
            }),
        };
        let chap = Some(chap);
        log_in(
            &tgtd,
            &Settings {
                chap,
                ..settings(&tgtd)
            },
        )
        .map(|_| ())
    };
    assert_eq!(with("my secret is long", None), Ok(()));
    assert_eq!(
        with("my secret is long", Some("its secret is long")),
        Ok(())
    );
    let refused = with("another secret", None).expect_err("another secret");
    assert!(
        matches!(
            refused,
            LoginError::Refused {
                class: 2,
                detail: 1
            }
        ),
        "{refused}"
    );
    let refused = with("my secret is long", Some("a third secret")).expect_err("an impostor");
    assert!(matches!(refused, LoginError::Chap(_)), "{refused}");
    let refused = log_in(&tgtd, &settings(&tgtd))
        .map(|_| ())
        .expect_err("no credentials");
    assert!(
        matches!(
            refused,
            LoginError::Refused { class: 2, .. } | LoginError::WantsChap
        ),
        "{refused}"
    );
}

#[test]
fn other_names_and_addresses_are_told_apart() {
    let Some(tgtd) = Tgtd::start() else { return };
    let target = "iqn.2026-01.org.example:other".to_owned();
    let refused = log_in(
        &tgtd,
        &Settings {
            target,
            ..settings(&tgtd)
        },
    )
    .map(|_| ());
    assert_eq!(
        refused,
        Err(LoginError::Refused {
            class: 2,
            detail: 3
        })
    );
    tgtd.set("RedirectAddress", "10.0.0.2");
    tgtd.set("RedirectPort", "3261");
    tgtd.set("RedirectReason", "Temporary");
    let moved = Moved {
        host: "10.0.0.2".to_owned(),
        port: 3261,
        is_permanent: false,
    };
    assert_eq!(
        log_in(&tgtd, &settings(&tgtd)).map(|_| ()),
        Err(LoginError::Moved(moved))
    );
}

#[test]
fn troubles_have_their_names() {
    let Some(tgtd) = Tgtd::start() else { return };
    let mut disk = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
    let end = tgtd::DISK_BYTES / u64::from(BLOCK_BYTES);
    let beyond = pieces(end, MIB, None).remove(0);
    let (outcome, _) = disk.run(vec![beyond]).expect("an answer").remove(0);
    assert!(
        matches!(outcome, Outcome::Failed(Failure::Sense(sense)) if sense.is_out_of_range()),
        "{outcome:?}"
    );
    tgtd.make_read_only();
    let write = pieces(0, MIB, Some(&pattern(4))).remove(0);
    let (outcome, _) = disk.run(vec![write]).expect("an answer").remove(0);
    assert!(
        matches!(outcome, Outcome::Failed(Failure::Sense(sense)) if sense.is_write_protected()),
        "{outcome:?}"
    );
    let mut nowhere = Disk::connect(&tgtd, &settings(&tgtd), 77).expect("a login");
    let read = pieces(0, MIB, None).remove(0);
    let (outcome, _) = nowhere.run(vec![read]).expect("an answer").remove(0);
    assert!(
        matches!(outcome, Outcome::Failed(Failure::Sense(sense)) if sense.is_no_unit()),
        "{outcome:?}"
    );
}

#[test]
fn what_was_unanswered_is_repeated_after_the_target_was_killed() {
    let Some(mut tgtd) = Tgtd::start() else {
        return;
    };
    let data = pattern(5);
    for kill_after in [0, 3, 40] {
        let disk = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
        let mut writes = pieces(0, 8 << 10, Some(&data));
        if kill_after == 0 {
            writes.truncate(16);
            tgtd.stop();
        }
        let all = writes.len();
        let (done, left) = disk.run_until(writes, kill_after, || tgtd.kill());
        assert_eq!(done + left.len(), all);
        assert!(kill_after > 0 || done == 0, "it was stopped");
        tgtd.restart();
        let mut disk = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
        let repeated = disk.run(left).expect("writes");
        assert!(
            repeated
                .iter()
                .all(|(outcome, _)| *outcome == Outcome::Good { len_bytes: 0 })
        );
        let read = disk.run(pieces(0, MIB, None)).expect("reads").remove(0).1;
        let len = all * (8 << 10);
        assert!(read[..len] == data[..len], "other bytes");
        disk.log_out();
    }
}

#[test]
fn a_second_login_ends_the_first_session() {
    let Some(tgtd) = Tgtd::start() else { return };
    let mut first = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
    let mut second = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
    assert!(
        first.run(pieces(0, MIB, None)).is_err(),
        "{} has two sessions of one name",
        tgtd.target()
    );
    write_sync_read(&mut second, 6);
}

#[test]
fn an_aborted_task_ends_and_its_neighbours_go_on() {
    let Some(tgtd) = Tgtd::start() else { return };
    let mut disk = Disk::connect(&tgtd, &settings(&tgtd), LUN).expect("a login");
    let done = disk
        .run_aborting(pieces(0, 64 << 10, None), 3)
        .expect("answers");
    for (n, (outcome, _)) in done.iter().enumerate() {
        let is_good = matches!(outcome, Outcome::Good { .. });
        assert!(
            is_good || (n == 3 && *outcome == Outcome::Aborted),
            "{n}: {outcome:?}"
        );
    }
    write_sync_read(&mut disk, 7);
}
