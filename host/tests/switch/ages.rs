//! Entries that nobody needs any more.

use std::time::Duration;

use ackpace_host_base::clock::monotonic_ns;

use crate::packets::{ACK, Comes, Sends, mac, of_client, tuple};
use crate::world::{A, B, CLIENT, World, peer};

const IDLE_NS: u64 = 3_000_000_000;

#[test]
fn what_a_server_has_left_goes_when_no_packet_comes() {
    let Some(world) = World::new("what_a_server_has_left_goes_when_no_packet_comes") else {
        return;
    };
    let node = world.node(A);
    let [used, idle, guest, own] = [4_000, 4_001, 4_002, 4_003].map(|port| tuple(false, port));
    let to_b = peer(A, B, false);
    node.with(move |it| {
        it.server_has_come();
        let lease = monotonic_ns() + 60_000_000_000;
        it.claim(&guest, 1, Some(lease)).expect("claimed");
        for flow in [used, idle] {
            it.redirect(&flow, to_b, 1).expect("redirected");
        }
        assert_eq!(it.forget_idle(0).expect("all"), 3, "its server is there");
        it.server_is_gone();
        assert_eq!(it.forget_idle(IDLE_NS).expect("all"), 3, "a moment ago");
    });
    // The next one.
    std::thread::sleep(Duration::from_millis(5));
    node.with(move |it| {
        it.server_has_come();
        it.redirect(&own, to_b, 1).expect("redirected");
    });
    let (sends, comes) = (Sends::from(&world, CLIENT), Comes::to(&world, B, false));
    for seq in 0..11 {
        sends.send(mac(&world, A), &of_client(&used, seq, 1, ACK, b""));
        std::thread::sleep(Duration::from_millis(500));
    }
    let left = node.with(move |it| {
        let left = it.forget_idle(IDLE_NS).expect("all");
        (left, [used, idle, guest, own].map(|flow| it.epoch(&flow)))
    });
    assert_eq!(left, (2, [Some(1), None, None, Some(1)]));
    assert_eq!(comes.of(&used, 11, Duration::from_secs(1)).len(), 11);
    // Of a server that is there, and of one that is frozen, nothing ages.
    node.with(move |it| {
        it.server_is_gone();
        it.hold(&used, 2).expect("held");
        it.forget_idle(0).expect("all");
        assert_eq!(it.epoch(&used), Some(2));
    });
}
