//! Files that are written, truncated, replaced and removed while they are read past the page cache: the bytes are
//! right, or the response ends early.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use ackpace_tests::{
    Rng, Server, Tree, allocate, cached_bytes, forget_cached, has_direct, limit_receive_buffer,
    pattern, rested, skip,
};

const LEN: usize = 8 << 20;
const BLOCK: usize = 4096;

/// A directory with `big` in it; `None` where reads can't bypass the page cache.
fn tree() -> Option<(Tree, Vec<u8>)> {
    let tree = Tree::new();
    let content = pattern(LEN, 8);
    tree.file("big", &content);
    tree.file("small", "small");
    if !has_direct(&tree.at("big")) {
        skip("the directory for temporary files is not on a disk with O_DIRECT");
        return None;
    }
    Some((tree, content))
}

fn writer(tree: &Tree) -> File {
    let file = File::options().write(true).open(tree.at("big"));
    file.expect("the file")
}

type Change = fn(&Tree) -> io::Result<()>;

#[test]
fn whatever_happens_to_a_file_its_bytes_are_right_or_it_ends_early() {
    let changes: [(&str, Change, bool); 6] = [
        (
            "cut short",
            |tree| writer(tree).set_len(LEN as u64 - 1),
            false,
        ),
        (
            "emptied",
            |tree| File::create(tree.at("big")).map(drop),
            false,
        ),
        (
            "changed in place",
            |tree| writer(tree).write_all_at(b"changed", LEN as u64 / 2),
            false,
        ),
        (
            "appended to",
            |tree| writer(tree).write_all_at(b"and more", LEN as u64),
            true,
        ),
        (
            "replaced",
            |tree| fs::rename(tree.file("new", "the new one"), tree.at("big")),
            true,
        ),
        ("removed", |tree| fs::remove_file(tree.at("big")), true),
    ];
    for (what, change, whole) in changes {
        let Some((tree, content)) = tree() else {
            return;
        };
        let server = Server::start(&tree, "");
        let file = File::open(tree.at("big")).expect("the file");
        forget_cached(&file);
        let mut conn = server.stalled("/big", "");
        assert!(
            conn.exactly(BLOCK) == content[..BLOCK],
            "{what}: other bytes"
        );
        let cached = cached_bytes(&file);
        assert!(
            cached < LEN / 8,
            "{what}: {cached} bytes are in the page cache"
        );
        change(&tree).unwrap_or_else(|error| panic!("{what}: {error}"));
        if whole {
            assert!(
                conn.exactly(LEN - BLOCK) == content[BLOCK..],
                "{what}: other bytes"
            );
            assert_eq!(conn.get("/small", "").text(), "small");
        } else {
            let body = conn.rest_or_reset();
            assert!(
                body.len() < LEN - BLOCK,
                "{what}: all came as if nothing had happened"
            );
            assert!(
                body == content[BLOCK..BLOCK + body.len()],
                "{what}: other bytes"
            );
            server.err_line(&["WARN", "/big", "file_changed"]);
        }
    }
}

/// Writes another version as rsync --inplace -t does: with the time of the one before.
fn rewrite_in_place(tree: &Tree, len: usize) -> io::Result<()> {
    let file = writer(tree);
    let before = file.metadata()?.modified()?;
    file.write_all_at(&pattern(len, 9), 0)?;
    file.set_modified(before)
}

#[test]
fn an_answer_with_a_strong_tag_is_of_one_version_or_ends_early() {
    let changes: [(&str, Change, bool); 9] = [
        (
            "cp over it",
            |tree| fs::write(tree.at("big"), pattern(LEN + 4096, 9)),
            false,
        ),
        (
            "rewritten, time put back",
            |tree| rewrite_in_place(tree, LEN),
            false,
        ),
        (
            "a part of it, time put back",
            |tree| rewrite_in_place(tree, LEN / 2),
            false,
        ),
        (
            "appended to",
            |tree| writer(tree).write_all_at(b"and more", LEN as u64),
            false,
        ),
        (
            "cut and filled again",
            |tree| {
                writer(tree).set_len(0)?;
                rewrite_in_place(tree, LEN)
            },
            false,
        ),
        (
            "moved away",
            |tree| fs::rename(tree.at("big"), tree.at("other")),
            true,
        ),
        (
            "replaced",
            |tree| fs::rename(tree.file("new", "the new one"), tree.at("big")),
            true,
        ),
        ("removed", |tree| fs::remove_file(tree.at("big")), true),
        (
            "linked",
            |tree| fs::hard_link(tree.at("big"), tree.at("other")),
            true,
        ),
    ];
    for cached in [true, false] {
        let trees: Vec<_> = changes.iter().filter_map(|_| tree()).collect();
        let Some((last, _)) = trees.last() else {
            return;
        };
        rested(&last.at("big"));
        for ((what, change, whole), (tree, content)) in changes.into_iter().zip(trees) {
            let server = Server::start(&tree, "");
            let file = File::open(tree.at("big")).expect("the file");
            if !cached {
                forget_cached(&file);
            }
            let mut conn = server.connect();
            limit_receive_buffer(&conn.stream, 64 << 10);
            conn.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
            let head = conn.head();
            let tag = head.field("ETag").expect("a tag");
            assert!(tag.starts_with('"'), "{tag} is strong");
            conn.exactly(BLOCK);
            change(&tree).unwrap_or_else(|error| panic!("{what}: {error}"));
            if whole {
                assert!(conn.exactly(LEN - BLOCK) == content[BLOCK..], "{what}");
                assert_eq!(conn.get("/small", "").text(), "small", "{what}");
            } else {
                let rest = conn.rest_or_reset().len();
                assert!(rest < LEN - BLOCK, "{what}, cached: {cached}: all came");
            }
        }
    }
}

/// Writes every second block of `big`; the others are allocated and unwritten, or holes.
fn half_written(tree: &Tree, content: &[u8]) -> Vec<u8> {
    let file = File::create(tree.at("big")).expect("the file");
    allocate(&file, LEN as u64 / 2);
    file.set_len(LEN as u64).expect("a hole behind that");
    let mut half = vec![0; LEN];
    for at in (0..LEN).step_by(2 * BLOCK) {
        let block = &content[at..at + BLOCK];
        file.write_all_at(block, at as u64).expect("a block");
        half[at..at + BLOCK].copy_from_slice(block);
    }
    half
}

#[test]
fn what_was_written_and_is_not_on_the_disk_yet_is_read_as_it_was_written() {
    let Some((tree, content)) = tree() else {
        return;
    };
    let half = half_written(&tree, &content);
    let server = Server::start(&tree, "");
    assert!(server.get("/big", "").body == half, "other bytes");
    let cached = cached_bytes(&File::open(tree.at("big")).expect("the file"));
    assert!(
        cached < LEN * 3 / 4,
        "{cached} bytes were read through the page cache"
    );
}

/// Checks a truncated `big`: it has every block that was there from the start, and each other block is as written or
/// empty.
fn check(body: &[u8], content: &[u8], seed: u64) {
    for (nth, (got, written)) in body.chunks(BLOCK).zip(content.chunks(BLOCK)).enumerate() {
        let mut bytes = got.iter().zip(written);
        let right = match nth % 2 {
            0 => bytes.all(|(got, written)| got == written),
            _ => bytes.all(|(got, written)| got == written || *got == 0),
        };
        assert!(right, "seed {seed}: other bytes in block {nth}");
    }
}

#[test]
fn holes_that_are_filled_under_way_bring_no_wrong_byte() {
    const SEED: u64 = 33;
    println!("seed {SEED}");
    let Some((tree, content)) = tree() else {
        return;
    };
    half_written(&tree, &content);
    let server = Server::start(&tree, "--workers 2");
    let (content, server, file) = (&content, &server, writer(&tree));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                let mut rng = Rng::new(SEED + client);
                while !done.load(Ordering::Relaxed) {
                    let from = rng.below(LEN / BLOCK) / 2 * 2 * BLOCK;
                    let mut conn = server.connect();
                    conn.send(format!("GET /big HTTP/1.1\r\nHost: t\r\nConnection: close\r\nRange: bytes={from}-\r\n\r\n"));
                    assert_eq!(conn.head().status, 206);
                    check(&conn.rest_or_reset(), &content[from..], SEED + client);
                }
            });
        }
        let mut blocks: Vec<usize> = (1..LEN / BLOCK).step_by(2).collect();
        let mut rng = Rng::new(SEED);
        while !blocks.is_empty() {
            let at = blocks.swap_remove(rng.below(blocks.len())) * BLOCK;
            let block = &content[at..at + BLOCK];
            file.write_all_at(block, at as u64).expect("a block");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(
        server.get("/big", "").body == *content,
        "other bytes at last"
    );
}

#[test]
fn a_file_that_is_being_appended_to_is_sent_as_far_as_it_went() {
    let Some((tree, content)) = tree() else {
        return;
    };
    File::create(tree.at("big")).expect("the file, emptied");
    let server = Server::start(&tree, "");
    let mut file = File::options()
        .append(true)
        .open(tree.at("big"))
        .expect("the file");
    let mut wholes = 0;
    for piece in content.chunks(LEN / 64 + 100) {
        let mut conn = server.connect();
        conn.send("GET /big HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        file.write_all(piece).expect("more");
        let head = conn.head();
        let promised: usize = head
            .field("Content-Length")
            .and_then(|len| len.parse().ok())
            .expect("a length");
        let body = conn.rest_or_reset();
        assert!(body == content[..body.len()], "other bytes");
        assert!(body.len() <= promised);
        wholes += usize::from(body.len() == promised);
        if wholes % 2 == 0 {
            forget_cached(&file);
        }
    }
    assert!(wholes > 30, "only {wholes} were whole");
}
