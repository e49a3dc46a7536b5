//! The kernel's side is a line of datagrams here, and there is no target.

use ackpace_wire::iscsi::Settings;
use ackpace_wire::iscsi::session::Order;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::*;
use crate::gateway::messages::Begin;

const BLOCK: u32 = 512;
const UNIT_BYTES: u64 = 1 << 20;

struct World {
    tasks: Tasks,
    session: Session,
    kernel: OwnedFd,
    counters: OwnedFd,
}

fn unit() -> Unit {
    Unit {
        len_bytes: UNIT_BYTES,
        block_bytes: BLOCK,
        name: "a disk".to_owned(),
        serial: "1".to_owned(),
    }
}

fn world(is_read_only: bool) -> World {
    let url = "iscsi://127.0.0.1/iqn.2026-01.org.example:disk/1";
    let begin = Begin {
        url: url.to_owned(),
        initiator: "iqn.2026-01.org.example:test".to_owned(),
        chap: None,
        target: None,
        header_digest: false,
        data_digest: false,
        is_read_only,
        patience_s: 1,
        unit: Some(unit()),
        kernel: None,
        is_successor: false,
    };
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
    let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None);
    let (kernel, fuse) = pair.expect("a pair");
    // A request of 1 MiB is one datagram.
    rustix::net::sockopt::set_socket_send_buffer_size(&kernel, 4 << 20).expect("an option");
    let (counters, _) = Counters::file().expect("a memfd");
    let slots = Slots::new().expect("16 MiB");
    let mapped = Counters::map(&counters).expect("4 MiB");
    let settings = Settings {
        initiator: begin.initiator.clone(),
        target: "iqn.2026-01.org.example:disk".to_owned(),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: None,
        header_digests: false,
        data_digests: false,
        segment_bytes: 1 << 18,
    };
    let address = url.parse().expect("an address");
    World {
        tasks: Tasks::new(fuse, slots, mapped, &begin),
        session: Session::new(&address, settings, 1_000_000).expect("settings"),
        kernel,
        counters,
    }
}

impl World {
    /// The kernel asks.
    fn ask(&mut self, opcode: u32, unique: u64, offset_bytes: u64, len_bytes: u32, data: &[u8]) {
        let mut bytes = (80 + data.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(unique.to_ne_bytes());
        bytes.extend([0; 24 + 8]);
        bytes.extend(offset_bytes.to_ne_bytes());
        bytes.extend(len_bytes.to_ne_bytes());
        bytes.extend([0; 20]);
        bytes.extend(data);
        rustix::io::write(&self.kernel, &bytes).expect("room");
        self.tasks.take(&mut self.session);
    }

    fn read(&mut self, unique: u64, offset_bytes: u64, len_bytes: u32) {
        self.ask(15, unique, offset_bytes, len_bytes, &[]);
    }

    fn write(&mut self, unique: u64, offset_bytes: u64, len_bytes: u32) {
        let data = vec![7; len_bytes as usize];
        self.ask(16, unique, offset_bytes, len_bytes, &data);
    }

    /// The next answer: what it answers, and its errno.
    fn answer(&self) -> Option<(u64, i32)> {
        let mut bytes = [0; 4096];
        let len = rustix::io::read(&self.kernel, &mut bytes).ok()?;
        assert!(len >= 16, "a header");
        let error = i32::from_ne_bytes(bytes[4..8].try_into().expect("four"));
        let unique = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight"));
        Some((unique, -error))
    }

    /// The target is not there until all patience has ended.
    fn lose_patience(&mut self) {
        for now_us in [0, 2_000_000] {
            while let Some(order) = self.session.poll(now_us) {
                if let Order::Connect { .. } = order {
                    self.session.lost("refused", now_us);
                }
            }
            self.tasks.hear(&mut self.session, None);
        }
    }

    fn counted(&self, chunk: usize) -> u32 {
        let mut number = [0; 4];
        rustix::io::pread(&self.counters, &mut number, 4 * chunk as u64).expect("it is that long");
        u32::from_ne_bytes(number)
    }
}

#[test]
fn what_can_not_be_is_answered_at_once() {
    let mut world = world(false);
    world.write(1, UNIT_BYTES - 512, 1024);
    assert_eq!(world.answer(), Some((1, ENOSPC)));
    world.write(2, 100, 512);
    assert_eq!(world.answer(), Some((2, EINVAL)));
    world.read(3, 0, 100);
    assert_eq!(world.answer(), Some((3, EINVAL)));
    world.read(4, UNIT_BYTES, 512);
    assert_eq!(world.answer(), Some((4, 0)), "behind the end are no bytes");
    world.ask(43, 5, 0, 0, &[]);
    assert_eq!(world.answer(), Some((5, 38)), "no FALLOCATE");
    world.ask(2, 6, 0, 0, &[]);
    assert_eq!(world.answer(), None, "FORGET has no answer");
    assert_eq!(world.session.load(), 0);
    assert_eq!(world.counted(0), 0);
}

#[test]
fn a_write_that_fails_is_counted_twice_all_the_same() {
    let mut world = world(false);
    world.write(1 << 63 | 1, 65_536 - 512, 1024);
    assert_eq!(world.counted(0), 1, "before it is sent");
    assert_eq!((world.answer(), world.session.load()), (None, 1));
    world.lose_patience();
    assert_eq!(world.answer(), Some((1 << 63 | 1, 5)));
    assert_eq!(
        (world.counted(0), world.counted(1), world.counted(2)),
        (2, 2, 0)
    );
    let lines = std::iter::from_fn(|| world.tasks.says());
    assert!(
        lines
            .into_iter()
            .any(|said| matches!(said, Said::Line(line) if line.contains("--patience (1 s)")))
    );
}

#[test]
fn nothing_is_written_where_nothing_may_be() {
    let mut world = world(true);
    world.write(1, 0, 512);
    assert_eq!(world.answer(), Some((1, EROFS)));
    assert_eq!(world.counted(0), 0);
    world.read(2, 0, 512);
    assert_eq!(world.session.load(), 1);
}

#[test]
fn a_request_without_a_slot_stays_in_the_kernel() {
    let mut world = world(false);
    for unique in 0..SLOTS as u64 {
        assert!(world.tasks.wants().is_some());
        world.read(unique, 0, 4096);
    }
    assert_eq!(world.session.load(), SLOTS);
    assert!(
        world.tasks.wants().is_none(),
        "poll(2) does not wait for it"
    );
    world.read(99, 0, 4096);
    assert_eq!(world.session.load(), SLOTS);
    world.lose_patience();
    for _ in 0..SLOTS {
        assert!(matches!(world.answer(), Some((0..16, 5))));
    }
    world.tasks.take(&mut world.session);
    assert_eq!(world.session.load(), 1, "its turn");
}

#[test]
fn the_payload_of_a_request_lies_in_its_slot_alone() {
    let mut world = world(false);
    world.write(1, 0, 1024);
    let task = world.tasks.work[0].task().expect("it is under way");
    let payload = |offset_bytes, len_bytes| Payload {
        task,
        offset_bytes,
        len_bytes,
    };
    assert_eq!(world.tasks.payload(payload(512, 512)), [7; 512]);
    let place = |task| Place {
        task,
        offset_bytes: 1 << 20,
    };
    assert!(
        world.tasks.place_mut(place(task), 1).is_none(),
        "behind its end"
    );
    assert!(
        world.tasks.place_mut(place(TaskId(1)), 0).is_none(),
        "no task of now"
    );
    // It has ended while its payload was being sent: the slot is kept until that is out.
    world.tasks.done(0, End::Unreachable, true);
    assert_eq!(world.tasks.work[0], Work::Leaving);
    world.tasks.sent();
    assert_eq!(world.tasks.work[0], Work::Free);
}

#[test]
fn another_unit_at_the_same_address_is_not_written_to() {
    let grown = Unit {
        len_bytes: 2 * UNIT_BYTES,
        ..unit()
    };
    let other = |change: fn(&mut Unit)| {
        let mut unit = unit();
        change(&mut unit);
        unit
    };
    for (unit, is_elsewhere) in [
        (unit(), false),
        (grown, false),
        (other(|unit| unit.len_bytes -= 512), true),
        (other(|unit| unit.block_bytes = 4096), true),
        (other(|unit| unit.serial = "2".to_owned()), true),
    ] {
        let mut world = world(false);
        world.tasks.ready(unit.clone());
        assert_eq!(world.tasks.is_elsewhere(), is_elsewhere, "{unit}");
        assert_eq!(
            world.tasks.geometry.map(|it| it.len_bytes),
            Some(UNIT_BYTES)
        );
    }
}
