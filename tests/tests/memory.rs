//! The memory bounds of `ackpace limits`, tested with hostile clients: each test fills what one kind of client can
//! fill, while it watches the server's anonymous memory.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ackpace_tests::{
    Conn, Server, Setup, Tree, allocate, command, connect_with, eventually, forget_cached,
    raise_own_limit, reset_on_drop, run, server_binary,
};

const MEMORY: &str = "128MiB";
const CLIENTS: usize = 250;

/// A server with little memory, and the bounds that it stated.
struct Bounded {
    server: Server,
    limit_bytes: u64,
    /// The bound of each owner.
    owners: Vec<(String, u64)>,
}

impl Bounded {
    fn start(tree: &Tree) -> Bounded {
        Bounded::with(tree, MEMORY)
    }

    fn with(tree: &Tree, memory: &str) -> Bounded {
        raise_own_limit();
        let options = format!(
            "--memory-max {memory} --workers 2 --access-log /dev/null --header-timeout 5min"
        );
        let mut limits = command(server_binary());
        limits
            .arg("limits")
            .args(options.split(' '))
            .arg(tree.path());
        let told = run(&mut limits);
        let rows = told.out.lines().filter_map(|line| {
            let (mib, owner) = line.trim().split_once(" MiB  ")?;
            let bytes = mib.parse::<f64>().ok()? * f64::from(1 << 20);
            Some((owner.to_owned(), bytes as u64))
        });
        let mut owners: Vec<(String, u64)> = rows.collect();
        let sum = owners
            .iter()
            .position(|(owner, _)| owner.starts_with("in all, at worst"));
        owners.truncate(sum.expect("the sum of all owners") + 1);
        let limit_bytes = owners.last().map_or(0, |(_, bytes)| *bytes);
        assert!(limit_bytes <= owners[0].1, "{}", told.out);
        let server = Setup::new(tree.path())
            .args(&*options)
            .args("--metrics 0")
            .start();
        Bounded {
            server,
            limit_bytes,
            owners,
        }
    }

    /// The sum of all samples of a metric.
    fn metric(&self, name: &str) -> u64 {
        self.server.sum(name, &[]) as u64
    }

    /// A client with the smallest receive window that TCP allows.
    fn deaf(&self) -> Conn {
        let stream = connect_with(self.server.address(), None, Some(1024), 0);
        stream.and_then(Conn::over).expect("a connection")
    }

    /// Bound of these owners together, each named by the first words of its row, plus those of the program itself and its disks.
    fn share_bytes(&self, names: &[&str]) -> u64 {
        let share = |name: &&str| {
            let owner = self
                .owners
                .iter()
                .find(|(owner, _)| owner.starts_with(name));
            owner
                .unwrap_or_else(|| panic!("no {name} in {:?}", self.owners))
                .1
        };
        names
            .iter()
            .chain(&["the program", "disks"])
            .map(share)
            .sum()
    }

    /// Watches the memory until `act` is over. It never exceeds the total that was promised, nor the shares of the
    /// owners concerned; and others are still served.
    fn keeps_its_promise<T>(self, concerned: &[&str], act: impl FnOnce(&Bounded) -> T) {
        let (over, most_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    most_bytes.fetch_max(self.server.memory_bytes(), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let held = act(&self);
                assert_eq!(self.server.get("/small", "").text(), "small");
                most_bytes.fetch_max(self.server.memory_bytes(), Ordering::Relaxed);
                drop(held);
            }));
            over.store(true, Ordering::Relaxed);
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
        let (most, limit) = (
            most_bytes.load(Ordering::Relaxed) >> 10,
            self.limit_bytes >> 10,
        );
        println!("{most} KiB of {limit} KiB in all");
        assert!(
            most <= limit,
            "{most} KiB are used, and `limits` promises {limit}"
        );
        // Read-ahead may use what the others leave.
        let lent = concerned
            .iter()
            .any(|name| name.starts_with("what is read ahead"));
        let share = if lent {
            limit
        } else {
            self.share_bytes(concerned) >> 10
        };
        assert!(
            most <= share,
            "{most} KiB are used, and {concerned:?} may have {share}"
        );
        self.server.stop();
    }
}

fn tree() -> Tree {
    let tree = Tree::new();
    tree.file("small", "small");
    tree
}

/// A request with a head of the maximum length.
fn longest(method: &str, target: &str) -> String {
    let target = format!("{target:a<7900}");
    let (long, agent) = ("r".repeat(2040), "u".repeat(1020));
    format!(
        "{method} {target} HTTP/1.1\r\nHost: t\r\nRange: {long}\r\nReferer: {long}\r\nUser-Agent: {agent}\r\n\r\n"
    )
}

#[test]
fn requests_that_wait_for_their_acknowledgement_in_the_log() {
    const EACH: usize = 80;
    Bounded::start(&tree()).keeps_its_promise(
        &[
            "connections",
            "requests for the access log",
            "queues of the logs",
        ],
        |bounded| {
            let request = longest("HEAD", "/");
            let mut clients: Vec<Conn> = (0..CLIENTS).map(|_| bounded.deaf()).collect();
            for client in &mut clients {
                for _ in 0..EACH {
                    client.send(&request);
                }
            }
            eventually("all requests are answered", || {
                bounded.metric("ackpace_requests_total") >= (CLIENTS * EACH) as u64
            });
            clients
        },
    );
}

#[test]
fn heads_that_do_not_end_and_connections_that_say_nothing() {
    Bounded::start(&tree()).keeps_its_promise(&["connections"], |bounded| {
        let head = longest("GET", "/");
        let half = head.trim_end();
        let mut clients: Vec<Conn> = (0..2 * CLIENTS).map(|_| bounded.deaf()).collect();
        for (nth, client) in clients.iter_mut().enumerate() {
            match nth % 3 {
                0 => drop(client.send(half)),
                1 => drop(client.send("GET /small HTTP/1.1\r\nHost: t\r\n\r\n")),
                _ => {}
            }
        }
        eventually("all that may be are accepted", || {
            bounded.metric("ackpace_connections") >= CLIENTS as u64
        });
        clients
    });
}

#[test]
fn slow_downloads_of_many_large_files_with_long_requests() {
    const FILES: usize = 40;
    let tree = tree();
    for nth in 0..FILES {
        let path = tree.file(format!("{nth}"), "");
        let file = File::options().write(true).open(path).expect("our file");
        allocate(&file, 8 << 20);
        forget_cached(&file);
    }
    Bounded::start(&tree).keeps_its_promise(
        &["connections", "what is read ahead", "mailboxes"],
        |bounded| {
            let mut clients: Vec<Conn> = (0..CLIENTS).map(|_| bounded.deaf()).collect();
            for (nth, client) in clients.iter_mut().enumerate() {
                let agent = "u".repeat(14_000);
                let target = nth % FILES;
                let ranges = match nth % 2 {
                    0 => "",
                    _ => {
                        "Range: bytes=1-90000,100000-190000,200000-290000,300000-390000,400000-\r\n"
                    }
                };
                client.send(format!(
                    "GET /{target} HTTP/1.1\r\nHost: t\r\n{ranges}User-Agent: {agent}\r\n\r\n"
                ));
            }
            eventually("all have a response", || {
                bounded.metric("ackpace_requests_total") >= CLIENTS as u64
            });
            for client in &mut clients {
                client.exactly(1000);
            }
            clients
        },
    );
}

/// Reads a whole response of this many bytes.
fn read_all(client: &mut Conn, len_bytes: usize) {
    let head = client.head();
    assert_eq!(head.status, 200);
    client.exactly(len_bytes);
}

#[test]
fn a_server_in_little_memory_serves_cold_files_and_crowds() {
    const FILES: usize = 20;
    /// Fewer connections than one worker may have: the kernel chooses the worker.
    const IDLE: usize = 100;
    const FILE_BYTES: usize = 8 << 20;
    let tree = tree();
    for nth in 0..FILES {
        let path = tree.file(format!("{nth}"), "");
        let file = File::options().write(true).open(path).expect("our file");
        allocate(&file, FILE_BYTES as u64);
        forget_cached(&file);
    }
    let act = |bounded: &Bounded| {
        let address = bounded.server.address();
        let idle = thread::scope(|scope| {
            for nth in 0..FILES {
                scope.spawn(move || {
                    let mut client = Conn::open(address);
                    client.send(format!("GET /{nth} HTTP/1.1\r\nHost: t\r\n\r\n"));
                    read_all(&mut client, FILE_BYTES);
                });
            }
            // While they read ahead, other owners want the memory.
            let idle: Vec<Conn> = (0..IDLE).map(|_| bounded.deaf()).collect();
            eventually("all are accepted", || {
                bounded.metric("ackpace_connections") >= IDLE as u64
            });
            idle
        });
        assert!(bounded.metric("ackpace_disk_direct_reads_total") >= FILES as u64);
        drop(idle);
    };
    let names = ["connections", "what is read ahead"];
    Bounded::with(&tree, "48MiB").keeps_its_promise(&names, act);
}

#[test]
fn listings_that_nobody_reads() {
    let tree = tree();
    let long = "n".repeat(100);
    tree.dir("many");
    for nth in 0..3000 {
        tree.file(format!("many/{long}{nth}"), "");
    }
    tree.dir("told");
    tree.file("told/README", "\"".repeat(64 << 10));
    Bounded::start(&tree).keeps_its_promise(&["connections", "names of listings"], |bounded| {
        let mut clients: Vec<Conn> = (0..CLIENTS * 9 / 5).map(|_| bounded.deaf()).collect();
        for (nth, client) in clients.iter_mut().enumerate() {
            let dir = if nth % 8 == 0 { "many" } else { "told" };
            client.send(format!(
                "GET /{dir}/ HTTP/1.1\r\nHost: t\r\nAccept: text/html\r\n\r\n"
            ));
        }
        let all = clients.len() as u64;
        eventually("all have an answer", || {
            bounded.metric("ackpace_requests_total") >= all
        });
        for client in &mut clients {
            client.exactly(100);
        }
        clients
    });
}

#[test]
fn many_files_each_asked_for_twice() {
    const FILES: usize = 3000;
    let tree = tree();
    for nth in 0..FILES {
        tree.file(format!("{nth}"), "x".repeat(4000));
    }
    Bounded::start(&tree).keeps_its_promise(&["small files", "what is known"], |bounded| {
        let mut clients: Vec<Conn> = (0..8).map(|_| bounded.server.connect()).collect();
        for nth in 0..2 * FILES {
            let client = &mut clients[nth % 8];
            let target = format!("/{}", nth / 2);
            assert_eq!(client.get(&target, "").body.len(), 4000);
        }
        clients
    });
}

#[test]
fn connections_that_come_and_go_with_long_requests() {
    Bounded::start(&tree()).keeps_its_promise(&["connections", "mailboxes"], |bounded| {
        let request = longest("GET", "/small?");
        for nth in 0..4000 {
            let conn = bounded.server.connect();
            let _ = (&conn.stream).write_all(request.as_bytes());
            if nth % 2 == 0 {
                reset_on_drop(&conn.stream);
            }
        }
    });
}
