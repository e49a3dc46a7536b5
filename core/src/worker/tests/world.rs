//! Twenty downloads from a cold disk and a probe of a small cached file beside them.

use std::fmt::Write as _;

use super::shell::{Request, Shell};
use super::*;

const STREAMS: u32 = 20;
const FILE_BYTES: u64 = 8 * WINDOW;
/// The disk: bytes in a microsecond, once the arm is there, and how long that takes.
const MEDIA: u64 = 56;
const POSITIONING_US: u64 = 4_000;
const PROBED: ObjectId = ObjectId {
    index: 1_000,
    ..OBJECT
};

fn connect(shell: &mut Shell) -> ConnId {
    shell.backlog.push_back(None);
    shell.turn();
    *shell.clients.keys().next_back().expect("accepted")
}

fn ask(shell: &mut Shell, conn: ConnId, object: ObjectId, len_bytes: u64) {
    let Part::Body {
        version,
        residency,
        span,
        ..
    } = body(ResidencySource::Ask, 0, len_bytes)
    else {
        unreachable!("that is what it makes");
    };
    let part = Part::Body {
        object,
        version,
        promise: Promise::OneVersion,
        residency,
        span,
    };
    let request = Request {
        plan: plan([part], true),
        slices: Vec::new(),
        body_bytes: 0,
    };
    let client = shell.clients.get_mut(&conn).expect("open");
    client.input.push_back(request);
    shell.tcp(conn, TcpEvent::Readable);
    shell.turn();
}

/// Bytes that a client has been sent.
fn taken(shell: &Shell, conn: ConnId) -> u64 {
    shell.clients[&conn].taken_bytes
}

#[test]
fn a_cached_probe_never_waits_behind_a_cold_disk() {
    let mut shell = Shell::new(settings(), 1);
    shell.mishaps = false;
    shell.resident.insert((PROBED.index, 0));
    let probe = connect(&mut shell);
    let downloads = (0..STREAMS).map(|index| {
        let conn = connect(&mut shell);
        ask(&mut shell, conn, ObjectId { index, ..OBJECT }, FILE_BYTES);
        conn
    });
    let downloads = downloads.collect::<Vec<_>>();
    let mut table = String::from("    s  slowest MB  fastest MB  disk MB\n");
    let mut read_bytes = 0;
    let mut told_mib = 0;
    for n in 1.. {
        let Some(len_bytes) = shell.reading.values().next().map(|r| r.1.len_bytes) else {
            break;
        };
        shell.now = shell.now.plus_us(POSITIONING_US + len_bytes / MEDIA);
        read_bytes += len_bytes;
        shell.read_done(false);
        shell.turn();
        for conn in &downloads {
            shell.acknowledge(*conn, 1);
        }
        shell.turn();
        let before = taken(&shell, probe);
        ask(&mut shell, probe, PROBED, 4_096);
        let answer = taken(&shell, probe) - before;
        assert_eq!(answer, HEAD_BYTES + 4_096, "the probe waits, read {n}");
        shell.acknowledge(probe, 1);
        if read_bytes / WINDOW >= told_mib + 40 {
            told_mib = read_bytes / WINDOW;
            let got = downloads.iter().map(|conn| taken(&shell, *conn) / WINDOW);
            let (least, most) = (got.clone().min(), got.max());
            let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
            let (s, disk) = (shell.now.us as f64 / 1e6, read_bytes / WINDOW);
            writeln!(table, "{s:5.1}  {least:10}  {most:10}  {disk:7}").expect("a string");
        }
    }
    // The disk is never idle, and clients that take everything at once are served alike, however fast they were
    // believed to be.
    assert_eq!(
        table,
        "    s  slowest MB  fastest MB  disk MB
  1.2           1           2       41
  2.1           3           5       81
  3.0           4           8      121
"
    );
}
