//! Any bytes as the log of a server or a proxy: [`ackpace_wire::trace`].

use ackpace_wire::trace::{Analyser, FAULTS_SHOWN_MAX, LogFormat, SERVERS_SHOWN_MAX, parse};

/// Laws: parts of a line are parts of it; sums agree; what is shown is bounded.
pub fn trace(data: &[u8]) {
    let mut analyser = Analyser::default();
    let (mut bytes, mut lines) = (0u64, 0);
    for (number, line) in (1..).zip(data.split(|byte| *byte == b'\n')) {
        for format in [LogFormat::Squid, LogFormat::Combined, LogFormat::Json] {
            if let Ok(entry) = parse(format, line) {
                assert!(entry.client.len() + entry.file.len() < line.len());
                assert!(entry.server.is_none_or(|server| !server.is_empty()));
            }
        }
        bytes += line.len() as u64;
        lines = number;
        analyser.line(number, line);
    }
    match analyser.finish() {
        Ok(report) => {
            let totals = report.totals;
            assert_eq!(report.lines, totals.requests + report.bad_lines);
            assert!(report.lines <= lines && totals.requests > 0 && bytes > 0);
            assert!(totals.persistent <= totals.connections);
            assert!(2 * totals.persistent <= totals.on_persistent);
            assert!(
                totals.connections + totals.on_persistent - totals.persistent == totals.requests
            );
            assert!(report.faults.len() <= FAULTS_SHOWN_MAX);
            assert!(report.servers.len() <= SERVERS_SHOWN_MAX);
            for row in &report.servers {
                assert!(row.unrelated + row.connections <= row.requests);
            }
            for share in report.files.top_permille {
                assert!(share <= 1_000);
            }
        }
        Err((refused, faults)) => assert!(refused <= lines && faults.len() <= FAULTS_SHOWN_MAX),
    }
}
