//! A gateway in front of a bucket: moto's server, which checks no signatures, but refuses requests without any.

use std::net::SocketAddr;

use ackpace_tests::nfs::NfsClient;
use ackpace_tests::{Conn, Program, Server, Setup, Tree, command, moto, pattern};

const BUCKET: &str = "some-bucket";
const SECRET: &str = "this-is-the-secret";
/// What moto believes.
const AUTHORIZED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=a\r\n";

/// An object store.
struct Store {
    _program: Program,
    address: SocketAddr,
}

impl Store {
    /// Starts one with an empty bucket. `None`: it is not installed.
    fn start() -> Option<Store> {
        let mut program = command(moto()?);
        let program = Program::start(program.args(["-H", "127.0.0.1", "-p", "0"]));
        let line = program.err_line(&["Running on http://127.0.0.1:"]);
        let port = line.trim_end().rsplit_once(':')?.1.parse().expect("a port");
        let store = Store {
            _program: program,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        };
        store.put("", "", b"");
        Some(store)
    }

    /// Puts an object there, with further field lines that each end with CRLF. `key` is encoded; empty, it is the bucket.
    fn put(&self, key: &str, fields: &str, body: &[u8]) {
        let slash = if key.is_empty() { "" } else { "/" };
        self.ask("PUT", &format!("/{BUCKET}{slash}{key}"), fields, body);
    }

    fn ask(&self, method: &str, target: &str, fields: &str, body: &[u8]) {
        let mut conn = Conn::open(self.address);
        let len = body.len();
        conn.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {len}\r\n{AUTHORIZED}{fields}\r\n",
            self.address
        ));
        conn.send(body);
        let status = conn.head().status;
        assert!(matches!(status, 200 | 204), "{method} {target}: {status}");
    }

    /// A gateway to what lies below a prefix.
    fn gateway(&self, prefix: &str, args: &str) -> Server {
        self.setup(prefix, args)
            .env("AWS_ACCESS_KEY_ID", "an-id")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .start()
    }

    fn setup(&self, prefix: &str, args: &str) -> Setup {
        let endpoint = format!("http://{}", self.address);
        Setup::new(format!("s3://{BUCKET}{prefix}"))
            .args(&["--s3-endpoint", &endpoint])
            .args(args)
    }
}

#[test]
fn objects_of_a_bucket_are_served_by_their_keys() {
    let Some(store) = Store::start() else { return };
    let body = pattern(3_000_000, 11);
    store.put(
        "p/big.bin",
        "Content-Type: application/x-big\r\nCache-Control: max-age=60\r\n",
        &body,
    );
    let keys = [
        "a%20b",
        "a%2Bb",
        "a%25b",
        "%C3%A4",
        "d//e",
        "/lead",
        "q%3Fx%23y%26",
        "%41.%7F",
        "a%27b",
    ];
    for (nth, key) in keys.iter().enumerate() {
        store.put(&format!("p/{key}"), "", format!("object {nth}").as_bytes());
    }
    let server = store.gateway("/p", "");
    for _ in 0..2 {
        let response = server.get("/big.bin", "Authorization: Basic eDp5\r\nCookie: a=b\r\n");
        assert_eq!(response.status, 200);
        assert_eq!(response.field("Content-Type"), Some("application/x-big"));
        assert!(response.body == body);
    }
    let response = server.get("/big.bin?x=y", "Range: bytes=1000000-1999999\r\n");
    assert_eq!(response.status, 206);
    assert!(response.body == body[1_000_000..2_000_000]);
    assert_eq!(response.field("Cache-Status"), Some("ackpace; hit"));
    for (nth, key) in keys.iter().enumerate() {
        let response = server.get(&format!("/{key}"), "");
        assert_eq!(
            (response.status, response.text()),
            (200, format!("object {nth}")),
            "{key}"
        );
    }
    for target in [
        "/none",
        "/p/big.bin",
        "/d/e",
        "/lead",
        "/a+b+",
        "/x/..%2fbig.bin",
    ] {
        let response = server.get(target, "");
        assert_eq!(response.status, 404, "{target}");
        assert!(
            !response.text().contains("Key"),
            "the store's own answer: {}",
            response.text()
        );
    }
    let told = format!("{}{}", server.out(), server.err());
    assert!(
        !told.contains("Signature") && !told.contains(SECRET),
        "{told}"
    );
}

#[test]
fn an_object_that_changes_is_the_new_one_and_one_that_goes_is_gone() {
    let Some(store) = Store::start() else { return };
    let ask_each_time = "Cache-Control: no-cache\r\n";
    let (old, new) = (pattern(300_000, 1), pattern(310_000, 2));
    store.put("x", ask_each_time, &old);
    let server = store.gateway("", "");
    assert!(server.get("/x", "").body == old);
    let again = server.get("/x", "");
    assert_eq!(
        again.field("Cache-Status"),
        Some("ackpace; fwd=stale; fwd-status=304")
    );
    assert!(again.body == old);
    store.put("x", ask_each_time, &new);
    let changed = server.get("/x", "");
    let (status, len) = (changed.status, changed.body.len());
    assert!(
        changed.body == new,
        "{status}, {len} bytes, {:?}",
        changed.field("Cache-Status")
    );
    store.ask("DELETE", &format!("/{BUCKET}/x"), "", b"");
    assert_eq!(server.get("/x", "").status, 404);
}

#[test]
fn folders_are_listed_page_by_page() {
    let Some(store) = Store::start() else { return };
    for n in 0..1_500 {
        store.put(&format!("many/{n:04}%20%26.txt"), "", b"x");
    }
    store.put("many/sub/x", "", b"x");
    store.put("many//x", "", b"empty name");
    store.put("many/", "", b"");
    let server = store.gateway("", "");
    let page = server.get("/many/", "");
    assert_eq!(
        (page.status, page.field("Content-Type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let text = page.text();
    assert_eq!(text.matches("%20%26.txt\"").count(), 1_500);
    assert!(
        text.contains("href=\"sub/\"")
            && text.contains("href=\".//\"")
            && text.contains("1502 entries")
    );
    let json = server.get("/many/?json", "");
    assert_eq!(
        json.text().matches("\"type\":\"file\", \"mtime\":").count(),
        1_500
    );
    assert!(
        json.text().contains("\"name\":\"1499 &.txt\"") && json.text().trim_end().ends_with(']')
    );
    assert_eq!(server.get("/many//x", "").text(), "empty name");
    assert!(server.get("/many//", "").text().contains("href=\"x\""));
    let mut conn = server.connect();
    let head = conn
        .send("HEAD /many/ HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        .head();
    assert_eq!(head.status, 200);
    conn.ends();
    assert_eq!(server.get("/none/", "").status, 404);
    let root = server.get("/", "");
    assert!(
        root.status == 200 && root.text().contains("href=\"many/\""),
        "{}",
        root.text()
    );
}

#[test]
fn an_index_file_stands_for_its_folder() {
    let Some(store) = Store::start() else { return };
    store.put("d/start.html", "", b"start");
    store.put("e/x", "", b"x");
    let server = store.gateway("", "--index none.html --index start.html --listing=false");
    for _ in 0..2 {
        assert_eq!(server.get("/d/", "").text(), "start");
    }
    assert_eq!(server.get("/e/", "").status, 403);
}

#[test]
fn credentials_come_from_a_file_and_without_any_nothing_is_signed() {
    let Some(store) = Store::start() else { return };
    store.put("x", "", b"private");
    store.put("y", "x-amz-acl: public-read\r\n", b"public");
    let tree = Tree::new();
    let file = tree.file(
        "keys",
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n",
    );
    let server = store.setup("", "");
    let server = server
        .args(&["--s3-credentials-file", file.to_str().expect("a name")])
        .args("--metrics 127.0.0.1:0")
        .start();
    assert_eq!(server.get("/x", "").text(), "private");
    assert_eq!(server.get("/missing", "").status, 404);
    let answers = |how| server.sum("ackpace_gateway_answers_total", &[how]);
    let counts = ["how=\"passed\"", "how=\"failed\""].map(answers);
    assert_eq!(counts, [1.0, 0.0], "that it is missing is an answer");
    let anonymous = store.setup("", "").start();
    assert_eq!(
        anonymous.get("/x", "").status,
        404,
        "as S3 says 403 where it does not say that there is no key"
    );
    anonymous.err_line(&["403 (AccessDenied)", "clients get 404", "no credentials"]);
    assert_eq!(anonymous.get("/y", "").text(), "public");
    let half = store.setup("", "").env("AWS_ACCESS_KEY_ID", "a");
    half.assert_refused(&["AWS_SECRET_ACCESS_KEY"]);
    let none = Setup::new("s3://none")
        .args(&["--s3-endpoint", &format!("http://{}", store.address)])
        .start();
    assert_eq!(none.get("/x", "").status, 502);
    none.err_line(&["404 (NoSuchBucket)", "s3://none"]);
}

#[test]
fn a_bucket_is_mounted() {
    let Some(store) = Store::start() else { return };
    let body = pattern(700_000, 3);
    store.put("p/sub/a%20b+c", "", &body);
    store.put("p/top", "", b"top");
    store.put("p/index.html", "", b"no listing");
    for n in 0..1_100 {
        store.put(&format!("p/many/{n:04}"), "", b"x");
    }
    let server = store.gateway("/p", "--nfs 127.0.0.1:0 --listing=false");
    let line = server.out_line(&["NFS at "]);
    let rest = line.trim_start_matches("NFS at ");
    let address = rest.split(' ').next().expect("an address");
    let mut client = NfsClient::open(address.parse().expect("an address"));
    let root = client.mount("/").expect("an export");
    assert_eq!(client.look_up(&root, "none"), Err(2));
    let file = client.find("sub/a b+c");
    let mut got = Vec::new();
    while got.len() < body.len() {
        let (bytes, _) = client.read(&file, got.len() as u64, 65_536).expect("bytes");
        got.extend(bytes);
    }
    assert!(got == body);
    for (path, names) in [("", 2 + 4), ("many", 2 + 1_100)] {
        let folder = if path.is_empty() {
            root.clone()
        } else {
            client.find(path)
        };
        assert_eq!(client.names(&folder, true, 8192).len(), names, "{path}");
    }
}
