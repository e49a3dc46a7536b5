//! What a session orders, hands out and tells.

use super::Unit;
use crate::iscsi::initiator::{Failure, Place, Send, TaskId};

/// An order to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Open a connection to the target.
    Connect {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// Close the connection, or end the attempt to open it.
    Close,
}

/// Bytes to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// These.
    Bytes(Vec<u8>),
    /// A PDU, perhaps with payload of a task.
    Pdu(Send),
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was carried out. Reads and writes are whole.
    Good {
        /// Bytes that came.
        len_bytes: u32,
    },
    /// The target does not carry it out.
    Failed(Failure),
    /// It was to be aborted.
    Aborted,
    /// There was no session, or the target put it off, for longer than the caller's patience; or the session ended each time
    /// that it was asked.
    Unreachable,
}

/// What the caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// There is a session, again after [`Told::Trouble`]; or the unit has another size now.
    Ready(Unit),
    /// Payload of a task has come, and its digest is right, or there is none.
    Data {
        /// Where it was placed.
        place: Place,
        /// Bytes of it.
        len_bytes: u32,
        /// CRC32C of these bytes, where digests of data are on.
        crc: Option<u32>,
    },
    /// A task has ended.
    Done {
        /// The task.
        task: TaskId,
        /// How.
        end: End,
    },
    /// There is no session, for this reason; said once for a reason until there is one again.
    Trouble(String),
    /// The session has ended as it was asked to.
    LoggedOut,
}
