//! Memory for the payload of WRITEs: bounded for each connection and for each thread. Where it is used up, a connection is not read
//! from: its payload waits in its socket, and in its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{NFS_PAYLOAD_BYTES_MAX, NFS_PAYLOADS_BYTES_MAX};

/// What is left of a bound. Payload gives it back when it goes, on whatever thread.
#[derive(Clone, Debug)]
pub struct Room(Arc<AtomicU64>);

impl Room {
    /// That of a thread.
    pub fn of_thread() -> Room {
        Room(Arc::new(AtomicU64::new(NFS_PAYLOADS_BYTES_MAX)))
    }

    /// That of a connection.
    pub fn of_connection() -> Room {
        Room(Arc::new(AtomicU64::new(NFS_PAYLOAD_BYTES_MAX)))
    }

    fn take(&self, len_bytes: u64) -> bool {
        let rest = |left: u64| left.checked_sub(len_bytes);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        taken.is_ok()
    }

    fn give(&self, len_bytes: u64) {
        self.0.fetch_add(len_bytes, Ordering::Relaxed);
    }
}

/// The payload of a WRITE, as far as it has come.
#[derive(Debug)]
pub struct Payload {
    bytes: Vec<u8>,
    /// So many have come.
    came: usize,
    rooms: [Room; 2],
}

impl Payload {
    /// Memory for so many bytes, by both bounds; `None`: there is none now.
    pub fn new(len_bytes: u32, thread: &Room, connection: &Room) -> Option<Payload> {
        let charged = u64::from(len_bytes);
        if !connection.take(charged) {
            return None;
        }
        if !thread.take(charged) {
            connection.give(charged);
            return None;
        }
        Some(Payload {
            bytes: vec![0; len_bytes as usize],
            came: 0,
            rooms: [thread.clone(), connection.clone()],
        })
    }

    /// Where the next bytes go: at most so many.
    pub fn rest(&mut self, len_bytes: u32) -> &mut [u8] {
        let end = self.bytes.len().min(self.came + len_bytes as usize);
        &mut self.bytes[self.came..end]
    }

    /// So many have come, at most as there was room for.
    pub fn came(&mut self, len_bytes: usize) {
        self.came = self.bytes.len().min(self.came + len_bytes);
    }

    /// What has come.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.came]
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        for room in &self.rooms {
            room.give(self.bytes.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_bounded_and_gives_its_room_back() {
        let (thread, one, other) = (
            Room::of_thread(),
            Room::of_connection(),
            Room::of_connection(),
        );
        let mib = 1 << 20;
        let mut held = Vec::new();
        while let Some(payload) = Payload::new(mib, &thread, &one) {
            held.push(payload);
        }
        assert_eq!(held.len() as u64 * u64::from(mib), NFS_PAYLOAD_BYTES_MAX);
        assert!(Payload::new(mib, &thread, &other).is_some());
        held.pop();
        assert!(Payload::new(mib, &thread, &one).is_some());
        let mut all: Vec<(Room, Payload)> = Vec::new();
        drop(held);
        loop {
            let connection = Room::of_connection();
            let Some(payload) = Payload::new(mib, &thread, &connection) else {
                break;
            };
            all.push((connection, payload));
        }
        assert_eq!(all.len() as u64 * u64::from(mib), NFS_PAYLOADS_BYTES_MAX);
        assert!(Payload::new(1, &thread, &one).is_none());
        all.clear();
        assert!(Payload::new(1, &thread, &one).is_some());
    }

    #[test]
    fn bytes_come_in_pieces() {
        let (thread, connection) = (Room::of_thread(), Room::of_connection());
        let mut payload = Payload::new(5, &thread, &connection).expect("room");
        payload.rest(2).copy_from_slice(b"ab");
        payload.came(2);
        assert_eq!(payload.rest(9).len(), 3);
        payload.rest(3).copy_from_slice(b"cde");
        payload.came(3);
        assert_eq!(payload.bytes(), b"abcde");
        assert!(payload.rest(1).is_empty());
    }
}
