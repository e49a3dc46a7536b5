//! Open connections that workers give to each other. The hunter moves them, too, with every second seed.

use std::fs;
use std::thread;

use ackpace_tests::{Watched, pattern};

const CLIENTS: usize = 8;
const ANSWERS: usize = 5;
const LEN: usize = 3 << 20;

#[test]
fn a_connection_that_goes_from_worker_to_worker_gets_every_byte_and_a_line_for_each_answer() {
    let log = std::env::temp_dir().join(format!("ackpace-moves-{}.log", std::process::id()));
    let args = [
        "--workers=2",
        "--compare=moves=always",
        "--access-log",
        log.to_str().expect("UTF-8"),
    ];
    let watched = Watched::start_with(LEN, None, &args);
    let bytes = pattern(LEN, 3);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (bytes, server) = (&bytes, &watched.server);
            scope.spawn(move || {
                let mut conn = server.connect();
                for nth in 0..ANSWERS {
                    let got = conn.get(&format!("/big?{client}.{nth}"), "");
                    assert!(got.body == *bytes, "client {client}, answer {nth}");
                }
            });
        }
    });
    let moved = watched.sum("ackpace_moved_connections_total", &[]);
    // A fast client gives fewer occasions.
    assert!(moved >= CLIENTS as f64, "{moved} moves");
    watched.server.stop();
    let text = fs::read_to_string(&log).expect("the log");
    let _ = fs::remove_file(&log);
    for (client, nth) in (0..CLIENTS).flat_map(|client| (0..ANSWERS).map(move |nth| (client, nth)))
    {
        let name = format!("/big?{client}.{nth} ");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&name)).collect();
        let whole = |line: &&str| line.contains(&LEN.to_string());
        assert!(
            lines.len() == 1 && lines.iter().all(whole),
            "{name} in\n{text}"
        );
    }
}
