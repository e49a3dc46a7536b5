use super::sense::{Cure, Sense};
use super::*;
use proptest::prelude::*;

#[test]
fn command_blocks_are_those_of_the_standard() {
    let cdb = |text: &str| {
        let bytes = text
            .split(' ')
            .map(|byte| u8::from_str_radix(byte, 16).expect("hex"));
        let bytes: Vec<u8> = bytes.collect();
        <Cdb>::try_from(bytes).expect("16 bytes")
    };
    let lba = 0x0102_0304_0506_0708;
    let blocks = 0x0a0b_0c0d;
    for (made, written) in [
        (
            test_unit_ready(),
            "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            inquiry(None),
            "12 00 00 00 fc 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            inquiry(Some(0x80)),
            "12 01 80 00 fc 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            read_capacity(),
            "9e 10 00 00 00 00 00 00 00 00 00 00 00 20 00 00",
        ),
        (
            report_luns(),
            "a0 00 00 00 00 00 00 00 08 08 00 00 00 00 00 00",
        ),
        (
            read(lba, blocks),
            "88 00 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00",
        ),
        (
            write(lba, blocks),
            "8a 00 01 02 03 04 05 06 07 08 0a 0b 0c 0d 00 00",
        ),
        (
            synchronize(0, 0),
            "91 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
    ] {
        assert_eq!(made, cdb(written));
    }
}

#[test]
fn units_have_one_of_two_forms() {
    assert_eq!(lun(1), [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(lun(256), [0x41, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(lun_number([0x01, 0, 0, 0, 0, 0, 0, 0]), None, "another bus");
    assert_eq!(lun_number([0, 1, 0, 1, 0, 0, 0, 0]), None, "two levels");
    assert_eq!(lun_number([0xc1, 1, 0, 0, 0, 0, 0, 0]), None);
    for number in 0..=ISCSI_LUN_MAX {
        assert_eq!(lun_number(lun(number)), Some(number));
    }
    let mut answer = vec![0, 0, 0, 24, 0, 0, 0, 0];
    answer.extend([lun(0), [0xff; 8], lun(300)].concat());
    assert_eq!(luns(&answer), [0, 300]);
    assert_eq!(luns(&answer[..20]), [0], "cut");
    assert_eq!(luns(&answer[..3]), [0; 0]);
}

#[test]
fn a_capacity_is_that_of_a_disk() {
    let mut answer = [0; 32];
    answer[..8].copy_from_slice(&2047u64.to_be_bytes());
    answer[8..12].copy_from_slice(&512u32.to_be_bytes());
    answer[13] = 3;
    let capacity = Capacity::parse(&answer).expect("a capacity");
    assert_eq!(
        (capacity.len_bytes(), capacity.physical_exponent),
        (1 << 20, 3)
    );
    assert_eq!(Capacity::parse(&answer[..13]), None, "cut");
    for (at, byte) in [(11, 1), (10, 0), (8, 1), (10, 3)] {
        let mut wrong = answer;
        wrong[at] = byte;
        assert_eq!(Capacity::parse(&wrong), None, "blocks of other sizes");
    }
    answer[..8].fill(0xff);
    assert_eq!(
        Capacity::parse(&answer),
        None,
        "more bytes than there are numbers"
    );
}

#[test]
fn a_disk_says_what_it_is() {
    let mut answer = [b' '; 36];
    answer[..8].fill(0);
    answer[8..11].copy_from_slice(b"IET");
    answer[16..28].copy_from_slice(b"VIRTUAL-DISK");
    answer[32..36].copy_from_slice(b"0\x0001");
    let inquiry = Inquiry::parse(&answer).expect("an answer");
    assert_eq!(inquiry.name, "IET VIRTUAL-DISK 0?01");
    assert!(inquiry.is_disk);
    answer[0] = 0x20;
    assert!(
        !Inquiry::parse(&answer).expect("an answer").is_disk,
        "not there"
    );
    assert_eq!(serial(b"\x00\x80\x00\x04 a1 ..."), Some("a1".to_owned()));
    assert_eq!(serial(b"\x00\x80\x00\x05abcd"), None, "cut");
    assert_eq!(serial(b"\x00\x83\x00\x04abcd"), None, "another page");
}

#[test]
fn sense_data_has_two_forms() {
    let mut fixed = [0; 18];
    (fixed[0], fixed[2], fixed[12], fixed[13]) = (0xf0, 0x26, 0x2a, 0x09);
    let sense = Sense::parse(&fixed).expect("sense");
    assert_eq!(Sense::parse(&[0x72, 6, 0x2a, 9]), Some(sense));
    assert_eq!(sense.to_string(), "unit attention (6/2a/09)");
    assert!(sense.is_capacity_changed());
    assert_eq!(
        Sense::parse(&fixed[..3]).map(|sense| sense.key),
        Some(6),
        "no code"
    );
    for bad in [&[][..], &[0x70, 0], &[0x72, 0, 0], &[0x00, 0, 0, 0]] {
        assert_eq!(Sense::parse(bad), None);
    }
}

#[test]
fn what_to_do_follows_from_sense() {
    for (key, code, qualifier, cure) in [
        (0x1, 0x18, 0x00, Cure::Done),
        (0x2, 0x04, 0x01, Cure::Wait),
        (0x2, 0x3a, 0x00, Cure::GiveUp),
        (0x3, 0x11, 0x00, Cure::GiveUp),
        (0x5, 0x21, 0x00, Cure::GiveUp),
        (0x6, 0x29, 0x00, Cure::Repeat),
        (0x7, 0x27, 0x00, Cure::GiveUp),
        (0xb, 0x00, 0x00, Cure::Wait),
    ] {
        let sense = Sense {
            key,
            code,
            qualifier,
        };
        assert_eq!(sense.cure(), cure, "{sense}");
    }
}

proptest! {
    #[test]
    fn no_answer_panics(answer in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = (Capacity::parse(&answer), Inquiry::parse(&answer), serial(&answer));
        let _ = Sense::parse(&answer);
        prop_assert!(luns(&answer).len() <= 8);
    }
}
