//! Any bytes as what a server asks of its broker of files, and as the answer: [`ackpace_wire::files`].

use ackpace_wire::files::{
    Operation, Request, Spot, encode_reply, encode_request, parse_reply, parse_request,
};

/// Laws: what is understood is understood again when it is encoded; no name leaves its folder.
pub fn files(data: &[u8]) {
    if let Ok(request) = parse_request(data) {
        if let Request::Do(_, Operation::Remove(Spot { folder, name })) = &request {
            let mut names = folder.path.split(|byte| *byte == b'/').chain([&name[..]]);
            assert!(!names.any(|name| matches!(name, b"." | b"..")));
            assert!(!folder.path.starts_with(b"/") && !name.contains(&b'/'));
            assert!(!folder.path.contains(&0) && !name.contains(&0));
        }
        let again = encode_request(&request);
        assert_eq!(again.len(), data.len());
        assert_eq!(parse_request(&again), Ok(request));
    }
    if let Ok(reply) = parse_reply(data) {
        assert_eq!(encode_reply(&reply), data);
    }
}
