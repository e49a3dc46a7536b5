//! Any bytes as what another node sends: [`ackpace_wire::cluster`].

use ackpace_wire::cluster::{HEADER_LEN_BYTES, Message, Parsed, encode, parse};
use ackpace_wire::limits::CLUSTER_BODY_BYTES_MAX;

/// Laws: a frame that is understood is bounded, and has one form; its beginnings are incomplete.
pub fn cluster(data: &[u8]) {
    let mut rest = data;
    while let Parsed::Complete { frame, len_bytes } = parse(rest) {
        let (bytes, after) = rest.split_at(len_bytes);
        assert!(len_bytes <= HEADER_LEN_BYTES + CLUSTER_BODY_BYTES_MAX);
        assert_eq!(parse(&bytes[..len_bytes - 1]), Parsed::Incomplete);
        let mut again = Vec::new();
        encode(&frame, &mut again);
        if !matches!(frame.message, Message::Hello { .. }) {
            assert_eq!(again, bytes); // later versions may tell more in HELLO
        }
        let len_bytes = again.len();
        assert_eq!(parse(&again), Parsed::Complete { frame, len_bytes });
        rest = after;
    }
}
