//! What a packet costs, and a decision.

use std::time::{Duration, Instant};

use ackpace_host::handoff::switch::Switch;
use ackpace_host_base::bpf::Side;
use ackpace_host_base::clock::monotonic_ns;
use ackpace_host_base::failure::Failure;
use ackpace_wire::cluster::Tuple;

use crate::packets::{ACK, Said, ip, of_client, tcp, tuple};
use crate::world::{A, B, World, peer};

type Step = fn(&mut Switch, &Tuple, u32) -> Result<(), Failure>;

/// Each of them lowers the hop limit of the same packet.
const TIMES: u32 = 250;
/// The least of them counts.
const RUNS: usize = 200;

#[test]
fn a_packet_costs_little() {
    let Some(world) = World::new("a_packet_costs_little") else {
        return;
    };
    let node = world.node(A);
    for is_ipv6 in [false, true] {
        let name = if is_ipv6 { "IPv6" } else { "IPv4" };
        let [miss, away, fenced, guest] =
            [4_000, 4_001, 4_002, 4_003].map(|port| tuple(is_ipv6, port));
        node.with(move |it| {
            it.redirect(&away, peer(A, B, is_ipv6), 1)
                .expect("redirected");
            it.fence(&fenced, 1).expect("fenced");
            it.claim(&guest, 1, Some(monotonic_ns() + 60_000_000_000))
                .expect("claimed");
        });
        let frame = move |packet: Vec<u8>| {
            let kind: u16 = if is_ipv6 { 0x86dd } else { 0x0800 };
            let mut packet = packet;
            packet[if is_ipv6 { 7 } else { 8 }] = 255;
            [&[0; 12][..], &kind.to_be_bytes(), &packet].concat()
        };
        let comes = |flow| frame(of_client(flow, 1, 1, ACK, b""));
        let leaves = |flow: &Tuple| {
            let said = Said {
                seq: 1,
                ack: 1,
                flags: ACK,
            };
            frame(tcp(flow.server, flow.client, said, &[0; 1_000]))
        };
        let (from, to) = (miss.client.ip(), miss.server.ip());
        let cases = [
            (
                "in, no TCP",
                Side::In,
                frame(ip(from, to, 17, 64, &[0; 20])),
                -1,
            ),
            ("in, no entry", Side::In, comes(&miss), -1),
            ("in, sent on", Side::In, comes(&away), 7),
            ("in, a guest's", Side::In, comes(&guest), -1),
            ("in, fenced", Side::In, comes(&fenced), 2),
            ("out, no entry", Side::Out, leaves(&miss), -1),
            ("out, a guest's", Side::Out, leaves(&guest), -1),
            ("out, another node's", Side::Out, leaves(&away), 2),
        ];
        for (what, side, frame, expected) in cases {
            let (verdict, ns) = node.with(move |it| {
                let run = |_| it.measure(side, &frame, TIMES).expect("it runs");
                (0..RUNS).map(run).min_by_key(|run| run.1).expect("some")
            });
            assert_eq!(verdict, expected, "{what}");
            println!("{name} {what:20} {ns:5} ns");
            // Unmeasured machines are slow, too; a hundred times this is a mistake.
            assert!(ns < 20_000, "{what}: {ns} ns");
        }
    }
}

#[test]
fn a_decision_costs_little() {
    const ROUNDS: u32 = 2_000;
    let Some(world) = World::new("a_decision_costs_little") else {
        return;
    };
    let node = world.node(A);
    let steps: [(&str, Step); 5] = [
        ("hold", |it, flow, epoch| it.hold(flow, epoch)),
        ("redirect", |it, flow, epoch| {
            it.redirect(flow, 0, epoch).map(drop)
        }),
        ("claim", |it, flow, epoch| {
            it.claim(flow, epoch, Some(u64::MAX))
        }),
        ("lease", |it, flow, epoch| it.lease(flow, epoch, u64::MAX)),
        ("track", |it, flow, _| {
            it.track(flow);
            Ok(())
        }),
    ];
    node.with(move |it| {
        let mut took = [Duration::ZERO; 5];
        for epoch in 0..ROUNDS {
            let flow = tuple(false, 4_000 + (epoch % 100) as u16);
            for ((_, step), took) in steps.iter().zip(&mut took) {
                let from = Instant::now();
                step(it, &flow, epoch).expect("done");
                *took += from.elapsed();
            }
        }
        for ((name, _), took) in steps.iter().zip(took) {
            println!("{name:10} {:6} ns", (took / ROUNDS).as_nanos());
        }
    });
}
