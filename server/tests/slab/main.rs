//! Slabs under fire: segments are filled and freed all the time while what is found in them is sent by sendfile(2) to
//! clients over TCP that check each byte. Clients read slowly, reset in every state, or lose packets. The wrong way,
//! writing over in place, is caught by the same test.

mod fight;
mod payload;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ackpace::store::slab::Slab;
use ackpace_core::conn::Span;
use ackpace_core::payload::SEGMENT_BYTES;
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology, Wan};
use fight::{Fight, Here, Place, Sender};
use payload::{keep, object, wrong_bytes};

const SEED: u64 = 51;
const SEGMENTS: u64 = 24;
const MIB: u64 = 1 << 20;
/// How long a fight takes.
const FIGHT: Duration = Duration::from_secs(4);

#[test]
fn every_byte_is_right_on_loopback() {
    let Some(slab) = slab() else {
        return;
    };
    let fight = Fight::new(slab, FIGHT);
    fight.run(8, &Here);
    fight.print("loopback");
    assert_eq!(fight.wrong(), 0, "seed {SEED}: wrong bytes");
    assert!(fight.checked() > 16 * MIB, "seed {SEED}: too few bytes");
    assert!(fight.resets() > 8, "seed {SEED}: too few resets");
    assert!(fight.filled() > SEGMENTS * SEGMENT_BYTES, "too few rounds");
    fight.all_unpinned();
}

#[test]
fn every_byte_is_right_when_packets_are_lost() {
    let Some(slab) = slab() else {
        return;
    };
    let mut path = PathSpec::new("lossy", "10.1.0.1-10.1.0.4");
    path.down = LinkSpec {
        loss: 0.02,
        ..LinkSpec::limited(400.0, 20.0, 1.0)
    };
    path.up = LinkSpec::delay(1.0);
    let topology = Topology {
        path: vec![path],
        ..Topology::default()
    };
    let wan = match Wan::up(&topology) {
        Ok(wan) => wan,
        Err(error) => return println!("skipped: slab-loss: {error}"),
    };
    let fight = Fight::new(slab, FIGHT);
    fight.run(8, &wan);
    fight.print("2 % loss");
    assert_eq!(fight.wrong(), 0, "seed {SEED}: wrong bytes");
    assert!(fight.checked() > MIB, "seed {SEED}: too few bytes");
    fight.all_unpinned();
}

#[test]
fn the_fight_catches_segments_that_are_written_over_in_place() {
    let slab = Slab::open(None, SEGMENTS * SEGMENT_BYTES).expect("a slab");
    // Such a slab wants its senders to copy, and these do not.
    let fight = Fight::new(Arc::new(slab.copied()), FIGHT);
    fight.ends_when_wrong.store(true, Ordering::Relaxed);
    fight.run(8, &Here);
    fight.print("in place");
    assert!(
        fight.wrong() > 0,
        "seed {SEED}: the wrong way was not caught"
    );
}

#[test]
fn an_unread_segment_is_punched_and_its_reader_sees_the_old_bytes() {
    let Some(slab) = slab() else {
        return;
    };
    assert_eq!(wrong_of_unread(&slab), 0);
}

#[test]
fn an_unread_segment_is_written_over_and_its_reader_sees_the_new_bytes() {
    let slab = Slab::open(None, SEGMENTS * SEGMENT_BYTES).expect("a slab");
    assert!(wrong_of_unread(&Arc::new(slab.copied())) > 0);
}

/// Sends a span to a client on this machine that reads it after it is acknowledged, unpinned, and its segment filled anew.
fn wrong_of_unread(slab: &Arc<Slab>) -> u64 {
    let span = Span {
        offset_bytes: 0,
        len_bytes: 32 << 10, // which TCP takes before the client reads
    };
    keep(slab, object(0), span);
    let listener = Here.listen().expect("a listener");
    let mut client = Here.connect(&listener).expect("a connection");
    let (server, _) = listener.accept().expect("the connection");
    let pinned = slab.find(object(0), span).expect("kept");
    let mut sender = Sender::new(server);
    sender.sendfile(pinned).expect("sent");
    let until = Instant::now() + Duration::from_secs(5);
    while !sender.pinned.is_empty() && Instant::now() < until {
        sender.unpin();
        thread::sleep(Duration::from_millis(1));
    }
    assert!(sender.pinned.is_empty(), "it was not acknowledged");
    for index in 1..=2 * SEGMENTS as u32 {
        let len_bytes = SEGMENT_BYTES;
        keep(slab, object(index), Span { len_bytes, ..span });
    }
    assert!(slab.find(object(0), span).is_none(), "it was freed");
    let mut got = vec![0; span.len_bytes as usize];
    client.read_exact(&mut got).expect("all of it");
    wrong_bytes(0, 0, &got)
}

/// A slab that may be sent from.
fn slab() -> Option<Arc<Slab>> {
    let slab = Slab::open(None, SEGMENTS * SEGMENT_BYTES).expect("a slab");
    if let Some(lost) = slab.lost() {
        println!("skipped: slab: {lost}");
        return None;
    }
    Some(Arc::new(slab))
}
