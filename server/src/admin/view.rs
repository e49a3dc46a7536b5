//! The output of `ackpace top` and `ackpace why` for people.

use std::fmt::Write;

use ackpace_core::units::{Bytes, Time};

use crate::answers::{CacheState, Connection, Explained, Purged, Told, Top};
use crate::options::acts_on_a_terminal;

/// Lines, and characters of each, that are visible.
pub type Size = (usize, usize);

/// The size of the terminal of standard output.
pub fn terminal_size() -> Size {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    size.map_or((24, 80), |size| {
        (usize::from(size.ws_row), usize::from(size.ws_col))
    })
}

/// The page of `top`: a line for the server, one for each worker, one for each connection, as many as fit.
pub fn top(top: &Top, size: Option<Size>) -> String {
    let server = &top.server;
    let rates = top.workers.iter().map(|row| row.rate_bytes_per_s);
    let rate = Bytes(rates.fold(0, u64::saturating_add));
    let draining = if server.draining { ", draining" } else { "" };
    let quit = if size.is_some() { "Ctrl-C ends" } else { "" };
    let mut page = format!(
        "ackpace {} (process {}), up {}{draining}: {rate}/s\n{quit}\n",
        plain(&server.release),
        server.pid,
        Time(server.uptime_us)
    );
    let _ = writeln!(
        page,
        "{:>6} {:>11} {:>7} {:>9} {:>7} {:>9} {:>9}",
        "worker", "connections", "sending", "rate/s", "target", "sent", "wake-ups"
    );
    for row in &top.workers {
        let _ = writeln!(
            page,
            "{:>6} {:>11} {:>7} {:>9} {:>7} {:>9} {:>9}",
            row.worker,
            row.connections,
            row.sending,
            bytes(Some(row.rate_bytes_per_s)),
            time(row.target_us),
            bytes(Some(row.sent_bytes)),
            row.wakeups
        );
    }
    for worker in &top.silent_workers {
        let _ = writeln!(
            page,
            "{worker:>6} does not answer: it hangs in a system call (see dmesg)"
        );
    }
    for worker in &top.ended_workers {
        let why = match server.draining {
            true => "its last connection has ended",
            false => "the log says why (standard error)",
        };
        let _ = writeln!(page, "{worker:>6} has ended: {why}");
    }
    nfs(top, &mut page);
    if top.connections.is_empty() {
        page.push_str("\nNo response is under way.\n");
        return page;
    }
    let _ = writeln!(
        page,
        "\n{:10} {:21} {:>8} {:>7} {:>7} {:>9} {:>7} {:>8} {:>6} {:14} {:>8}  object",
        "name",
        "client",
        "rate/s",
        "lasts",
        "unsent",
        "in flight",
        "RTT",
        "cwnd",
        "resent",
        "waits for",
        "left"
    );
    list(top, size, &mut page);
    page
}

/// A line for each thread of NFS.
fn nfs(top: &Top, page: &mut String) {
    if top.nfs_threads.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "{:>6} {:>11} {:>9} {:>9} {:>9} {:>9}",
        "NFS", "connections", "calls", "not ready", "sent", "written"
    );
    for row in &top.nfs_threads {
        let _ = writeln!(
            page,
            "{:>6} {:>11} {:>9} {:>9} {:>9} {:>9}",
            row.thread,
            row.connections,
            row.calls,
            row.missed_reads,
            bytes(Some(row.sent_bytes)),
            bytes(Some(row.written_bytes)),
        );
    }
}

/// The connections that fit, and how many do not.
fn list(top: &Top, size: Option<Size>, page: &mut String) {
    let count = top.connections.len();
    let fit = match size {
        // The last line holds the cursor; the one before it counts the connections left out, if there are any.
        Some((lines, _)) => {
            let room = lines.saturating_sub(page.lines().count() + 1);
            match count > room || top.left_out > 0 {
                true => room.saturating_sub(1).min(count),
                false => count,
            }
        }
        None => count,
    };
    let shown = top.connections.iter().take(fit);
    shown.for_each(|connection| row(connection, page));
    let left_out = top.left_out + (count - fit) as u64;
    if left_out > 0 {
        let _ = writeln!(page, "and {left_out} more");
    }
}

/// The page for a terminal of this size, drawn over the one before, each line cut to the visible width.
pub fn drawn(page: &str, (lines, columns): Size) -> String {
    let mut text = String::from("\x1b[H");
    for line in page.lines().take(lines.saturating_sub(1)) {
        // Erased before the text is written: after a full line the cursor stays on its last character.
        text.push_str("\x1b[K");
        text.push_str(cut(line, columns));
        text.push('\n');
    }
    text.push_str("\x1b[J");
    text
}

/// As much of a line as fits into so many columns.
fn cut(line: &str, columns: usize) -> &str {
    let end = line.char_indices().nth(columns);
    &line[..end.map_or(line.len(), |(at, _)| at)]
}

fn row(connection: &Connection, page: &mut String) {
    let Connection { id, peer, .. } = connection;
    let waits = connection
        .response
        .as_ref()
        .map(|response| match response.wait_us {
            0 => response.wait.clone(),
            us => format!("{} {}", response.wait, Time(us)),
        });
    let left = connection
        .response
        .as_ref()
        .map(|response| response.left_bytes);
    let again = connection.retransmitted_segments;
    let _ = writeln!(
        page,
        "{:10} {:21} {:>8} {:>7} {:>7} {:>9} {:>7} {:>8} {:>6} {:14} {:>8}  {}{}",
        plain(id),
        plain(peer),
        bytes(Some(connection.rate_bytes_per_s).filter(|rate| *rate > 0)),
        time(connection.margin_us),
        bytes(connection.unsent_bytes),
        bytes(connection.in_flight_bytes),
        time(connection.rtt_us),
        bytes(connection.cwnd_bytes),
        again.map_or("-".to_owned(), |again| again.to_string()),
        plain(&waits.unwrap_or_default()),
        bytes(left),
        plain(connection.object.as_deref().unwrap_or("-")),
        placed(connection),
    );
}

/// The other nodes that a connection has to do with, behind its object.
fn placed(connection: &Connection) -> String {
    let Some(placement) = &connection.placement else {
        return String::new();
    };
    let from = placement.from.as_deref().zip(placement.by.as_deref());
    let from = from.map(|(from, by)| match by {
        "handed_over" => format!("to be handed over to {}", plain(from)),
        by => format!("{} from {}", plain(by), plain(from)),
    });
    let home = placement.home.as_deref();
    let home = home.map(|home| format!("handed over by {}", plain(home)));
    let told: Vec<String> = from.into_iter().chain(home).collect();
    match told[..] {
        [] => String::new(),
        _ => format!(" ({})", told.join(", ")),
    }
}

/// The text of `why`: the state, then the decisions that led there.
pub fn why(explained: &Explained) -> String {
    let mut page = String::new();
    for sentence in &explained.now {
        let _ = writeln!(page, "{}.", plain(sentence));
    }
    if !explained.decisions.is_empty() {
        page.push_str("\nThe last decisions:\n");
    }
    for (told, before) in folded(&explained.decisions) {
        let ago = format!("{} ago", Time(told.ago_us));
        let before = before.map_or_else(String::new, |(times, first)| {
            format!(
                " ({times} more like it, from {} ago on)",
                Time(first.ago_us)
            )
        });
        let _ = writeln!(page, "{ago:>12}: {}{before}", plain(&told.text));
    }
    page
}

/// Of decisions that differ in their numbers alone the last one; how many came before it, and the first of them.
fn folded(decisions: &[Told]) -> Vec<(&Told, Option<(usize, &Told)>)> {
    let alike = |told: &&Told, other: &Told| shape(&told.text) == shape(&other.text);
    let mut lines = Vec::new();
    for (at, told) in decisions.iter().enumerate() {
        if !decisions[at + 1..].iter().any(|later| alike(&told, later)) {
            let before = decisions[..at].iter().filter(|other| alike(&told, other));
            let first = before.clone().next();
            lines.push((told, first.map(|first| (before.count(), first))));
        }
    }
    lines
}

/// The words of a sentence without numbers and their units.
fn shape(text: &str) -> Vec<&str> {
    const UNITS: [&str; 8] = ["B", "KB", "MB", "GB", "TB", "us", "ms", "s"];
    let is_number = |word: &str| word.starts_with(|sign: char| sign.is_ascii_digit());
    let is_unit = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':', ')']);
        UNITS.contains(&word.trim_end_matches("/s"))
    };
    let words = text.split_whitespace();
    words
        .filter(|word| !is_number(word) && !is_unit(word))
        .collect()
}

/// The page of `cache status`.
pub fn cache(state: &CacheState) -> String {
    let mut page = format!(
        "{} of payload kept in {} of {}; {} known\n",
        Bytes(state.kept_bytes),
        Bytes(state.allocated_bytes),
        Bytes(state.size_bytes),
        count(state.objects, "object"),
    );
    if let Some(folder) = &state.folder {
        let _ = writeln!(
            page,
            "{}: {} in {}, of {}; {}, {}",
            plain(&folder.path),
            Bytes(folder.kept_bytes),
            count(folder.windows, "window"),
            Bytes(folder.size_bytes),
            count(folder.reads, "read"),
            Bytes(folder.read_bytes),
        );
    }
    let answers = state.answers.iter();
    let answers: Vec<String> = answers
        .map(|(how, count)| format!("{} {count}", plain(how)))
        .collect();
    let _ = writeln!(page, "requests: {}", answers.join(", "));
    for origin in &state.origins {
        let _ = writeln!(
            page,
            "{}: {}, {} fetched, {}, {}",
            plain(&origin.origin),
            count(origin.requests, "request"),
            Bytes(origin.fetched_bytes),
            count(origin.faults, "fault"),
            count(origin.connections, "connection"),
        );
    }
    page
}

/// What `cache purge` says.
pub fn purged(purged: &Purged, only_stale: bool) -> String {
    let objects = count(purged.objects, "object");
    let done = match (only_stale, purged.objects) {
        (true, 1) => "will be asked about before it is sent again",
        (true, _) => "will be asked about before they are sent again",
        (false, 1) => "is forgotten",
        (false, _) => "are forgotten",
    };
    format!("{objects} {done}\n")
}

fn count(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

fn bytes(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), |value| Bytes(value).to_string())
}

fn time(us: Option<u64>) -> String {
    us.map_or("-".to_owned(), |us| Time(us).to_string())
}

/// A text without control characters and marks that turn a line: names of files come from outside, and a terminal obeys
/// these.
pub fn plain(text: &str) -> String {
    let shown = |c: char| {
        if acts_on_a_terminal(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{FolderState, NfsRow, Placement, Response, Server, VERSION, WorkerRow};

    #[test]
    fn the_cache_folder_has_a_line_and_one_object_is_not_two() {
        let folder = FolderState {
            path: "/var/cache/a".into(),
            windows: 1,
            kept_bytes: 1_000_000,
            size_bytes: 2_000_000_000,
            reads: 3,
            read_bytes: 3_000_000,
        };
        let page = cache(&CacheState {
            version: VERSION,
            objects: 1,
            kept_bytes: 0,
            allocated_bytes: 0,
            size_bytes: 0,
            pinned_segments: 0,
            folder: Some(folder),
            answers: Vec::new(),
            origins: Vec::new(),
        });
        let line = "/var/cache/a: 1.0 MB in 1 window, of 2.0 GB; 3 reads, 3.0 MB\n";
        assert!(
            page.contains(line) && page.contains("; 1 object known\n"),
            "{page}"
        );
        for (objects, only_stale, text) in [
            (1, false, "1 object is forgotten\n"),
            (0, false, "0 objects are forgotten\n"),
            (
                1,
                true,
                "1 object will be asked about before it is sent again\n",
            ),
        ] {
            let told = Purged {
                version: VERSION,
                objects,
            };
            assert_eq!(purged(&told, only_stale), text);
        }
    }

    #[test]
    fn marks_that_turn_a_line_do_not_reach_the_terminal() {
        let name = "a\u{202e}gpj.exe\u{2066}\u{1b}[2J";
        assert_eq!(plain(name), "a\u{fffd}gpj.exe\u{fffd}\u{fffd}[2J");
    }

    #[test]
    fn a_page_has_a_line_for_each_worker_and_connection() {
        let told = Top {
            server: Server {
                pid: 7,
                release: "0.1.0".into(),
                uptime_us: 90_000_000,
                draining: true,
            },
            workers: vec![WorkerRow {
                worker: 0,
                connections: 12,
                sending: 2,
                rate_bytes_per_s: 2_500_000,
                believed_bytes_per_s: 3_000_000,
                target_us: Some(400_000),
                sent_bytes: 1_000_000_000,
                wakeups: 99,
            }],
            silent_workers: vec![1],
            ended_workers: vec![2],
            nfs_threads: vec![NfsRow {
                thread: 0,
                connections: 3,
                calls: 4_711,
                missed_reads: 5,
                sent_bytes: 2_000_000,
                written_bytes: 1_000_000,
            }],
            connections: vec![Connection {
                id: "0.1.2".into(),
                peer: "192.0.2.1:4242".into(),
                object: Some("/a\u{1b}[2J".into()),
                rate_bytes_per_s: 2_500_000,
                margin_us: Some(123_000),
                response: Some(Response {
                    wait: "margin".into(),
                    wait_us: 12_000,
                    left_bytes: 5_000,
                    ..Response::default()
                }),
                placement: Some(Placement {
                    by: Some("relayed".into()),
                    from: Some("c".into()),
                    home: Some("b".into()),
                    ..Placement::default()
                }),
                ..Connection::default()
            }],
            left_out: 1,
            ..Top::default()
        };
        let page = top(&told, None);
        for part in [
            "ackpace 0.1.0 (process 7), up 90 s, draining: 2.5 MB/s",
            "     0          12       2    2.5 MB  400 ms    1.0 GB        99",
            "     1 does not answer",
            "     2 has ended: its last connection has ended\n",
            "     0           3      4711         5    2.0 MB    1.0 MB\n",
            "0.1.2      192.0.2.1:4242",
            "margin 12 ms",
            "/a\u{fffd}[2J (relayed from c, handed over by b)\n",
            "and 1 more",
        ] {
            assert!(page.contains(part), "no {part:?} in\n{page}");
        }
        assert!(!page.contains('\u{1b}'));
        // Of two, one fits beside the line that tells of the others.
        let told = Top {
            connections: vec![told.connections[0].clone(); 2],
            ..told
        };
        let lines = page.lines().count();
        let fits = top(&told, Some((lines + 1, 30)));
        assert_eq!(fits.lines().count(), lines, "{fits}");
        assert!(
            fits.contains("\nCtrl-C ends\n") && fits.ends_with("\nand 2 more\n"),
            "{fits}"
        );
        assert!(top(&told, Some((3, 30))).ends_with("\nand 3 more\n"));
    }

    #[test]
    fn a_page_is_cut_to_its_terminal() {
        let drawn = |size| drawn("abc\n\nabc\u{e9}e\nd\n", size);
        assert_eq!(
            drawn((4, 4)),
            "\x1b[H\x1b[Kabc\n\x1b[K\n\x1b[Kabc\u{e9}\n\x1b[J"
        );
        assert_eq!(drawn((2, 2)), "\x1b[H\x1b[Kab\n\x1b[J");
        assert_eq!(drawn((0, 0)), "\x1b[H\x1b[J");
    }

    #[test]
    fn why_tells_how_it_stands_and_what_led_there() {
        let text = why(&Explained {
            now: vec!["it waits for its turn".into()],
            decisions: vec![Told {
                ago_us: 1_500_000,
                is_about_all: false,
                text: "the connection was closed (idle)".into(),
            }],
            ..Explained::default()
        });
        assert_eq!(
            text,
            "it waits for its turn.\n\nThe last decisions:\n   1.5 s ago: the connection was closed (idle)\n"
        );
    }

    #[test]
    fn decisions_that_differ_in_their_numbers_alone_are_folded() {
        let told = |ago_s: u64, text: &str| Told {
            ago_us: ago_s * 1_000_000,
            is_about_all: false,
            text: text.into(),
        };
        let page = why(&Explained {
            decisions: vec![
                told(9, "refilled with 1.2 MB, at 3 MB/s: 900 KB were left"),
                told(8, "the path is congested"),
                told(7, "refilled with 999 KB, at 12 KB/s: 0 B were left"),
                told(6, "refilled with 3 MB"),
                told(5, "refilled with 1.0 MB, at 1 GB/s: 1 B were left"),
            ],
            ..Explained::default()
        });
        let lines: Vec<&str> = page.lines().skip(2).map(str::trim).collect();
        let last = "5.0 s ago: refilled with 1.0 MB, at 1 GB/s: 1 B were left (2 more like it, from 9.0 s ago on)";
        let single = [
            "8.0 s ago: the path is congested",
            "6.0 s ago: refilled with 3 MB",
        ];
        assert_eq!(lines, [single[0], single[1], last]);
    }
}
