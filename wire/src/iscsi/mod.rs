//! iSCSI (RFC 7143), the initiator's side, without I/O: the disk below a server is on another machine.
//!
//! - [`Address`] is `iscsi://HOST[:PORT]/NAME/LUN`.
//! - [`Login`] has the first PDUs of a connection, up to what both sides have [`Agreed`] on.
//! - [`Initiator`] is the session after that. Tasks go in; PDUs to send and answers come out.
//! - [`Session`] keeps a unit in reach by both: it begins anew when the target is lost, and asks again.
//! - [`scsi`] has commands, and what a disk says of itself and of its troubles.
//! - [`Reader`] makes bytes PDUs, below both.
//!
//! Payload is never copied or kept here. For what comes, the initiator says which task the next bytes belong to and where in
//! it ([`Place`]), and the caller receives them there. For what goes, it hands out headers and names the bytes that follow.
//!
//! One connection carries a session (MaxConnections 1), at error recovery level 0: whatever breaks the protocol ends the
//! connection, and what was unanswered is repeated after the next login.

pub mod crc;
mod fault;
mod initiator;
mod login;
mod pdu;
mod reader;
pub mod scsi;
pub mod session;
#[cfg(test)]
mod testing;
mod text;
mod url;

pub use fault::{Fault, Why};
pub use initiator::{
    Command, Event, Failure, Initiator, Later, Outcome, Payload, Place, Refused, Send, Tail,
    TaskId, Wants,
};
pub use login::{Agreed, Chap, Login, LoginError, Moved, Mutual, Settings, SettingsError, Turn};
pub use pdu::{HEADER_LEN_BYTES, Header};
pub use reader::{Part, Reader, Shown, Whole};
pub use session::Session;
pub use url::{Address, AddressError, PORT};
