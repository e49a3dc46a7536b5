mod lies;
mod recorded;
mod target;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::iscsi::crc;
use target::{BLOCK_BYTES, Target};

const DISK_BYTES: usize = 256 << 10;

fn agreed() -> Agreed {
    Agreed {
        tsih: 1,
        header_digests: false,
        data_digests: false,
        receive_segment_bytes: 64 << 10,
        send_segment_bytes: 8 << 10,
        burst_bytes: 16 << 10,
        first_burst_bytes: 4 << 10,
        initial_r2t: true,
        immediate_data: false,
        r2ts: 1,
        wait_s: 0,
        cmd_sn: 1,
        stat_sn: 50,
        max_cmd_sn: 32,
    }
}

prop_compose! {
    /// Anything that two sides can agree on, with short lengths; the counters wrap.
    fn any_agreed()(
        (header_digests, data_digests, initial_r2t, immediate_data) in any::<(bool, bool, bool, bool)>(),
        receive_segment_bytes in 512u32..5000,
        send_segment_bytes in 512u32..5000,
        burst_bytes in 512u32..9000,
        first in 512u32..9000,
        r2ts in 1u32..4,
        window in 1u32..8,
        behind in 0u32..9,
    ) -> Agreed {
        let cmd_sn = 0u32.wrapping_sub(behind);
        Agreed {
            header_digests,
            data_digests,
            receive_segment_bytes,
            send_segment_bytes,
            burst_bytes,
            first_burst_bytes: first.min(burst_bytes),
            initial_r2t,
            immediate_data,
            r2ts,
            cmd_sn,
            stat_sn: 0u32.wrapping_sub(behind),
            max_cmd_sn: cmd_sn.wrapping_add(window - 1),
            ..agreed()
        }
    }
}

/// An initiator and its target, with the memory of all tasks.
struct Pair {
    initiator: Initiator,
    target: Target,
    memory: BTreeMap<TaskId, Vec<u8>>,
    done: BTreeMap<TaskId, Outcome>,
    attentions: usize,
    pongs: usize,
    is_out: bool,
}

impl Pair {
    fn new(agreed: Agreed, disk: Vec<u8>, seed: u64) -> Pair {
        Pair {
            initiator: Initiator::new(agreed, 3),
            target: Target::new(agreed, disk, seed),
            memory: BTreeMap::new(),
            done: BTreeMap::new(),
            attentions: 0,
            pongs: 0,
            is_out: false,
        }
    }

    fn send(&mut self) {
        let mut goes_on = false;
        while let Some(send) = self.initiator.poll() {
            goes_on = send.goes_on();
            let mut bytes = send.header().to_vec();
            let mut payload_crc = 0;
            if let Some(payload) = send.payload() {
                let from = payload.offset_bytes as usize;
                let data = &self.memory[&payload.task][from..from + payload.len_bytes as usize];
                payload_crc = crc::of(data);
                bytes.extend_from_slice(data);
            }
            bytes.extend_from_slice(send.tail(payload_crc).bytes());
            self.target.hear(&bytes);
        }
        assert!(!goes_on, "what is sent may wait for what follows");
    }

    /// Shows bytes to the initiator, in pieces, and places what it wants placed.
    fn show(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let wants = self.initiator.wants();
            let piece = 1 + self
                .target
                .rng
                .below(bytes.len().min(wants.len_bytes) as u32)
                as usize;
            if let Some(place) = wants.place {
                let memory = self.memory.get_mut(&place.task).expect("its memory");
                let from = place.offset_bytes as usize;
                let whole = memory.get_mut(from..from + wants.len_bytes);
                whole.expect("inside")[..piece].copy_from_slice(&bytes[..piece]);
            }
            assert_eq!(self.initiator.receive(&bytes[..piece])?, piece);
            bytes = &bytes[piece..];
            self.take_events();
        }
        Ok(())
    }

    fn take_events(&mut self) {
        while let Some(event) = self.initiator.event() {
            match event {
                Event::Data {
                    place,
                    len_bytes,
                    crc,
                } => {
                    let from = place.offset_bytes as usize;
                    let data = &self.memory[&place.task][from..from + len_bytes as usize];
                    assert_eq!(
                        crc,
                        self.initiator.agreed.data_digests.then(|| crc::of(data))
                    );
                }
                Event::Done { task, outcome } => {
                    assert_eq!(self.done.insert(task, outcome), None, "a task ends once");
                }
                Event::Attention(_) => self.attentions += 1,
                Event::Pong => self.pongs += 1,
                Event::LoggedOut => self.is_out = true,
                Event::LogoutRequested { .. } => panic!("nobody asks"),
            }
        }
    }

    /// Until nothing moves any more, or so many PDUs have come.
    fn run(&mut self, pdus_max: usize) {
        for _ in 0..pdus_max {
            self.send();
            let Some(bytes) = self.target.emit() else {
                return;
            };
            self.show(&bytes).expect("a target that is right");
        }
    }

    fn ask(&mut self, id: u64, command: Command, memory: Vec<u8>) {
        self.memory.insert(TaskId(id), memory);
        self.initiator.ask(TaskId(id), command).expect("room");
    }
}

fn disk() -> Vec<u8> {
    (0..DISK_BYTES)
        .map(|at| (at / 512 + at * 7) as u8)
        .collect()
}

fn read(lba: u64, blocks: u32) -> Command {
    Command::Read {
        lba,
        blocks,
        block_bytes: BLOCK_BYTES,
    }
}

fn write(lba: u64, blocks: u32) -> Command {
    Command::Write {
        lba,
        blocks,
        block_bytes: BLOCK_BYTES,
    }
}

/// Tasks over neighbouring extents of a disk, with their memory, and the disk afterwards.
fn tasks(extents: &[(bool, u32)]) -> (Vec<(Command, Vec<u8>)>, Vec<u8>) {
    let (mut all, mut after, mut lba) = (Vec::new(), disk(), 0);
    for (n, (writes, blocks)) in extents.iter().enumerate() {
        let (from, len) = (lba as usize * 512, *blocks as usize * 512);
        if *writes {
            let data: Vec<u8> = (0..len).map(|at| (at * 3 + n) as u8 ^ 0x5a).collect();
            after[from..from + len].copy_from_slice(&data);
            all.push((write(lba, *blocks), data));
        } else {
            all.push((read(lba, *blocks), vec![0; len]));
        }
        lba += u64::from(*blocks);
    }
    (all, after)
}

/// Every task is done well, and all bytes are right.
fn check(pair: &Pair, tasks: &[(Command, Vec<u8>)], after: &[u8]) {
    assert_eq!(pair.target.disk, after);
    for (n, (command, data)) in tasks.iter().enumerate() {
        let id = TaskId(n as u64);
        let len_bytes = command.in_bytes();
        assert_eq!(
            pair.done.get(&id),
            Some(&Outcome::Good { len_bytes }),
            "task {n}"
        );
        let expected = match command {
            Command::Read { lba, .. } => &after[*lba as usize * 512..][..data.len()],
            _ => data,
        };
        assert_eq!(pair.memory[&id], expected, "task {n}");
    }
    assert_eq!(pair.initiator.load(), 0);
}

proptest! {
    #[test]
    fn all_bytes_arrive_whatever_both_sides_agreed_on(
        agreed in any_agreed(),
        extents in prop::collection::vec((any::<bool>(), 1u32..40), 1..12),
        seed: u64,
    ) {
        let (tasks, after) = tasks(&extents);
        let mut pair = Pair::new(agreed, disk(), seed);
        for (n, (command, memory)) in tasks.iter().enumerate() {
            pair.ask(n as u64, *command, memory.clone());
        }
        pair.initiator.ping();
        pair.target.ping();
        pair.run(usize::MAX);
        check(&pair, &tasks, &after);
        prop_assert_eq!(pair.pongs, 1);
        pair.initiator.log_out();
        pair.run(2);
        prop_assert!(pair.is_out);
    }

    #[test]
    fn what_was_unanswered_is_repeated_after_a_lost_connection(
        agreed in any_agreed(),
        extents in prop::collection::vec((any::<bool>(), 1u32..40), 1..12),
        seed: u64,
        cuts in prop::collection::vec(0usize..60, 1..4),
    ) {
        let (tasks, after) = tasks(&extents);
        let mut pair = Pair::new(agreed, disk(), seed);
        for (n, (command, memory)) in tasks.iter().enumerate() {
            pair.ask(n as u64, *command, memory.clone());
        }
        for cut in cuts {
            pair.run(cut);
            pair.send();
            if let Some(bytes) = pair.target.emit() {
                pair.show(&bytes[..bytes.len() / 2]).expect("right so far");
            }
            let Pair { initiator, target, memory, done, .. } = pair;
            let unanswered = initiator.unanswered();
            prop_assert_eq!(unanswered.len() + done.len(), tasks.len());
            pair = Pair::new(agreed, target.disk, seed ^ cut as u64);
            for (id, command) in unanswered {
                prop_assert!(!done.contains_key(&id));
                pair.initiator.ask(id, command).expect("room");
            }
            (pair.memory, pair.done) = (memory, done);
        }
        pair.run(usize::MAX);
        check(&pair, &tasks, &after);
    }

    #[test]
    fn troubles_of_the_unit_cost_no_task(
        agreed in any_agreed(),
        extents in prop::collection::vec((any::<bool>(), 1u32..40), 1..12),
        seed: u64,
    ) {
        let (tasks, after) = tasks(&extents);
        let mut pair = Pair::new(agreed, disk(), seed);
        pair.target.trouble = 4;
        for (n, (command, memory)) in tasks.iter().enumerate() {
            pair.ask(n as u64, *command, memory.clone());
        }
        for _ in 0..200 {
            pair.run(usize::MAX);
            let later: Vec<TaskId> = (pair.done.iter())
                .filter(|(_, outcome)| matches!(outcome, Outcome::Later(Later::Busy)))
                .map(|(id, _)| *id)
                .collect();
            for id in later {
                pair.done.remove(&id);
                pair.initiator.ask(id, tasks[id.0 as usize].0).expect("room");
            }
        }
        check(&pair, &tasks, &after);
    }

    #[test]
    fn aborted_tasks_end_and_the_others_go_on(
        agreed in any_agreed(),
        extents in prop::collection::vec((any::<bool>(), 1u32..40), 1..12),
        seed: u64,
        before in 0usize..20,
        aborted in prop::collection::vec(any::<bool>(), 12),
    ) {
        let (tasks, _) = tasks(&extents);
        let mut pair = Pair::new(agreed, disk(), seed);
        for (n, (command, memory)) in tasks.iter().enumerate() {
            pair.ask(n as u64, *command, memory.clone());
        }
        pair.run(before);
        let is_aborted = |id: &TaskId| aborted[id.0 as usize];
        for n in 0..tasks.len() as u64 {
            if is_aborted(&TaskId(n)) && !pair.done.contains_key(&TaskId(n)) {
                pair.initiator.abort(TaskId(n));
                pair.initiator.abort(TaskId(n));
            }
        }
        pair.take_events();
        pair.run(usize::MAX);
        prop_assert_eq!(pair.done.len(), tasks.len());
        for (id, outcome) in &pair.done {
            let is_good = matches!(outcome, Outcome::Good { .. });
            prop_assert!(is_good || is_aborted(id));
        }
    }

    #[test]
    fn whatever_comes_is_placed_inside_and_never_panics(
        agreed in any_agreed(),
        extents in prop::collection::vec((any::<bool>(), 1u32..20), 1..6),
        seed: u64,
        before in 0usize..30,
        lies in prop::collection::vec((0usize..60, any::<u8>()), 1..4),
    ) {
        let (tasks, _) = tasks(&extents);
        let mut pair = Pair::new(agreed, disk(), seed);
        for (n, (command, memory)) in tasks.iter().enumerate() {
            pair.ask(n as u64, *command, memory.clone());
        }
        pair.run(before);
        pair.send();
        let Some(mut bytes) = pair.target.emit() else { return Ok(()) };
        for (at, byte) in lies {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let _ = pair.show_lies(&bytes);
        while pair.initiator.poll().is_some() {}
        let _ = pair.show_lies(&[0xff; 200]);
    }
}

impl Pair {
    /// As [`Pair::show`], for bytes that may be wrong.
    fn show_lies(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let wants = self.initiator.wants();
            if let Some(place) = wants.place {
                let len = self.memory[&place.task].len();
                assert!(
                    place.offset_bytes as usize + wants.len_bytes <= len,
                    "outside"
                );
            }
            let used = self
                .initiator
                .receive(&bytes[..bytes.len().min(wants.len_bytes)])?;
            assert!(used > 0);
            bytes = &bytes[used..];
            while self.initiator.event().is_some() {}
        }
        Ok(())
    }
}

#[test]
fn the_window_holds_commands_back_but_nothing_that_is_immediate() {
    let mut initiator = Initiator::new(
        Agreed {
            max_cmd_sn: 2,
            ..agreed()
        },
        0,
    );
    for n in 0..4 {
        initiator
            .ask(TaskId(n), Command::TestUnitReady)
            .expect("room");
    }
    assert!(initiator.poll().is_some() && initiator.poll().is_some());
    assert_eq!(initiator.poll(), None);
    initiator.ping();
    assert!(initiator.poll().is_some());
    assert_eq!(initiator.poll(), None);
    initiator.abort(TaskId(1));
    assert!(initiator.poll().is_some());
    initiator.abort(TaskId(3));
    let outcome = Outcome::Aborted;
    let task = TaskId(3);
    assert_eq!(
        initiator.event(),
        Some(Event::Done { task, outcome }),
        "it was not sent yet"
    );
    let left = initiator.unanswered();
    let left: Vec<u64> = left.into_iter().map(|(id, _)| id.0).collect();
    assert_eq!(left, [0, 2]);
}

#[test]
fn tasks_beyond_the_bounds_are_refused() {
    let mut initiator = Initiator::new(agreed(), 0);
    for command in [read(0, 0), read(0, u32::MAX), write(0, 0), write(0, 32769)] {
        assert_eq!(initiator.ask(TaskId(0), command), Err(Refused::Length));
    }
    for n in 0..ISCSI_TASKS_MAX as u64 {
        assert_eq!(initiator.ask(TaskId(n), read(0, 32768)), Ok(()));
    }
    assert_eq!(initiator.ask(TaskId(999), read(0, 1)), Err(Refused::Full));
    initiator.log_out();
    assert_eq!(initiator.ask(TaskId(999), read(0, 1)), Err(Refused::Over));
}

#[test]
fn a_logout_waits_for_what_is_under_way() {
    let mut pair = Pair::new(agreed(), disk(), 1);
    pair.ask(0, read(0, 8), vec![0; 4096]);
    pair.send();
    pair.ask(1, read(8, 8), vec![0; 4096]);
    pair.initiator.log_out();
    pair.run(usize::MAX);
    assert!(pair.is_out && pair.done.len() == 1);
    assert_eq!(pair.initiator.unanswered(), [(TaskId(1), read(8, 8))]);
}
