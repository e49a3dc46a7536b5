//! The basic header segment of a PDU (RFC 7143 section 11), 48 bytes, big endian: what a target's says, and how an
//! initiator's is made.

use super::fault::{Fault, Why};

/// Bytes of the basic header segment.
pub const HEADER_LEN_BYTES: usize = 48;

/// A tag that stands for none.
pub(super) const NO_TAG: u32 = u32::MAX;

/// First bytes of the PDUs of an initiator.
pub(super) mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const COMMAND: u8 = 0x01;
    pub const TASK: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    /// The bit for a PDU that the window of commands does not hold back.
    pub const IMMEDIATE: u8 = 0x40;

    pub const NOP_IN: u8 = 0x20;
    pub const RESPONSE: u8 = 0x21;
    pub const TASK_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// The bit of the second byte that ends a sequence.
pub(super) const FINAL: u8 = 0x80;

/// One basic header segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_LEN_BYTES]);

impl Header {
    /// Zeros but for the first two bytes.
    pub(super) fn new(opcode: u8, flags: u8) -> Header {
        let mut bytes = [0; HEADER_LEN_BYTES];
        (bytes[0], bytes[1]) = (opcode, flags);
        Header(bytes)
    }

    /// What the PDU is, without the bits beside it.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub(super) fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of the additional header segments behind this one, at most 1020.
    pub fn ahs_len_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment, without its padding: 24 bits.
    pub fn data_len_bytes(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    /// The initiator's tag of the task that the PDU belongs to.
    pub fn tag(&self) -> u32 {
        self.u32_at(16)
    }

    pub(super) fn lun(&self) -> [u8; 8] {
        std::array::from_fn(|n| self.0[8 + n])
    }

    pub(super) fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(super) fn u32_at(&self, at: usize) -> u32 {
        let bytes = &self.0;
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// The same header with these bytes from `at` on.
    #[must_use]
    pub(super) fn with(mut self, at: usize, bytes: &[u8]) -> Header {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    #[must_use]
    pub(super) fn with_u32(self, at: usize, value: u32) -> Header {
        self.with(at, &value.to_be_bytes())
    }

    #[must_use]
    pub(super) fn with_data_len(self, len_bytes: u32) -> Header {
        self.with(5, &len_bytes.to_be_bytes()[1..])
    }
}

/// Bytes of padding behind a data segment (RFC 7143 section 11.2.3).
pub(super) fn pad_len_bytes(data_len_bytes: u32) -> usize {
    data_len_bytes.wrapping_neg() as usize % 4
}

/// The window of commands, as a target tells it in each PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
}

/// The difference between the length that was asked for and the one that there is (RFC 7143 section 11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residual {
    None,
    Under(u32),
    Over(u32),
}

/// How a task ended, for the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// 0: the status counts. Otherwise the target could not even tell one.
    pub response: u8,
    pub status: u8,
    pub residual: Residual,
}

/// What a target's PDU says after a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pdu {
    NopIn {
        lun: [u8; 8],
        transfer_tag: u32,
    },
    Response(Ending),
    TaskResponse {
        response: u8,
    },
    DataIn {
        data_sn: u32,
        offset_bytes: u32,
        /// It is the last PDU of its task, too.
        ending: Option<Ending>,
    },
    LogoutResponse {
        response: u8,
    },
    R2t {
        transfer_tag: u32,
        r2t_sn: u32,
        offset_bytes: u32,
        len_bytes: u32,
    },
    Async {
        event: u8,
        parameters: [u16; 3],
    },
    Reject {
        reason: u8,
    },
}

impl Pdu {
    /// # Errors
    /// A target does not send such a PDU after a login.
    pub fn parse(header: &Header) -> Result<Pdu, Fault> {
        Ok(match header.opcode() {
            opcode::NOP_IN => Pdu::NopIn {
                lun: header.lun(),
                transfer_tag: header.u32_at(20),
            },
            opcode::RESPONSE => Pdu::Response(ending(header)),
            opcode::TASK_RESPONSE => Pdu::TaskResponse {
                response: header.0[2],
            },
            opcode::DATA_IN => Pdu::DataIn {
                data_sn: header.u32_at(36),
                offset_bytes: header.u32_at(40),
                ending: (header.flags() & 0x01 != 0).then(|| Ending {
                    response: 0,
                    ..ending(header)
                }),
            },
            opcode::LOGOUT_RESPONSE => Pdu::LogoutResponse {
                response: header.0[2],
            },
            opcode::R2T => Pdu::R2t {
                transfer_tag: header.u32_at(20),
                r2t_sn: header.u32_at(36),
                offset_bytes: header.u32_at(40),
                len_bytes: header.u32_at(44),
            },
            opcode::ASYNC => Pdu::Async {
                event: header.0[36],
                parameters: [38, 40, 42].map(|at| header.u16_at(at)),
            },
            opcode::REJECT => Pdu::Reject {
                reason: header.0[2],
            },
            other => return Err(Fault::of(Why::Opcode, header.tag()).came(other.into())),
        })
    }

    /// Whether the target counts it by StatSN.
    pub fn has_stat_sn(&self, header: &Header) -> bool {
        match self {
            Pdu::NopIn { .. } => header.tag() != NO_TAG,
            Pdu::DataIn { ending, .. } => ending.is_some(),
            Pdu::R2t { .. } => false,
            _ => true,
        }
    }
}

pub(super) fn window(header: &Header) -> Window {
    Window {
        exp_cmd_sn: header.u32_at(28),
        max_cmd_sn: header.u32_at(32),
    }
}

fn ending(header: &Header) -> Ending {
    let count = header.u32_at(44);
    Ending {
        response: header.0[2],
        status: header.0[3],
        residual: match header.flags() & 0x06 {
            0x02 => Residual::Under(count),
            0 => Residual::None,
            _ => Residual::Over(count),
        },
    }
}
