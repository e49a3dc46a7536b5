//! A gateway in front of origins that are reached by TLS.

use std::sync::Arc;

use ackpace_tests::{Authority, Server, Setup, TlsOrigin, Tree, pattern};
use rustls::version::{TLS12, TLS13};

const BODY_BYTES: usize = 5_000_000;
/// A year that tests will not see the end of.
const FAR: i32 = 2090;

fn body() -> Arc<[u8]> {
    pattern(BODY_BYTES, 7).into()
}

/// A gateway to this URL that trusts an authority.
fn gateway(url: &str, trusted: &Authority, tree: &Tree) -> Server {
    let store = tree.file("ca.pem", trusted.pem());
    Setup::new(url).env("SSL_CERT_FILE", store).start()
}

#[test]
fn bytes_that_come_by_tls_are_right() {
    let (authority, tree, body) = (Authority::new("a"), Tree::new(), body());
    for version in [&TLS12, &TLS13] {
        let certificate = authority.certificate("localhost", FAR);
        let origin = TlsOrigin::start(certificate, version, Arc::clone(&body));
        let server = gateway(&origin.url("localhost"), &authority, &tree);
        for target in ["/a", "/a", "/stream"] {
            let response = server.get(target, "");
            assert_eq!(response.status, 200);
            assert!(response.body == *body, "{version:?} {target}");
        }
        for (first, len) in [(0, 1), (1, 16_384), (65_530, 300_000), (BODY_BYTES - 9, 9)] {
            let target = format!("/b{first}");
            let range = format!("Range: bytes={first}-{}\r\n", first + len - 1);
            let response = server.get(&target, &range);
            assert_eq!(response.status, 206);
            assert!(
                response.body == body[first..first + len],
                "{version:?} {target}"
            );
        }
        let mut conn = server.begin("/cut", "Connection: close\r\n");
        assert_eq!(conn.head().status, 200);
        let cut = conn.rest_or_reset();
        assert!(!cut.ends_with(b"0\r\n\r\n"), "{version:?}: it looks whole");
        let connections = origin.connections();
        assert!(connections < 9, "connections are used again: {connections}");
    }
}

#[test]
fn an_origin_that_is_not_who_it_should_be_gets_no_request() {
    let (authority, other, tree) = (Authority::new("a"), Authority::new("b"), Tree::new());
    let cases = [
        (
            authority.certificate("other.example", FAR),
            "its certificate is not for localhost",
        ),
        (
            authority.certificate("localhost", 2021),
            "its certificate has expired",
        ),
        (other.certificate("localhost", FAR), "SSL_CERT_FILE"),
    ];
    for (certificate, told) in cases {
        let origin = TlsOrigin::start(certificate, &TLS13, body());
        let server = gateway(&origin.url("localhost"), &authority, &tree);
        assert_eq!(server.get("/a", "").status, 502);
        server.err_line(&[told, "https://localhost", "its clients get 502"]);
    }
}

#[test]
fn without_authorities_there_is_no_start() {
    Setup::new("https://localhost:1")
        .env("SSL_CERT_FILE", "/dev/null")
        .env("SSL_CERT_DIR", "/nonexistent")
        .assert_refused(&["no certificate authority", "ca-certificates"]);
    Setup::new("https://localhost:1")
        .env("SSL_CERT_FILE", "/nonexistent")
        .assert_refused(&["SSL_CERT_FILE", "/nonexistent", "No such file"]);
}
