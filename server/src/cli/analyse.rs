//! `ackpace cluster analyse`: what a log says of how a cluster would do with its requests (DTCP, Tables 1 and 2).

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ackpace_core::units::{Bytes, Time};
use ackpace_wire::trace::{Analyser, Bad, FAULTS_SHOWN_MAX, Files, Report, ServerRow};
use serde_json::{Value, json};

use super::say;
use crate::failure::Failure;
use crate::options::{shown, shown_path};

/// Bytes of a line. Longer: no entry, and told so. Squid and this server write 64 KiB at most.
const LINE_BYTES_MAX: usize = 128 << 10;

/// Reads the log, `-` for standard input, and prints what is in it.
pub fn run(path: &Path, json: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::runtime(format!("{}: {error}", shown_path(path)));
    let report = if path == Path::new("-") {
        read(io::stdin().lock()).map_err(failed)?
    } else {
        let file = File::open(path)
            .map_err(|error| Failure::operator(format!("{}: {error}", shown_path(path))))?;
        read(BufReader::with_capacity(1 << 20, file)).map_err(failed)?
    };
    match report.finish() {
        Ok(report) if json => say(&format!("{}\n", object(&report))),
        Ok(report) => say(&page(&report)),
        Err((0, _)) => Err(Failure::operator(format!("{} is empty", shown_path(path)))),
        Err((lines, faults)) => Err(Failure::operator(format!(
            "{}: none of its {lines} lines is of Squid's native format, combined, common or this server's JSON{}",
            shown_path(path),
            faults_of(&faults)
        ))),
    }
}

fn read(mut log: impl BufRead) -> io::Result<Analyser> {
    let (mut analyser, mut line) = (Analyser::default(), Vec::new());
    for number in 1.. {
        line.clear();
        let mut some = (&mut log).take(LINE_BYTES_MAX as u64 + 1);
        if some.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match line.strip_suffix(b"\n") {
            Some(line) => analyser.line(number, line),
            None if line.len() <= LINE_BYTES_MAX => analyser.line(number, &line), // the last one
            None => {
                log.skip_until(b'\n')?;
                analyser.overlong(number);
            }
        }
    }
    Ok(analyser)
}

fn faults_of(faults: &[(u64, Bad)]) -> String {
    faults
        .iter()
        .fold(String::new(), |mut text, (number, why)| {
            let _ = write!(text, "\n  line {number}: {why}");
            text
        })
}

/// `12.3 %` of thousandths.
fn percent(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

fn permille(part: u64, of: u64) -> u64 {
    (u128::from(part) * 1_000)
        .checked_div(of.into())
        .unwrap_or(0) as u64
}

/// With two decimals.
fn ratio(part: u64, of: u64) -> String {
    let hundredths = (u128::from(part) * 100).checked_div(of.into()).unwrap_or(0);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// For people.
fn page(report: &Report) -> String {
    let totals = &report.totals;
    let mut page = format!(
        "{} lines ({}), {} from first to last\n",
        report.lines,
        report.format.name(),
        Time(totals.span_ms.saturating_mul(1_000))
    );
    if report.bad_lines > 0 {
        let shown = match report.bad_lines as usize > FAULTS_SHOWN_MAX {
            true => ", the first of them:",
            false => ":",
        };
        let faults = faults_of(&report.faults);
        let are = match report.bad_lines {
            1 => "1 is no entry".to_owned(),
            lines => format!("{lines} are no entries"),
        };
        let _ = writeln!(page, "{are}{shown}{faults}");
    }
    page.push('\n');
    for (name, value) in sums(report) {
        let _ = writeln!(page, "{name:24} {value:>12}");
    }
    distribution(&report.files, &mut page);
    servers(report, &mut page);
    for (column, why) in report.format.lacks() {
        let _ = writeln!(page, "\nnot in this log: {column}: {why}");
    }
    page
}

/// Names and values.
fn sums(report: &Report) -> [(&'static str, String); 13] {
    let (totals, files) = (&report.totals, &report.files);
    let per = |bytes: u64, of: u64| Bytes(bytes.checked_div(of).unwrap_or(0));
    [
        ("requests", totals.requests.to_string()),
        ("bytes", Bytes(totals.bytes).to_string()),
        (
            "mean response",
            per(totals.bytes, totals.requests).to_string(),
        ),
        ("files", about(files.files, files.file_stands_for)),
        ("bytes of all files", Bytes(files.bytes).to_string()),
        ("mean file", per(files.bytes, files.files).to_string()),
        ("requests for a file", ratio(totals.requests, files.files)),
        (
            "files asked for once",
            percent(permille(files.once, files.files)),
        ),
        ("clients", about(totals.clients, totals.client_stands_for)),
        (
            "connections",
            about(totals.connections, totals.client_stands_for),
        ),
        (
            "requests on one",
            ratio(totals.requests, totals.connections),
        ),
        (
            "persistent connections",
            percent(permille(totals.persistent, totals.connections)),
        ),
        (
            "requests on these",
            percent(permille(totals.on_persistent, totals.requests)),
        ),
    ]
}

/// How requests are distributed over files.
fn distribution(files: &Files, page: &mut String) {
    page.push('\n');
    for (most, share) in [1, 10, 25, 50].iter().zip(files.top_permille) {
        let _ = writeln!(
            page,
            "the {most:2} % of files asked for most have {} of the requests",
            percent(share)
        );
    }
    for (of, share) in [50, 90, 99].iter().zip(files.needed_permille) {
        let _ = writeln!(
            page,
            "{of} % of the requests are for {} of the files",
            percent(share)
        );
    }
}

fn about(count: u64, stands_for: u64) -> String {
    match stands_for {
        1 => count.to_string(),
        _ => format!("about {count}"),
    }
}

/// The paper's Table 1.
fn servers(report: &Report, page: &mut String) {
    if report.servers.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "\n{:32} {:>9} {:>10} {:>8} {:>11} {:>8}",
        "server", "requests", "unrelated", "", "connections", "clients"
    );
    for row in &report.servers {
        let ServerRow {
            requests,
            unrelated,
            connections,
            clients,
            ..
        } = row;
        let share = percent(permille(*unrelated, *requests));
        let _ = writeln!(
            page,
            "{:32} {requests:>9} {unrelated:>10} {share:>8} {connections:>11} {clients:>8}",
            shown(&row.server)
        );
    }
    if report.forgot_servers {
        page.push_str("There were too many servers: one that was asked seldom at first may have more requests, or be missing.\n");
    }
}

/// For programs.
fn object(report: &Report) -> Value {
    let (totals, files) = (&report.totals, &report.files);
    let faults = report.faults.iter();
    let faults = faults.map(|(line, why)| json!({"line": line, "why": why.to_string()}));
    let lacks = report.format.lacks().iter();
    let lacks = lacks.map(|(column, why)| json!({"column": column, "why": why}));
    let servers = report.servers.iter().map(|row| {
        json!({
            "server": row.server,
            "requests": row.requests,
            "unrelated_requests": row.unrelated,
            "connections": row.connections,
            "clients": row.clients,
        })
    });
    json!({
        "version": 1,
        "format": report.format.name(),
        "lines": report.lines,
        "bad_lines": report.bad_lines,
        "faults": faults.collect::<Vec<_>>(),
        "span_ms": totals.span_ms,
        "requests": totals.requests,
        "bytes": totals.bytes,
        "files": files.files,
        "files_bytes": files.bytes,
        "files_asked_once": files.once,
        "file_stands_for": files.file_stands_for,
        "top_files_requests_permille": {
            "1": files.top_permille[0],
            "10": files.top_permille[1],
            "25": files.top_permille[2],
            "50": files.top_permille[3],
        },
        "requests_files_permille": {
            "50": files.needed_permille[0],
            "90": files.needed_permille[1],
            "99": files.needed_permille[2],
        },
        "clients": totals.clients,
        "client_stands_for": totals.client_stands_for,
        "connections": totals.connections,
        "persistent_connections": totals.persistent,
        "persistent_requests": totals.on_persistent,
        "servers": servers.collect::<Vec<_>>(),
        "forgot_servers": report.forgot_servers,
        "lacks": lacks.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUID: &str = "\
971211336.042 1030 192.0.2.1 TCP_MISS/200 4096 GET http://example.org/a - DIRECT/198.51.100.1 text/html
971211337.042 5 192.0.2.2 TCP_MISS/200 100 GET http://example.org/b - DIRECT/198.51.100.1 image/gif
rubbish
";

    fn report(log: &[u8]) -> Report {
        let analyser = read(log).expect("memory can be read");
        analyser.finish().expect("there are entries")
    }

    #[test]
    fn a_page_has_the_papers_columns_and_says_which_are_missing() {
        let text = page(&report(SQUID.as_bytes()));
        for part in [
            "3 lines (squid), 1.0 s from first to last\n1 is no entry:\n  line 3: ",
            "\nmean response                  2.0 KB\n",
            "\nexample.org                              2          1   50.0 %           1        2\n",
            "\nnot in this log: connections: Squid does not say",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let told = object(&report(SQUID.as_bytes()));
        assert_eq!(told["servers"][0]["unrelated_requests"], 1);
        assert_eq!(told["faults"][0]["line"], 3);
        let line = b"::1 - - [10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1";
        let text = page(&report(line));
        assert!(
            text.contains("not in this log: unrelated requests: "),
            "{text}"
        );
    }

    #[test]
    fn an_overlong_line_costs_no_memory_and_does_not_hide_the_next() {
        let mut log = SQUID.as_bytes().to_vec();
        log.extend(vec![b'x'; 2 * LINE_BYTES_MAX]);
        log.extend_from_slice(b"\n");
        log.extend_from_slice(SQUID.as_bytes());
        let report = report(&log);
        assert_eq!((report.totals.requests, report.bad_lines), (4, 3));
        assert_eq!(report.faults[1], (4, Bad::Length));
        assert_eq!(report.faults[2].0, 7);
    }
}
