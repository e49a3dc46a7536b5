//! A live socket as values, and a socket of such values.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use ackpace_host::handoff::repair;
use ackpace_wire::cluster::Tcp;

use crate::world::{World, info, mute, option, unmute, value};

/// Longer than a client may delay an acknowledgement.
const QUIET: Duration = Duration::from_millis(60);

/// A connection that has sent 200 kB, and whose client is quiet.
fn warm(world: &mut World) {
    world.write(200_000);
    world.take_all();
    thread::sleep(QUIET);
}

#[test]
fn a_connection_goes_on_in_another_socket() {
    let Some(mut world) = World::new("a_connection_goes_on_in_another_socket") else {
        return;
    };
    warm(&mut world);
    for _ in 0..5 {
        world.moved();
        world.write(100_000);
        world.take_all();
        thread::sleep(QUIET);
    }
    let mut request = [0; 7];
    (&world.client).write_all(b"request").expect("it is open");
    thread::sleep(QUIET);
    (&world.server)
        .read_exact(&mut request)
        .expect("it is there");
    assert_eq!(&request, b"request");
}

#[test]
fn it_keeps_its_segment_size() {
    let Some(mut world) = World::new("it_keeps_its_segment_size") else {
        return;
    };
    warm(&mut world);
    assert_eq!(info(&world.server).snd_mss_bytes, 1_448);
    world.moved();
    world.write(10_000);
    world.take_all();
    assert_eq!(info(&world.server).snd_mss_bytes, 1_448);
}

/// The connection's MSS without the fix would be 524: its test is `it_keeps_its_segment_size`. Here: what both have agreed on.
#[test]
fn it_keeps_what_both_ends_have_agreed_on() {
    for (key, lacks) in [
        (
            "tcp_timestamps",
            (|tcp| tcp.timestamp.is_none()) as fn(&Tcp) -> bool,
        ),
        ("tcp_sack", |tcp| !tcp.sack),
        ("tcp_window_scaling", |tcp| tcp.wscales.is_none()),
        ("tcp_syncookies", |tcp| {
            tcp.timestamp.is_some() && tcp.sack && tcp.wscales.is_some()
        }),
    ] {
        let test = "it_keeps_what_both_ends_have_agreed_on";
        let settings = [(key, "0")];
        let Some(mut world) = World::with(test, "10.8.8.8", "10.9.9.9", &settings) else {
            return;
        };
        warm(&mut world);
        let before = world.moved().connection.tcp;
        assert!(lacks(&before), "{key}: {before:?}");
        world.write(500_000);
        world.take_all();
        thread::sleep(QUIET);
        let after = world.save().expect("it can move").connection.tcp;
        let agreed = |tcp: &Tcp| {
            (
                tcp.mss_bytes,
                tcp.wscales,
                tcp.sack,
                tcp.timestamp.is_some(),
            )
        };
        assert_eq!(agreed(&before), agreed(&after), "{key}");
        assert_eq!(info(&world.client).total_retrans_segments, 0, "{key}");
    }
}

#[test]
fn timestamps_never_go_back() {
    let Some(mut world) = World::new("timestamps_never_go_back") else {
        return;
    };
    warm(&mut world);
    let mut last = world.moved().connection.tcp.timestamp.expect("by default");
    for _ in 0..3 {
        world.write(1_000);
        world.take_all();
        thread::sleep(QUIET);
        let next = world.moved().connection.tcp.timestamp.expect("as before");
        let passed = next.wrapping_sub(last);
        assert!((1..2_000).contains(&passed), "{passed}");
        last = next;
    }
}

#[test]
fn ipv6_is_the_same() {
    let Some(mut world) = World::with("ipv6_is_the_same", "fd00:8::8", "fd00:9::9", &[]) else {
        return;
    };
    warm(&mut world);
    for _ in 0..3 {
        world.moved();
        world.write(100_000);
        world.take_all();
        thread::sleep(QUIET);
        assert!(info(&world.server).rtt_us > 0);
    }
}

/// A socket whose send queue is selected counts segments as sent that it never sends.
#[test]
fn the_send_queue_of_a_live_socket_is_never_selected() {
    let Some(mut world) = World::new("the_send_queue_of_a_live_socket_is_never_selected") else {
        return;
    };
    warm(&mut world);
    world.save().expect("it can move");
    let selected = value(&world.server, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE);
    assert_ne!(selected, 2);
    (&world.client).write_all(b"more").expect("it is open");
    thread::sleep(QUIET);
    let saved = world.save().expect("it can move");
    assert_eq!(saved.connection.received, b"more");
    let selected = value(&world.server, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE);
    assert_ne!(selected, 2);
}

#[test]
fn bytes_of_the_client_travel() {
    let Some(mut world) = World::new("bytes_of_the_client_travel") else {
        return;
    };
    warm(&mut world);
    let sent: Vec<u8> = (0..9_000u32).map(|n| n as u8).collect();
    (&world.client).write_all(&sent).expect("it is open");
    thread::sleep(QUIET);
    let mut first = [0; 1_000];
    (&world.server)
        .read_exact(&mut first)
        .expect("they are there");
    let saved = world.moved();
    assert_eq!(saved.connection.received, &sent[1_000..]);
    let mut rest = vec![0; 8_000];
    (&world.server)
        .read_exact(&mut rest)
        .expect("they travelled");
    assert_eq!(rest, &sent[1_000..]);
    (&world.client).write_all(b"on").expect("it is open");
    thread::sleep(QUIET);
    (&world.server)
        .read_exact(&mut first[..2])
        .expect("they follow");
    assert_eq!(&first[..2], b"on");
}

#[test]
fn more_of_the_client_than_a_head_stays() {
    let Some(mut world) = World::new("more_of_the_client_than_a_head_stays") else {
        return;
    };
    warm(&mut world);
    (&world.client).write_all(&[7; 20_000]).expect("it is open");
    thread::sleep(QUIET);
    let refused = world.save().expect_err("too much").text;
    assert!(refused.contains("too many bytes"), "{refused}");
    let mut all = vec![0; 20_000];
    (&world.server).read_exact(&mut all).expect("as before");
    world.write(100_000);
    world.take_all();
}

/// All that was sent is lost at the moment of the move.
#[test]
fn sent_bytes_that_were_lost_are_sent_again() {
    for timestamps in ["1", "0"] {
        let settings = [("tcp_timestamps", timestamps)];
        let test = "sent_bytes_that_were_lost_are_sent_again";
        let Some(mut world) = World::with(test, "10.8.8.8", "10.9.9.9", &settings) else {
            return;
        };
        warm(&mut world);
        mute(&world.client);
        world.write(30_000);
        thread::sleep(Duration::from_millis(5));
        let saved = world.save().expect("it can move");
        let tcp = saved.connection.tcp;
        assert!(tcp.snd_nxt.wrapping_sub(tcp.snd_una) > 10_000, "{tcp:?}");
        world.restore(&saved);
        unmute(&world.client);
        world.start(&saved);
        world.write(100_000);
        let took = world.take_all();
        // Three seconds without the round trip time.
        assert!(took < Duration::from_millis(900), "{took:?}");
    }
}

/// The client has them, and its acknowledgement is lost.
#[test]
fn sent_bytes_that_arrived_are_not_missed() {
    let Some(mut world) = World::new("sent_bytes_that_arrived_are_not_missed") else {
        return;
    };
    warm(&mut world);
    mute(&world.server);
    world.write(10_000);
    world.take_all();
    thread::sleep(QUIET);
    let saved = world.save().expect("it can move");
    let tcp = saved.connection.tcp;
    assert!(tcp.snd_nxt.wrapping_sub(tcp.snd_una) >= 10_000, "{tcp:?}");
    world.restore(&saved);
    world.start(&saved);
    world.write(200_000);
    let took = world.take_all();
    assert!(took < Duration::from_millis(900), "{took:?}");
}

/// 62 KB without a larger send buffer.
#[test]
fn as_much_can_be_put_back_as_was_in_flight() {
    let Some(mut world) = World::new("as_much_can_be_put_back_as_was_in_flight") else {
        return;
    };
    option(
        &world.server,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        8 << 20,
    );
    option(
        &world.client,
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        16 << 20,
    );
    for _ in 0..40 {
        world.write(400_000);
        world.take_all();
    }
    thread::sleep(QUIET);
    mute(&world.client);
    world.write(3_000_000);
    thread::sleep(Duration::from_millis(20));
    let saved = world.save().expect("it can move");
    let tcp = saved.connection.tcp;
    let flight_bytes = tcp.snd_nxt.wrapping_sub(tcp.snd_una);
    assert!(flight_bytes > 200_000, "{flight_bytes}");
    world.restore(&saved);
    unmute(&world.client);
    world.start(&saved);
    world.write(3_000_000);
    world.take_all();
}

/// The prime lies below what the client has acknowledged. A socket that moves on before the prime is acknowledged counts
/// from there.
#[test]
fn the_prime_is_never_taken_for_data() {
    let Some(mut world) = World::new("the_prime_is_never_taken_for_data") else {
        return;
    };
    warm(&mut world);
    mute(&world.client);
    let saved = world.save().expect("it can move");
    let una = saved.connection.tcp.snd_una;
    world.restore(&saved);
    let own = world.server.as_fd();
    repair::complete(&mut world.sockets, own, &saved.connection).expect("it is filled");
    repair::start(own, false).expect("setsockopt");
    assert_eq!(world.look().snd_una, una.wrapping_sub(1));
    let again = world.save_above(Some(una)).expect("it can move");
    assert_eq!(again.connection.tcp.snd_una, una);
    assert_eq!(again.connection.tcp.snd_nxt, una);
}

#[test]
fn a_closed_window_moves_and_opens() {
    let Some(mut world) = World::new("a_closed_window_moves_and_opens") else {
        return;
    };
    option(&world.client, libc::SOL_SOCKET, libc::SO_RCVBUF, 8_192);
    warm(&mut world);
    option(
        &world.server,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        1 << 20,
    );
    let more = crate::world::bytes(world.written, world.written + 200_000);
    (&world.server)
        .write_all(&more)
        .expect("the buffer is large");
    world.written += 200_000;
    thread::sleep(Duration::from_millis(300));
    let saved = world.save().expect("it can move");
    assert!(
        saved.connection.tcp.snd_wnd_bytes < 1_448,
        "{:?}",
        saved.connection.tcp
    );
    world.restore(&saved);
    world.start(&saved);
    let rest = 200_000 - (world.written - world.read).min(200_000);
    world.write(rest.max(1_000));
    world.take_all();
}

/// What is in flight fills the client's buffer, which its first acknowledgement after the move says.
#[test]
fn a_window_that_closes_meanwhile_is_closed() {
    let Some(mut world) = World::new("a_window_that_closes_meanwhile_is_closed") else {
        return;
    };
    option(&world.client, libc::SOL_SOCKET, libc::SO_RCVBUF, 16_384);
    option(&world.server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    warm(&mut world);
    let saved = world.save().expect("it can move");
    let window_bytes = saved.connection.tcp.snd_wnd_bytes;
    world.thaw(Some(saved.before));
    mute(&world.server);
    world.write(window_bytes.into());
    thread::sleep(QUIET);
    option(&world.client, libc::SOL_SOCKET, libc::SO_RCVBUF, 4_096);
    let saved = world.save().expect("it can move");
    let tcp = saved.connection.tcp;
    let flight_bytes = tcp.snd_nxt.wrapping_sub(tcp.snd_una);
    assert_eq!(
        (flight_bytes, tcp.snd_wnd_bytes),
        (window_bytes, window_bytes)
    );
    world.restore(&saved);
    world.start(&saved);
    let more = crate::world::bytes(world.written, world.written + 10_000);
    let given = (&world.server).write(&more).expect("the buffer has room");
    world.written += given as u64;
    thread::sleep(QUIET);
    let looked = world.look();
    assert_eq!(looked.snd_una, tcp.snd_nxt, "the client has all");
    assert_eq!(looked.snd_nxt, tcp.snd_nxt, "it is sent no more");
    world.take_all();
}

#[test]
fn one_that_is_half_closed_is_refused() {
    let Some(mut world) = World::new("one_that_is_half_closed_is_refused") else {
        return;
    };
    warm(&mut world);
    world
        .client
        .shutdown(std::net::Shutdown::Write)
        .expect("it is open");
    thread::sleep(Duration::from_millis(5));
    let refused = world.save().expect_err("it can't move").text;
    assert_eq!(refused, "one side has closed");
    world.write(100_000);
    world.take_all();
}

#[test]
fn window_and_threshold_survive_the_choice_of_a_congestion_control() {
    for control in ["cubic", "reno"] {
        let settings = [("tcp_congestion_control", control)];
        let test = "window_and_threshold_survive_the_choice_of_a_congestion_control";
        let Some(mut world) = World::with(test, "10.8.8.8", "10.9.9.9", &settings) else {
            return;
        };
        warm(&mut world);
        let mut saved = world.save().expect("it can move");
        let congestion = &mut saved.connection.congestion;
        assert_eq!(congestion.name, control);
        (congestion.cwnd_segments, congestion.ssthresh_segments) = (345, 234);
        world.restore(&saved);
        let own = world.server.as_fd();
        repair::complete(&mut world.sockets, own, &saved.connection).expect("it is filled");
        let looked = world.look();
        assert_eq!((looked.cwnd_segments, looked.ssthresh_segments), (345, 234));
    }
}

#[test]
fn the_round_trip_time_is_known_at_once() {
    let Some(mut world) = World::new("the_round_trip_time_is_known_at_once") else {
        return;
    };
    warm(&mut world);
    let mut saved = world.save().expect("it can move");
    saved.connection.congestion.srtt_us = 80_000;
    world.restore(&saved);
    mute(&world.client);
    world.start(&saved);
    let info = info(&world.server);
    assert!((78_000..90_000).contains(&info.rtt_us), "{info:?}");
    assert!(info.rto_us < 1_000_000, "{info:?}");
    let looked = world.look();
    assert_eq!(
        looked.snd_una, saved.connection.tcp.snd_una,
        "it took the prime"
    );
}

#[test]
fn frozen_and_thawed_leaves_no_trace() {
    let Some(mut world) = World::new("frozen_and_thawed_leaves_no_trace") else {
        return;
    };
    option(&world.server, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    warm(&mut world);
    mute(&world.client);
    world.write(100_000);
    let before = world.look();
    let saved = world.save().expect("it can move");
    world.thaw(Some(saved.before));
    let after = world.look();
    assert_eq!(
        (before.snd_una, before.rcv_nxt),
        (after.snd_una, after.rcv_nxt)
    );
    assert_eq!(before.cwnd_segments, after.cwnd_segments);
    let socket = &world.server;
    assert_eq!(value(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR), 1);
    assert_eq!(value(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR), 0);
    assert_eq!(value(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY), 0);
    unmute(&world.client);
    world.write(100_000);
    world.take_all();
}

/// Nothing is in flight that an acknowledgement could come for, and the timer that would have sent the rest found the window
/// closed.
#[test]
fn what_the_closed_window_kept_back_goes_out() {
    let Some(mut world) = World::new("what_the_closed_window_kept_back_goes_out") else {
        return;
    };
    warm(&mut world);
    let rate = libc::SO_MAX_PACING_RATE;
    option(&world.server, libc::SOL_SOCKET, rate, 2_000_000);
    option(
        &world.server,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        1 << 20,
    );
    let own = world.server.as_fd();
    world.sockets.seed(own, 1_000, 1_000).expect("root");
    // No acknowledgement comes, as if the packets were held.
    mute(&world.server);
    world.write(200_000);
    let saved = world.save().expect("it can move");
    thread::sleep(QUIET);
    let looked = world.look();
    assert_eq!(looked.snd_nxt, saved.connection.tcp.snd_nxt);
    assert_ne!(looked.snd_nxt, looked.write_seq, "some is unsent");
    let refused = (&world.server).write(b"more").expect_err("it is frozen");
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    world.thaw(Some(saved.before));
    assert_ne!(world.look().snd_nxt, looked.snd_nxt);
    unmute(&world.server);
    world.take_all();
}

/// As by a broker that has started again.
#[test]
fn one_whose_window_is_forgotten_asks_the_client() {
    let Some(mut world) = World::new("one_whose_window_is_forgotten_asks_the_client") else {
        return;
    };
    warm(&mut world);
    world.save().expect("it can move");
    world.thaw(None);
    world.write(100_000);
    let took = world.take_all();
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_frozen_socket_closes_silently() {
    let Some(mut world) = World::new("a_frozen_socket_closes_silently") else {
        return;
    };
    warm(&mut world);
    world.save().expect("it can move");
    world.server = world.client.try_clone().expect("a socket");
    thread::sleep(QUIET);
    world.take(); // panics at the end of the stream, and at a reset
    assert_eq!(value(&world.client, libc::SOL_SOCKET, libc::SO_ERROR), 0);
}

#[test]
fn a_queue_that_is_not_full_is_noticed() {
    let Some(mut world) = World::new("a_queue_that_is_not_full_is_noticed") else {
        return;
    };
    warm(&mut world);
    let mut saved = world.save().expect("it can move");
    world.restore(&saved);
    let tcp = &mut saved.connection.tcp;
    tcp.snd_nxt = tcp.snd_nxt.wrapping_add(100);
    let own = world.server.as_fd();
    let refused = repair::complete(&mut world.sockets, own, &saved.connection);
    let refused = refused.expect_err("it lacks some").text;
    assert_eq!(refused, "the send queue lacks 100 bytes");
}

#[test]
fn what_is_no_connection_is_refused() {
    let Some(world) = World::new("what_is_no_connection_is_refused") else {
        return;
    };
    let file = std::fs::File::open("/dev/null").expect("it is there");
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
    for fd in [file.as_fd(), datagrams.as_fd(), world.listener.as_fd()] {
        assert!(repair::freeze(fd).is_err());
    }
}
