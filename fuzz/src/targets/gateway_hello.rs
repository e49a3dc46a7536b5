//! Any bytes as the greeting of `ackpace-host gateway`: [`ackpace_wire::gateway`].

use ackpace_wire::gateway::Hello;

/// Law: a hello has one form. Bytes that the corpus leaves out are zeros.
pub fn gateway_hello(data: &[u8]) {
    let _ = Hello::parse(data);
    let mut whole = Hello::default().encode();
    let len = data.len().min(whole.len());
    whole[..len].copy_from_slice(&data[..len]);
    if let Ok(hello) = Hello::parse(&whole) {
        assert!(hello.fits());
        assert_eq!(hello.encode(), whole);
    }
}
