//! Any bytes as what a server asks of its broker, and as the answer: [`ackpace_wire::cluster::broker`].

use ackpace_wire::cluster::broker::{
    Reply, Request, encode_reply, encode_request, parse_reply, parse_request,
};

/// Laws: a datagram that is understood has one form, but for a first one of a later version.
pub fn broker(data: &[u8]) {
    if let Ok((id, request)) = parse_request(data) {
        let again = encode_request(id, &request);
        if !matches!(request, Request::Hello { .. }) {
            assert_eq!(again, data);
        }
        assert_eq!(parse_request(&again), Ok((id, request)));
    }
    if let Ok((id, reply)) = parse_reply(data) {
        let again = encode_reply(id, &reply);
        if !matches!(reply, Reply::Hello(_)) {
            assert_eq!(again, data);
        }
        assert_eq!(parse_reply(&again), Ok((id, reply)));
    }
}
