//! Clients that get less than they could read, and clients that pause for long.

use super::*;

const SEEDS_MANY: u64 = 20;
/// Clients of one world.
const CLIENTS: u64 = 5;
const SIZES_KIB: [u64; 4] = [16, 256, 1_024, 6_144];
/// Rate at which the disk feeds a client, in percent of the rate at which it could read.
const FED_PERCENT: [u64; 3] = [25, 50, 80];

/// The 5th percentile of the estimates is at least this part of what the disk brings.
const LEAST_OF_FED: f64 = 0.75;
/// The 95th percentile is at most this multiple of what the client could read.
const MOST_OF_TRUE: f64 = 1.6;

/// A starved client has nothing to read most of the time, so the counters show what it gets, and seldom more. The disk
/// reads for it by that rate. An estimate above what it takes would make all clients together look faster than the disk.
/// An estimate far below what it gets would make it ask for less and less.
#[test]
fn a_starved_client_is_believed_to_read_no_less_than_it_gets_and_no_more_than_it_could() {
    let mut table = String::from(
        "fed   buffer   prefetch over true rate, after 3 s   after 12 s\n\
         %        KiB                    p5   median   p95   p5   median   p95\n",
    );
    for fed_percent in FED_PERCENT {
        for buffer_kib in SIZES_KIB {
            let late = |rate_bytes_per_s: u64| {
                let piece_bytes = (rate_bytes_per_s / 2).max(FIRST_READ_BYTES);
                Supply::Late {
                    piece_bytes,
                    every_ms: piece_bytes * 1_000 * 100 / (rate_bytes_per_s * fed_percent),
                    until_ms: u64::MAX / 2,
                }
            };
            let readers = over_seeds(buffer_kib, late);
            table += &format!("{fed_percent:3} {buffer_kib:8}               ");
            for age_ms in [3_000, 12_000] {
                let ratios: Vec<f64> = readers.iter().map(|r| believed(r, age_ms)).collect();
                let [least, mid, most] =
                    [5, 50, 95].map(|percent| percentile(ratios.iter().copied(), percent));
                table += &(cell(least, 6, 2) + &cell(mid, 6, 2) + &cell(most, 6, 2));
                // After three seconds some have had two pieces.
                let least_of_fed = if age_ms > 3_000 { LEAST_OF_FED } else { 0.0 };
                assert!(
                    least * 100.0 >= fed_percent as f64 * least_of_fed && most <= MOST_OF_TRUE,
                    "{}: {fed_percent} %, {buffer_kib} KiB, {age_ms} ms: {least} to {most}",
                    SEEDS[0]
                );
            }
            table += "\n";
        }
    }
    compare("starved", &table);
}

/// How long a client reads, and how long it then reads nothing: longer than `send_timeout`, which is 60 s here.
const READS_S: [u64; 3] = [5, 20, 37];
const RESTS_S: u64 = 90;

/// A client that has paused acknowledges probes, so only `pause_timeout` limits it. The world panics if one is closed.
#[test]
fn a_client_that_pauses_for_longer_than_the_send_timeout_is_kept() {
    for reads_s in READS_S {
        let seed = SEEDS[0] + reads_s;
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let period_s = reads_s + RESTS_S;
        let mut clients = Vec::new();
        for supply in [Supply::Cached, LATE_BY_NOTHING] {
            for buffer_kib in [256, 1_024, 6_144] {
                for rate_bytes_per_s in [50_000, 200_000, 800_000] {
                    let mut client = Kind::Steady.client(rate_bytes_per_s, buffer_kib, &mut dice);
                    client.supply = supply;
                    client.profile.program = Program::Periodic {
                        rate_bytes_per_s: rate_bytes_per_s * reads_s / period_s,
                        every_ms: period_s * 1_000,
                        times: period_s.div_ceil(reads_s),
                    };
                    clients.push(client);
                }
            }
        }
        for reader in world(clients, 1, 2 * period_s).run().readers {
            let at = |s: u64| reader.read_noted_bytes[(s * 1_000 / NOTED_EACH_MS) as usize];
            assert_eq!(at(reads_s + 1), at(period_s - 2), "{seed}: it has paused");
            assert!(at(period_s + 2) > at(period_s - 2), "{seed}: it reads on");
        }
    }
}

/// From a disk that brings each piece as soon as it is wanted.
const LATE_BY_NOTHING: Supply = Supply::Late {
    piece_bytes: FIRST_READ_BYTES,
    every_ms: 1,
    until_ms: 0,
};

/// Clients of many seeds, each with its own rate.
fn over_seeds(buffer_kib: u64, supply: impl Fn(u64) -> Supply) -> Vec<Reader> {
    let of_seed = |nth| {
        let mut dice = Pcg64Mcg::seed_from_u64(SEEDS[0] + nth);
        let client = |_| {
            let rate_bytes_per_s = any_rate(&mut dice);
            let mut client = Kind::Steady.client(rate_bytes_per_s, buffer_kib, &mut dice);
            client.supply = supply(rate_bytes_per_s);
            client
        };
        let clients = (0..CLIENTS).map(client).collect();
        world(clients, 1, 14).run().readers
    };
    (0..SEEDS_MANY).flat_map(of_seed).collect()
}
