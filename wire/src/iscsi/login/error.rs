//! Why a login fails.

use std::fmt;

use crate::iscsi::fault::Fault;
use crate::iscsi::text::find;
use crate::iscsi::url::host_and_port;

/// Where else the target is (RFC 7143 section 11.13.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The host, as in an [`Address`](crate::iscsi::Address).
    pub host: String,
    /// The port.
    pub port: u16,
    /// For ever; otherwise the next login begins at the old address again.
    pub is_permanent: bool,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// A PDU cannot be right.
    Fault(Fault),
    /// A PDU of this opcode came in place of an answer.
    Opcode(u8),
    /// An answer that does not fit the question.
    Answer(&'static str),
    /// Keys that cannot be read.
    Text(&'static str),
    /// The target wants another way to authenticate than this side has credentials for.
    Method,
    /// The target wants CHAP, and this side has no credentials.
    WantsChap,
    /// CHAP failed on this side.
    Chap(&'static str),
    /// The answer to a key is none that the offer allows.
    Key {
        /// The key.
        key: &'static str,
        /// The value, up to 64 bytes of it.
        value: String,
    },
    /// Log in there.
    Moved(Moved),
    /// The target refused (RFC 7143 section 11.13.5).
    Refused {
        /// 2: this side's fault. 3: the target's.
        class: u8,
        /// What it is about.
        detail: u8,
    },
}

impl LoginError {
    /// Whether a login with the same settings may succeed later: the target itself is in trouble, or the connection was.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            LoginError::Refused { class: 3, .. } | LoginError::Fault(_)
        )
    }

    pub(super) fn key(key: &'static str, value: &str) -> LoginError {
        LoginError::Key {
            key,
            value: value.chars().take(16).collect(),
        }
    }
}

impl From<Fault> for LoginError {
    fn from(fault: Fault) -> LoginError {
        LoginError::Fault(fault)
    }
}

/// The error of a status that is not good.
pub(super) fn refused(class: u8, detail: u8, pairs: &[(&str, &str)]) -> LoginError {
    if class != 1 {
        return LoginError::Refused { class, detail };
    }
    // `HOST[:PORT][,GROUP]`.
    let address = find(pairs, "TargetAddress").unwrap_or_default();
    let portal = address
        .split_once(',')
        .map_or(address, |(portal, _)| portal);
    match host_and_port(portal) {
        Ok((host, port)) => LoginError::Moved(Moved {
            host: host.to_owned(),
            port,
            is_permanent: detail == 2,
        }),
        Err(_) => LoginError::Answer("it says that it has moved, but not where to"),
    }
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginError::Fault(fault) => {
                write!(f, "the target breaks the protocol: {fault}; is that port an iSCSI target's?")
            }
            LoginError::Opcode(opcode) => {
                write!(f, "a PDU of opcode {opcode:#04x} came in place of an answer to the login; is that port an iSCSI target's?")
            }
            LoginError::Answer(why) => write!(f, "the target breaks the protocol: {why}"),
            LoginError::Text(why) => write!(f, "the target's answer can't be read: {why}"),
            LoginError::Method => f.write_str(
                "the target and this side have no way to authenticate in common; set the credentials of CHAP, and those of \
                 the target only if it proves who it is",
            ),
            LoginError::WantsChap => f.write_str(
                "the target wants CHAP: give a name and the file of its secret (--chap-user and --chap-secret-file of \
                 ackpace-host gateway, --iscsi-user and --iscsi-secret-file of ackpace)",
            ),
            LoginError::Chap(why) => write!(f, "CHAP: {why}"),
            LoginError::Key { key, value } => write!(f, "the target answers {key}={value}, which was not offered"),
            LoginError::Moved(moved) => write!(f, "the target has moved to {}, port {}", moved.host, moved.port),
            LoginError::Refused { class, detail } => match told(*class, *detail) {
                Some(text) => f.write_str(text),
                None => write!(f, "the target refused the login with status {class:02x}{detail:02x}"),
            },
        }
    }
}

fn told(class: u8, detail: u8) -> Option<&'static str> {
    Some(match (class, detail) {
        (2, 0x00) => "the target refused the login without a reason",
        (2, 0x01) => {
            "the target does not accept the name or the secret; check the credentials of CHAP"
        }
        (2, 0x02) => "this initiator may not use the target; allow its name or address there",
        (2, 0x03) => "there is no target of this name; check the address",
        (2, 0x04) => "the target was removed",
        (2, 0x05) => "the target speaks another version of iSCSI",
        (2, 0x06) => "the target takes no more connections of this session",
        (2, 0x07) => "the target misses a parameter",
        (2, 0x08) => "the target can't add a connection to this session",
        (2, 0x09) => "the target has no sessions of this type",
        (2, 0x0a) => "the session does not exist",
        (2, 0x0b) => "the target did not expect this step of the login",
        (3, 0x00) => "the target has an error of its own",
        (3, 0x01) => "the target is out of service for now",
        (3, 0x02) => "the target is out of resources",
        _ => return None,
    })
}

impl std::error::Error for LoginError {}
