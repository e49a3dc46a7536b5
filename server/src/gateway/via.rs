//! The name of this process among the proxies that a request passes (RFC 9110 section 7.6.3). It tells a request that the gateway
//! made itself: its origin leads back to it.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use ackpace_wire::http::Request;

/// Another one in each process, so that a gateway in front of another one is no loop.
static NAME: LazyLock<String> = LazyLock::new(|| {
    let random = RandomState::new().hash_one(0);
    format!("ackpace-{:08x}", random as u32)
});

/// The name in Via.
pub fn name() -> &'static str {
    &NAME
}

/// Whether a request has come through this gateway before.
pub fn is_own(request: &Request<'_>) -> bool {
    let mut fields = request.fields().iter();
    fields.any(|(name, value)| name.eq_ignore_ascii_case(b"via") && names(value, &NAME))
}

/// Whether a value of Via has this name in it.
fn names(value: &[u8], name: &str) -> bool {
    let mut words = value.split(|byte| b" \t,".contains(byte));
    words.any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_name_is_found_among_others() {
        assert!(names(b"1.0 a, 1.1 ackpace-1f3a9c (x)", "ackpace-1f3a9c"));
        assert!(names(b"1.1 ackpace-1f3a9c,1.1 b", "ackpace-1f3a9c"));
        for other in ["", "1.1 ackpace", "1.1 ackpace-1f3a9c0"] {
            assert!(!names(other.as_bytes(), "ackpace-1f3a9c"), "{other}");
        }
    }
}
