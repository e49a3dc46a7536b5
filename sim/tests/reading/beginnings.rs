//! The first seconds of a response. While rates are guessed, sockets are filled up to a bound; that bound must slow nobody
//! down in slow start. The measure is a server that fills each socket as soon as it takes bytes.

use super::*;

/// Receive buffers of the fast client, whose size limits nothing.
const BUFFER_KIB: u64 = 64 << 10;
/// Minimum share of the bytes that the eager server brings.
const PART_MIN: f64 = 0.99;
/// Slow clients beside it, of 100 KB/s and 6 MiB of receive buffer, which begin in the same second.
const CROWD: usize = 300;

#[test]
fn slow_start_takes_its_course_on_paths_of_any_length() {
    let mut table = String::from(
        "                            MB read after 1 s: eager, margin   after 4 s: eager, margin   underrun ms\n",
    );
    for crowd in [0, CROWD] {
        for (mb_per_s, rtt_ms) in [(125, 2), (125, 20), (40, 100), (20, 200), (2, 300)] {
            table += &format!("{crowd:5} + {mb_per_s:3} MB/s, {rtt_ms:3} ms");
            let mut underrun_ms = 0;
            for ends_s in [1, 4] {
                let sends = [SendPolicy::Eager, SEND];
                let fast = |send| first(crowd, mb_per_s * 1_000_000, rtt_ms, send, ends_s);
                let [eager, margin] = sends.map(fast);
                table += &cell(eager.read_bytes as f64 / 1e6, 17, 2);
                table += &cell(margin.read_bytes as f64 / 1e6, 9, 2);
                underrun_ms = margin.underrun_ms;
                assert!(
                    margin.read_bytes as f64 >= eager.read_bytes as f64 * PART_MIN,
                    "seed {}: a fast client is slowed down\n{table}",
                    SEEDS[0]
                );
            }
            table += &format!("{underrun_ms:14}\n");
        }
    }
    compare("beginnings", &table);
}

/// A client that only its path limits, beside a crowd.
fn first(
    crowd: usize,
    link_bytes_per_s: u64,
    rtt_ms: u64,
    send: SendPolicy,
    ends_s: u64,
) -> Reader {
    let mut dice = Pcg64Mcg::seed_from_u64(SEEDS[0]);
    let mut clients = (0..crowd)
        .map(|_| Kind::Steady.client(100_000, 6_144, &mut dice))
        .collect::<Vec<_>>();
    let mut fast = Kind::Fast.client(100_000, BUFFER_KIB, &mut dice);
    (fast.profile.link_bytes_per_s, fast.profile.rtt_ms) = (link_bytes_per_s, rtt_ms);
    fast.starts_ms = 0;
    clients.push(fast);
    let world = World {
        send,
        ..world(clients, 0, ends_s)
    };
    let mut readers = world.run().readers;
    readers.pop().expect("the fast one")
}
