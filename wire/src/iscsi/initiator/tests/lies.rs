//! A target that lies: each lie is a fault that names what came.

use super::*;
use crate::iscsi::fault::Why;
use crate::iscsi::pdu::{FINAL, Header, NO_TAG, opcode};
use crate::iscsi::testing::pdu;

/// Tags of what is under way: a read of 4096 bytes, a write of 16 KiB, and a command without data.
const READ: u32 = 0;
const WRITE: u32 = 1;
const READY: u32 = 2;

fn asking() -> Initiator {
    let mut initiator = Initiator::new(agreed(), 3);
    for (n, command) in [read(0, 8), write(8, 32), Command::TestUnitReady]
        .into_iter()
        .enumerate()
    {
        initiator.ask(TaskId(n as u64), command).expect("room");
        assert!(initiator.poll().is_some());
    }
    assert_eq!(initiator.poll(), None, "the write waits for an R2T");
    initiator
}

/// A PDU with right counters.
fn header(opcode: u8, flags: u8, tag: u32) -> Header {
    let header = Header::new(opcode, flags)
        .with_u32(16, tag)
        .with_u32(24, 50);
    header.with_u32(28, 4).with_u32(32, 35)
}

fn data_in(data_sn: u32, offset_bytes: u32) -> Header {
    let header = header(opcode::DATA_IN, 0, READ).with_u32(20, NO_TAG);
    header.with_u32(36, data_sn).with_u32(40, offset_bytes)
}

fn r2t(r2t_sn: u32, offset_bytes: u32, len_bytes: u32) -> Header {
    let header = header(opcode::R2T, FINAL, WRITE)
        .with_u32(20, 7)
        .with_u32(36, r2t_sn);
    header.with_u32(40, offset_bytes).with_u32(44, len_bytes)
}

fn response(tag: u32) -> Header {
    header(opcode::RESPONSE, FINAL, tag)
}

/// Shows PDUs, to the first fault.
fn shown(initiator: &mut Initiator, pdus: &[(Header, usize)]) -> Result<Vec<Event>, Fault> {
    let mut events = Vec::new();
    show(initiator, pdus, &mut events).map(|()| events)
}

/// The same, with the events up to then.
fn show(
    initiator: &mut Initiator,
    pdus: &[(Header, usize)],
    events: &mut Vec<Event>,
) -> Result<(), Fault> {
    for (header, len) in pdus {
        let bytes = pdu(*header, &vec![0; *len], false, false);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = rest.len().min(initiator.wants().len_bytes);
            let used = initiator.receive(&rest[..piece])?;
            rest = &rest[used..];
            while let Some(event) = initiator.event() {
                events.push(event);
            }
        }
    }
    Ok(())
}

/// PDUs with the lengths of their data; the fault, what came, and what was expected.
type Lie = (Vec<(Header, usize)>, Why, u64, u64);

#[test]
fn every_lie_is_a_fault_of_its_own() {
    let good = data_in(0, 0);
    let lies: Vec<Lie> = vec![
        // Lengths and offsets.
        (vec![(good, 4097)], Why::Beyond, 4097, 4096),
        (
            vec![(good, 4000), (data_in(1, 4000), 100)],
            Why::Beyond,
            4100,
            4096,
        ),
        (vec![(data_in(0, 512), 512)], Why::Offset, 512, 0),
        (vec![(good, 512), (data_in(1, 0), 512)], Why::Offset, 0, 512),
        (
            vec![(good, 512), (data_in(1, 1024), 512)],
            Why::Offset,
            1024,
            512,
        ),
        (vec![(good, 512), (data_in(0, 512), 512)], Why::DataSn, 0, 1),
        (vec![(good, 512), (data_in(2, 512), 512)], Why::DataSn, 2, 1),
        (vec![(good, 65537)], Why::DataLen, 65537, 65536),
        (
            vec![(data_in(0, u32::MAX), 0)],
            Why::Offset,
            u32::MAX.into(),
            0,
        ),
        // Tasks of others, and of the past.
        (vec![(good.with_u32(16, 9), 512)], Why::Tag, 0x25, 0),
        (
            vec![(good.with_u32(16, WRITE), 512)],
            Why::Direction,
            0x25,
            0,
        ),
        (
            vec![(good.with_u32(16, READY), 512)],
            Why::Direction,
            0x25,
            0,
        ),
        (vec![(good.with_u32(16, NO_TAG), 512)], Why::Tag, 0x25, 0),
        (
            vec![(response(READY), 0), (response(READY).with_u32(24, 51), 0)],
            Why::Tag,
            0x21,
            0,
        ),
        (
            vec![(good.with(1, &[FINAL | 1]), 4096), (data_in(1, 4096), 1)],
            Why::Tag,
            0x25,
            0,
        ),
        (
            vec![(header(opcode::NOP_IN, FINAL, 5), 0)],
            Why::Tag,
            0x20,
            0,
        ),
        (
            vec![(header(opcode::TASK_RESPONSE, FINAL, READ), 0)],
            Why::Tag,
            0x22,
            0,
        ),
        (
            vec![(header(opcode::LOGOUT_RESPONSE, FINAL, READ), 0)],
            Why::Tag,
            0x26,
            0,
        ),
        // R2Ts.
        (vec![(r2t(0, 0, 16385), 0)], Why::Beyond, 16385, 16384),
        (vec![(r2t(0, 8192, 512), 0)], Why::Offset, 8192, 0),
        (vec![(r2t(1, 0, 512), 0)], Why::R2tSn, 1, 0),
        (vec![(r2t(0, 0, 0), 0)], Why::Burst, 0, 16384),
        (
            vec![(r2t(0, 0, u32::MAX), 0)],
            Why::Beyond,
            u32::MAX.into(),
            16384,
        ),
        (
            vec![(r2t(0, 0, 512), 0), (r2t(1, 512, 512), 0)],
            Why::R2ts,
            2,
            1,
        ),
        (
            vec![(r2t(0, 0, 512).with_u32(16, READ), 0)],
            Why::Direction,
            0x31,
            0,
        ),
        (vec![(r2t(0, 0, 512).with_u32(16, 9), 0)], Why::Tag, 0x31, 0),
        (vec![(r2t(0, 0, 512), 4)], Why::DataLen, 4, 0),
        // Counters.
        (
            vec![(response(READY).with_u32(24, 51), 0)],
            Why::StatSn,
            51,
            50,
        ),
        (
            vec![(response(READY), 0), (response(READ), 0)],
            Why::StatSn,
            50,
            51,
        ),
        // Status and residual counts.
        (vec![(response(READ), 0)], Why::Residual, 0, 4096),
        (
            vec![(response(READ).with(1, &[FINAL | 2]).with_u32(44, 4095), 0)],
            Why::Residual,
            4095,
            4096,
        ),
        (
            vec![(good.with(1, &[FINAL | 1]), 4095)],
            Why::Residual,
            0,
            1,
        ),
        (
            vec![(good.with(1, &[FINAL | 5]).with_u32(44, 9), 4096)],
            Why::Residual,
            9,
            0,
        ),
        (vec![(response(WRITE), 0)], Why::Early, 0, 16384),
        (
            vec![(response(READY).with(3, &[2]), 1), (response(READY), 0)],
            Why::StatSn,
            50,
            51,
        ),
        (vec![(response(READY), 4097)], Why::DataLen, 4097, 4096),
        // Others.
        (
            vec![(header(opcode::NOP_IN, FINAL, NO_TAG), 4)],
            Why::DataLen,
            4,
            0,
        ),
        (
            vec![(header(opcode::LOGIN_RESPONSE, FINAL, 0), 0)],
            Why::Opcode,
            0x23,
            0,
        ),
        (vec![(header(0x3e, FINAL, 0), 0)], Why::Opcode, 0x3e, 0),
        (
            vec![(header(opcode::REJECT, FINAL, NO_TAG).with(2, &[4]), 48)],
            Why::Rejected,
            4,
            0,
        ),
        (
            vec![(header(opcode::ASYNC, FINAL, NO_TAG).with(36, &[2]), 0)],
            Why::Dropped,
            2,
            0,
        ),
        (
            vec![(header(opcode::ASYNC, FINAL, NO_TAG).with(36, &[3]), 0)],
            Why::Dropped,
            3,
            0,
        ),
    ];
    for (pdus, why, came, expected) in lies {
        let mut initiator = asking();
        let mut events = Vec::new();
        let fault = show(&mut initiator, &pdus, &mut events).expect_err(&format!("{why:?}"));
        assert_eq!(
            (fault.why, fault.came, fault.expected),
            (why, came, expected),
            "{fault}"
        );
        assert!(
            fault.to_string().contains(&came.to_string()) || came < 0x40,
            "{fault}"
        );
        // It is final, and nothing is lost.
        assert_eq!(initiator.receive(&[0; 48]), Err(fault));
        assert_eq!((initiator.poll(), initiator.fault()), (None, Some(fault)));
        assert_eq!(initiator.ask(TaskId(9), read(0, 1)), Err(Refused::Over));
        let is_done = |event: &&Event| matches!(event, Event::Done { .. });
        let done = events.iter().filter(is_done).count();
        assert_eq!(done + initiator.unanswered().len(), 3, "{fault}");
    }
}

#[test]
fn sense_data_longer_than_its_segment_is_a_fault() {
    let mut initiator = asking();
    let bytes = pdu(
        response(READY).with(3, &[2]),
        &[0, 9, 0x70, 0],
        false,
        false,
    );
    initiator.receive(&bytes[..48]).expect("a header");
    let fault = initiator.receive(&bytes[48..]).expect_err("sense data");
    assert_eq!((fault.why, fault.came, fault.expected), (Why::Sense, 9, 2));
}

#[test]
fn pings_without_end_are_a_fault() {
    let mut initiator = asking();
    let ping = (header(opcode::NOP_IN, FINAL, NO_TAG).with_u32(20, 3), 0);
    let fault = shown(&mut initiator, &[ping; 17]).expect_err("too many");
    assert_eq!((fault.why, fault.came), (Why::Pings, 17));
}

#[test]
fn a_window_that_shrinks_or_is_none_is_ignored() {
    let mut initiator = asking();
    for (exp_cmd_sn, max_cmd_sn) in [(4, 2), (4, 3), (4, (1 << 31) + 4), (3, 34)] {
        let nop = header(opcode::NOP_IN, FINAL, NO_TAG).with_u32(20, NO_TAG);
        let nop = nop.with_u32(28, exp_cmd_sn).with_u32(32, max_cmd_sn);
        shown(&mut initiator, &[(nop, 0)]).expect("no fault");
    }
    assert_eq!(initiator.max_cmd_sn, 34);
}

/// The outcome of the read, after a response with these statuses and sense data.
fn outcome(response: u8, status: u8, sense: &[u8]) -> Vec<Event> {
    let mut initiator = asking();
    let header = self::response(READ).with(2, &[response, status]);
    let data = match sense {
        [] => vec![],
        sense => [&(sense.len() as u16).to_be_bytes(), sense].concat(),
    };
    let bytes = pdu(header, &data, false, false);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let piece = rest.len().min(initiator.wants().len_bytes);
        rest = &rest[initiator.receive(&rest[..piece]).expect("no fault")..];
    }
    std::iter::from_fn(|| initiator.event()).collect()
}

#[test]
fn a_status_becomes_an_outcome() {
    let sense = |key, code, qualifier| Sense {
        key,
        code,
        qualifier,
    };
    let medium = sense(3, 0x11, 0);
    let protected = sense(7, 0x27, 0);
    let becoming_ready = sense(2, 4, 1);
    for (response, status, data, expected) in [
        (
            0,
            0x02,
            &[0x72, 3, 0x11, 0][..],
            Outcome::Failed(Failure::Sense(medium)),
        ),
        (
            0,
            0x02,
            &[0x72, 7, 0x27, 0],
            Outcome::Failed(Failure::Sense(protected)),
        ),
        (
            0,
            0x02,
            &[0x72, 2, 4, 1],
            Outcome::Later(Later::Sense(becoming_ready)),
        ),
        (0, 0x02, &[], Outcome::Failed(Failure::Status(2))),
        (0, 0x08, &[], Outcome::Later(Later::Busy)),
        (0, 0x18, &[], Outcome::Failed(Failure::Status(0x18))),
        (0, 0x28, &[], Outcome::Later(Later::TaskSetFull)),
        (0, 0x40, &[], Outcome::Later(Later::TaskAborted)),
        (1, 0x00, &[], Outcome::Failed(Failure::Response(1))),
    ] {
        let done = Event::Done {
            task: TaskId(0),
            outcome: expected,
        };
        assert_eq!(outcome(response, status, data), [done]);
    }
    assert!(protected.is_write_protected() && !medium.is_write_protected());
}

#[test]
fn a_short_read_fails_where_the_target_says_so() {
    let short = data_in(0, 0).with(1, &[FINAL | 3]).with_u32(44, 96);
    let events = shown(&mut asking(), &[(short, 4000)]).expect("it is consistent");
    let outcome = Outcome::Failed(Failure::Short { len_bytes: 4000 });
    let task = TaskId(0);
    assert_eq!(events.last(), Some(&Event::Done { task, outcome }));
}

#[test]
fn a_unit_attention_is_told_and_its_task_repeated_but_not_for_ever() {
    let mut initiator = asking();
    let mut pdus = 0;
    let (mut attentions, mut done) = (0, None);
    let mut tag = READY;
    while done.is_none() {
        let header = response(tag)
            .with(3, &[2])
            .with_u32(24, 50 + pdus)
            .with_u32(28, 4 + pdus);
        let sense = [0, 4, 0x72, 6, 0x2a, 9];
        let bytes = pdu(header, &sense, false, false);
        initiator.receive(&bytes[..48]).expect("a header");
        let data = &bytes[48..];
        let used = initiator.receive(&data[..6]).expect("data");
        initiator.receive(&data[used..]).expect("padding");
        while let Some(event) = initiator.event() {
            match event {
                Event::Attention(sense) if sense.is_capacity_changed() => attentions += 1,
                Event::Done { outcome, .. } => done = Some(outcome),
                other => panic!("{other:?}"),
            }
        }
        pdus += 1;
        tag = match initiator.poll() {
            Some(send) => Header(send.header().try_into().expect("a header")).tag(),
            None => tag,
        };
    }
    assert!(matches!(done, Some(Outcome::Failed(Failure::Sense(_)))));
    assert_eq!(attentions, 9);
}

#[test]
fn a_target_may_ask_for_the_end() {
    let wish = header(opcode::ASYNC, FINAL, NO_TAG)
        .with(36, &[1])
        .with(42, &[0, 30]);
    let events = shown(&mut asking(), &[(wish, 0)]).expect("no fault");
    assert_eq!(events, [Event::LogoutRequested { within_s: 30 }]);
}

#[test]
fn a_late_answer_to_an_aborted_task_is_a_fault_but_not_an_early_one() {
    let abort = || {
        let mut initiator = asking();
        initiator.abort(TaskId(0));
        let send = initiator.poll().expect("ABORT TASK");
        let request = Header(send.header().try_into().expect("a header"));
        assert_eq!(
            (request.opcode(), request.flags()),
            (opcode::TASK, FINAL | 1)
        );
        assert_eq!(
            (request.u32_at(20), request.u32_at(32)),
            (READ, 1),
            "its tag and CmdSN"
        );
        (
            initiator,
            header(opcode::TASK_RESPONSE, FINAL, request.tag()),
        )
    };
    let (mut initiator, aborted) = abort();
    let done = Event::Done {
        task: TaskId(0),
        outcome: Outcome::Aborted,
    };
    assert_eq!(shown(&mut initiator, &[(aborted, 0)]), Ok(vec![done]));
    let fault = shown(&mut initiator, &[(data_in(0, 0), 512)]).expect_err("late");
    assert_eq!(fault.why, Why::Tag);

    // Data on its way is not placed; the answer may be faster than the abort.
    let (mut initiator, aborted) = abort();
    let bytes = pdu(
        data_in(0, 0).with(1, &[FINAL | 1]),
        &[1; 4096],
        false,
        false,
    );
    initiator.receive(&bytes[..48]).expect("a header");
    assert_eq!(
        (initiator.wants().place, initiator.wants().len_bytes),
        (None, 4096)
    );
    initiator.receive(&bytes[48..]).expect("data");
    assert_eq!(initiator.event(), Some(done));
    let unknown = aborted.with(2, &[1]).with_u32(24, 51);
    assert_eq!(shown(&mut initiator, &[(unknown, 0)]), Ok(vec![]));
    assert_eq!(initiator.load(), 2);
}

#[test]
fn a_task_aborted_in_the_middle_of_its_data_keeps_its_memory() {
    let mut initiator = asking();
    let bytes = pdu(data_in(0, 0), &[1; 4096], false, false);
    initiator.receive(&bytes[..48]).expect("a header");
    initiator.receive(&bytes[48..100]).expect("data");
    assert_eq!(
        initiator.wants().place.map(|place| place.offset_bytes),
        Some(52)
    );
    initiator.abort(TaskId(0));
    assert_eq!(initiator.wants().place, None);
}
