//! Lines of each format, and what many of them say together.

use std::collections::{HashMap, HashSet};

use super::sampled::{Sampled, key};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const AT_MS: i64 = 971_211_336_042;

fn entry(format: LogFormat, line: &str) -> Entry<'_> {
    parse(format, line.as_bytes()).expect(line)
}

#[test]
fn a_line_of_squid_names_the_server_that_was_asked() {
    let line = |rest: &str| format!("971211336.042   1030 192.0.2.1 {rest}");
    let of = |rest: &str| {
        let line = line(rest);
        let entry = entry(LogFormat::Squid, &line);
        assert_eq!((entry.at_ms, entry.client), (AT_MS, &b"192.0.2.1"[..]));
        let server = entry
            .server
            .map(|it| String::from_utf8_lossy(it).into_owned());
        (entry.bytes, server)
    };
    let asked = "TCP_MISS/200 4096 GET http://u@example.org:80/a?b - DIRECT/198.51.100.1 text/html";
    assert_eq!(of(asked), (4_096, Some("example.org".into())));
    let tls = "TCP_MISS/200 1 GET https://example.org:8443 - HIER_DIRECT/198.51.100.1 -";
    assert_eq!(of(tls), (1, Some("example.org:8443".into())));
    for other in [
        "TCP_HIT/200 4096 GET http://example.org/a - NONE/- text/html",
        "TCP_MEM_HIT/200 4096 GET http://example.org/a - HIER_NONE/- text/html",
        "TCP_TUNNEL/200 4096 CONNECT example.org:443 - HIER_DIRECT/198.51.100.1 -",
    ] {
        assert_eq!(of(other), (4_096, None), "{other}");
    }
}

#[test]
fn a_line_of_a_server_is_read_with_its_zone_and_its_quotes() {
    let line = "192.0.2.1 - - [10/Oct/2000:22:55:36 +0200] \"GET /a\\x22b?x=1 HTTP/1.1\" 206 4096 \"-\" \"-\"";
    let read = entry(LogFormat::Combined, line);
    assert_eq!(read.at_ms, 971_211_336_000);
    assert_eq!((read.file, read.bytes), (&b"/a\\x22b"[..], 4_096));
    let nasa =
        "in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] \"GET /a/\"b\".txt HTTP/1.0\" 304 -";
    let read = entry(LogFormat::Combined, nasa);
    assert_eq!((read.at_ms, read.bytes), (807_249_601_000, 0));
    assert_eq!(
        (read.client, read.file),
        (&b"in24.inetnebr.com"[..], &b"/a/\"b\".txt"[..])
    );
}

#[test]
fn what_this_server_writes_is_read_back() {
    use crate::access_log::{LineFormat, Outcome, Remote, RequestText, line};
    let request = RequestText {
        method: b"GET",
        target: b"/a\"b?x",
        version: b"HTTP/1.1",
        ..RequestText::default()
    };
    let outcome = Outcome {
        time_unix_ms: AT_MS,
        remote: Remote::Unix,
        status: 200,
        bytes_sent: 5,
        bytes_acked: None,
        waited_disk_us: 1,
        waited_net_us: 1,
        duration_us: 1,
        why: None,
        cache: None,
        sender: None,
    };
    for (written, format) in [
        (LineFormat::Json, LogFormat::Json),
        (LineFormat::Combined, LogFormat::Combined),
        (LineFormat::Common, LogFormat::Combined),
    ] {
        let mut out = Vec::new();
        line(written, &request, &outcome, &mut out);
        let line = out.strip_suffix(b"\n").expect("a line");
        assert_eq!(LogFormat::of(line), format);
        let read = parse(format, line).expect("an entry");
        assert_eq!((read.client, read.bytes), (&b"unix:"[..], 5));
        assert_eq!(read.at_ms / 1_000, AT_MS / 1_000);
        assert!(read.file.starts_with(b"/a\\"), "{:?}", read.file);
    }
}

#[test]
fn a_line_that_is_none_says_what_is_wrong() {
    for (format, line, why) in [
        (LogFormat::Squid, "", Bad::Field("time")),
        (LogFormat::Squid, "now 1 a TCP_MISS/200", Bad::Value("time")),
        (LogFormat::Squid, "1.5 1 a TCP_MISS/200", Bad::Value("time")),
        (
            LogFormat::Squid,
            "1.500 1 a TCP_MISS 1",
            Bad::Value("result code"),
        ),
        (
            LogFormat::Squid,
            "1.500 1 a TCP_MISS/200 1 GET",
            Bad::Field("URL"),
        ),
        (
            LogFormat::Squid,
            "99999999999999999999 1",
            Bad::Value("time"),
        ),
        (LogFormat::Combined, "a", Bad::Field("client")),
        (
            LogFormat::Combined,
            "a - - [31/Jun/2000:00:00:00 +0000] \"G\" 200 1",
            Bad::Value("time"),
        ),
        (
            LogFormat::Combined,
            "a - - [10/Oct/2000:20:55:36 +0000] \"G",
            Bad::Field("status"),
        ),
        (
            LogFormat::Combined,
            "a - - [10/Oct/2000:20:55:36 +0000] \"G\" 200 x",
            Bad::Value("length"),
        ),
        (LogFormat::Json, "{}", Bad::Field("time")),
        (LogFormat::Json, "{\"time\":\"", Bad::Value("line")),
        (
            LogFormat::Json,
            "{\"time\":\"2000-13-10T20:55:36.042Z\"}",
            Bad::Value("time"),
        ),
        (LogFormat::Json, "{\"a\":{}}", Bad::Value("line")),
        (LogFormat::Json, "{\"a\":1,", Bad::Value("line")),
    ] {
        assert_eq!(parse(format, line.as_bytes()), Err(why), "{line}");
    }
}

fn analysed<S: AsRef<str>>(lines: impl IntoIterator<Item = S>) -> Report {
    let mut analyser = Analyser::default();
    for (number, line) in (1..).zip(lines) {
        analyser.line(number, line.as_ref().as_bytes());
    }
    analyser.finish().expect("entries")
}

#[test]
fn requests_of_others_on_a_connection_of_the_proxy_are_unrelated() {
    let line = |s: u32, client: &str, server: &str| {
        format!("{s}.000 1 {client} TCP_MISS/200 10 GET http://{server}/{s} - DIRECT/{server} -")
    };
    let report = analysed([
        line(100, "a", "one"), // opens
        line(110, "b", "ONE"), // unrelated
        line(112, "a", "two"), // opens another
        line(125, "a", "one"), // 15 s later: the same
        line(141, "b", "one"), // 16 s later: opens
        line(142, "b", "one"),
        line(142, "c", "one"), // unrelated
    ]);
    let row = |server: &str, numbers: [u64; 4]| ServerRow {
        server: server.into(),
        requests: numbers[0],
        unrelated: numbers[1],
        connections: numbers[2],
        clients: numbers[3],
    };
    assert_eq!(
        report.servers,
        [row("one", [6, 2, 2, 3]), row("two", [1, 0, 1, 1])]
    );
    assert_eq!(report.totals.clients, 3);
    assert_eq!(report.format.lacks().len(), 1);
}

#[test]
fn a_client_that_pauses_for_more_than_15_seconds_has_another_connection() {
    let line = |s: u32, client: &str, file: &str| {
        format!(
            "{client} - - [10/Oct/2000:20:{:02}:{:02} +0000] \"GET /{file} HTTP/1.1\" 200 {}",
            s / 60,
            s % 60,
            10 * file.len()
        )
    };
    let report = analysed([
        line(0, "a", "x"),
        line(15, "a", "x"),
        line(30, "a", "yy"),
        line(46, "a", "x"),
        line(46, "b", "x"),
        "rubbish".to_owned(),
    ]);
    assert_eq!(
        report.totals,
        Totals {
            requests: 5,
            bytes: 60,
            span_ms: 46_000,
            clients: 2,
            connections: 3,
            persistent: 1,
            on_persistent: 3,
            client_stands_for: 1,
        }
    );
    let files = &report.files;
    assert_eq!((files.files, files.bytes, files.once), (2, 30, 1));
    assert_eq!(files.top_permille, [800, 800, 800, 800]);
    assert_eq!(files.needed_permille, [500, 1_000, 1_000]);
    assert_eq!(
        (report.bad_lines, report.faults),
        (1, vec![(6, Bad::Field("client"))])
    );
    assert!(report.servers.is_empty());
}

/// The day of NASA's server in `sim/data/`, as that server wrote its log.
fn nasa() -> Vec<(i64, u64, u64, u64)> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../sim/data/nasa-1995-08-01.txt"
    );
    let text = std::fs::read_to_string(path).expect("the data");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |word: &str| u64::from_str_radix(word, 36).expect("base 36");
    let lengths = lines.next().expect("a line").split(' ').map(number);
    let lengths: Vec<u64> = lengths.collect();
    let mut at_s = 807_249_600;
    let request = |line: &str| {
        let mut words = line.split(' ').map(number);
        let mut next = || words.next().expect("three numbers");
        let (since, client, file) = (next(), next(), next());
        at_s += since as i64;
        (at_s, client, file, lengths[file as usize])
    };
    lines.map(request).collect()
}

#[test]
fn one_day_of_nasa_has_the_numbers_of_a_count_by_hand() {
    let requests = nasa();
    let lines = requests.iter().map(|(at_s, client, file, bytes)| {
        let mut time = Vec::new();
        crate::civil::Civil::from_unix_s(*at_s).push_common_log(&mut time);
        let time = String::from_utf8(time).expect("ASCII");
        format!("h{client} - - [{time}] \"GET /{file} HTTP/1.0\" 200 {bytes}")
    });
    let report = analysed(lines);
    let mut last = HashMap::new();
    let opens = |(at_s, client, ..): &&(i64, u64, u64, u64)| {
        let before = last.insert(*client, *at_s);
        before.is_none_or(|before| at_s - before > 15)
    };
    let connections = requests.iter().filter(opens).count() as u64;
    let files: HashSet<u64> = requests.iter().map(|(_, _, file, _)| *file).collect();
    let totals = &report.totals;
    assert_eq!(totals.requests, requests.len() as u64);
    assert_eq!(totals.connections, connections);
    assert_eq!(report.files.files, files.len() as u64);
    let told = (
        totals.clients,
        totals.connections,
        totals.persistent,
        totals.on_persistent,
    );
    assert_eq!(told, (2_346, 10_196, 5_778, 25_868));
    assert_eq!((totals.bytes, totals.span_ms), (553_347_136, 46_321_000));
    assert_eq!(
        report.files,
        Files {
            files: 1_731,
            bytes: 109_359_310,
            once: 654,
            top_permille: [531, 814, 903, 964],
            needed_permille: [8, 242, 825],
            file_stands_for: 1,
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_sample_keeps_its_bound_and_whole_counts(keys in prop::collection::vec(0u64..5_000, 1..3_000)) {
        let mut sampled = Sampled::<u64>::new(64);
        let mut all = HashMap::new();
        for number in &keys {
            let key = key(&[&number.to_le_bytes()]);
            *all.entry(key).or_insert(0u64) += 1;
            if let Some(count) = sampled.of(key) {
                *count += 1;
            }
            prop_assert!(sampled.values().count() <= 64);
        }
        let each = sampled.stands_for();
        let mut kept: Vec<u64> = sampled.values().copied().collect();
        let mut expected: Vec<u64> =
            all.iter().filter(|(key, _)| **key % each == 0).map(|(_, count)| *count).collect();
        kept.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(kept, expected);
    }
}

#[test]
fn a_log_of_too_many_servers_says_that_some_were_forgotten() {
    let mut analyser = Analyser::default();
    for number in 0..200_000 {
        let line = format!(
            "1.000 1 c{number} TCP_MISS/200 1 GET http://s{}/ - DIRECT/a -",
            number % 100_000
        );
        analyser.line(number, line.as_bytes());
    }
    let report = analyser.finish().expect("entries");
    assert!(report.forgot_servers && report.servers.len() == SERVERS_SHOWN_MAX);
    assert_eq!(
        (report.totals.clients, report.totals.client_stands_for),
        (200_000, 1)
    );
}
