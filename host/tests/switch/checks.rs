//! What `doctor` says of a node.

use std::fs;

use ackpace_host::handoff::checks;

use crate::world::{A, World, run};

#[test]
fn each_thing_that_a_node_lacks_is_named() {
    let Some(world) = World::new("each_thing_that_a_node_lacks_is_named") else {
        return;
    };
    let mut settings = world.settings(A);
    settings.peers.retain(std::net::IpAddr::is_ipv6);
    let looked = |settings: &ackpace_host::handoff::switch::Settings| {
        let settings = settings.clone();
        let wrong = |check: checks::Check| check.seen.err().map(|seen| (check.what, seen));
        let wrong: Vec<_> = world.within(A, move || {
            checks::all(&settings)
                .into_iter()
                .filter_map(wrong)
                .collect()
        });
        wrong
    };
    assert_eq!(looked(&settings), []);
    let sysctl = |name: &'static str, value: &'static str| {
        world.within(A, move || {
            fs::write(format!("/proc/sys/net/ipv4/conf/{name}"), value).expect("root may")
        });
    };
    let is_lost = |settings: &_, what: &str, part: &str| {
        let wrong = looked(settings);
        assert!(
            matches!(&*wrong, [(is, seen)] if *is == what && seen.contains(part)),
            "{what}: {wrong:?}"
        );
    };

    sysctl("all/arp_ignore", "0");
    is_lost(&settings, "ARP for VIPs", "eth0 may answer");
    sysctl("eth0/arp_ignore", "1");
    assert_eq!(looked(&settings), []);
    sysctl("all/arp_announce", "1");
    is_lost(&settings, "ARP for VIPs", "eth0 may answer");
    sysctl("all/arp_announce", "2");
    sysctl("all/arp_ignore", "1");

    let own = world.space(A);
    sysctl("all/rp_filter", "1");
    assert_eq!(looked(&settings), [], "one device");
    run(&format!("-n {own} link add more type bridge"));
    run(&format!("-n {own} link set more up"));
    is_lost(&settings, "rp_filter", "strict on");
    settings.devices = vec!["eth0".to_owned()];
    assert_eq!(looked(&settings), []);

    run(&format!("-n {own} addr del 10.77.9.9/32 dev lo"));
    is_lost(&settings, "VIP", "10.77.9.9 is on no device");
    run(&format!("-n {own} addr add 10.77.9.9/32 dev eth0"));
    is_lost(&settings, "VIP", "10.77.9.9 is on eth0");
    run(&format!("-n {own} addr add 10.77.9.9/32 dev lo"));
    is_lost(&settings, "VIP", "on lo and eth0");
    run(&format!("-n {own} addr del 10.77.9.9/32 dev eth0"));

    let cases = [
        ("10.77.0.3", "takes no IPv6 clients"),
        ("fd77::2", "this node itself"),
        ("fd78::1", "no route to fd78::1"),
        ("fd79::1", "behind a router, by eth0"),
    ];
    run(&format!("-n {own} route add fd79::/64 via fd77::3"));
    for (peer, part) in cases {
        settings.peers = vec![peer.parse().expect("an address")];
        is_lost(&settings, "peer", part);
    }
    settings.peers.clear();
    settings.devices = vec!["lo".to_owned()];
    is_lost(&settings, "client-facing devices", "not an Ethernet device");
}
