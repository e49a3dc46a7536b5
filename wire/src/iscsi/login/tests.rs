use super::*;
use crate::iscsi::testing::pdu;
use md5::{Digest, Md5};
use proptest::prelude::*;

const ISID: [u8; 6] = [0x80, 1, 2, 3, 4, 5];
/// Flags of a target that leaves the security stage, or the operational one.
const TO_OPERATIONAL: u8 = 0x81;
const TO_FULL: u8 = 0x87;

fn settings(chap: Option<Chap>) -> Settings {
    Settings {
        initiator: "iqn.2026-01.org.example:i".to_owned(),
        target: "iqn.2026-01.org.example:t".to_owned(),
        isid: ISID,
        chap,
        header_digests: true,
        data_digests: false,
        segment_bytes: 1 << 18,
    }
}

fn chap(mutual: bool) -> Option<Chap> {
    Some(Chap {
        name: "me".to_owned(),
        secret: b"my secret".to_vec(),
        mutual: mutual.then(|| Mutual {
            name: "it".to_owned(),
            secret: b"its secret".to_vec(),
            challenge: [7; 16],
            id: 9,
        }),
    })
}

/// A header of a target that answers.
fn header(flags: u8, stat_sn: u32) -> Header {
    let header = Header::new(opcode::LOGIN_RESPONSE, flags)
        .with(8, &ISID)
        .with(14, &[0, 7]);
    header
        .with_u32(24, stat_sn)
        .with_u32(28, 1)
        .with_u32(32, 33)
}

fn answer(flags: u8, stat_sn: u32, text: &str) -> Vec<u8> {
    pdu(header(flags, stat_sn), text.as_bytes(), false, false)
}

/// Shows an answer in pieces, to the end of what the login makes of it.
fn show(login: &mut Login, mut bytes: &[u8]) -> Result<Turn, LoginError> {
    loop {
        let piece = bytes.len().min(login.wants_bytes()).min(11);
        let (used_bytes, turn) = login.receive(&bytes[..piece])?;
        assert_eq!(used_bytes, piece);
        bytes = &bytes[piece..];
        if turn != Turn::Receive || bytes.is_empty() {
            assert!(bytes.is_empty(), "an answer is taken whole");
            return Ok(turn);
        }
    }
}

/// Flags and text of a request.
fn request(bytes: &[u8]) -> (u8, String) {
    assert_eq!(bytes[0], 0x43);
    assert_eq!(bytes.len() % 4, 0);
    let len_bytes = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]) as usize;
    let text = String::from_utf8(bytes[48..48 + len_bytes].to_vec()).expect("text");
    (bytes[1], text)
}

/// The answer of the login to a target's.
fn asked(login: &mut Login, flags: u8, stat_sn: u32, text: &str) -> (u8, String) {
    match show(login, &answer(flags, stat_sn, text)) {
        Ok(Turn::Send(bytes)) => {
            assert_eq!(bytes[28..32], (stat_sn + 1).to_be_bytes(), "ExpStatSN");
            request(&bytes)
        }
        other => panic!("{other:?}"),
    }
}

/// A login in the operational stage.
fn operational() -> Login {
    let (mut login, first) = Login::new(settings(None)).expect("settings");
    let (flags, text) = request(&first);
    assert_eq!(flags, 0x81);
    assert_eq!(
        text,
        "InitiatorName=iqn.2026-01.org.example:i\0SessionType=Normal\0\
         TargetName=iqn.2026-01.org.example:t\0AuthMethod=None\0"
    );
    let keys = "TargetPortalGroupTag=1\0AuthMethod=None\0";
    let (flags, text) = asked(&mut login, TO_OPERATIONAL, 70, keys);
    assert_eq!(flags, 0x87);
    assert!(
        text.starts_with("HeaderDigest=CRC32C,None\0DataDigest=None\0"),
        "{text}"
    );
    login
}

fn response(id: u8, secret: &[u8], challenge: &[u8]) -> String {
    let hash = Md5::new()
        .chain_update([id])
        .chain_update(secret)
        .chain_update(challenge);
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn without_credentials_two_exchanges_are_enough() {
    let mut login = operational();
    let keys = "HeaderDigest=CRC32C\0DataDigest=None\0MaxRecvDataSegmentLength=0x2000\0MaxBurstLength=262144\0\
         FirstBurstLength=512\0InitialR2T=No\0ImmediateData=No\0MaxOutstandingR2T=2\0MaxConnections=1\0\
         ErrorRecoveryLevel=0\0DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0DefaultTime2Wait=3\0DefaultTime2Retain=0\0";
    let Ok(Turn::Done(agreed)) = show(&mut login, &answer(TO_FULL, 71, keys)) else {
        panic!("it has agreed")
    };
    let expected = Agreed {
        tsih: 7,
        header_digests: true,
        data_digests: false,
        receive_segment_bytes: 1 << 18,
        send_segment_bytes: 8192,
        burst_bytes: 1 << 18,
        first_burst_bytes: 512,
        initial_r2t: false,
        immediate_data: false,
        r2ts: 2,
        wait_s: 3,
        cmd_sn: 1,
        stat_sn: 72,
        max_cmd_sn: 33,
    };
    assert_eq!(agreed, expected);
}

#[test]
fn what_a_target_leaves_out_has_its_default() {
    let Ok(Turn::Done(agreed)) = show(&mut operational(), &answer(TO_FULL, 71, "")) else {
        panic!("it has agreed")
    };
    assert!(agreed.initial_r2t && !agreed.header_digests && agreed.r2ts == 1);
    assert_eq!(
        (agreed.send_segment_bytes, agreed.burst_bytes),
        (8192, 1 << 18)
    );
}

#[test]
fn a_text_may_have_several_pdus() {
    let mut login = operational();
    let (flags, text) = asked(&mut login, 0x44, 71, "MaxBurstLength=10");
    assert_eq!((flags, text.as_str()), (0x04, ""));
    let (flags, text) = asked(&mut login, 0x44, 72, "24\0HeaderDi");
    assert_eq!((flags, text.as_str()), (0x04, ""));
    // It may leave the stage only when it was asked to.
    let (flags, _) = asked(&mut login, 0x04, 73, "gest=None\0");
    assert_eq!(flags, 0x87);
    let Ok(Turn::Done(agreed)) = show(&mut login, &answer(TO_FULL, 74, "")) else {
        panic!("it has agreed")
    };
    assert_eq!(
        (agreed.burst_bytes, agreed.first_burst_bytes),
        (1024, 1024),
        "no more than a burst"
    );
}

#[test]
fn what_nobody_here_knows_is_answered() {
    let mut login = operational();
    let (flags, text) = asked(&mut login, 0x04, 71, "X-org.example.key=1\0IFMarker=No\0");
    assert_eq!(flags, 0x87);
    assert_eq!(
        text,
        "X-org.example.key=NotUnderstood\0IFMarker=NotUnderstood\0"
    );
}

#[test]
fn answers_that_were_not_offered_are_named() {
    for keys in [
        "DataDigest=CRC32C\0",
        "HeaderDigest=CRC32\0",
        "MaxBurstLength=1048577\0",
        "MaxBurstLength=-1\0",
        "FirstBurstLength=262145\0",
        "MaxRecvDataSegmentLength=511\0",
        "MaxOutstandingR2T=9\0",
        "MaxOutstandingR2T=0\0",
        "InitialR2T=Maybe\0",
        "ErrorRecoveryLevel=1\0",
        "DataPDUInOrder=No\0",
        "MaxConnections=2\0",
        "DefaultTime2Wait=3601\0",
        "ImmediateData=Reject\0",
    ] {
        let error = show(&mut operational(), &answer(TO_FULL, 71, keys)).expect_err(keys);
        assert_eq!(
            error.to_string(),
            format!(
                "the target answers {}, which was not offered",
                keys.trim_end_matches('\0')
            )
        );
    }
}

#[test]
fn chap_one_way() {
    let (mut login, first) = Login::new(settings(chap(false))).expect("settings");
    let (flags, text) = request(&first);
    assert_eq!(flags, 0x00);
    assert!(text.ends_with("AuthMethod=CHAP,None\0"));
    let (flags, text) = asked(&mut login, 0x00, 1, "AuthMethod=CHAP\0");
    assert_eq!((flags, text.as_str()), (0x00, "CHAP_A=5\0"));
    let (flags, text) = asked(
        &mut login,
        0x00,
        2,
        "CHAP_A=5\0CHAP_I=66\0CHAP_C=0x00ff10\0",
    );
    assert_eq!(flags, 0x81);
    let right = response(66, b"my secret", &[0, 0xff, 0x10]);
    assert_eq!(text, format!("CHAP_N=me\0CHAP_R=0x{right}\0"));
    let (flags, _) = asked(&mut login, TO_OPERATIONAL, 3, "");
    assert_eq!(flags, 0x87);
}

#[test]
fn a_target_that_asks_for_no_credentials_is_accepted_unless_it_has_to_prove_itself() {
    let (mut login, _) = Login::new(settings(chap(false))).expect("settings");
    let (flags, _) = asked(&mut login, 0x00, 1, "AuthMethod=None\0");
    assert_eq!(flags, 0x81);
    let (flags, _) = asked(&mut login, TO_OPERATIONAL, 2, "");
    assert_eq!(flags, 0x87);
    for keys in ["AuthMethod=None\0", "", "AuthMethod=Reject\0"] {
        let (mut login, first) = Login::new(settings(chap(true))).expect("settings");
        assert!(request(&first).1.ends_with("AuthMethod=CHAP\0"));
        assert_eq!(
            show(&mut login, &answer(0x00, 1, keys)),
            Err(LoginError::Method)
        );
    }
    let (mut login, _) = Login::new(settings(None)).expect("settings");
    assert_eq!(
        show(&mut login, &answer(0x00, 1, "AuthMethod=CHAP\0")),
        Err(LoginError::WantsChap)
    );
}

/// A mutual login up to the target's proof.
fn mutual() -> Login {
    let (mut login, _) = Login::new(settings(chap(true))).expect("settings");
    asked(&mut login, 0x00, 1, "AuthMethod=CHAP\0");
    let (_, text) = asked(&mut login, 0x00, 2, "CHAP_A=5\0CHAP_I=66\0CHAP_C=0bAP8Q\0");
    assert!(text.ends_with(&format!("CHAP_I=9\0CHAP_C=0x{}\0", "07".repeat(16))));
    login
}

#[test]
fn chap_in_both_directions() {
    let right = response(9, b"its secret", &[7; 16]);
    let (flags, _) = asked(
        &mut mutual(),
        TO_OPERATIONAL,
        3,
        &format!("CHAP_N=it\0CHAP_R=0x{right}\0"),
    );
    assert_eq!(flags, 0x87);
    let own = response(9, b"my secret", &[7; 16]);
    for keys in [
        String::new(),
        format!("CHAP_N=other\0CHAP_R=0x{right}\0"),
        format!("CHAP_N=it\0CHAP_R=0x{own}\0"),
        format!("CHAP_N=it\0CHAP_R=0x{}\0", &right[2..]),
        format!("CHAP_N=it\0CHAP_R={right}\0"),
    ] {
        let error = show(&mut mutual(), &answer(TO_OPERATIONAL, 3, &keys)).expect_err(&keys);
        assert!(error.to_string().contains("does not prove"), "{error}");
    }
}

#[test]
fn challenges_that_are_none_are_refused() {
    for (keys, why) in [
        ("CHAP_A=7\0CHAP_I=1\0CHAP_C=0x00\0", "another hash"),
        ("CHAP_A=5\0CHAP_I=256\0CHAP_C=0x00\0", "no number"),
        ("CHAP_A=5\0CHAP_I=1\0CHAP_C=0x\0", "no challenge"),
        ("CHAP_A=5\0CHAP_I=1\0", "no challenge"),
        (
            &format!("CHAP_A=5\0CHAP_I=1\0CHAP_C=0x{}\0", "00".repeat(1025)),
            "no challenge",
        ),
        (
            &format!("CHAP_A=5\0CHAP_I=9\0CHAP_C=0x{}\0", "07".repeat(16)),
            "our own",
        ),
    ] {
        let (mut login, _) = Login::new(settings(chap(true))).expect("settings");
        asked(&mut login, 0x00, 1, "AuthMethod=CHAP\0");
        let error = show(&mut login, &answer(0x00, 2, keys)).expect_err(keys);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings(chap(true));
        change(&mut settings);
        Login::new(settings).map(|_| ())
    };
    let chap = |change: &dyn Fn(&mut Chap)| {
        with(&|settings| change(settings.chap.as_mut().expect("chap")))
    };
    assert_eq!(with(&|_| {}), Ok(()));
    assert_eq!(
        with(&|settings| settings.initiator.clear()),
        Err(SettingsError::Name)
    );
    assert_eq!(
        with(&|settings| settings.target.push('\0')),
        Err(SettingsError::Name)
    );
    assert_eq!(
        with(&|settings| settings.target = "a".repeat(224)),
        Err(SettingsError::Name)
    );
    assert_eq!(
        with(&|settings| settings.segment_bytes = 511),
        Err(SettingsError::Segment)
    );
    assert_eq!(
        with(&|settings| settings.segment_bytes = (1 << 20) + 1),
        Err(SettingsError::Segment)
    );
    assert_eq!(chap(&|chap| chap.secret.clear()), Err(SettingsError::Chap));
    assert_eq!(
        chap(&|chap| chap.name = "a".repeat(256)),
        Err(SettingsError::Chap)
    );
    assert_eq!(
        chap(&|chap| chap.secret = b"its secret".to_vec()),
        Err(SettingsError::SameSecrets)
    );
    let shown = format!("{:?}", settings(self::chap(true)));
    assert!(!shown.contains("secret"), "{shown}");
    assert!(
        !format!("{:?}", b"my secret").contains("my") && !shown.contains("109, 121"),
        "{shown}"
    );
}

#[test]
fn redirections_and_refusals_are_told() {
    let refused = |class: u8, detail: u8, text: &str| {
        let (mut login, _) = Login::new(settings(None)).expect("settings");
        let header = header(0, 1).with(36, &[class, detail]);
        show(&mut login, &pdu(header, text.as_bytes(), false, false)).expect_err("refused")
    };
    for (text, host, port) in [
        ("TargetAddress=10.0.0.2:3261,1\0", "10.0.0.2", 3261),
        ("TargetAddress=[fd00::1]\0", "fd00::1", 3260),
    ] {
        for detail in [1, 2] {
            let moved = Moved {
                host: host.to_owned(),
                port,
                is_permanent: detail == 2,
            };
            assert_eq!(refused(1, detail, text), LoginError::Moved(moved));
        }
    }
    assert!(refused(1, 1, "").to_string().contains("not where to"));
    assert_eq!(refused(2, 1, ""), LoginError::WantsChap);
    let wrong = LoginError::Refused {
        class: 2,
        detail: 1,
    };
    assert!(wrong.to_string().contains("credentials of CHAP"));
    assert!(refused(2, 3, "").to_string().contains("check the address"));
    assert!(refused(2, 0x77, "").to_string().contains("0277"));
    assert!(refused(3, 1, "").may_pass() && !refused(2, 1, "").may_pass());
}

#[test]
fn answers_out_of_place_are_refused() {
    let (mut login, _) = Login::new(settings(chap(false))).expect("settings");
    let unasked = show(&mut login, &answer(TO_OPERATIONAL, 1, "AuthMethod=None\0"));
    assert_eq!(
        unasked,
        Err(LoginError::Answer("it leaves the stage unasked"))
    );
    let wrong = [
        (header(0x87, 71).with(8, &[0; 6]), "another initiator"),
        (header(0x87, 71).with_u32(16, 1), "another initiator"),
        (header(0x87, 71).with(3, &[1]), "another version"),
        (header(0x81, 71), "another stage"),
        (header(0xc7, 71), "in the middle"),
        (header(0x85, 71), "another stage than"),
        (header(0x87, 73), "StatSN 73 instead of 71"),
        (header(0x87, 71).with(14, &[0, 0]), "no number"),
        (header(0x87, 71).with(0, &[0x25]), "iSCSI target"),
        (header(0x87, 71).with_data_len(8193), "8193 bytes"),
    ];
    for (header, why) in wrong {
        let mut login = operational();
        let error = login.receive(&header.0).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn another_server_at_that_port_is_suspected() {
    let (mut login, _) = Login::new(settings(None)).expect("settings");
    let page = b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n".repeat(9);
    let error = show(&mut login, &page).expect_err("no iSCSI");
    assert!(
        error
            .to_string()
            .ends_with("is that port an iSCSI target's?"),
        "{error}"
    );
}

#[test]
fn a_target_that_never_comes_to_an_end_is_left() {
    let mut login = operational();
    let error = (71..200).find_map(|stat_sn| show(&mut login, &answer(0x04, stat_sn, "")).err());
    assert_eq!(error, Some(LoginError::Answer("it answers without end")));
    let mut login = operational();
    let piece = "A".repeat(8192);
    let error =
        (71..200).find_map(|stat_sn| show(&mut login, &answer(0x44, stat_sn, &piece)).err());
    assert_eq!(
        error,
        Some(LoginError::Text("its keys are longer than 16 KiB"))
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), with_chap: bool, mutual: bool) {
        let (mut login, _) = Login::new(settings(with_chap.then(|| chap(mutual)).flatten())).expect("settings");
        let _ = show(&mut login, &bytes);
    }

    #[test]
    fn no_keys_panic(text in "(CHAP_[ACINR]|AuthMethod|MaxBurstLength|TargetAddress|X)=(0x|0b|5|CHAP|[0-9:,.\\[\\]]*)\0", class in 0u8..4) {
        for mut login in [operational(), mutual(), Login::new(settings(chap(true))).expect("settings").0] {
            let stat_sn = login.stat_sn.unwrap_or(1);
            let header = header(login.stage() << 2, stat_sn).with(36, &[class]);
            let _ = show(&mut login, &pdu(header, text.as_bytes(), false, false));
        }
    }
}
