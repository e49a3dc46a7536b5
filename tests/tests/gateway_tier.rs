//! The disk tier of a gateway: what it keeps over a restart, and what harms it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ackpace_tests::{
    Conn, Rng, Server, Setup, Tree, done, eventually, mounts_apart, needs_root, pattern,
};

const MIB: usize = 1 << 20;
/// More than fits in the memory of the gateways here.
const LEN: usize = 24 * MIB + 5000;
const WINDOWS: usize = 25;
/// A file: a page about it, and a window.
const FILE_LEN: u64 = 4096 + MIB as u64;
/// What comes with the answer about an object.
const FIRST_LEN: u64 = 128 << 10;

/// An origin with one object, which counts the bytes of bodies that it was asked for.
struct Origin {
    address: SocketAddr,
    content: Arc<Vec<u8>>,
    sent_bytes: Arc<AtomicU64>,
}

impl Origin {
    fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let origin = Origin {
            address: listener.local_addr().expect("its address"),
            content: Arc::new(pattern(LEN, 51)),
            sent_bytes: Arc::default(),
        };
        let (content, sent_bytes) = (Arc::clone(&origin.content), Arc::clone(&origin.sent_bytes));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (content, sent_bytes) = (Arc::clone(&content), Arc::clone(&sent_bytes));
                thread::spawn(move || answer_all(&stream, &content, &sent_bytes));
            }
        });
        origin
    }

    /// The bytes that it sent since this was last asked.
    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.swap(0, Ordering::Relaxed)
    }

    fn url(&self) -> PathBuf {
        format!("http://{}", self.address).into()
    }
}

/// Answers requests for parts until the gateway closes.
fn answer_all(stream: &TcpStream, content: &[u8], sent_bytes: &AtomicU64) -> Option<()> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let range = head
            .iter()
            .find_map(|line| line.strip_prefix("Range: bytes="))?;
        let (first, last) = range.split_once('-')?;
        let first: usize = first.parse().ok()?;
        let last = last.parse::<usize>().ok()?.min(content.len() - 1);
        let head = format!(
            "HTTP/1.1 206 \r\nETag: \"1\"\r\nCache-Control: max-age=3600\r\nContent-Length: {}\r\n\
             Content-Range: bytes {first}-{last}/{}\r\n\r\n",
            last + 1 - first,
            content.len()
        );
        sent_bytes.fetch_add((last + 1 - first) as u64, Ordering::Relaxed);
        let mut stream = stream;
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&content[first..=last]).ok()?;
    }
}

/// A gateway to an origin, with this cache folder.
struct Gateway {
    server: Server,
    address: SocketAddr,
}

fn setup(origin: &Origin, cache: &Path) -> Setup {
    let setup = Setup::new(origin.url()).args("--cache-memory 16MiB");
    setup.args(&["--cache-dir", cache.to_str().expect("a plain path")])
}

fn start(setup: Setup) -> Gateway {
    let server = setup.spawn();
    server.out_line(&["keeps", "on disk"]);
    let out = server.out();
    let address = out.split(" at http://").nth(1).and_then(|rest| {
        let end = rest.find(' ')?;
        rest[..end].parse().ok()
    });
    let address = address.unwrap_or_else(|| panic!("no address in {out:?}"));
    Gateway { server, address }
}

impl Gateway {
    fn get(&self, origin: &Origin) {
        let response = Conn::open(self.address).get("/a", "");
        assert_eq!(response.status, 200);
        assert!(response.body == *origin.content, "other bytes");
    }

    /// Two clients make it popular, so that it is kept. A window that leaves memory before a slow disk has it is kept when it is
    /// fetched again.
    fn fill(&self, origin: &Origin, cache: &Path) {
        self.get(origin);
        eventually("all windows are files", || {
            self.get(origin);
            files(cache).len() == WINDOWS
        });
    }

    fn kill(mut self) {
        self.server.signal(libc::SIGKILL);
        self.server.wait();
    }
}

/// The files that hold windows.
fn files(cache: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(cache).into_iter().flatten().flatten();
    let folders = folders.filter(|it| it.path().is_dir());
    let files = folders.flat_map(|it| fs::read_dir(it.path()).into_iter().flatten().flatten());
    files.map(|it| it.path()).collect()
}

fn len_of(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |meta| meta.len())
}

#[test]
fn a_popular_object_is_read_from_disk_after_a_restart() {
    let (origin, tree) = (Origin::start(), Tree::new());
    let cache = tree.at("cache");
    let gateway = start(setup(&origin, &cache));
    gateway.fill(&origin, &cache);
    origin.sent_bytes(); // so far
    gateway.get(&origin);
    assert_eq!(
        origin.sent_bytes(),
        0,
        "the memory has not all of it, the disk has"
    );
    gateway.kill();
    let gateway = start(setup(&origin, &cache));
    gateway.server.err_line(&["25 files", "are kept there"]);
    gateway.get(&origin);
    gateway.get(&origin);
    let sent_bytes = origin.sent_bytes();
    assert!(
        sent_bytes <= FIRST_LEN,
        "{sent_bytes} and not the first ones"
    );
}

#[test]
fn a_kill_in_the_middle_of_writing_leaves_whole_files_only() {
    let (origin, tree, mut rng) = (Origin::start(), Tree::new(), Rng::new(9));
    let cache = tree.at("cache");
    for _ in 0..6 {
        let gateway = start(setup(&origin, &cache));
        let address = gateway.address;
        let clients: Vec<_> = (0..3)
            .map(|_| {
                thread::spawn(move || {
                    // The server may be gone by now.
                    if let Ok(mut conn) = Conn::try_open(address) {
                        conn.send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n");
                        let _ = conn.rest_or_reset();
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(rng.below(150) as u64)); // any moment will do
        gateway.kill();
        for client in clients {
            client.join().expect("it does not panic");
        }
        for file in files(&cache) {
            assert!([FILE_LEN, 4096 + 5000].contains(&len_of(&file)), "{file:?}");
        }
        let others = fs::read_dir(&cache).expect("the folder").flatten();
        let others = others
            .filter(|it| it.path().is_file())
            .map(|it| it.file_name());
        assert_eq!(others.collect::<Vec<_>>(), ["lock"]);
    }
    let gateway = start(setup(&origin, &cache));
    gateway.fill(&origin, &cache);
    assert!(!gateway.server.err().contains("damaged"));
}

#[test]
fn damaged_files_are_fetched_anew() {
    let (origin, tree) = (Origin::start(), Tree::new());
    let cache = tree.at("cache");
    let gateway = start(setup(&origin, &cache));
    gateway.fill(&origin, &cache);
    gateway.kill();
    let mut damaged_bytes = 0;
    for (nth, file) in files(&cache).iter().enumerate() {
        let open = fs::File::options().write(true).open(file).expect("ours");
        match nth % 5 {
            0 => open
                .write_all_at(b"??", 4096 + nth as u64 * 100)
                .expect("written"),
            1 => open.write_all_at(b"??", nth as u64 * 10).expect("written"),
            2 => open.set_len(len_of(file) / 2).expect("cut"),
            3 => open.set_len(0).expect("emptied"),
            _ => continue,
        }
        damaged_bytes += MIB as u64;
    }
    let gateway = start(setup(&origin, &cache));
    gateway.server.err_line(&["25 files", "are kept there"]);
    origin.sent_bytes();
    gateway.get(&origin);
    gateway.server.err_line(&["WARN", "damaged", "removed"]);
    let sent_bytes = origin.sent_bytes();
    // One reader's reads are long: what follows a damaged window in the same read comes from the origin, too.
    assert!(sent_bytes >= damaged_bytes - 2 * MIB as u64, "{sent_bytes}");
    gateway.fill(&origin, &cache);
    gateway.get(&origin);
}

#[test]
fn a_full_disk_holds_what_it_can_and_serving_goes_on() {
    if !needs_root("mounting a small tmpfs") {
        return;
    }
    let (origin, tree) = (Origin::start(), Tree::new());
    let cache = tree.at("cache");
    fs::create_dir(&cache).expect("a folder");
    let dir = std::ffi::CString::new(cache.to_str().expect("a plain path")).expect("no NUL");
    let small = setup(&origin, &cache).args("--cache-size 1GiB");
    let gateway = start(small.before(move || {
        mounts_apart()?;
        let (tmpfs, size) = (c"tmpfs".as_ptr(), c"size=6m,mode=700".as_ptr());
        // SAFETY: all pointers lead to C strings that live.
        done(unsafe { libc::mount(tmpfs, dir.as_ptr(), tmpfs, 0, size.cast()) })
    }));
    for _ in 0..3 {
        gateway.get(&origin);
    }
    let line = gateway.server.err_line(&["WARN", "the disk is full"]);
    assert!(line.contains("give cache_size less"), "{line}");
    let lines = gateway.server.err();
    assert!(
        lines.lines().count() <= 4,
        "said once, not all the time:\n{lines}"
    );
}

#[test]
fn a_folder_that_is_not_ours_alone_is_refused_in_one_line() {
    let (origin, tree) = (Origin::start(), Tree::new());
    let cache = tree.at("cache");
    let _first = start(setup(&origin, &cache));
    setup(&origin, &cache).assert_refused_now(&["--cache-dir", "another instance", "of its own"]);
    let open = tree.at("open");
    fs::create_dir(&open).expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&open, mode).expect("ours");
    setup(&origin, &open).assert_refused(&["--cache-dir", "by others", "chmod go-w"]);
    let sized = Setup::new(origin.url()).args("--cache-size 1GiB");
    sized.assert_refused(&["--cache-size", "no cache_dir"]);
}
