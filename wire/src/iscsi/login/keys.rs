//! What both sides agree on in the operational stage (RFC 7143 section 13).

use super::{LoginError, Settings};
use crate::iscsi::text;
use crate::limits::{ISCSI_LOGIN_SEGMENT_BYTES_MAX, ISCSI_R2TS_MAX};

/// MaxBurstLength that is offered: a write of 1 MiB needs one R2T.
const BURST_BYTES: u32 = 1 << 20;
/// FirstBurstLength that is offered: a write of so many bytes needs no R2T.
const FIRST_BURST_BYTES: u32 = 256 << 10;
/// The longest segment that can be declared.
const DECLARED_BYTES_MAX: u32 = (1 << 24) - 1;
/// Seconds that can be asked for as DefaultTime2Wait (RFC 7143 section 13.15). More is refused.
const WAIT_S_MAX: u32 = 3600;
/// Bytes of a key (RFC 7143 section 6.1). Longer: the login fails.
const KEY_BYTES_MAX: usize = 63;

/// What both sides have agreed on, and where their counters stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The target's number of the session.
    pub tsih: u16,
    /// Headers have digests.
    pub header_digests: bool,
    /// Data segments have digests.
    pub data_digests: bool,
    /// The longest data segment that this side takes, bytes.
    pub receive_segment_bytes: u32,
    /// The longest data segment that the target takes, bytes.
    pub send_segment_bytes: u32,
    /// MaxBurstLength: an R2T is for so many bytes at most.
    pub burst_bytes: u32,
    /// FirstBurstLength: so many bytes of a write go without an R2T at most.
    pub first_burst_bytes: u32,
    /// InitialR2T: a write's data beyond the immediate data waits for an R2T.
    pub initial_r2t: bool,
    /// ImmediateData: a write brings data in the PDU of its command.
    pub immediate_data: bool,
    /// MaxOutstandingR2T: R2Ts of one task at a time.
    pub r2ts: u32,
    /// DefaultTime2Wait: seconds after a lost connection before the next login.
    pub wait_s: u32,
    /// CmdSN of the first command.
    pub cmd_sn: u32,
    /// StatSN of the target's next answer.
    pub stat_sn: u32,
    /// The last CmdSN that the target takes.
    pub max_cmd_sn: u32,
}

/// One negotiation.
#[derive(Debug)]
pub(super) struct Keys {
    header_digests: bool,
    data_digests: bool,
    agreed: Agreed,
}

impl Keys {
    /// Nothing has been agreed on: the defaults hold.
    pub fn new(settings: &Settings) -> Keys {
        Keys {
            header_digests: settings.header_digests,
            data_digests: settings.data_digests,
            agreed: Agreed {
                tsih: 0,
                header_digests: false,
                data_digests: false,
                receive_segment_bytes: settings.segment_bytes,
                send_segment_bytes: ISCSI_LOGIN_SEGMENT_BYTES_MAX,
                burst_bytes: 256 << 10,
                first_burst_bytes: 64 << 10,
                initial_r2t: true,
                immediate_data: true,
                r2ts: 1,
                wait_s: 2,
                cmd_sn: 0,
                stat_sn: 0,
                max_cmd_sn: 0,
            },
        }
    }

    /// What holds now. Unsolicited data is never longer than a burst.
    pub fn agreed(&self) -> Agreed {
        Agreed {
            first_burst_bytes: self.agreed.first_burst_bytes.min(self.agreed.burst_bytes),
            ..self.agreed
        }
    }

    /// What this side proposes.
    pub fn offer(&self) -> Vec<u8> {
        let digest = |wanted| if wanted { "CRC32C,None" } else { "None" };
        let mut offer = Vec::new();
        for (key, value) in [
            ("HeaderDigest", digest(self.header_digests)),
            ("DataDigest", digest(self.data_digests)),
            (
                "MaxRecvDataSegmentLength",
                &self.agreed.receive_segment_bytes.to_string(),
            ),
            ("MaxBurstLength", &BURST_BYTES.to_string()),
            ("FirstBurstLength", &FIRST_BURST_BYTES.to_string()),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxOutstandingR2T", &ISCSI_R2TS_MAX.to_string()),
            ("MaxConnections", "1"),
            ("ErrorRecoveryLevel", "0"),
            ("DataPDUInOrder", "Yes"),
            ("DataSequenceInOrder", "Yes"),
            ("DefaultTime2Wait", "0"),
            ("DefaultTime2Retain", "0"),
        ] {
            text::put(&mut offer, key, value);
        }
        offer
    }

    /// Takes the target's keys. The result is what has to be answered to them.
    pub fn hear(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<u8>, LoginError> {
        let mut answers = Vec::new();
        for (key, value) in pairs {
            if key.len() > KEY_BYTES_MAX {
                return Err(LoginError::Text("it has a key of more than 63 bytes"));
            }
            if !self.hear_one(key, value)? {
                text::put(&mut answers, key, "NotUnderstood");
            }
        }
        Ok(answers)
    }

    /// Takes one key; `false`: it is none of those that both sides know.
    fn hear_one(&mut self, key: &str, value: &str) -> Result<bool, LoginError> {
        let agreed = &mut self.agreed;
        match key {
            "HeaderDigest" => {
                agreed.header_digests = digest("HeaderDigest", value, self.header_digests)?;
            }
            "DataDigest" => agreed.data_digests = digest("DataDigest", value, self.data_digests)?,
            "MaxRecvDataSegmentLength" => {
                let key = "MaxRecvDataSegmentLength";
                set(
                    &mut agreed.send_segment_bytes,
                    key,
                    value,
                    512..=DECLARED_BYTES_MAX,
                )?;
            }
            "MaxBurstLength" => {
                set(
                    &mut agreed.burst_bytes,
                    "MaxBurstLength",
                    value,
                    512..=BURST_BYTES,
                )?;
            }
            "FirstBurstLength" => {
                let range = 512..=FIRST_BURST_BYTES;
                set(
                    &mut agreed.first_burst_bytes,
                    "FirstBurstLength",
                    value,
                    range,
                )?;
            }
            "InitialR2T" => agreed.initial_r2t = yes("InitialR2T", value)?,
            "ImmediateData" => agreed.immediate_data = yes("ImmediateData", value)?,
            "MaxOutstandingR2T" => {
                set(
                    &mut agreed.r2ts,
                    "MaxOutstandingR2T",
                    value,
                    1..=ISCSI_R2TS_MAX,
                )?;
            }
            "DefaultTime2Wait" => {
                set(
                    &mut agreed.wait_s,
                    "DefaultTime2Wait",
                    value,
                    0..=WAIT_S_MAX,
                )?;
            }
            "MaxConnections" => only("MaxConnections", value, "1")?,
            "ErrorRecoveryLevel" => only("ErrorRecoveryLevel", value, "0")?,
            "DefaultTime2Retain" => only("DefaultTime2Retain", value, "0")?,
            "DataPDUInOrder" => only("DataPDUInOrder", value, "Yes")?,
            "DataSequenceInOrder" => only("DataSequenceInOrder", value, "Yes")?,
            "TargetAlias" | "TargetPortalGroupTag" | "TargetAddress" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn digest(key: &'static str, value: &str, is_offered: bool) -> Result<bool, LoginError> {
    match value {
        "None" => Ok(false),
        "CRC32C" if is_offered => Ok(true),
        _ => Err(LoginError::key(key, value)),
    }
}

fn yes(key: &'static str, value: &str) -> Result<bool, LoginError> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(LoginError::key(key, value)),
    }
}

/// A number in decimal or hexadecimal (RFC 7143 section 6.1). `Irrelevant`: the default may stay.
fn set(
    to: &mut u32,
    key: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<u32>,
) -> Result<(), LoginError> {
    if value == "Irrelevant" {
        return Ok(());
    }
    let number = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    };
    let number = number.filter(|number| range.contains(number));
    *to = number.ok_or_else(|| LoginError::key(key, value))?;
    Ok(())
}

fn only(key: &'static str, value: &str, expected: &str) -> Result<(), LoginError> {
    match value == expected || value == "Irrelevant" {
        true => Ok(()),
        false => Err(LoginError::key(key, value)),
    }
}
