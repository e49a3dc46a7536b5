//! Helpers shared by the tests of this folder.

use proptest::test_runner::{Config, RngSeed};

use super::{Asked, Context, Parsed, ParsedResponse, Request, Response, parse, parse_response};
use crate::limits::RANGES_MAX;

/// The seed of all property tests here: every machine draws the same inputs.
const SEED: u64 = 0x9110_9112;

/// Fixed inputs, and no files left behind: a failure prints its smallest input.
pub(crate) fn config() -> Config {
    println!("proptest seed {SEED:#x}");
    Config {
        cases: 512,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..Config::default()
    }
}

/// The request in these bytes.
pub(crate) fn request(bytes: &[u8]) -> Request<'_> {
    match parse(bytes) {
        Parsed::Complete {
            request,
            head_len_bytes,
        } if head_len_bytes == bytes.len() => request,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
    }
}

/// The answer to a GET in these bytes.
pub(crate) fn response(bytes: &[u8]) -> Response<'_> {
    match parse_response(bytes, Asked::Get) {
        ParsedResponse::Complete {
            response,
            head_len_bytes,
        } if head_len_bytes == bytes.len() => response,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
    }
}

/// A GET of `/` with these lines, each ending in CR LF.
pub(crate) fn get(lines: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

/// The context of an ordinary answer at this time.
pub(crate) fn at(now_unix_s: u64) -> Context {
    Context {
        now_unix_s,
        draining: false,
        close: false,
        ranges_max: RANGES_MAX,
    }
}
