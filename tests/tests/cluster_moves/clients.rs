//! Clients that are rude.

use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_tests::segment::{vip, vip6};
use ackpace_tests::{Asker, Fault, Files, Rng, eventually, reset_on_drop};

use crate::scene::{A, Scene};

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
