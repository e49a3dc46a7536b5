//! The instruments tell the truth about clients: their rates, what they wait for, and that none is missing.

use std::io::Read;
use std::time::{Duration, Instant};

use ackpace_tests::{
    Conn, Disk, PATIENCE, Watched, client, eventually, raise_own_limit, run, server_binary, skip,
};

const MIB: usize = 1 << 20;

fn watched(disk: Option<&Disk>, args: &str) -> Watched {
    Watched::start_with(96 * MIB, disk, args)
}

/// The connections in the JSON output of `top`.
fn connections(watched: &Watched) -> String {
    let top = watched.ackpace("top --once --json");
    assert!(top.success, "{}", top.err);
    let (_, connections) = top.out.split_once("\"connections\":[").expect("a list");
    connections.to_owned()
}

/// The values of this field, in order.
fn numbers(json: &str, name: &str) -> Vec<u64> {
    let name = format!("\"{name}\":");
    let values = json.split(&name[..]).skip(1);
    let number = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    };
    values.map(|rest| number(rest).expect("a number")).collect()
}

#[test]
fn a_client_that_reads_at_a_pace_of_its_own_is_shown_as_fast_as_it_is() {
    const BYTES_PER_S: u64 = 1_000_000;
    let watched = watched(None, "--workers 1");
    let mut conn = watched.begin("/big", "");
    assert_eq!(conn.head().status, 200);
    // The client takes 100 KB when it is behind its pace, and its receive buffer takes megabytes ahead.
    let (begun, mut taken) = (Instant::now(), 0);
    let mut history = vec![(Duration::ZERO, 0)];
    let (mut looked, mut shown) = (Duration::ZERO, Vec::new());
    let mut right = 0;
    while right < 3 {
        let since = begun.elapsed();
        assert!(since < PATIENCE, "shown: {shown:?}");
        let due = since.as_micros() as u64 * BYTES_PER_S / 1_000_000;
        if taken < due {
            let mut piece = [0; 100_000];
            conn.stream.read_exact(&mut piece).expect("bytes");
            taken += piece.len() as u64;
            history.push((since, taken));
        } else {
            std::thread::sleep(Duration::from_millis(20)); // its pace
        }
        if since < looked + Duration::from_secs(2) {
            continue;
        }
        looked = since;
        let json = connections(&watched);
        let rate = numbers(&json, "rate_bytes_per_s")[0];
        // What it really took in the last ten seconds, however busy the machine is.
        let window = since.saturating_sub(Duration::from_secs(10));
        let (from, before) = history
            .iter()
            .rev()
            .find(|(at, _)| *at <= window)
            .expect("one");
        let real = (taken - before) as f64 / (since - *from).as_secs_f64();
        shown.push((rate, real as u64));
        let is_right = (rate as f64 - real).abs() < 0.3 * real;
        right = if is_right { right + 1 } else { 0 };
        assert!(numbers(&json, "believed_bytes_per_s")[0] > 0, "{json}");
    }
    let peer = conn.stream.local_addr().expect("an address").to_string();
    let why = watched.ackpace(&["why", &peer]).out;
    assert!(why.contains("/s have arrived in the last seconds"), "{why}");
    assert!(why.contains("what it takes"), "{why}");
}

#[test]
fn all_of_four_hundred_connections_are_told_of() {
    if raise_own_limit() < 600 {
        return skip("it needs 600 descriptors (ulimit -Hn)");
    }
    let watched = watched(None, "--workers 2");
    let conns: Vec<Conn> = (0..400).map(|_| watched.stalled("/big", "")).collect();
    let mut json = String::new();
    eventually("all are under way", || {
        json = connections(&watched);
        json.matches("\"phase\":\"sending\"").count() == conns.len()
    });
    assert!(json.ends_with("],\"left_out\":0}\n"), "{json}");
    let mut names: Vec<&str> = json
        .split("{\"id\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), conns.len(), "each once");
    let some = watched.ackpace("top --once --json -n 300").out;
    assert!(some.ends_with("\"left_out\":100}\n"), "{some}");
    let (_, connections) = some.split_once("\"connections\":[").expect("a list");
    let rates = numbers(connections, "rate_bytes_per_s");
    assert_eq!(rates.len(), 300);
    assert!(rates.is_sorted_by(|a, b| a >= b), "the fastest first");
    let page = watched.ackpace("top --once -n 390").out;
    assert_eq!(page.matches("/big\n").count(), 390);
    assert!(page.ends_with("\nand 10 more\n"), "{page}");
    // Commands that arrive together are answered one after the other, each completely.
    let mut admin = std::os::unix::net::UnixStream::connect(&watched.admin).expect("a socket");
    admin.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    std::io::Write::write_all(
        &mut admin,
        b"ackpace/1 top\nackpace/1 top 1\nackpace/1 top\n",
    )
    .expect("the server takes it");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(admin));
    for count in [400, 1, 400] {
        let line = lines.next().expect("an answer").expect("in time");
        assert_eq!(line.matches("\"phase\":\"sending\"").count(), count);
    }
}

#[test]
fn who_has_bytes_in_his_socket_does_not_wait_for_the_disk() {
    let Some(disk) = Disk::up(&[("a", 64 * MIB as u64)]) else {
        return;
    };
    let watched = watched(Some(&disk), "--workers 1");
    let mut conn = watched.stalled("/disk/a", "");
    eventually("some bytes are there", || {
        numbers(&connections(&watched), "sent_bytes")[0] > 64 << 10
    });
    disk.tell("hang");
    let peer = conn.stream.local_addr().expect("an address").to_string();
    // It reads until the server has nothing more for it, while its socket still has bytes.
    eventually("nothing is in memory", || {
        conn.exactly(4 << 10);
        let why = watched.ackpace(&["why", &peer]).out;
        why.contains("not in memory yet")
    });
    let times = || {
        let json = connections(&watched);
        let one = |name: &str| numbers(&json, name)[0];
        let held = one("unsent_bytes") + one("in_flight_bytes");
        (one("waited_disk_us"), one("waited_net_us"), held, json)
    };
    let (disk_before, net_before, held, json) = times();
    assert!(held > 0, "{json}");
    eventually("three seconds more", || {
        let (disk_us, net_us, _, _) = times();
        disk_us + net_us > disk_before + net_before + 3_000_000
    });
    let (disk_us, _, held, json) = times();
    assert!(held > 0, "{json}");
    assert!(!json.contains("\"wait\":\"disk\""), "{json}");
    assert!(disk_us < disk_before + 100_000, "{disk_before}: {json}");
    // Now it takes everything, and then it waits for the disk.
    let mut rest = Vec::new();
    let nap = Some(Duration::from_millis(100));
    conn.stream.set_read_timeout(nap).expect("a timeout");
    eventually("its socket is dry", || {
        let mut piece = [0; 64 << 10];
        let read = conn.stream.read(&mut piece).unwrap_or(0);
        rest.extend_from_slice(&piece[..read]);
        let (disk_now, _, held, json) = times();
        held == 0 && json.contains("\"wait\":\"disk\"") && disk_now > disk_us + 1_000_000
    });
    let why = watched.ackpace(&["why", &peer]).out;
    assert!(why.contains("it waits for the disk: "), "{why}");
    disk.tell("heal");
    conn.stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout");
    let mut piece = [0; 64 << 10];
    eventually("it goes on", || {
        rest.resize(rest.len() + conn.stream.read(&mut piece).expect("bytes"), 0);
        rest.len() > 4 * MIB
    });
}

/// A terminal for a program. It reports what is drawn, how wide that is, and the state of the terminal after the
/// program.
const TERMINAL: &str = r#"
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time
ours, theirs = pty.openpty()
def size(lines, columns):
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
def seen(what, until=60):
    text, end = b"", time.time() + until
    while not what(text):
        assert time.time() < end, text
        if select.select([ours], [], [], .2)[0]:
            text += os.read(ours, 65536)
    return text
def pages(text):
    # whole ones only, without what moves the cursor
    found = text.split(b"\x1b[H")[1:-1]
    return [re.sub(rb"\x1b\[[HJK]", b"", page).decode().split("\r\n") for page in found]
def widest(text):
    return max(len(line) for page in pages(text) for line in page)
for end in ["interrupt", "terminate"]:
    size(30, 40)
    before = termios.tcgetattr(theirs)
    def session():
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL) # whoever runs the tests in the background ignores it
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    top = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=session)
    text = seen(lambda text: len(pages(text)) >= 2)
    assert widest(text) == 40 and "\r\nCtrl-C ends\r\n" in re.sub("\x1b.K", "", text.decode()), text
    assert max(len(page) for page in pages(text)) <= 30, text
    size(8, 70)
    text = seen(lambda text: len(pages(text)) >= 2 and widest(text) == 70)
    assert len(pages(text)[-1]) <= 8 and "more" in text.decode(), text
    if end == "interrupt":
        os.write(ours, b"\x03")
    else:
        top.send_signal(signal.SIGTERM)
    code = top.wait(60)
    assert code == {"interrupt": -signal.SIGINT, "terminate": -signal.SIGTERM}[end], (end, code)
    assert termios.tcgetattr(theirs) == before, end
    while select.select([ours], [], [], .2)[0]:
        os.read(ours, 65536)
print("fine")
"#;

#[test]
fn top_fits_its_terminal_and_leaves_the_terminal_as_it_was() {
    let Some(mut python) = client("python3") else {
        return;
    };
    let watched = watched(None, "--workers 1");
    let _conns: Vec<Conn> = (0..12).map(|_| watched.stalled("/big", "")).collect();
    python.args(["-c", TERMINAL]).arg(server_binary());
    let outcome = run(python.args(["top", "--admin"]).arg(&watched.admin));
    assert_eq!(outcome.out, "fine\n", "{}", outcome.err);
}
