//! Any text as the address of a disk: [`ackpace_wire::iscsi::Address`].

use ackpace_wire::iscsi::Address;
use ackpace_wire::limits::{ISCSI_LUN_MAX, ISCSI_NAME_BYTES_MAX};

/// Laws: an address is bounded, and written as it is read.
pub fn iscsi_address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<Address>() {
        Ok(address) => {
            assert!(address.port > 0 && address.lun <= ISCSI_LUN_MAX);
            assert!(address.target.len() <= ISCSI_NAME_BYTES_MAX);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
