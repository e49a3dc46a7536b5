//! The emulator end to end on the real kernel. Nothing here measures time.

use super::topology::{BurstsSpec, Ecn, PathSpec, RedSpec};
use super::*;
use ackpace_lab_base::content::{Tag, fill, first_wrong};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const LEN_BYTES: usize = 3 << 20;
/// Far more than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: the number of a deleted namespace may be reused.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True, with a printed reason, if the machine lacks the privilege or the device.
fn lacks(test: &str) -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if !Path::new("/dev/net/tun").exists() {
        "needs /dev/net/tun"
    } else if std::process::Command::new("ip").arg("-V").output().is_err() {
        "needs ip (package iproute2)"
    } else {
        return false;
    };
    println!("skipped: {test}: {why}");
    true
}

fn topology() -> Topology {
    let mut lossy = PathSpec::new("lossy", "10.1.0.0/24");
    lossy.down.rate_mbit_per_s = Some(400.0);
    lossy.down.delay_ms = Some(1.0);
    lossy.down.bursts = Some(BurstsSpec {
        to_bad: 0.005,
        to_good: 0.5,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    let mut marking = PathSpec::new("marking", "fd01::/64");
    marking.down.rate_mbit_per_s = Some(200.0);
    marking.down.delay_ms = Some(1.0);
    marking.down.red = Some(RedSpec {
        min_bytes: 5_000,
        max_bytes: 2_000_000,
        p_max: 1.0,
        weight: 0.2,
        ecn: true,
        gentle: true,
    });
    Topology {
        ecn: Ecn::On,
        server: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        path: vec![lossy, marking],
        ..Topology::default()
    }
}

/// A connection from a client's address to the server: the server's end, the client's end.
fn connection(wan: &Wan, server: &str, client: &str) -> (TcpStream, TcpStream) {
    let server: SocketAddr = server.parse().unwrap();
    let listener = wan
        .server()
        .run(|| TcpListener::bind(server).doing(|| "bind".into()));
    let listener = listener.unwrap();
    let family = match server {
        SocketAddr::V4(_) => rustix::net::AddressFamily::INET,
        SocketAddr::V6(_) => rustix::net::AddressFamily::INET6,
    };
    let own = SocketAddr::new(client.parse().unwrap(), 0);
    let client = wan.client().run(|| {
        let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None);
        let socket = socket.doing(|| "socket".into())?;
        rustix::net::bind(&socket, &own).doing(|| "binding the client's address".into())?;
        rustix::net::connect(&socket, &server).doing(|| "connect".into())?;
        Ok(TcpStream::from(socket))
    });
    let client = client.unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&server, &client] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (server, client)
}

/// Sends a file's bytes in one direction and checks every one of them.
fn moves(name: &str, mut from: &TcpStream, mut to: &TcpStream) {
    let tag = Tag::of(name);
    let mut sent = vec![0; LEN_BYTES];
    fill(tag, 0, &mut sent);
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            from.write_all(&sent).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        to.read_to_end(&mut got).unwrap();
        got
    });
    assert_eq!(
        (got.len(), first_wrong(tag, 0, &got)),
        (LEN_BYTES, None),
        "{name}"
    );
}

#[test]
fn bytes_pass_both_ways_counters_move_and_a_change_holds() {
    if lacks("bytes_pass_both_ways_counters_move_and_a_change_holds") {
        return;
    }
    let _alone = alone();
    let wan = Wan::up(&topology()).unwrap();
    for (nth, (server, client)) in [("10.0.0.1:80", "10.1.0.77"), ("[fd00::1]:80", "fd01::77")]
        .into_iter()
        .enumerate()
    {
        let (server, client) = connection(&wan, server, client);
        moves(&format!("down{nth}"), &server, &client);
        moves(&format!("up{nth}"), &client, &server);
    }
    let counters = wan.counters().unwrap();
    let lossy = counters.path("lossy").unwrap();
    assert!(
        lossy.down.lost_packets > 0 && lossy.up.lost_packets == 0,
        "{counters:?}"
    );
    let marking = counters.path("marking").unwrap();
    assert!(
        marking.down.marked_packets > 0 && marking.down.lost_packets == 0,
        "{counters:?}"
    );
    for totals in [lossy.down, lossy.up, marking.down, marking.up] {
        assert!(totals.entered_bytes > LEN_BYTES as u64 && totals.delivered_packets > 100);
    }
    let link = counters.link("lossy down").unwrap();
    let sent = link.delivered_packets + link.lost_packets + link.dropped_full_packets;
    assert_eq!(link.offered_packets, sent);
    // 3 MB at 400 Mbit/s keep it busy for 63 ms, whatever the machine does meanwhile.
    assert!(
        (60_000..200_000).contains(&link.busy_us)
            && link.busy_us + link.idle_us <= counters.elapsed_us
    );

    let nothing_lost = LinkSpec {
        loss: Some(0.0),
        rate_mbit_per_s: Some(800.0),
        ..LinkSpec::default()
    };
    wan.set_path("lossy", Direction::Down, &nothing_lost)
        .unwrap();
    let before = wan.counters().unwrap();
    let (server, client) = connection(&wan, "10.0.0.1:81", "10.1.0.78");
    moves("after", &server, &client);
    let after = wan.counters().unwrap();
    let lost = |counters: &Counters| counters.path("lossy").unwrap().down.lost_packets;
    assert_eq!(lost(&before), lost(&after));
    let wrong = LinkSpec {
        loss: Some(2.0),
        ..LinkSpec::default()
    };
    let error = wan
        .set_path("lossy", Direction::Down, &wrong)
        .unwrap_err()
        .to_string();
    assert!(error.contains("loss = 2; allowed: 0 to 1"), "{error}");
    assert!(wan.set_path("lozzy", Direction::Up, &wrong).is_err());
}

#[test]
fn a_wire_beside_the_emulator_passes_it_by() {
    if lacks("a_wire_beside_the_emulator_passes_it_by") {
        return;
    }
    let _alone = alone();
    let topology = Topology {
        beside: Some("10.200.0.0/30".into()),
        ..topology()
    };
    let wan = Wan::up(&topology).unwrap();
    let (server, client) = connection(&wan, "10.0.0.1:80", "10.200.0.1");
    moves("down", &server, &client);
    moves("up", &client, &server);
    let counters = wan.counters().unwrap();
    let entered = counters.paths.iter();
    let entered = entered.map(|path| path.down.entered_bytes + path.up.entered_bytes);
    assert_eq!(entered.sum::<u64>(), 0);
    let (server, client) = connection(&wan, "10.0.0.1:81", "10.1.0.77");
    moves("others", &server, &client);
    assert!(
        wan.counters()
            .unwrap()
            .path("lossy")
            .unwrap()
            .down
            .entered_bytes
            > 0
    );
}

#[test]
fn a_connection_survives_a_change_under_way_and_down_leaves_nothing() {
    if lacks("a_connection_survives_a_change_under_way_and_down_leaves_nothing") {
        return;
    }
    let _alone = alone();
    let wan = Wan::up(&topology()).unwrap();
    let (server, client) = connection(&wan, "10.0.0.1:80", "10.1.0.1");
    std::thread::scope(|scope| {
        scope.spawn(|| moves("changing", &server, &client));
        let delivered = || {
            wan.counters()
                .unwrap()
                .path("lossy")
                .unwrap()
                .down
                .delivered_packets
        };
        for rate in [50.0, 2000.0, 300.0] {
            let (before, until) = (delivered(), std::time::Instant::now() + PATIENCE);
            // Go on when some more has passed, or all of it.
            while delivered() < (before + 200).min(2000) && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            let change = LinkSpec {
                rate_mbit_per_s: Some(rate),
                delay_ms: Some(rate / 100.0),
                ..LinkSpec::default()
            };
            wan.set_path("lossy", Direction::Down, &change).unwrap();
        }
    });
    let inode = |path: &Path| Some(std::fs::metadata(path).ok()?.ino());
    let ours = inode(Path::new(&wan.server().path())).unwrap();
    assert!(Namespace::open(&wan.server().path()).is_ok());
    let mut command = std::process::Command::new("cat");
    wan.client().enter_before_exec(command.arg("/proc/net/dev"));
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("wan0"));
    drop((server, client));
    drop(wan);
    let of_threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_threads = of_threads.map(|task| task.unwrap().path().join("ns/net"));
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = files.map(|file| file.unwrap().path());
    let left = of_threads
        .chain(files)
        .filter(|path| inode(path) == Some(ours));
    assert_eq!(left.count(), 0, "somebody still holds the namespace");
}

#[test]
fn what_the_kernel_does_not_have_is_refused_before_anything_runs() {
    if lacks("what_the_kernel_does_not_have_is_refused_before_anything_runs") {
        return;
    }
    let _alone = alone();
    let topology = Topology {
        congestion_control: "none_such".into(),
        ..topology()
    };
    let error = Wan::up(&topology).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("tcp_congestion_control"), "{error}");
}
