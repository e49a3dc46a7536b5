//! Disks that fail and hang, on an emulated disk that does so on command: only those who need its bytes end or wait.

use std::fs::{self, File};
use std::sync::{PoisonError, RwLock};

use ackpace_tests::{
    Conn, Disk, Mapped, Response, Setup, Tree, Watched, eventually, forget_cached,
    limit_receive_buffer, pattern, raise_own_limit, reset_on_drop, skip,
};

const MIB: usize = 1 << 20;
const LEN: usize = 8 * MIB;

/// A server with a healthy disk, and with one that can fail at `/disk`. It has one worker: if that waits for a disk, all
/// clients wait.
fn start(disk: &Disk, args: &str) -> Watched {
    Watched::start_with(LEN, Some(disk), &*format!("--workers 1 {args}"))
}

/// The sum of all samples of this name.
fn metric(bench: &Watched, name: &str) -> u64 {
    bench.sum(name, &[]) as u64
}

/// Checks that clients that need nothing from the failing disk are served, from memory or from the healthy disk.
fn serves_others(bench: &Watched) {
    assert_eq!(bench.get("/a", "").text(), "0123456789");
    let big = File::open(bench.tree.at("site/big")).expect("the file");
    forget_cached(&big);
    let got = bench.get("/big", "").body;
    assert!(got == pattern(LEN, 3), "other bytes");
}

/// What arrived of a response of this length before it ended.
fn ended(mut conn: Conn, len: usize) -> Vec<u8> {
    let head = conn.head();
    assert_eq!(head.field("Content-Length"), Some(len.to_string().as_str()));
    conn.rest_or_reset()
}

#[test]
fn a_bad_block_ends_its_response_where_it_lies_and_others_go_on() {
    let files = [("a", LEN as u64), ("b", LEN as u64)];
    let Some(disk) = Disk::up(&files) else { return };
    let contents = ["a", "b"].map(|name| disk.content(name));
    let bench = start(&disk, "");
    // In the middle of a block that is read ahead.
    const BAD: usize = 3 * MIB + 20_480;
    for way in ["past the page cache", "through it"] {
        disk.tell(&format!("eio-file a {BAD} 4096"));
        let before = metric(&bench, "ackpace_disk_direct_reads_total");
        let readers = if way == "through it" { 2 } else { 1 };
        let mut conns = Vec::new();
        for _ in 0..readers {
            let mut conn = bench.connect();
            limit_receive_buffer(&conn.stream, 64 << 10); // so that they meet
            conn.send("GET /disk/a HTTP/1.1\r\nHost: t\r\n\r\n");
            conns.push(conn);
        }
        let other = bench.begin("/disk/b", "");
        let bodies: Vec<_> = conns.into_iter().map(|conn| ended(conn, LEN)).collect();
        for body in bodies {
            assert_eq!(body.len(), BAD, "{way}");
            assert!(body == contents[0][..BAD], "{way}: other bytes");
        }
        assert!(ended_whole(other, &contents[1]), "{way}");
        let offset = format!("offset_bytes={BAD}");
        let line = bench.err_line(&["ERROR", "/disk/a", &offset]);
        assert!(line.contains("os error 5"), "{line}");
        let behind = format!("Range: bytes={}-\r\n", BAD + 4096);
        let rest = bench.get("/disk/a", &behind).body;
        assert!(
            rest == contents[0][BAD + 4096..],
            "{way}: other bytes behind it"
        );
        let direct = metric(&bench, "ackpace_disk_direct_reads_total") > before;
        assert!(direct || way == "through it");
        disk.tell("heal");
        assert!(
            bench.get("/disk/a", "").body == contents[0],
            "{way}: healed"
        );
        forget_cached(&File::open(disk.at("a")).expect("a file of the disk"));
    }
    serves_others(&bench);
}

fn ended_whole(mut conn: Conn, content: &[u8]) -> bool {
    let Response { status, body, .. } = conn.response();
    status == 200 && body == content
}

#[test]
fn a_disk_that_hangs_keeps_nobody_waiting_but_those_who_need_it() {
    const WAITERS: usize = 60;
    const POOL: u64 = 8 << 20;
    let names: Vec<String> = (0..WAITERS).map(|nth| format!("d/{nth}")).collect();
    let mut files: Vec<(&str, u64)> = names.iter().map(|name| (&**name, MIB as u64)).collect();
    files.extend([("hot", MIB as u64), ("shared", LEN as u64)]);
    let Some(disk) = Disk::up(&files) else { return };
    // The kernel has all names cached, and the content of one file only.
    let names_stay = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    let contents: Vec<_> = names.iter().map(|name| disk.content(name)).collect();
    let shared = disk.content("shared");
    let hot = fs::read(disk.at("hot")).expect("a disk without faults");
    let cached = Mapped::locked(&File::open(disk.at("hot")).expect("a file of the disk"));
    let bench = start(&disk, "--prefetch-memory 8MiB");
    for _ in 0..2 {
        let first = bench.get("/disk/shared", "Range: bytes=0-9\r\n");
        assert!(first.body == shared[..10], "other bytes");
    }
    forget_cached(&File::open(disk.at("shared")).expect("a file of the disk"));
    serves_others(&bench);
    let memory_bytes = bench.memory_bytes();

    disk.tell("hang");
    let mut waiting = vec![bench.begin("/disk/shared", "")];
    eventually("the read is in the device", || disk.counter("queued") > 0);
    // The pages that it is read into are in the page cache already, and hold nothing.
    waiting.push(bench.begin("/disk/shared", ""));
    serves_others(&bench);
    waiting.extend(
        names
            .iter()
            .map(|name| bench.begin(&format!("/disk/{name}"), "")),
    );
    let streams = || metric(&bench, "ackpace_disk_streams") as usize;
    eventually("all are known to the disk", || streams() == waiting.len());
    drop(names_stay);
    serves_others(&bench);
    assert!(
        bench.get("/disk/hot", "").body == hot,
        "what is cached is served"
    );
    drop(cached);
    assert!(metric(&bench, "ackpace_disk_in_flight_reads") <= 64);
    assert!(metric(&bench, "ackpace_prefetch_used_bytes") <= POOL);
    let grown_bytes = bench.memory_bytes().saturating_sub(memory_bytes);
    assert!(grown_bytes <= POOL + (8 << 20), "{grown_bytes} bytes");
    assert_eq!(Conn::open(bench.metrics()).get("/readyz", "").status, 200);
    let top = bench.ackpace("top --once");
    assert!(top.success && top.out.contains("/disk/shared"), "{top:?}");

    // Every second one leaves, half of them by RST.
    let mut stay = Vec::new();
    for (nth, conn) in waiting.into_iter().enumerate() {
        match nth % 4 {
            1 => reset_on_drop(&conn.stream),
            3 => {}
            _ => stay.push((nth, conn)),
        }
    }
    eventually("who left is forgotten", || {
        metric(&bench, "ackpace_open_connections") as usize == stay.len()
    });
    eventually("by the disk, too", || streams() == stay.len());
    disk.tell("heal");
    // All at once: a client that does not read keeps its part of the pool for a while.
    std::thread::scope(|scope| {
        for (nth, conn) in stay {
            let content = if nth < 2 { &shared } else { &contents[nth - 2] };
            scope.spawn(move || assert!(ended_whole(conn, content), "{nth}"));
        }
    });
    eventually("the pool is whole again", || {
        metric(&bench, "ackpace_prefetch_used_bytes") == 0
    });
}

#[test]
fn searches_on_a_disk_that_hangs_hold_up_no_search_elsewhere() {
    const WAITERS: usize = 40; // more than there are threads for look-ups
    let names: Vec<String> = (0..WAITERS).map(|nth| format!("d{nth}/a")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 4096)).collect();
    let Some(disk) = Disk::up(&files) else { return };
    let bench = start(&disk, "");
    serves_others(&bench);
    forget_names();
    disk.tell("hang");
    let waiting: Vec<Conn> = names
        .iter()
        .map(|name| bench.begin(&format!("/disk/{name}"), ""))
        .collect();
    eventually("searches wait", || disk.counter("queued") > 0);
    for _ in 0..3 {
        forget_names();
        serves_others(&bench);
        assert_eq!(bench.get("/none/such/file", "").status, 404);
    }
    disk.tell("heal");
    for (conn, name) in waiting.into_iter().zip(&names) {
        assert!(ended_whole(conn, &disk.content(name)), "{name}");
    }
}

/// Held while a test relies on names that the kernel has cached, by many; while a test drops all of them, by one.
static NAMES: RwLock<()> = RwLock::new(());

/// Drops the names that the kernel has cached (proc(5), drop_caches), those of all other tests, too.
fn forget_names() {
    let _alone = NAMES.write().unwrap_or_else(PoisonError::into_inner);
    fs::write("/proc/sys/vm/drop_caches", "2").expect("root's");
}

#[test]
fn a_stop_while_a_disk_hangs_says_what_it_waits_for_and_ends_with_that() {
    let files = [("a", LEN as u64), ("hot", MIB as u64)];
    let Some(disk) = Disk::up(&files) else { return };
    disk.content("a");
    let mut bench = start(&disk, "--drain-timeout 1s");
    disk.tell("hang");
    let waiting = bench.begin("/disk/a", "");
    eventually("the read is in the device", || disk.counter("queued") > 0);
    bench.signal(libc::SIGTERM);
    let line = bench.err_line(&["WARN", "has not answered"]);
    assert!(line.contains("reads"), "{line}");
    drop(waiting);
    disk.tell("heal");
    assert_eq!(bench.wait().code(), Some(0));
}

#[test]
fn a_second_signal_behind_a_disk_that_hangs_is_told_of_and_gives_its_exit_code() {
    let Some(disk) = Disk::up(&[("a", LEN as u64)]) else {
        return;
    };
    let mut bench = start(&disk, "--drain-timeout 1s");
    disk.tell("hang");
    let waiting = bench.begin("/disk/a", "");
    eventually("the read is in the device", || disk.counter("queued") > 0);
    bench.signal(libc::SIGTERM);
    bench.err_line(&["WARN", "the process is gone when"]);
    bench.signal(libc::SIGTERM);
    bench.err_line(&["ERROR", "the second: ended at once"]);
    drop(waiting);
    disk.tell("heal"); // the kernel does not end it before
    assert_eq!(bench.wait().code(), Some(1));
}

#[test]
fn five_thousand_resets_in_one_turn_cost_no_read() {
    // The server holds a socket and a file twice for each client; this process holds a socket.
    let may_have = raise_own_limit().saturating_sub(500) / 3;
    let count = may_have.min(5_000) as usize;
    let names: Vec<String> = (0..count).map(|nth| format!("d/{nth}")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 128 << 10)).collect();
    let Some(disk) = Disk::up(&files) else { return };
    let names_stay = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    for name in &names {
        fs::metadata(disk.at(name)).expect("a file of the disk"); // the kernel caches all names
    }
    let bench = start(&disk, "--prefetch-memory 64MiB");
    serves_others(&bench);
    disk.tell("hang");
    let waiting: Vec<Conn> = names
        .iter()
        .map(|name| bench.begin(&format!("/disk/{name}"), ""))
        .collect();
    eventually("all are known to the disk", || {
        metric(&bench, "ackpace_disk_streams") as usize == count
    });
    drop(names_stay);
    let submitted =
        metric(&bench, "ackpace_disk_reads_total") + metric(&bench, "ackpace_disk_in_flight_reads");
    bench.signal(libc::SIGSTOP);
    for conn in waiting {
        reset_on_drop(&conn.stream);
    }
    bench.signal(libc::SIGCONT);
    eventually("all are gone", || {
        metric(&bench, "ackpace_open_connections") == 0
    });
    eventually("for the disk, too", || {
        metric(&bench, "ackpace_disk_streams") == 0
    });
    disk.tell("heal");
    eventually("the device is idle", || {
        metric(&bench, "ackpace_disk_in_flight_reads") == 0
    });
    assert_eq!(
        metric(&bench, "ackpace_disk_reads_total"),
        submitted,
        "reads for the dead"
    );
    eventually("the pool is whole again", || {
        metric(&bench, "ackpace_prefetch_used_bytes") == 0
    });
    serves_others(&bench);
    bench.server.stop();
    if count < 5_000 {
        skip(&format!(
            "{count} were reset; 5,000 need 15,500 descriptors (ulimit -Hn)"
        ));
    }
}

#[test]
fn a_fuse_daemon_that_stops_holds_no_worker() {
    let Some(disk) = Disk::up(&[("a", 4096)]) else {
        return;
    };
    let tree = Tree::new();
    tree.file("near", "near");
    let far = tree.dir("far");
    let setup = Setup::new(tree.path()).args("--workers 1");
    let server = disk.daemon_served_at(&far, setup).start();
    let target = format!("/far/{}", Disk::DAEMONS_FILE);
    let part = "Range: bytes=0-99\r\n";
    for _ in 0..5 {
        let answered = server.get(&target, part);
        assert_eq!(answered.status, 206, "{}", answered.text());
        assert_eq!(server.get("/near", "").text(), "near");
    }
    let mut under_way = server.connect();
    limit_receive_buffer(&under_way.stream, 64 << 10);
    under_way.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    assert_eq!(under_way.head().status, 200);
    disk.stop_daemon(true);
    let mut waits = server.connect();
    // Elsewhere than before: what was in memory a second ago is believed to be there, and a send of it may wait.
    let cold = "Range: bytes=700000000-700000099\r\n";
    waits.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{cold}\r\n"));
    under_way.exactly(64 << 10); // so that more is sent
    for _ in 0..20 {
        assert_eq!(server.get("/near", "").text(), "near");
    }
    disk.stop_daemon(false);
    assert_eq!(waits.response().status, 206);
}
