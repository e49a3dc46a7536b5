//! A live socket as values, and a socket of such values.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use ackpace_host::handoff::repair;
use ackpace_wire::cluster::Tcp;

use crate::world::{World, info, mute, option, unmute, value};

/// Longer than a client may delay an acknowledgement.
const QUIET: Duration = Duration::from_millis(60);

/// A connection that has sent 200 kB, and whose client is quiet.
fn warm(world: &mut World) {
    world.write(200_000);
    world.take_all();
    thread::sleep(QUIET);
}

#[test]
fn a_connection_goes_on_in_another_socket() {
    let Some(mut world) = World::new("a_connection_goes_on_in_another_socket") else {
        return;
    };
    warm(&mut world);
    for _ in 0..5 {
        world.moved();
        world.write(100_000);
        world.take_all();
        thread::sleep(QUIET);
    }
    let mut request = [0; 7];
    (&world.client).write_all(b"request").expect("it is open");
    thread::sleep(QUIET);
    (&world.server)
        .read_exact(&mut request)
        .expect("it is there");
    assert_eq!(&request, b"request");
}

#[test]
fn it_keeps_its_segment_size() {
    let Some(mut world) = World::new("it_keeps_its_segment_size") else {
        return;
    };
    warm(&mut world);
    assert_eq!(info(&world.server).snd_mss_bytes, 1_448);
    world.moved();
    world.write(10_000);
    world.take_all();
    assert_eq!(info(&world.server).snd_mss_bytes, 1_448);
}
