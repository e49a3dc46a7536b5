//! The emulator end to end on the real kernel. Nothing here measures time.

use super::topology::PathSpec;
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
    let mut lossy = PathSpec::new("lossy", "10.1.0.1-10.1.0.254");
    lossy.down = LinkSpec::limited(400.0, 100.0, 1.0);
    lossy.down.loss = 0.005;
    let mut marking = PathSpec::new("marking", "10.2.0.1");
    marking.down = LinkSpec::limited(200.0, 100.0, 1.0);
    Topology {
        ecn: true,
        path: vec![lossy, marking],
        beside: Some("10.200.0.1"),
        ..Topology::default()
    }
}

/// A connection from a client's address to a port of the server: the server's end, the client's end.
fn connection(wan: &Wan, port: u16, client: &str) -> (TcpStream, TcpStream) {
    let server = SocketAddr::new(SERVER.into(), port);
    let listener = wan
        .server()
        .run(|| TcpListener::bind(server).doing(|| "bind".into()));
    let listener = listener.unwrap();
    let own = SocketAddr::new(client.parse().unwrap(), 0);
    let client = wan.client().run(|| {
        let (family, kind) = (
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
        );
        let socket = rustix::net::socket(family, kind, None).doing(|| "socket".into())?;
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
fn bytes_pass_both_ways_counters_move_and_down_leaves_nothing() {
    if lacks("bytes_pass_both_ways_counters_move_and_down_leaves_nothing") {
        return;
    }
    let _alone = alone();
    let wan = Wan::up(&topology()).unwrap();
    let passes = |port, client: &str| {
        let (server, client) = connection(&wan, port, client);
        moves(&format!("down{port}"), &server, &client);
        moves(&format!("up{port}"), &client, &server);
    };
    let link = |name: &str| {
        let links = wan.counters().unwrap().links;
        links.into_iter().find(|link| link.name == name).unwrap()
    };
    passes(80, "10.200.0.1"); // beside the emulator
    let links = wan.counters().unwrap().links;
    assert!(links.iter().all(|link| link.totals.offered_packets == 0));
    passes(81, "10.1.0.77");
    let lossy = link("lossy down");
    let totals = lossy.totals;
    let sent = totals.delivered_packets + totals.lost_packets + totals.dropped_full_packets;
    assert!(totals.lost_packets > 0 && totals.offered_packets == sent);
    // 3 MB at 400 Mbit/s keep it busy for 63 ms, whatever the machine does meanwhile.
    assert!((60_000..200_000).contains(&lossy.busy_us), "{lossy:?}");
    assert!(link("lossy up").totals.lost_packets == 0);
    wan.mark("marking", 0.1).unwrap();
    passes(82, "10.2.0.1");
    assert!(link("marking down").totals.marked_packets > 0);
    assert!(wan.mark("marling", 0.1).is_err());
    let inode = |path: &Path| Some(std::fs::metadata(path).ok()?.ino());
    let ours = inode(Path::new(&wan.server().path())).unwrap();
    let mut command = std::process::Command::new("cat");
    wan.client().enter_before_exec(command.arg("/proc/net/dev"));
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("wan0"));
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
        congestion_control: "none_such",
        ..topology()
    };
    let error = Wan::up(&topology).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("tcp_congestion_control"), "{error}");
}
