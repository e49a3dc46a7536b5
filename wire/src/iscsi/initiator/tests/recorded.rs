//! What tgtd 1.0.85 sent to this initiator: the login, a unit attention, and the first commands.

use super::*;
use crate::iscsi::login::{Login, Settings, Turn};
use crate::iscsi::scsi::{Capacity, Inquiry, luns};

const SECURITY: &str = "238100000000002780000000000100000000000000000000000000000000000100000002000000000000000000000000\
    546172676574506f7274616c47726f75705461673d3100417574684d6574686f643d4e6f6e650000";
const OPERATIONAL: &str = "23870000000000fd80000000000101000000000000000000000000010000000100000002000000000000000000000000\
    4865616465724469676573743d4e6f6e6500446174614469676573743d4e6f6e65004d617842757273744c656e6774683d32363231343400\
    466972737442757273744c656e6774683d363535333600496e697469616c5232543d59657300496d6d656469617465446174613d59657300\
    4d61784f75747374616e64696e675232543d31004d6178436f6e6e656374696f6e733d31004572726f725265636f766572794c6576656c3d3000\
    44617461504455496e4f726465723d596573004461746153657175656e6365496e4f726465723d596573004465666175\
    6c7454696d6532576169743d320044656661756c7454696d653252657461696e3d3000000000";
const ATTENTION: &str = "218000020000001400000000000000000000000000000000000000020000000200000082000000000000000000000000\
    0012700006000000000a00000000290000000000";
const READY: &str = "218000000000000000000000000000000000000100000000000000030000000300000083000000000000000000000000";
const INQUIRY: &str = "2583000000000042000000000000000000000002ffffffff0000000400000004000000840000000000000000000000ba\
    000005123d00000249455420202020205649525455414c2d4449534b20202020303030310000000000000000000000000000000000000000\
    000004c00960030000000000";
const CAPACITY: &str = "2581000000000020000000000000000000000003ffffffff000000050000000500000085000000000000000000000000\
    0000000000007fff000002000003000000000000000000000000000000000000";
const LUNS: &str = "2583000000000018000000000000000000000004ffffffff0000000600000006000000860000000000000000000007f0\
    000000100000000000000000000000000001000000000000";
const R2T: &str = "318000000000000000010000000000000000000580868508000000070000000700000087000000000000200000040000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn log_in() -> Agreed {
    let (mut login, _) = Login::new(Settings {
        initiator: "iqn.2026-01.org.example:test".to_owned(),
        target: "iqn.2026-01.org.example:disk".to_owned(),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: None,
        header_digests: false,
        data_digests: false,
        segment_bytes: 256 << 10,
    })
    .expect("settings");
    for answer in [SECURITY, OPERATIONAL].map(bytes) {
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let piece = rest.len().min(login.wants_bytes());
            let (used, turn) = login.receive(&rest[..piece]).expect("a right answer");
            rest = &rest[used..];
            if let Turn::Done(agreed) = turn {
                assert!(rest.is_empty());
                return agreed;
            }
        }
    }
    panic!("it has agreed")
}

#[test]
fn a_session_of_tgtd_is_understood() {
    let agreed = log_in();
    assert_eq!(
        (agreed.tsih, agreed.stat_sn, agreed.max_cmd_sn),
        (0x0100, 2, 2)
    );
    assert_eq!(
        (agreed.burst_bytes, agreed.first_burst_bytes),
        (256 << 10, 64 << 10)
    );
    assert!(agreed.initial_r2t && agreed.immediate_data && agreed.send_segment_bytes == 8192);

    let mut initiator = Initiator::new(agreed, 1);
    let mut shown = |command: Command, answers: &[&str]| {
        let mut memory = vec![0; command.in_bytes() as usize];
        let mut events = Vec::new();
        initiator.ask(TaskId(0), command).expect("room");
        for answer in answers {
            assert!(initiator.poll().is_some());
            let answer = bytes(answer);
            let mut rest = &answer[..];
            while !rest.is_empty() {
                let wants = initiator.wants();
                let piece = rest.len().min(wants.len_bytes);
                if let Some(place) = wants.place {
                    let from = place.offset_bytes as usize;
                    memory[from..from + piece].copy_from_slice(&rest[..piece]);
                }
                rest = &rest[initiator.receive(&rest[..piece]).expect("a right answer")..];
                events.extend(std::iter::from_fn(|| initiator.event()));
            }
        }
        let Some(Event::Done {
            outcome: Outcome::Good { len_bytes },
            ..
        }) = events.pop()
        else {
            panic!("{command:?} has another end")
        };
        memory.truncate(len_bytes as usize);
        (memory, events)
    };

    let (_, events) = shown(Command::TestUnitReady, &[ATTENTION, READY]);
    let sense = Sense {
        key: 6,
        code: 0x29,
        qualifier: 0,
    };
    assert_eq!(
        events,
        [Event::Attention(sense)],
        "power on, which costs one repetition"
    );
    let (answer, _) = shown(Command::Inquiry { page: None }, &[INQUIRY]);
    let inquiry = Inquiry::parse(&answer).expect("an answer");
    assert_eq!(
        (inquiry.is_disk, inquiry.name.as_str()),
        (true, "IET VIRTUAL-DISK 0001")
    );
    let (answer, _) = shown(Command::ReadCapacity, &[CAPACITY]);
    let capacity = Capacity::parse(&answer).expect("an answer");
    assert_eq!(
        (capacity.len_bytes(), capacity.block_bytes),
        (16 << 20, 512)
    );
    assert!(!capacity.is_protected);
    let (answer, _) = shown(Command::ReportLuns, &[LUNS]);
    assert_eq!(luns(&answer), [0, 1]);

    let command = write(0, 2048);
    initiator.ask(TaskId(1), command).expect("room");
    let immediate = initiator
        .poll()
        .and_then(|send| send.payload())
        .expect("data");
    assert_eq!((immediate.offset_bytes, immediate.len_bytes), (0, 8192));
    assert_eq!(initiator.receive(&bytes(R2T)), Ok(48));
    let sent = std::iter::from_fn(|| initiator.poll()).map(|send| {
        let payload = send.payload().expect("data");
        (payload.offset_bytes, payload.len_bytes)
    });
    let expected: Vec<(u32, u32)> = (1..33).map(|n| (n * 8192, 8192)).collect();
    assert_eq!(
        sent.collect::<Vec<_>>(),
        expected,
        "256 KiB in segments of 8 KiB"
    );
}
