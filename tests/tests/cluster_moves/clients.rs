//! Clients that are rude.

use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_tests::segment::{vip, vip6};
use ackpace_tests::{Asker, Fault, Files, Rng, eventually, limit_receive_buffer, reset_on_drop};

use crate::scene::{A, RATE_BYTES_PER_S, Scene};

#[test]
fn clients_that_are_rude_harm_nobody() {
    let Some(scene) = Scene::new() else { return };
    let Scene { segment, files, .. } = &scene;
    let rude = |kind: usize| {
        let until = Instant::now() + Duration::from_secs(4);
        let mut rng = Rng::new(7 + kind as u64);
        let mut count = 0;
        while Instant::now() < until {
            let to = [vip(A), vip6(A)][count % 2];
            let told = rude_client(kind, to, files, &mut rng);
            told.unwrap_or_else(|fault| panic!("{kind}, nth {count}: {fault:?}"));
            count += 1;
        }
        println!("{count} clients of kind {kind}");
    };
    segment.client.within(|| {
        thread::scope(|scope| {
            (0..3).for_each(|kind| drop(scope.spawn(move || rude(kind))));
        });
    });
    scene.is_well(&[vip(A), vip6(A)]);
    eventually("no connection is left", || segment.holders().is_empty());
}

/// One that resets a connection that has moved, and uses the port again. Packets of the old one may still be on their way.
#[test]
fn a_client_comes_again_by_the_same_port() {
    let Some(scene) = Scene::new() else { return };
    let Scene { segment, big, .. } = &scene;
    let range = "ipv4/ip_local_port_range";
    segment.client.sysctl(range, "40000 40000");
    let open = || {
        let asker = Asker::open(vip(A)).expect("it listens");
        limit_receive_buffer(&asker.stream, 100_000);
        asker
    };
    let moves_and_resets = |nth: usize| {
        let mut asker = open();
        asker.ask(&format!("/big?{nth}")).expect("it listens");
        let told = asker.paced(big, Some(RATE_BYTES_PER_S), |have| {
            have < 1_000_000 || have < 3_000_000 && segment.holders().contains(&A)
        });
        assert!(matches!(told, Err(Fault::GaveUp)), "{told:?}");
        let moved = !segment.holders().contains(&A);
        reset_on_drop(&asker.stream);
        moved
    };
    segment.client.within(|| {
        for pause_ms in [0, 20, 500] {
            assert!((0..20).any(moves_and_resets), "no connection moved");
            thread::sleep(Duration::from_millis(pause_ms)); // as a client may wait
            let from = Instant::now();
            let mut asker = open();
            let connected = from.elapsed();
            asker.ask("/big?again").expect("it listens");
            let got = asker.paced(big, Some(RATE_BYTES_PER_S), |_| true);
            println!(
                "after {pause_ms} ms: connected within {connected:?}, all there after {:?}",
                from.elapsed()
            );
            got.unwrap_or_else(|fault| panic!("after {pause_ms} ms: {fault:?}"));
            reset_on_drop(&asker.stream);
        }
    });
    segment.client.sysctl(range, "32768 60999");
    scene.is_well(&[vip(A)]);
}

/// One that resets, half-closes behind its requests, or reads nothing for 3 s.
fn rude_client(kind: usize, to: SocketAddr, files: &Files, rng: &mut Rng) -> Result<(), Fault> {
    let mut asker = Asker::open(to)?;
    let some = 10 + rng.below(10);
    let (name, bytes) = &files.0[some];
    for nth in 0..1 + rng.below(3) {
        asker.get(&format!("/{name}?{kind}.{nth}"), bytes)?;
    }
    match kind {
        0 => {
            asker.ask(&format!("/{name}?reset"))?;
            thread::sleep(Duration::from_micros(rng.below(3000) as u64)); // until it is on its way
            reset_on_drop(&asker.stream);
        }
        1 => {
            asker.ask(&format!("/{name}?half"))?;
            asker.ask(&format!("/{name}?half"))?;
            thread::sleep(Duration::from_micros(rng.below(3000) as u64)); // until it is on its way
            asker.stream.shutdown(Shutdown::Write)?;
            asker.answer(bytes)?;
            asker.answer(bytes)?;
        }
        _ => {
            asker.ask(&format!("/{name}?closed"))?;
            let mut waits = true;
            asker.paced(bytes, None, |_| {
                if std::mem::take(&mut waits) {
                    thread::sleep(Duration::from_secs(3)); // its window closes
                }
                true
            })?;
        }
    }
    Ok(())
}
