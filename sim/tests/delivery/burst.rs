//! TPF 4.4, Fig. 15: a burst of new clients, beside clients with small and with large sockets.
//!
//! This world has no round-trip times. In the paper, a long round trip left more bytes pending in the socket. Here half
//! of the clients have small sockets and half have large ones, and bytes are sent eagerly, as by the server of the
//! paper. (Our server fills sockets by time, whatever the round trip.)

use super::*;

const EACH: usize = 100;
const BURST_AT: u64 = 30;

fn bursty(seed: u64, disk: Settings, burst_s: u64) -> World {
    let mut clients = downloads(seed, &[(3 * EACH, MBIT)]);
    for (n, download) in clients.iter_mut().enumerate() {
        download.client.socket_bytes = if n / EACH == 1 { 2 * MBIT } else { 16_384 };
        if n / EACH == 2 {
            let at = seconds(BURST_AT).plus_us(download.client.starts_at.us / 60);
            download.client.starts_at = at;
            download.resets_at = Some(seconds(BURST_AT + burst_s));
        }
    }
    World {
        send: SendPolicy::Eager,
        measured_from: seconds(BURST_AT),
        ends_at: seconds(BURST_AT + burst_s + 1),
        ..world(clients, disk)
    }
}

#[test]
fn a_burst_of_new_clients_takes_little_from_those_who_were_there() {
    let tables = over_seeds(&SEEDS, |seed| {
        let columns = [
            ("small sockets", 1),
            ("min", 1),
            ("large sockets", 1),
            ("min", 1),
            ("the burst, KB/s", 1),
        ];
        let mut table = Table::new(seed, "burst s  reads", columns);
        for burst_s in [1, 3] {
            burst(seed, burst_s, &mut table);
        }
        table
    });
    compare("delivery/burst", &Table::medians(&tables).to_string());
}

fn burst(seed: u64, burst_s: u64, table: &mut Table<5>) {
    let [fixed, tdap] = [("fixed", FIXED), ("tdap", Prefetch::Tdap)].map(|(name, prefetch)| {
        let disk = Settings {
            prefetch,
            ..settings(64)
        };
        let world = bursty(seed, disk, burst_s);
        let outcome = world.run();
        let (small, small_min) = kb_per_s(&world, &outcome, 0..EACH);
        let (large, large_min) = kb_per_s(&world, &outcome, EACH..2 * EACH);
        let (burst, _) = kb_per_s(&world, &outcome, 2 * EACH..3 * EACH);
        let figures = [small, small_min, large, large_min, burst];
        table.row(format!("{burst_s:7}  {name}"), figures);
        [small, large]
    });
    for (fixed, tdap) in fixed.into_iter().zip(tdap) {
        assert!(
            tdap >= 1.15 * fixed && tdap * 1e3 >= 0.85 * MBIT as f64,
            "the burst took it; {table}"
        );
    }
}
