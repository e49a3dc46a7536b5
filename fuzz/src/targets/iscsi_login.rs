//! A line with what this side knows (`none`, `chap`, `mutual`), then any bytes as a target's part of a login:
//! [`ackpace_wire::iscsi::Login`].

use ackpace_wire::iscsi::{
    Agreed, Chap, HEADER_LEN_BYTES, Login, LoginError, Mutual, Settings, Turn,
};
use ackpace_wire::limits::ISCSI_LOGIN_SEGMENT_BYTES_MAX;

type End = (Vec<Vec<u8>>, Option<Result<Agreed, LoginError>>);

/// Laws: the cuts between pieces change nothing; what is sent is a whole PDU; what was agreed on is inside the offer.
pub fn iscsi_login(data: &[u8]) {
    let line = data.iter().position(|&byte| byte == b'\n');
    let (line, bytes) = data.split_at(line.map_or(0, |end| end + 1));
    let whole = log_in(line, bytes, usize::MAX);
    for piece_len in [1, 7, 48] {
        assert_eq!(log_in(line, bytes, piece_len), whole, "by {piece_len}");
    }
    let (sent, end) = whole;
    for pdu in sent {
        let len_bytes = u32::from_be_bytes([0, pdu[5], pdu[6], pdu[7]]);
        assert!(len_bytes <= ISCSI_LOGIN_SEGMENT_BYTES_MAX);
        assert_eq!(
            pdu.len(),
            HEADER_LEN_BYTES + (len_bytes as usize).next_multiple_of(4)
        );
    }
    match end {
        Some(Ok(agreed)) => {
            assert!(agreed.tsih != 0 && !agreed.data_digests);
            assert!((512..1 << 24).contains(&agreed.send_segment_bytes));
            assert!((512..=1 << 20).contains(&agreed.burst_bytes));
            assert!((512..=agreed.burst_bytes).contains(&agreed.first_burst_bytes));
            assert!((1..=8).contains(&agreed.r2ts));
        }
        Some(Err(error)) => assert!(!error.to_string().is_empty()),
        None => {}
    }
}

/// What was sent, and the end, if it came to one.
fn log_in(line: &[u8], bytes: &[u8], piece_len: usize) -> End {
    let mutual = Mutual {
        name: "it".to_owned(),
        secret: b"its secret".to_vec(),
        challenge: [7; 16],
        id: 9,
    };
    let chap = |mutual| Chap {
        name: "me".to_owned(),
        secret: b"my secret".to_vec(),
        mutual,
    };
    let settings = Settings {
        initiator: "iqn.2026-01.org.example:test".to_owned(),
        target: "iqn.2026-01.org.example:disk".to_owned(),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: match line {
            b"chap\n" => Some(chap(None)),
            b"mutual\n" => Some(chap(Some(mutual))),
            _ => None,
        },
        header_digests: true,
        data_digests: false,
        segment_bytes: 1 << 18,
    };
    let (mut login, first) = Login::new(settings).expect("settings that are right");
    let (mut sent, mut rest) = (vec![first], bytes);
    while !rest.is_empty() {
        let piece = rest.len().min(piece_len).min(login.wants_bytes());
        match login.receive(&rest[..piece]) {
            Err(error) => return (sent, Some(Err(error))),
            Ok((used_bytes, turn)) => {
                assert_eq!(used_bytes, piece);
                rest = &rest[used_bytes..];
                match turn {
                    Turn::Receive => {}
                    Turn::Send(pdu) => sent.push(pdu),
                    Turn::Done(agreed) => return (sent, Some(Ok(agreed))),
                }
            }
        }
    }
    (sent, None)
}
