//! The admin socket of a running server: `ackpace top` and `ackpace why`, also with hostile clients.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use ackpace_tests::{
    Conn, PATIENCE, Tree, Watched, cached_bytes, client, command, eventually, forget_cached,
    raise_own_limit, run, server_binary, skip,
};

#[test]
fn why_of_a_stalled_client_names_its_closed_window() {
    let watched = Watched::start("--workers 2");
    let conn = watched.stalled("/big", "");
    let peer = conn.stream.local_addr().expect("an address").to_string();
    let mut told = String::new();
    eventually("the window is closed", || {
        let why = watched.ackpace(&["why", &peer]);
        assert!(why.success, "{}", why.err);
        told = why.out;
        told.contains("its client's window is closed (0 B)")
    });
    for part in [
        &format!("{peer} (connection ")[..],
        "gets /", // the file
        "it waits for its client, which does not read: its receive window is closed or full, for ",
        "wait unsent in the socket",
        "The last decisions:\n",
        " ago: given ",
        " because its response began",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    // By its name, too.
    let id = told
        .split("(connection ")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let why = watched.ackpace(&["why", "--json", id.expect("a name")]);
    assert!(
        why.out.contains("\"wait\":\"window\"") && why.out.contains("\"window_bytes\":0"),
        "{}",
        why.out
    );
    drop(conn);
    eventually("the client is gone", || {
        let why = watched.ackpace(&["why", &peer]);
        why.code == Some(1) && why.err.contains("there is no such connection now")
    });
    let wrong = watched.ackpace("why nobody");
    assert_eq!(wrong.code, Some(1), "{}", wrong.err);
    let text = "nobody is no connection and no device; the devices are 0 (";
    assert!(wrong.err.contains(text), "{}", wrong.err);
    let neither = watched.ackpace("why 1.2");
    assert_eq!(neither.code, Some(2), "{}", neither.err);
}

#[test]
fn why_of_a_cold_download_tells_why_its_reads_were_made() {
    let watched = Watched::start("");
    let file = std::fs::File::open(watched.tree.at("site/big")).expect("a file");
    forget_cached(&file);
    if cached_bytes(&file) > 0 {
        skip("the files of tests are where the page cache can't be emptied");
        return watched.server.stop();
    }
    let conn = watched.stalled("/big", "");
    let peer = conn.stream.local_addr().expect("an address").to_string();
    let mut told = String::new();
    eventually("a read is explained", || {
        told = watched.ackpace(&["why", &peer]).out;
        told.contains(" ago: read ")
    });
    let first = "before all who have something, since it had nothing yet; this long because its rate is not known yet";
    assert!(told.contains(first), "{told}");
    let device = watched.err_line(&["device 0 (", "for the first time: "]);
    assert!(device.contains("the page cache"), "{device}");
    // The device that the file was read from explains itself, too.
    let device = watched.ackpace("why 0");
    assert!(device.success, "{}", device.err);
    for part in [
        "device 0 (",
        ") is read from by 1 stream, ",
        "\nthe target is ",
        " reads at once, since ",
        " for reading ahead are in use",
    ] {
        assert!(device.out.contains(part), "no {part:?} in\n{}", device.out);
    }
    let json = watched.ackpace("why --json 0").out;
    assert!(json.contains("\"device\":{\"device\":0,"), "{json}");
}

#[test]
fn the_numbers_of_top_add_up() {
    let Some(mut python) = client("python3") else {
        return;
    };
    let watched = Watched::start("--workers 2");
    let conns: Vec<Conn> = (0..12).map(|_| watched.stalled("/big", "")).collect();
    let _idle = watched.connect();
    let mut json = String::new();
    eventually("all are under way", || {
        let top = watched.ackpace("top --once --json -n 200");
        assert!(top.success, "{}", top.err);
        json = top.out;
        json.matches("\"phase\":\"sending\"").count() == conns.len()
            && json.matches("\"connections\":").count() == 3
    });
    let check = "import json, sys\n\
        top = json.loads(sys.argv[1]); workers, conns = top['workers'], top['connections']\n\
        assert top['version'] == 1 and top['left_out'] == 0 and top['silent_workers'] == []\n\
        assert [row['worker'] for row in workers] == [0, 1]\n\
        assert sum(row['sending'] for row in workers) == len(conns) == 12\n\
        assert sum(row['rate_bytes_per_s'] for row in workers) == sum(c['rate_bytes_per_s'] for c in conns)\n\
        heads = set()\n\
        for c in conns:\n\
        \x20   response = c['response']\n\
        \x20   heads.add(response['sent_bytes'] + response['left_bytes'] - (32 << 20))\n\
        \x20   assert c['object'].endswith('/big') and c['unsent_bytes'] > 0 and c['rtt_us'] > 0, c\n\
        \x20   assert c['unsent_bytes'] + c['in_flight_bytes'] <= response['sent_bytes'], c\n\
        \x20   assert response['waited_disk_us'] + response['waited_net_us'] <= response['took_us'], c\n\
        assert len(heads) == 1 and 100 < heads.pop() < 1000\n\
        assert sum(row['sent_bytes'] for row in workers) == sum(c['response']['sent_bytes'] for c in conns)\n";
    let outcome = run(python.args(["-c", check, json.trim_end()]));
    assert!(outcome.success, "{}\n{json}", outcome.err);
    let few = watched.ackpace("top --once -n 5");
    assert!(few.out.contains("\nand 7 more\n"), "{}", few.out);
    assert!(
        few.out.contains("window") && few.out.contains("/big"),
        "{}",
        few.out
    );
}

#[test]
fn a_worker_that_has_drained_is_not_said_to_hang() {
    let mut watched = Watched::start("--workers 2 --drain-timeout 1h");
    let conn = watched.stalled("/big", "");
    watched.signal(libc::SIGTERM);
    eventually("a worker has ended", || {
        let top = watched.ackpace("top --once");
        assert!(!top.out.contains("does not answer"), "{}", top.out);
        top.out
            .contains(" has ended: its last connection has ended\n")
    });
    let json = watched.ackpace("top --once --json").out;
    assert!(json.contains("\"silent_workers\":[]"), "{json}");
    let why = watched.ackpace("why 192.0.2.1:1");
    let told = "there is no such connection now";
    assert!(why.err.contains(told), "{}", why.err);
    watched.signal(libc::SIGTERM);
    assert_eq!(watched.wait().code(), Some(1));
    drop(conn);
}

#[test]
fn the_one_server_is_found_without_options() {
    let tree = Tree::new();
    tree.file("site/a", "a");
    let home = tree.dir("runtime");
    let set = |command: &mut std::process::Command| {
        command
            .env("XDG_RUNTIME_DIR", &home)
            .env_remove("RUNTIME_DIRECTORY");
        command.env_remove("ACKPACE_ADMIN");
    };
    let start = || {
        let mut server = command(server_binary());
        set(&mut server);
        server
            .args(["--listen", "127.0.0.1:0"])
            .arg(tree.at("site"));
        server.stdout(std::process::Stdio::piped());
        let mut server = server.spawn().expect("the server starts");
        let mut line = String::new();
        let out = server.stdout.as_mut().expect("its output");
        BufReader::new(out)
            .read_line(&mut line)
            .expect("its greeting");
        server
    };
    let top = |args: &[&str]| {
        let mut top = command(server_binary());
        set(&mut top);
        run(top.args(["top", "--once"]).args(args))
    };
    let sockets = || std::fs::read_dir(home.join("ackpace")).map_or(0, Iterator::count);
    let mut first = start();
    let path = home.join(format!("ackpace/{}.sock", first.id()));
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!((mode(&path), mode(&home.join("ackpace"))), (0o600, 0o700));
    let path = path.to_str().expect("UTF-8");
    assert!(top(&["--admin", path]).success);
    // Another server of this machine may be in a place where root looks, too.
    let alone = top(&[]);
    if alone.success {
        assert!(
            alone.out.contains(&format!("(process {})", first.id())),
            "{}",
            alone.out
        );
    }
    let mut second = start();
    let two = top(&[]);
    assert_eq!(two.code, Some(1), "{}", two.out);
    assert!(
        two.err.contains("several servers run here") && two.err.contains(path),
        "{}",
        two.err
    );
    first
        .kill()
        .and_then(|()| first.wait())
        .expect("our own child");
    assert_eq!(sockets(), 2, "a killed server leaves its socket");
    let mut third = start();
    assert_eq!(sockets(), 2, "the next one removes it");
    for server in [&mut second, &mut third] {
        server
            .kill()
            .and_then(|()| server.wait())
            .expect("our own child");
    }
}

#[test]
fn the_admin_socket_survives_garbage_silence_and_a_thousand_clients() {
    if raise_own_limit() < 1200 {
        return skip("it needs 1,200 descriptors (ulimit -Hn)");
    }
    let watched = Watched::start("");
    let before = watched.descriptors();
    let connect = || {
        let stream = UnixStream::connect(&watched.admin)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        std::io::Result::Ok(BufReader::new(stream))
    };
    let line = |conn: &mut BufReader<UnixStream>| {
        let mut line = String::new();
        conn.read_line(&mut line).expect("an answer in time");
        line
    };
    let mut conn = connect().expect("a socket");
    for request in [
        "\n",
        "ackpace/2 top\n",
        "\u{0}\u{ff}\n",
        "ackpace/1 why x\n",
        "GET / HTTP/1.1\r\n",
    ] {
        conn.get_mut()
            .write_all(request.as_bytes())
            .expect("the server takes it");
        let answer = line(&mut conn);
        assert!(
            answer.starts_with("{\"version\":1,\"error\":\""),
            "{request:?}: {answer}"
        );
    }
    // Several requests at once are answered one by one.
    conn.get_mut()
        .write_all(b"ackpace/1 top 1\nackpace/1 top\nackp")
        .expect("the server takes it");
    assert!(line(&mut conn).contains("\"workers\":[{"));
    assert!(line(&mut conn).contains("\"workers\":[{"));
    conn.get_mut()
        .write_all(b"ace/1 top\n")
        .expect("the server takes it");
    assert!(line(&mut conn).contains("\"workers\":[{"));
    let mut long = connect().expect("a socket");
    long.get_mut()
        .write_all(&[b'x'; 600])
        .expect("the server takes it");
    assert!(line(&mut long).contains("too long"));
    let mut rest = Vec::new();
    long.read_to_end(&mut rest).expect("an orderly end");
    assert!(rest.is_empty());
    let _silent: Vec<_> = (0..1000)
        .filter_map(|_| match connect() {
            Ok(conn) => Some(conn),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        })
        .collect();
    let top = watched.ackpace("top --once");
    assert!(top.success, "{}", top.err);
    let held = watched.descriptors();
    assert!(held <= before + 40, "{held} descriptors, {before} before");
    assert_eq!(watched.get("/a", "").status, 200);
}
