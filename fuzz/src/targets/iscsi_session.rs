//! A byte for the digests that are on, then any bytes as what a target sends after a login:
//! [`ackpace_wire::iscsi::Initiator`].

use std::collections::BTreeMap;

use ackpace_wire::iscsi::{
    Agreed, Command, Event, Fault, Initiator, Outcome, Payload, TaskId, crc,
};

const READ: Command = Command::Read {
    lba: 0,
    blocks: 16,
    block_bytes: 512,
};
const WRITE: Command = Command::Write {
    lba: 16,
    blocks: 2048,
    block_bytes: 512,
};
/// Asked at the beginning; their numbers are their places.
const COMMANDS: [Command; 8] = [
    Command::TestUnitReady,
    Command::Inquiry { page: None },
    Command::ReadCapacity,
    Command::ReportLuns,
    WRITE,
    Command::Synchronize { lba: 0, blocks: 0 },
    READ,
    READ,
];
/// The task that is aborted as soon as another one has ended.
const ABORTED: TaskId = TaskId(7);

/// All that can be seen of a session.
#[derive(Debug, PartialEq)]
struct Seen {
    memory: BTreeMap<TaskId, Vec<u8>>,
    sent: Vec<(Vec<u8>, Option<Payload>)>,
    events: Vec<Event>,
    fault: Option<Fault>,
}

/// Laws: payload is placed inside what its task asked for, once, and none of it after the task was aborted; each task ends
/// once or stays; a write's bytes are inside it and sent once; the cuts between pieces change nothing.
pub fn iscsi_session(data: &[u8]) {
    let (digests, bytes) = data
        .split_first()
        .map_or((0, data), |(digests, bytes)| (*digests, bytes));
    let whole = session(digests, bytes, usize::MAX);
    for piece_len in [1, 5, 47] {
        let cut = session(digests, bytes, piece_len);
        assert!(cut == whole, "other by {piece_len}");
    }
}

fn session(digests: u8, bytes: &[u8], piece_len: usize) -> Seen {
    let mut initiator = Initiator::new(
        Agreed {
            tsih: 1,
            header_digests: digests & 1 != 0,
            data_digests: digests & 2 != 0,
            receive_segment_bytes: 256 << 10,
            send_segment_bytes: 8 << 10,
            burst_bytes: 256 << 10,
            first_burst_bytes: 64 << 10,
            initial_r2t: digests & 4 == 0,
            immediate_data: digests & 8 == 0,
            r2ts: 2,
            wait_s: 2,
            cmd_sn: 1,
            stat_sn: 2,
            max_cmd_sn: 1,
        },
        1,
    );
    let mut seen = Seen {
        memory: BTreeMap::new(),
        sent: Vec::new(),
        events: Vec::new(),
        fault: None,
    };
    for (n, command) in COMMANDS.into_iter().enumerate() {
        let id = TaskId(n as u64);
        initiator.ask(id, command).expect("room");
        seen.memory.insert(id, vec![0; command.in_bytes() as usize]);
    }
    send(&mut initiator, &mut seen);
    let mut rest = bytes;
    while !rest.is_empty() {
        let wants = initiator.wants();
        let piece = rest.len().min(piece_len).min(wants.len_bytes);
        if let Some(place) = wants.place {
            let memory = seen.memory.get_mut(&place.task).expect("a task");
            let from = place.offset_bytes as usize;
            let whole = memory.get_mut(from..from + wants.len_bytes);
            whole.expect("inside")[..piece].copy_from_slice(&rest[..piece]);
        }
        match initiator.receive(&rest[..piece]) {
            Ok(used_bytes) => assert_eq!(used_bytes, piece),
            Err(fault) => {
                seen.fault = Some(fault);
                break;
            }
        }
        rest = &rest[piece..];
        take_events(&mut initiator, &mut seen);
        // Only between parts, which are the same whatever the pieces.
        if piece == wants.len_bytes {
            let is_done = |event: &Event| matches!(event, Event::Done { .. });
            if seen.events.iter().any(is_done) {
                initiator.ping();
                initiator.abort(ABORTED);
                take_events(&mut initiator, &mut seen);
            }
            send(&mut initiator, &mut seen);
        }
    }
    check(&seen, initiator);
    seen
}

fn send(initiator: &mut Initiator, seen: &mut Seen) {
    while let Some(send) = initiator.poll() {
        let tail = send.tail(0);
        assert!(tail.bytes().len() <= 7 && (send.payload().is_some() || tail.bytes().is_empty()));
        seen.sent.push((send.header().to_vec(), send.payload()));
    }
}

fn take_events(initiator: &mut Initiator, seen: &mut Seen) {
    while let Some(event) = initiator.event() {
        if let Event::Data {
            place,
            len_bytes,
            crc,
        } = event
        {
            let from = place.offset_bytes as usize;
            let data = &seen.memory[&place.task][from..from + len_bytes as usize];
            assert!(crc.is_none_or(|crc| crc == crc::of(data)));
        }
        seen.events.push(event);
    }
}

fn check(seen: &Seen, initiator: Initiator) {
    let mut ended: Vec<TaskId> = Vec::new();
    for event in &seen.events {
        if let Event::Done { task, outcome } = event {
            assert!(!ended.contains(task), "{task:?} ends twice");
            assert!(*outcome != Outcome::Aborted || *task == ABORTED);
            ended.push(*task);
        }
    }
    for (id, command) in initiator.unanswered() {
        assert_eq!(COMMANDS[id.0 as usize], command);
        assert!(!ended.contains(&id), "{id:?} has ended");
    }
    for (_, payload) in &seen.sent {
        if let Some(payload) = payload {
            let command = COMMANDS[payload.task.0 as usize];
            assert!(payload.len_bytes > 0 && payload.len_bytes <= 8 << 10);
            assert!(payload.offset_bytes + payload.len_bytes <= command.out_bytes());
        }
    }
}
