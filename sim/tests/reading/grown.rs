//! Clients that read in bursts, with receive buffers that Linux tunes. Such a buffer grows after a burst, and to the
//! sender that looks like reading. The table compares the worker's estimate with that of an oracle, which sees each read
//! but not the future.

use super::*;

const SEEDS_MANY: u64 = 20;
/// Clients of one world.
const CLIENTS: u64 = 5;
/// From one burst to the next; 0: it reads steadily.
const PERIODS_MS: [u64; 6] = [0, 250, 500, 1_000, 2_000, 5_000];
/// The longest period of which enough was seen after twelve seconds: a buffer grows in several steps.
const KNOWN_MS_MAX: u64 = 2_000;
/// So far off may the rate of a client that reads in bursts be. Nothing depends on more.
const BURSTS_FACTOR_MAX: f64 = 4.0;
/// Segments of a network, and of the loopback.
const SEGMENTS_BYTES: [u64; 2] = [1_448, 65_483];
/// Size of a tuned buffer at the start, and its maximum.
const TUNED_KIB: [u64; 2] = [128, 6_144];

#[test]
fn a_burst_is_told_from_a_buffer_that_grows() {
    let mut table = String::from(
        "period  segment  oracle, 3 s  after 3 s    after 12 s\n\
         ms        bytes  err %   x95  err %   x95  err %   x95\n",
    );
    for every_ms in PERIODS_MS {
        for segment_bytes in SEGMENTS_BYTES {
            let readers = over_seeds(every_ms, segment_bytes);
            let oracle = readers.iter().map(|reader| oracle(reader, every_ms));
            let oracle = Error::of(&oracle.collect::<Vec<_>>());
            let [early, late] = [3_000, 12_000].map(|age_ms| {
                let ratios = readers.iter().map(|reader| believed(reader, age_ms));
                Error::of(&ratios.collect::<Vec<_>>())
            });
            table += &format!("{every_ms:5} {segment_bytes:9}");
            for error in [oracle, early, late] {
                table += &(cell(error.median_percent, 6, 0) + &cell(error.factor, 5, 2));
            }
            table += "\n";
            let case = format!("seed {}: {every_ms} ms, {segment_bytes} bytes", SEEDS[0]);
            let is_steady = every_ms == 0;
            assert!(
                early.is_small() || !is_steady,
                "{case}: {early:?} after 3 s"
            );
            assert!(late.is_small() || !is_steady, "{case}: {late:?} after 12 s");
            let is_known = every_ms <= KNOWN_MS_MAX;
            assert!(
                late.factor <= BURSTS_FACTOR_MAX || !is_known,
                "{case}: {late:?}"
            );
        }
    }
    compare("grown", &table);
}

/// The best estimate after three seconds for an oracle that sees each read: the bytes of all periods that have ended, over
/// their time. If none has ended, all bytes that were read, since nothing shows when the client will read again.
fn oracle(reader: &Reader, every_ms: u64) -> f64 {
    let whole_ms = 3_000 / every_ms.max(NOTED_EACH_MS) * every_ms.max(NOTED_EACH_MS);
    let over_ms = if whole_ms == 0 { 3_000 } else { whole_ms };
    // The next burst may have begun just then.
    let last = over_ms / NOTED_EACH_MS - u64::from(every_ms > 0);
    let noted = reader.read_noted_bytes[last as usize];
    (noted * 1_000 / over_ms) as f64 / reader.true_bytes_per_s as f64
}

fn over_seeds(every_ms: u64, segment_bytes: u64) -> Vec<Reader> {
    let of_seed = |nth| {
        let mut dice = Pcg64Mcg::seed_from_u64(SEEDS[0] + nth);
        let client = |_| {
            let rate_bytes_per_s = any_rate(&mut dice);
            let mut client = Kind::Steady.client(rate_bytes_per_s, TUNED_KIB[0], &mut dice);
            client.profile.buffer_most_bytes = TUNED_KIB[1] << 10;
            client.profile.segment_bytes = segment_bytes;
            if segment_bytes > 1_448 {
                client.profile.rtt_ms = 1;
            }
            if every_ms > 0 {
                client.profile.program = Program::Periodic {
                    rate_bytes_per_s,
                    every_ms,
                    times: 1_000,
                };
            }
            client
        };
        let clients = (0..CLIENTS).map(client).collect();
        world(clients, 1, 14).run().readers
    };
    (0..SEEDS_MANY).flat_map(of_seed).collect()
}
