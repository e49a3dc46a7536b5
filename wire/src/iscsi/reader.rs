//! Takes the bytes of a connection apart into PDUs, without keeping payload.
//!
//! The caller asks [`Reader::wants`] what comes next, receives at most so many bytes to any place, and shows them. A data
//! segment is announced by its header, so its bytes can be received where they stay. The reader keeps 52 bytes.

use super::crc;
use super::fault::{Fault, Why};
use super::pdu::{HEADER_LEN_BYTES, Header, pad_len_bytes};

/// What the next bytes of the connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A part of a header, of padding, or of a digest.
    Frame,
    /// A part of a data segment.
    Data,
}

/// What the bytes shown have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// Nothing yet.
    Nothing,
    /// A header. Its digest is right, or there is none. If it announces no data, the PDU ends with it.
    Header(Header),
    /// A data segment and with it the PDU. The digest is right, or there is none.
    Data {
        /// CRC32C of the data without its padding, where digests of data are on.
        crc: Option<u32>,
    },
}

/// How many bytes were used, and what they completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Bytes used; the next ones are another part.
    pub used_bytes: usize,
    /// What is whole with them.
    pub whole: Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    /// Additional header segments; nothing that a disk's target sends has one.
    Ahs,
    HeaderDigest,
    Data,
    Pad,
    DataDigest,
}

/// Reads the PDUs of one connection.
#[derive(Clone, Debug)]
pub struct Reader {
    header_digests: bool,
    data_digests: bool,
    data_len_bytes_max: u32,
    phase: Phase,
    /// Bytes that the phase still needs.
    left_bytes: usize,
    header: Header,
    digest: [u8; 4],
    /// Of the header so far, or of the data.
    crc: u32,
    /// Of the data without its padding.
    data_crc: u32,
}

impl Reader {
    /// A reader at the beginning of a PDU. A longer data segment is an error.
    pub fn new(header_digests: bool, data_digests: bool, data_len_bytes_max: u32) -> Reader {
        Reader {
            header_digests,
            data_digests,
            data_len_bytes_max,
            phase: Phase::Header,
            left_bytes: HEADER_LEN_BYTES,
            header: Header([0; HEADER_LEN_BYTES]),
            digest: [0; 4],
            crc: 0,
            data_crc: 0,
        }
    }

    /// The next part of the PDU, and its length in bytes, which is never 0.
    pub fn wants(&self) -> (Part, usize) {
        let part = match self.phase {
            Phase::Data => Part::Data,
            _ => Part::Frame,
        };
        (part, self.left_bytes)
    }

    /// Takes received bytes, at most those of the present part. The bytes of a data segment are looked at only if digests
    /// of data are on.
    ///
    /// # Errors
    /// The PDU can't be right. The reader is of no further use.
    pub fn show(&mut self, bytes: &[u8]) -> Result<Shown, Fault> {
        let used_bytes = bytes.len().min(self.left_bytes);
        self.take(&bytes[..used_bytes]);
        self.left_bytes -= used_bytes;
        let mut whole = Whole::Nothing;
        while self.left_bytes == 0 && whole == Whole::Nothing {
            whole = self.phase_ends()?;
        }
        Ok(Shown { used_bytes, whole })
    }

    fn take(&mut self, bytes: &[u8]) {
        match self.phase {
            Phase::Header => {
                let at = HEADER_LEN_BYTES - self.left_bytes;
                self.header.0[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Phase::HeaderDigest | Phase::DataDigest => {
                let at = self.digest.len() - self.left_bytes;
                self.digest[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Phase::Ahs if self.header_digests => self.crc = crc::append(self.crc, bytes),
            Phase::Data | Phase::Pad if self.data_digests => {
                self.crc = crc::append(self.crc, bytes)
            }
            Phase::Ahs | Phase::Data | Phase::Pad => {}
        }
    }

    /// The bytes of a phase are there, which may be none.
    fn phase_ends(&mut self) -> Result<Whole, Fault> {
        let digest_len = |on: bool| if on { 4 } else { 0 };
        match self.phase {
            Phase::Header => {
                if self.header_digests {
                    self.crc = crc::of(&self.header.0);
                }
                self.enter(Phase::Ahs, self.header.ahs_len_bytes());
            }
            Phase::Ahs => self.enter(Phase::HeaderDigest, digest_len(self.header_digests)),
            Phase::HeaderDigest => {
                self.check(self.header_digests, Why::HeaderDigest)?;
                return self.header_ends();
            }
            Phase::Data => {
                self.data_crc = self.crc;
                self.enter(Phase::Pad, pad_len_bytes(self.header.data_len_bytes()));
            }
            Phase::Pad => self.enter(Phase::DataDigest, digest_len(self.data_digests)),
            Phase::DataDigest => {
                self.check(self.data_digests, Why::DataDigest)?;
                let crc = self.data_digests.then_some(self.data_crc);
                self.enter(Phase::Header, HEADER_LEN_BYTES);
                return Ok(Whole::Data { crc });
            }
        }
        Ok(Whole::Nothing)
    }

    fn header_ends(&mut self) -> Result<Whole, Fault> {
        let (len_bytes, most) = (self.header.data_len_bytes(), self.data_len_bytes_max);
        if len_bytes > most {
            let fault = Fault::of(Why::DataLen, self.header.tag());
            return Err(fault.came(len_bytes.into()).not(most.into()));
        }
        match len_bytes {
            0 => self.enter(Phase::Header, HEADER_LEN_BYTES),
            _ => self.enter(Phase::Data, len_bytes as usize),
        }
        Ok(Whole::Header(self.header))
    }

    fn enter(&mut self, phase: Phase, left_bytes: usize) {
        (self.phase, self.left_bytes) = (phase, left_bytes);
        if phase == Phase::Data {
            self.crc = 0;
        }
    }

    fn check(&self, digests: bool, why: Why) -> Result<(), Fault> {
        let came = u32::from_le_bytes(self.digest);
        if !digests || came == self.crc {
            return Ok(());
        }
        let fault = Fault::of(why, self.header.tag());
        Err(fault.came(came.into()).not(self.crc.into()))
    }
}

#[cfg(test)]
mod tests;
