//! The login (RFC 7143 sections 6 and 12): who both sides are, and how they talk.
//!
//! The initiator asks and the target answers, PDU by PDU: first the security stage (no authentication, or CHAP in one or
//! both directions), then the operational one, where digests and lengths are agreed on. The caller sends what it is given,
//! and shows what it receives.

mod chap;
mod error;
mod keys;
#[cfg(test)]
mod tests;

pub use self::chap::{Chap, Mutual};
pub use self::error::{LoginError, Moved};
pub use self::keys::Agreed;

use std::fmt;

use self::chap::Prover;
use self::keys::Keys;
use super::fault::{Why, same};
use super::pdu::{self, FINAL, HEADER_LEN_BYTES, Header, opcode, pad_len_bytes};
use super::reader::{Part, Reader, Whole};
use super::text::{self, BadText};
use crate::limits::{
    ISCSI_LOGIN_PDUS_MAX, ISCSI_LOGIN_SEGMENT_BYTES_MAX, ISCSI_NAME_BYTES_MAX,
    ISCSI_SEGMENT_BYTES_MAX, ISCSI_TEXT_BYTES_MAX,
};

/// The bit of a text that goes on in the next PDU.
const CONTINUED: u8 = 0x40;
/// Stages, as they stand in a PDU.
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// CmdSN of the first command.
const FIRST_CMD_SN: u32 = 1;

/// How to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This side's name, `iqn.…`. The target knows a session by it, `isid` and its own name.
    pub initiator: String,
    /// The target's name.
    pub target: String,
    /// This side's number of the session (RFC 7143 section 11.12.5). A login with the same one ends the session before it
    /// with all its tasks (section 6.3.5), which is what makes repeating them safe.
    pub isid: [u8; 6],
    /// Credentials. Where they are one-way, a target that asks for none is accepted.
    pub chap: Option<Chap>,
    /// Digests of headers are wanted, if the target has them.
    pub header_digests: bool,
    /// Digests of data are wanted, if the target has them.
    pub data_digests: bool,
    /// The longest data segment that the target may send, 512 to [`ISCSI_SEGMENT_BYTES_MAX`].
    pub segment_bytes: u32,
}

/// Why settings are refused before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// A name is empty, too long, or has signs that a key cannot carry.
    Name,
    /// The length of segments is out of range.
    Segment,
    /// A name or secret of CHAP is empty, too long, or has signs that a key cannot carry.
    Chap,
    /// The secrets of both directions are the same, so either side could answer with what the other one said (RFC 7143
    /// section 12.1.3).
    SameSecrets,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingsError::Name => "a name is empty, longer than 223 bytes or not printable",
            SettingsError::Segment => "a data segment has 512 bytes to 1 MiB",
            SettingsError::Chap => "a name or secret of CHAP is empty, longer than 255 bytes or not printable",
            SettingsError::SameSecrets => "the secrets of CHAP are the same in both directions; the target needs one of its own",
        })
    }
}

impl std::error::Error for SettingsError {}

/// What follows from the bytes received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More has to come.
    Receive,
    /// Send this, then receive.
    Send(Vec<u8>),
    /// Both sides have agreed; the next bytes are an [`Initiator`](super::Initiator)'s.
    Done(Agreed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The target chooses a method.
    Method,
    /// Its challenge comes.
    Challenge,
    /// It says whether the answer was right, and proves who it is if it has to.
    Proof,
    /// It leaves the stage.
    Leave,
    Operational,
}

/// One login.
#[derive(Debug)]
pub struct Login {
    settings: Settings,
    reader: Reader,
    step: Step,
    prover: Option<Prover>,
    keys: Keys,
    header: Header,
    /// Keys of an exchange that have come so far.
    text: Vec<u8>,
    /// The last request asked for the next stage.
    asked_transit: bool,
    /// Of the next answer; the first one tells it.
    stat_sn: Option<u32>,
    pdus: u32,
}

impl Login {
    /// A login, and the PDU to send first.
    ///
    /// # Errors
    /// The settings are refused.
    pub fn new(settings: Settings) -> Result<(Login, Vec<u8>), SettingsError> {
        check(&settings)?;
        let mut login = Login {
            reader: Reader::new(false, false, ISCSI_LOGIN_SEGMENT_BYTES_MAX),
            step: Step::Method,
            prover: None,
            keys: Keys::new(&settings),
            header: Header::new(0, 0),
            text: Vec::new(),
            asked_transit: false,
            stat_sn: None,
            pdus: 0,
            settings,
        };
        let method = match &login.settings.chap {
            None => "None",
            Some(Chap { mutual: None, .. }) => "CHAP,None",
            Some(_) => "CHAP",
        };
        let mut text = Vec::new();
        text::put(&mut text, "InitiatorName", &login.settings.initiator);
        text::put(&mut text, "SessionType", "Normal");
        text::put(&mut text, "TargetName", &login.settings.target);
        text::put(&mut text, "AuthMethod", method);
        let transit = login.settings.chap.is_none();
        let first = login.request(transit, &text);
        Ok((login, first))
    }

    /// How many bytes come next at most. Never 0.
    pub fn wants_bytes(&self) -> usize {
        self.reader.wants().1
    }

    /// Takes received bytes, at most as many as are wanted.
    ///
    /// # Errors
    /// The login failed; the connection has to be closed.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Turn), LoginError> {
        let is_data = self.reader.wants().0 == Part::Data;
        let shown = self.reader.show(bytes)?;
        let used_bytes = shown.used_bytes;
        if is_data {
            if self.text.len() + used_bytes > ISCSI_TEXT_BYTES_MAX {
                return Err(LoginError::Text("its keys are longer than 16 KiB"));
            }
            self.text.extend_from_slice(&bytes[..used_bytes]);
        }
        let turn = match shown.whole {
            Whole::Nothing => Turn::Receive,
            Whole::Header(header) => {
                self.header = header;
                self.hear_header()?;
                match header.data_len_bytes() {
                    0 => self.hear_pdu()?,
                    _ => Turn::Receive,
                }
            }
            Whole::Data { .. } => self.hear_pdu()?,
        };
        Ok((used_bytes, turn))
    }

    fn stage(&self) -> u8 {
        match self.step {
            Step::Operational => OPERATIONAL,
            _ => SECURITY,
        }
    }

    fn next_stage(&self) -> u8 {
        match self.step {
            Step::Operational => FULL_FEATURE,
            _ => OPERATIONAL,
        }
    }

    /// A PDU with these keys, which asks for the next stage or not.
    fn request(&mut self, transit: bool, text: &[u8]) -> Vec<u8> {
        self.asked_transit = transit;
        let flags = self.stage() << 2
            | match transit {
                true => FINAL | self.next_stage(),
                false => 0,
            };
        let header = Header::new(opcode::LOGIN | opcode::IMMEDIATE, flags)
            .with_data_len(text.len() as u32)
            .with(8, &self.settings.isid)
            .with_u32(24, FIRST_CMD_SN)
            .with_u32(28, self.stat_sn.unwrap_or(0));
        let mut bytes = Vec::with_capacity(HEADER_LEN_BYTES + text.len() + 3);
        bytes.extend_from_slice(&header.0);
        bytes.extend_from_slice(text);
        bytes.resize(bytes.len() + pad_len_bytes(text.len() as u32), 0);
        bytes
    }

    /// The next header: is it the answer to the last request?
    fn hear_header(&mut self) -> Result<(), LoginError> {
        let header = self.header;
        self.pdus += 1;
        if self.pdus > ISCSI_LOGIN_PDUS_MAX {
            return Err(LoginError::Answer("it answers without end"));
        }
        if header.opcode() != opcode::LOGIN_RESPONSE {
            return Err(LoginError::Opcode(header.opcode()));
        }
        let flags = header.flags();
        let wrong = match () {
            // What was refused is told after the data segment, where the new address stands.
            () if header.0[36] != 0 => return Ok(()),
            () if header.0[3] != 0 => "it speaks another version of iSCSI",
            () if header.0[8..14] != self.settings.isid || header.tag() != 0 => {
                "it answers another initiator"
            }
            () if flags & FINAL != 0 && flags & CONTINUED != 0 => {
                "it leaves the stage in the middle of a text"
            }
            () if (flags >> 2) & 3 != self.stage() => "it is in another stage",
            () if flags & FINAL != 0 && !self.asked_transit => "it leaves the stage unasked",
            () if flags & FINAL != 0 && flags & 3 != self.next_stage() => {
                "it goes on to another stage than it was asked for"
            }
            () => {
                let stat_sn = header.u32_at(24);
                let expected = self.stat_sn.unwrap_or(stat_sn);
                same(Why::StatSn, 0, stat_sn, expected)?;
                self.stat_sn = Some(stat_sn.wrapping_add(1));
                return Ok(());
            }
        };
        Err(LoginError::Answer(wrong))
    }

    /// The last PDU is whole.
    fn hear_pdu(&mut self) -> Result<Turn, LoginError> {
        let [class, detail] = [self.header.0[36], self.header.0[37]];
        let is_continued = self.header.flags() & CONTINUED != 0;
        if class == 0 && is_continued {
            return Ok(Turn::Send(self.request(false, &[])));
        }
        let text = std::mem::take(&mut self.text);
        let pairs = text::pairs(&text);
        if class != 0 {
            let pairs = pairs.unwrap_or_default();
            if (class, detail) == (2, 1) && self.settings.chap.is_none() {
                return Err(LoginError::WantsChap);
            }
            return Err(error::refused(class, detail, &pairs));
        }
        let pairs = pairs.map_err(|bad| {
            LoginError::Text(match bad {
                BadText::Form => "its keys are malformed",
                BadText::TooMany => "it has more than 64 keys",
                BadText::Twice => "it has a key twice",
            })
        })?;
        self.hear_text(&pairs)
    }

    fn hear_text(&mut self, pairs: &[(&str, &str)]) -> Result<Turn, LoginError> {
        match self.step {
            Step::Method => self.hear_method(pairs),
            Step::Challenge => self.hear_challenge(pairs),
            Step::Proof => {
                if let Some(prover) = &self.prover {
                    prover.check(pairs)?;
                }
                self.step = Step::Leave;
                Ok(self.leave())
            }
            Step::Leave => Ok(self.leave()),
            Step::Operational => self.hear_keys(pairs),
        }
    }

    fn hear_method(&mut self, pairs: &[(&str, &str)]) -> Result<Turn, LoginError> {
        // Without the key nobody is authenticated, whatever the target means by it.
        let method = text::find(pairs, "AuthMethod").unwrap_or("None");
        let may_be_none = (self.settings.chap.as_ref()).is_none_or(|chap| chap.mutual.is_none());
        match (method, &self.settings.chap) {
            ("None", _) if may_be_none => {
                self.step = Step::Leave;
                Ok(self.leave())
            }
            ("CHAP", Some(_)) => {
                self.step = Step::Challenge;
                Ok(Turn::Send(self.request(false, b"CHAP_A=5\0"))) // MD5
            }
            (_, None) => Err(LoginError::WantsChap),
            _ => Err(LoginError::Method),
        }
    }

    fn hear_challenge(&mut self, pairs: &[(&str, &str)]) -> Result<Turn, LoginError> {
        let Some(chap) = &self.settings.chap else {
            return Err(LoginError::WantsChap);
        };
        let (prover, answer) = chap.answer(pairs)?;
        self.prover = Some(prover);
        self.step = Step::Proof;
        Ok(Turn::Send(self.request(true, &answer)))
    }

    /// Goes on to the operational stage if the target does, or asks it to.
    fn leave(&mut self) -> Turn {
        if self.header.flags() & FINAL == 0 {
            return Turn::Send(self.request(true, &[]));
        }
        self.step = Step::Operational;
        let offer = self.keys.offer();
        Turn::Send(self.request(true, &offer))
    }

    fn hear_keys(&mut self, pairs: &[(&str, &str)]) -> Result<Turn, LoginError> {
        // A target that leaves the stage does without answers to what nobody here knows.
        let answers = self.keys.hear(pairs)?;
        if self.header.flags() & FINAL == 0 {
            return Ok(Turn::Send(self.request(true, &answers)));
        }
        let tsih = self.header.u16_at(14);
        if tsih == 0 {
            return Err(LoginError::Answer("it gives the session no number"));
        }
        let window = pdu::window(&self.header);
        Ok(Turn::Done(Agreed {
            tsih,
            cmd_sn: FIRST_CMD_SN,
            stat_sn: self.stat_sn.unwrap_or(0),
            max_cmd_sn: window.max_cmd_sn,
            ..self.keys.agreed()
        }))
    }
}

fn check(settings: &Settings) -> Result<(), SettingsError> {
    for name in [&settings.initiator, &settings.target] {
        let is_long = name.len() > ISCSI_NAME_BYTES_MAX;
        if is_long || !chap::is_printable(name.as_bytes()) {
            return Err(SettingsError::Name);
        }
    }
    if !(512..=ISCSI_SEGMENT_BYTES_MAX).contains(&settings.segment_bytes) {
        return Err(SettingsError::Segment);
    }
    settings.chap.as_ref().map_or(Ok(()), Chap::check)
}
