//! nginx as the origin.

use std::fs;
use std::net::TcpListener;

use ackpace_tests::{Conn, Program, Server, Setup, Tree, client, eventually};

use crate::{asks, long, part, whole};

/// A running nginx.
struct Nginx {
    program: Program,
    url: String,
    tree: Tree,
}

impl Nginx {
    /// Serves the folder `root` of a new tree; `None`, and the test is reported as skipped, where it is not installed.
    fn start() -> Option<Nginx> {
        let mut nginx = client("nginx")?;
        let tree = Tree::new();
        tree.dir("root");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = port.expect("a free port");
        let at = tree.path().display();
        let lines = format!(
            "worker_processes 1; daemon off; pid {at}/pid; error_log {at}/errors; events {{}}
             http {{ access_log {at}/log; default_type application/octet-stream; keepalive_requests 20;
              client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;
              uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;
              types {{ text/html html; text/plain txt; }}
              server {{ listen {address}; root {at}/root; autoindex on; gzip on; gzip_types *;
               location /stale/ {{ alias {at}/root/; add_header Cache-Control max-age=0; }}
               location /whole/ {{ alias {at}/root/; max_ranges 0; }}
               location /slow/ {{ alias {at}/root/; limit_rate 8m; }}
               location /moved {{ return 302 /short.txt; }} }} }}"
        );
        let config = tree.file("nginx.conf", lines);
        let program = Program::start(nginx.arg("-c").arg(config).arg("-p").arg(tree.path()));
        eventually("nginx listens", || Conn::try_open(address).is_ok());
        Some(Nginx {
            program,
            url: format!("http://{address}"),
            tree,
        })
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        self.tree.file(format!("root/{name}"), bytes);
    }

    fn gateway(&self) -> Server {
        Setup::new(&self.url)
            .args("--cache-memory 64MiB --workers 2")
            .start()
    }

    /// Asks nginx itself.
    fn connect(&self) -> Conn {
        let address = self.url.trim_start_matches("http://").parse();
        Conn::open(address.expect("its address"))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it.
        self.program.signal(libc::SIGTERM);
        self.program.wait();
    }
}

#[test]
fn everything_that_nginx_has_comes_right() {
    let Some(nginx) = Nginx::start() else { return };
    let lens = [
        0,
        1,
        100,
        8191,
        65_536,
        65_537,
        1 << 20,
        (4 << 20) + 3,
        100_000_000,
    ];
    for len in lens {
        nginx.file(&len.to_string(), &long(len, len as u64));
    }
    nginx.file("short.txt", b"short");
    let server = nginx.gateway();
    let mut conn = server.connect();
    for base in ["/", "/stale/", "/whole/", "/slow/"] {
        for len in lens
            .into_iter()
            .filter(|len| base == "/" || *len < 5_000_000)
        {
            let (target, bytes) = (format!("{base}{len}"), long(len, len as u64));
            for _ in 0..2 {
                whole(&mut conn, &target, &bytes);
                if len > 100 && base != "/whole/" {
                    part(&mut conn, &target, &bytes, len / 3, len / 2);
                }
            }
            let get = format!("HEAD {target} HTTP/1.1\r\nHost: t\r\n\r\n");
            let (own, its) = (conn.send(&get).head(), nginx.connect().send(&get).head());
            for name in ["Content-Length", "ETag", "Last-Modified", "Content-Type"] {
                assert_eq!(own.field(name), its.field(name), "{name} of {target}");
            }
            let tag = own.field("ETag").expect("a tag");
            assert_eq!(conn.get(&target, &asks("If-None-Match", tag)).status, 304);
        }
    }
}

#[test]
fn listings_errors_and_redirects_of_nginx_pass() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("short.txt", b"short");
    for nth in 0..2000 {
        nginx.file(&format!("many/file-with-a-long-name-{nth}"), b"");
    }
    nginx.file("index/index.html", b"<p>");
    let server = nginx.gateway();
    for _ in 0..3 {
        for target in ["/", "/many/", "/index/", "/missing", "/moved"] {
            let (own, its) = (server.get(target, ""), nginx.connect().get(target, ""));
            assert_eq!(own.status, its.status, "{target}");
            assert!(own.body == its.body, "{target}");
        }
        assert_eq!(server.get("/index/", "").text(), "<p>");
        // A redirect leads back to the gateway, not past it.
        let host = format!("Host: {}\r\n", server.address());
        for (target, to) in [("/many", "/many/"), ("/moved", "/short.txt")] {
            let request = format!("GET {target} HTTP/1.1\r\n{host}\r\n");
            let moved = server.ask(request);
            let location = moved.field("Location").expect("a place").to_owned();
            let local = location.trim_start_matches(&server.url().to_owned());
            assert_eq!(local, to, "{location}");
        }
    }
}

#[test]
fn a_file_that_changes_below_nginx_is_never_mixed() {
    let Some(nginx) = Nginx::start() else { return };
    let server = nginx.gateway();
    for nth in 0..12 {
        let bytes = long(700_000 + nth * 1000, nth as u64);
        let new = nginx.tree.file("new", &bytes);
        fs::rename(new, nginx.tree.at("root/a")).expect("a rename");
        whole(&mut server.connect(), "/stale/a", &bytes);
        whole(&mut server.connect(), "/stale/a", &bytes);
    }
}
