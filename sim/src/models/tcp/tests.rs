use super::*;

const MEGABYTE: u64 = 1_000_000;

fn profile(program: Program, buffer_bytes: u64) -> ConnectionProfile {
    ConnectionProfile {
        program,
        buffer_bytes,
        link_bytes_per_s: 100 * MEGABYTE,
        rtt_ms: 20,
        segment_bytes: 1_448,
    }
}

/// Runs it for these seconds, with a socket that always holds a megabyte. Returns what its program read meanwhile, bytes
/// per second.
fn fed(tcp: &mut Connection, seconds: std::ops::Range<u64>) -> u64 {
    let before_bytes = tcp.receiver().read_bytes();
    let s = seconds.end - seconds.start;
    for ms in seconds.start * 1_000..seconds.end * 1_000 {
        fed_once(tcp, ms);
    }
    (tcp.receiver().read_bytes() - before_bytes) / s
}

fn is_near(bytes_per_s: u64, expected_bytes_per_s: u64) -> bool {
    bytes_per_s.abs_diff(expected_bytes_per_s) * 100 <= expected_bytes_per_s
}

#[test]
fn a_path_carries_its_rate_and_is_never_limited_by_the_window() {
    let mut tcp = Connection::new(ConnectionProfile {
        link_bytes_per_s: MEGABYTE,
        ..profile(Program::All, 256 << 10)
    });
    fed(&mut tcp, 0..1);
    let limited_us = tcp.counters().window_limited_us;
    assert!(is_near(fed(&mut tcp, 1..5), MEGABYTE));
    let counters = tcp.counters();
    assert_eq!(counters.window_limited_us, limited_us);
    assert_eq!(counters.busy_us, 5 * MEGABYTE);
}

#[test]
fn a_small_buffer_carries_one_window_in_a_round_trip() {
    let buffer_bytes = 32 * 1_448;
    let mut tcp = Connection::new(profile(Program::All, buffer_bytes));
    fed(&mut tcp, 0..1);
    let bytes_per_s = fed(&mut tcp, 1..5);
    assert!(is_near(bytes_per_s, buffer_bytes * 50), "{bytes_per_s}");
    assert!(tcp.counters().window_limited_us >= 3 * MEGABYTE);
}

#[test]
fn a_program_that_reads_steadily_fills_its_buffer_and_then_gets_what_it_reads() {
    for (buffer_bytes, rate_bytes_per_s) in [(32 << 10, 100_000), (1 << 20, 400_000)] {
        let mut tcp = Connection::new(profile(Program::Steady(rate_bytes_per_s), buffer_bytes));
        assert!(is_near(fed(&mut tcp, 1..11), rate_bytes_per_s));
        let counters = tcp.counters();
        let unread_bytes = counters.acked_bytes - tcp.receiver().read_bytes();
        assert!(unread_bytes > buffer_bytes / 2, "{unread_bytes}");
        assert!(counters.window_limited_us > 9 * MEGABYTE);
        assert!(counters.window_bytes < buffer_bytes / 2);
    }
}

#[test]
fn a_full_buffer_announces_a_sixteenth_at_once() {
    let buffer_bytes = 1 << 20;
    let mut tcp = Connection::new(profile(Program::Steady(200_000), buffer_bytes));
    fed(&mut tcp, 0..10);
    let mut opened_bytes = Vec::new();
    for ms in 10_000..20_000 {
        let before_bytes = tcp.counters().window_bytes;
        fed_once(&mut tcp, ms);
        let window_bytes = tcp.counters().window_bytes;
        if before_bytes == 0 && window_bytes > 0 {
            opened_bytes.push(window_bytes);
        }
    }
    assert!(!opened_bytes.is_empty());
    let near = buffer_bytes / 16..buffer_bytes / 16 + 2_000;
    assert!(
        opened_bytes.iter().all(|bytes| near.contains(bytes)),
        "{opened_bytes:?}"
    );
}

fn fed_once(tcp: &mut Connection, ms: u64) {
    tcp.give(MEGABYTE - tcp.unsent_bytes().min(MEGABYTE), false, ms);
    tcp.pass(ms);
}

#[test]
fn one_that_reads_nothing_closes_its_window_and_an_empty_socket_is_not_busy() {
    let mut tcp = Connection::new(profile(Program::Steady(0), 64 << 10));
    fed(&mut tcp, 0..2);
    let counters = tcp.counters();
    assert!(counters.window_bytes < 1_448, "{counters:?}");
    assert_eq!(tcp.receiver().read_bytes(), 0);
    assert_eq!(counters.busy_us, 2 * MEGABYTE);
    let mut tcp = Connection::new(profile(Program::All, 64 << 10));
    tcp.give(10_000, false, 0);
    (0..1_000).for_each(|ms| tcp.pass(ms));
    assert_eq!(tcp.receiver().read_bytes(), 10_000);
    assert!(tcp.counters().busy_us < 100_000, "{:?}", tcp.counters());
}

#[test]
fn a_cork_holds_back_a_part_of_a_segment_for_a_fifth_of_a_second() {
    let mut tcp = Connection::new(profile(Program::All, 64 << 10));
    tcp.give(2_000, true, 0);
    (0..200).for_each(|ms| tcp.pass(ms));
    assert_eq!(tcp.receiver().read_bytes(), 1_448);
    (200..300).for_each(|ms| tcp.pass(ms));
    assert_eq!(tcp.receiver().read_bytes(), 2_000);
}

#[test]
fn a_congestion_window_doubles_in_a_round_trip_and_grows_only_while_it_is_used() {
    let first_bytes = FIRST_WINDOW_SEGMENTS * 1_448;
    let mut tcp = Connection::new(profile(Program::All, 64 * MEGABYTE));
    for round in 0..6 {
        (round * 20..(round + 1) * 20).for_each(|ms| fed_once(&mut tcp, ms + 10));
        assert_eq!(tcp.congestion_window_bytes(), first_bytes << round);
    }
    let mut tcp = Connection::new(profile(Program::All, 64 * MEGABYTE));
    for ms in 0..1_000 {
        if ms % 20 == 0 {
            tcp.give(first_bytes / 2 - 1_448, false, ms);
        }
        tcp.pass(ms);
    }
    assert_eq!(tcp.congestion_window_bytes(), first_bytes);
}

/// Linux 6.18 over loopback, with TCP_CORK: 560 B of the window stay open for 213 ms, and then it is closed.
#[test]
fn what_is_left_of_a_window_is_sent_by_a_probe() {
    let buffer_bytes = 20 * 1_448 + 560;
    let mut tcp = Connection::new(profile(Program::Steady(0), buffer_bytes));
    let mut window_bytes = |until_ms: u64, from_ms: u64| {
        for ms in from_ms..until_ms {
            tcp.give(MEGABYTE - tcp.unsent_bytes().min(MEGABYTE), true, ms);
            tcp.pass(ms);
        }
        tcp.counters().window_bytes
    };
    assert_eq!(window_bytes(200, 0), 560);
    assert_eq!(window_bytes(500, 200), 0);
    assert_eq!(tcp.counters().acked_bytes, buffer_bytes);
}
