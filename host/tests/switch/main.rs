//! The flow switch in network namespaces; as root, skipped elsewhere.

mod packets;
mod world;

use std::time::Duration;

use packets::{ACK, Comes, Sends, mac, of_client, tuple};
use world::{A, B, CLIENT, World, peer};

const SOON: Duration = Duration::from_secs(2);

#[test]
fn packets_go_to_the_peer_by_its_mac_with_a_lower_ttl() {
    let test = "packets_go_to_the_peer_by_its_mac_with_a_lower_ttl";
    let Some(world) = World::new(test) else {
        return;
    };
    let node = world.node(A);
    let (mac_a, mac_b) = (mac(&world, A), mac(&world, B));
    // The last: a packet of IPv4 by a peer's address of IPv6.
    for (port, is_ipv6, by_ipv6) in [
        (4_000, false, false),
        (4_001, true, true),
        (4_002, false, true),
    ] {
        let tuple = tuple(is_ipv6, port);
        let sends = Sends::from(&world, CLIENT);
        let comes = Comes::to(&world, B, is_ipv6);
        let peer = peer(A, B, by_ipv6);
        let held = node.with(move |it| it.redirect(&tuple, peer, 1).expect("redirected"));
        assert_eq!(held, 0);
        for number in 0..3u32 {
            sends.send(mac_a, &of_client(&tuple, number, 7, ACK, b"hello"));
        }
        let came = comes.of(&tuple, 3, SOON);
        assert_eq!(came.len(), 3, "{port}: {:?}", node.with(|it| it.counts()));
        for (number, came) in came.iter().enumerate() {
            assert_eq!(
                (came.to, came.ttl, came.said().seq),
                (mac_b, 63, number as u32)
            );
            assert!(packets::is_whole(&came.packet));
        }
        let tracked = node.with(move |it| it.track(&tuple)).expect("three came");
        assert_eq!((tracked.ack, tracked.seq_end), (7, 7));
    }
}
