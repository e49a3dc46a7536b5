//! What ends a connection: a target that breaks the protocol.

use std::fmt;

/// A rule that the target broke. At error recovery level 0 the session ends with it (RFC 7143 section 7.1.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The digest of a header is wrong.
    HeaderDigest,
    /// The digest of a data segment is wrong.
    DataDigest,
    /// A PDU of this opcode is not expected.
    Opcode,
    /// A data segment is longer than was agreed on, or than this PDU's may be.
    DataLen,
    /// A PDU belongs to a task that is not under way: another's, or one that has ended.
    Tag,
    /// Data for a task that reads nothing, or a question for data to one that writes nothing.
    Direction,
    /// Data does not begin where the data before it ended.
    Offset,
    /// Data, or a question for data, reaches beyond what the task is for.
    Beyond,
    /// DataSN is not the next one.
    DataSn,
    /// R2TSN is not the next one.
    R2tSn,
    /// StatSN is not the next one.
    StatSn,
    /// A question for no data, or for more than MaxBurstLength.
    Burst,
    /// More questions for data at a time than MaxOutstandingR2T.
    R2ts,
    /// The residual count does not fit what was transferred.
    Residual,
    /// A good status before all data was asked for.
    Early,
    /// Sense data is longer than its data segment.
    Sense,
    /// Pings without end.
    Pings,
    /// The target rejected a PDU; the reason is RFC 7143 section 11.17.1's.
    Rejected,
    /// The target ended the connection or the session; which of both is RFC 7143 section 11.9.1's event.
    Dropped,
}

/// A broken rule, and what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule.
    pub why: Why,
    /// The initiator's tag in the PDU.
    pub tag: u32,
    /// What the PDU has at that place.
    pub came: u64,
    /// What it should have had, or the most.
    pub expected: u64,
}

impl Fault {
    pub(super) fn of(why: Why, tag: u32) -> Fault {
        let (came, expected) = (0, 0);
        Fault {
            why,
            tag,
            came,
            expected,
        }
    }

    pub(super) fn came(self, came: u64) -> Fault {
        Fault { came, ..self }
    }

    pub(super) fn not(self, expected: u64) -> Fault {
        Fault { expected, ..self }
    }
}

/// An error unless what came is what was expected.
pub(super) fn same(why: Why, tag: u32, came: u32, expected: u32) -> Result<(), Fault> {
    match came == expected {
        true => Ok(()),
        false => Err(Fault::of(why, tag).came(came.into()).not(expected.into())),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            why,
            tag,
            came,
            expected,
        } = self;
        match why {
            Why::HeaderDigest => write!(
                f,
                "a header has the digest {came:08x} instead of {expected:08x}"
            ),
            Why::DataDigest => write!(
                f,
                "task {tag}: data has the digest {came:08x} instead of {expected:08x}"
            ),
            Why::Opcode => write!(f, "a PDU of opcode {came:#04x}, which is not expected"),
            Why::DataLen => write!(
                f,
                "task {tag}: a data segment of {came} bytes; at most {expected} may come"
            ),
            Why::Tag => write!(
                f,
                "task {tag} is not under way, but a PDU of opcode {came:#04x} came for it"
            ),
            Why::Direction => write!(
                f,
                "task {tag}: a PDU of opcode {came:#04x} moves data the wrong way"
            ),
            Why::Offset => write!(f, "task {tag}: data at offset {came} instead of {expected}"),
            Why::Beyond => write!(
                f,
                "task {tag}: data up to offset {came}; the task has {expected} bytes"
            ),
            Why::DataSn => write!(f, "task {tag}: DataSN {came} instead of {expected}"),
            Why::R2tSn => write!(f, "task {tag}: R2TSN {came} instead of {expected}"),
            Why::StatSn => write!(f, "task {tag}: StatSN {came} instead of {expected}"),
            Why::Burst => write!(
                f,
                "task {tag}: an R2T for {came} bytes; 1 to {expected} were agreed on"
            ),
            Why::R2ts => write!(
                f,
                "task {tag}: {came} R2Ts at a time; {expected} were agreed on"
            ),
            Why::Residual => write!(
                f,
                "task {tag}: a residual count of {came} where {expected} bytes are missing"
            ),
            Why::Early => write!(
                f,
                "task {tag}: a good status after {came} of {expected} bytes"
            ),
            Why::Sense => write!(
                f,
                "task {tag}: {came} bytes of sense data in a segment with {expected}"
            ),
            Why::Pings => write!(f, "{came} pings without reading an answer"),
            Why::Rejected => write!(f, "a PDU was rejected for reason {came:#04x}"),
            Why::Dropped => write!(f, "the target ended the connection (event {came})"),
        }
    }
}

impl std::error::Error for Fault {}
