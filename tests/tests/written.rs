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

/// A directory with `big` in it.
fn any_tree() -> (Tree, Vec<u8>) {
    let tree = Tree::new();
    let content = pattern(LEN, 8);
    tree.file("big", &content);
    tree.file("small", "small");
    (tree, content)
}

/// The same; `None` where reads can't bypass the page cache.
fn tree() -> Option<(Tree, Vec<u8>)> {
    let made = any_tree();
    let direct = has_direct(&made.0.at("big"));
    if !direct {
        skip("the directory for temporary files is not on a disk with O_DIRECT");
    }
    direct.then_some(made)
}

fn writer(tree: &Tree) -> File {
    let file = File::options().write(true).open(tree.at("big"));
    file.expect("the file")
}

/// Writes another version as rsync --inplace -t does: with the time of the one before.
fn rewrite_in_place(tree: &Tree, len: usize) -> io::Result<()> {
    let file = writer(tree);
    let before = file.metadata()?.modified()?;
    file.write_all_at(&pattern(len, 9), 0)?;
    file.set_modified(before)
}

/// Does this to `big`. Returns whether an answer under way is finished as it was promised.
fn change(tree: &Tree, what: &str) -> io::Result<bool> {
    let (big, half) = (tree.at("big"), LEN as u64 / 2);
    match what {
        "cut short" => writer(tree).set_len(LEN as u64 - 1)?,
        "emptied" => drop(File::create(big)?),
        "changed in place" => writer(tree).write_all_at(b"changed", half)?,
        "cp over it" => fs::write(big, pattern(LEN + 4096, 9))?,
        "rewritten, time put back" => rewrite_in_place(tree, LEN)?,
        "a part of it, time put back" => rewrite_in_place(tree, LEN / 2)?,
        "cut and filled again" => {
            writer(tree).set_len(0)?;
            rewrite_in_place(tree, LEN)?;
        }
        // A strong tag is of one version, and a weak one promises a prefix of what grows.
        "appended to" => writer(tree).write_all_at(b"and more", LEN as u64)?,
        "moved away" => fs::rename(big, tree.at("other"))?,
        "replaced" => fs::rename(tree.file("new", "the new one"), big)?,
        "removed" => fs::remove_file(big)?,
        "linked" => fs::hard_link(big, tree.at("other"))?,
        _ => panic!("{what}"),
    }
    Ok(matches!(
        what,
        "moved away" | "replaced" | "removed" | "linked"
    ))
}

const CHANGES: [&str; 12] = [
    "cut short",
    "emptied",
    "changed in place",
    "cp over it",
    "rewritten, time put back",
    "a part of it, time put back",
    "cut and filled again",
    "appended to",
    "moved away",
    "replaced",
    "removed",
    "linked",
];

#[test]
fn whatever_happens_to_a_file_its_bytes_are_right_or_it_ends_early() {
    let trees: Vec<_> = [true, false].map(|_| CHANGES.map(|_| any_tree())).into();
    let rests = trees.last().and_then(|trees| trees.last());
    rested(&rests.expect("a tree").0.at("big"));
    for (trees, cached) in trees.into_iter().zip([true, false]) {
        if !cached && !has_direct(&trees[0].0.at("big")) {
            return skip("the directory for temporary files is not on a disk with O_DIRECT");
        }
        for ((tree, content), what) in trees.into_iter().zip(CHANGES) {
            happens(&tree, &content, what, cached);
        }
    }
}

fn happens(tree: &Tree, content: &[u8], what: &str, cached: bool) {
    let told = format!("{what}, cached: {cached}");
    let server = Server::start(tree, "");
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
    assert!(
        conn.exactly(BLOCK) == content[..BLOCK],
        "{told}: other bytes"
    );
    let bytes = cached_bytes(&file);
    assert!(
        cached || bytes < LEN / 8,
        "{told}: {bytes} bytes are in the page cache"
    );
    let whole = change(tree, what).unwrap_or_else(|error| panic!("{told}: {error}"));
    if whole {
        let rest = conn.exactly(LEN - BLOCK);
        assert!(rest == content[BLOCK..], "{told}: other bytes");
    } else {
        let rest = conn.rest_or_reset();
        assert!(rest.len() < LEN - BLOCK, "{told}: all came");
        conn = server.connect();
        server.err_line(&["WARN", "/big", "file_changed"]);
    }
    assert_eq!(
        conn.get("/small", "").text(),
        "small",
        "others are served on"
    );
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
                    let fields = format!("Connection: close\r\nRange: bytes={from}-\r\n");
                    let mut conn = server.begin("/big", &fields);
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
        let mut conn = server.begin("/big", "Connection: close\r\n");
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
