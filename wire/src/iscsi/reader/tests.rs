use super::*;
use crate::iscsi::testing::pdu;
use proptest::prelude::*;

/// What a reader makes of bytes in pieces: headers, and each data segment with its checksum.
fn read(reader: &mut Reader, bytes: &[u8], piece: usize) -> Result<Vec<(Vec<u8>, Whole)>, Fault> {
    let (mut all, mut data) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (part, len_bytes) = reader.wants();
            assert!(len_bytes > 0, "something is always wanted");
            let shown = reader.show(rest)?;
            assert_eq!(shown.used_bytes, len_bytes.min(rest.len()));
            if part == Part::Data {
                data.extend_from_slice(&rest[..shown.used_bytes]);
            }
            rest = &rest[shown.used_bytes..];
            if shown.whole != Whole::Nothing {
                all.push((std::mem::take(&mut data), shown.whole));
            }
        }
    }
    Ok(all)
}

#[test]
fn additional_headers_are_skipped() {
    for digests in [false, true] {
        let mut header = Header::new(0x25, 0).with_data_len(1);
        header.0[4] = 255;
        let mut bytes = [&header.0[..], &[7; 1020]].concat();
        if digests {
            bytes.extend(crc::of(&bytes).to_le_bytes());
        }
        bytes.extend([9, 0, 0, 0]);
        let mut reader = Reader::new(digests, false, 1);
        let data = (vec![9], Whole::Data { crc: None });
        let all = read(&mut reader, &bytes, bytes.len()).expect("a PDU");
        assert_eq!(all, [(vec![], Whole::Header(header)), data]);
    }
}

#[test]
fn a_long_segment_is_refused_by_its_header() {
    let header = Header::new(0x25, 0).with_u32(16, 5).with_data_len(513);
    let fault = Reader::new(false, false, 512).show(&header.0);
    let fault = fault.expect_err("too long");
    assert_eq!(
        (fault.why, fault.tag, fault.came, fault.expected),
        (Why::DataLen, 5, 513, 512)
    );
}

#[test]
fn a_wrong_digest_is_told_before_its_header_is_believed() {
    for (at, why) in [
        (20, Why::HeaderDigest),
        (49, Why::HeaderDigest),
        (52, Why::DataDigest),
        (58, Why::DataDigest),
    ] {
        let mut bytes = pdu(Header::new(0x25, 0), b"12345", true, true);
        bytes[at] ^= 1;
        let fault = read(&mut Reader::new(true, true, 512), &bytes, 7).expect_err("a digest");
        assert_eq!(fault.why, why, "byte {at}");
    }
}

proptest! {
    #[test]
    fn pieces_change_nothing(
        segments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
        header_digests: bool,
        data_digests: bool,
        piece in 1usize..100,
    ) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for data in segments {
            let header = Header::new(0x25, 0x80).with_data_len(data.len() as u32);
            bytes.extend(pdu(header, &data, header_digests, data_digests));
            expected.push((vec![], Whole::Header(header)));
            if !data.is_empty() {
                let crc = data_digests.then(|| crc::of(&data));
                expected.push((data, Whole::Data { crc }));
            }
        }
        let mut reader = Reader::new(header_digests, data_digests, 40);
        prop_assert_eq!(read(&mut reader, &bytes, piece), Ok(expected));
        prop_assert_eq!(reader.wants(), (Part::Frame, HEADER_LEN_BYTES));
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, digests: bool, piece in 1usize..60) {
        let _ = read(&mut Reader::new(digests, digests, 300), &bytes, piece);
    }
}
