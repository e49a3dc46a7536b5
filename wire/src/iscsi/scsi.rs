//! SCSI for one disk: command blocks (SPC-5, SBC-4), what answers say, and sense data.

pub mod sense;

use crate::limits::{ISCSI_LUN_MAX, ISCSI_LUNS_MAX};

/// Bytes of a command block here; shorter ones have zeros behind them.
pub const CDB_LEN_BYTES: usize = 16;
/// Bytes that are asked for by INQUIRY; the longest standard answer has 96, and serial numbers are shorter.
pub const INQUIRY_LEN_BYTES: u32 = 252;
/// Bytes that are asked for by READ CAPACITY(16): the whole answer.
pub const CAPACITY_LEN_BYTES: u32 = 32;
/// Bytes that are asked for by REPORT LUNS.
pub const LUNS_LEN_BYTES: u32 = 8 + 8 * ISCSI_LUNS_MAX as u32;
/// The page of INQUIRY with the serial number of the unit (SPC-5 section 7.7.20).
pub const SERIAL_PAGE: u8 = 0x80;

/// A command block.
pub type Cdb = [u8; CDB_LEN_BYTES];

/// TEST UNIT READY (SPC-5 section 6.47).
pub fn test_unit_ready() -> Cdb {
    [0; CDB_LEN_BYTES]
}

/// INQUIRY (SPC-5 section 6.7): the standard answer, or one page of vital product data.
pub fn inquiry(page: Option<u8>) -> Cdb {
    let mut cdb = [0; CDB_LEN_BYTES];
    cdb[0] = 0x12;
    cdb[1] = page.is_some().into();
    cdb[2] = page.unwrap_or(0);
    cdb[3..5].copy_from_slice(&(INQUIRY_LEN_BYTES as u16).to_be_bytes());
    cdb
}

/// READ CAPACITY(16) (SBC-4 section 5.21).
pub fn read_capacity() -> Cdb {
    let mut cdb = [0; CDB_LEN_BYTES];
    (cdb[0], cdb[1]) = (0x9e, 0x10);
    cdb[10..14].copy_from_slice(&CAPACITY_LEN_BYTES.to_be_bytes());
    cdb
}

/// REPORT LUNS (SPC-5 section 6.33).
pub fn report_luns() -> Cdb {
    let mut cdb = [0; CDB_LEN_BYTES];
    cdb[0] = 0xa0;
    cdb[6..10].copy_from_slice(&LUNS_LEN_BYTES.to_be_bytes());
    cdb
}

/// READ(16) (SBC-4 section 5.19).
pub fn read(lba: u64, blocks: u32) -> Cdb {
    extent(0x88, lba, blocks)
}

/// WRITE(16) (SBC-4 section 5.44).
pub fn write(lba: u64, blocks: u32) -> Cdb {
    extent(0x8a, lba, blocks)
}

/// SYNCHRONIZE CACHE(16) (SBC-4 section 5.35); 0 blocks are all from `lba` on.
pub fn synchronize(lba: u64, blocks: u32) -> Cdb {
    extent(0x91, lba, blocks)
}

fn extent(operation: u8, lba: u64, blocks: u32) -> Cdb {
    let mut cdb = [0; CDB_LEN_BYTES];
    cdb[0] = operation;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The number of a logical unit as it stands in a header (SAM-5 section 4.7): peripheral addressing up to 255, flat
/// addressing above. Numbers above [`ISCSI_LUN_MAX`] have no form here and give that one's.
pub fn lun(number: u16) -> [u8; 8] {
    let number = number.min(ISCSI_LUN_MAX);
    let [high, low] = match number {
        0..=255 => number.to_be_bytes(),
        _ => (number | 0x4000).to_be_bytes(),
    };
    [high, low, 0, 0, 0, 0, 0, 0]
}

/// The number of a logical unit; `None`: it is addressed in another way, or is one of several levels.
pub fn lun_number(lun: [u8; 8]) -> Option<u16> {
    let number = u16::from_be_bytes([lun[0], lun[1]]);
    let has_one_level = lun[2..] == [0; 6];
    match lun[0] >> 6 {
        0 if lun[0] == 0 && has_one_level => Some(number),
        1 if has_one_level => Some(number & ISCSI_LUN_MAX),
        _ => None,
    }
}

/// The numbers in an answer to REPORT LUNS; those in other forms are left out.
pub fn luns(answer: &[u8]) -> Vec<u16> {
    let Some((len, rest)) = answer.split_first_chunk::<4>() else {
        return Vec::new();
    };
    let len_bytes = u32::from_be_bytes(*len) as usize;
    let list = rest.get(4..).unwrap_or_default();
    let list = &list[..len_bytes.min(list.len())];
    let all = list.chunks_exact(8).take(ISCSI_LUNS_MAX);
    all.filter_map(|lun| lun_number(lun.try_into().ok()?))
        .collect()
}

/// What READ CAPACITY(16) answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks of the unit.
    pub blocks: u64,
    /// Bytes of a block, a power of two from 512 to 64 Ki.
    pub block_bytes: u32,
    /// Blocks of the medium are 2 to the power of this many blocks: an answer is fastest in multiples of them.
    pub physical_exponent: u8,
    /// Protection information stands behind each block, and WRITE(16) would have to bring it.
    pub is_protected: bool,
}

impl Capacity {
    /// `None`: the answer is too short, or no size of a disk.
    pub fn parse(answer: &[u8]) -> Option<Capacity> {
        let answer: &[u8; 14] = answer.first_chunk()?;
        let (last, rest) = answer.split_first_chunk()?;
        let block_bytes = u32::from_be_bytes(*rest.first_chunk()?);
        let blocks = u64::from_be_bytes(*last).checked_add(1)?;
        let is_size = block_bytes.is_power_of_two() && (512..=1 << 16).contains(&block_bytes);
        blocks.checked_mul(block_bytes.into()).filter(|_| is_size)?;
        Some(Capacity {
            blocks,
            block_bytes,
            physical_exponent: answer[13] & 0x0f,
            is_protected: answer[12] & 1 != 0,
        })
    }

    /// Bytes of the unit.
    pub fn len_bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

/// What the standard answer to INQUIRY says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// It is there, and a disk.
    pub is_disk: bool,
    /// Vendor, product and revision, for people; other signs than those of ASCII are `?`.
    pub name: String,
}

impl Inquiry {
    /// `None`: the answer is too short.
    pub fn parse(answer: &[u8]) -> Option<Inquiry> {
        let answer: &[u8; 36] = answer.first_chunk()?;
        let fields = [8..16, 16..32, 32..36].map(|field| printable(&answer[field]));
        Some(Inquiry {
            is_disk: answer[0] == 0,
            name: fields.join(" ").trim().to_owned(),
        })
    }
}

/// The serial number in an answer to INQUIRY for [`SERIAL_PAGE`]; `None`: there is none.
pub fn serial(answer: &[u8]) -> Option<String> {
    let (head, rest) = answer.split_first_chunk::<4>()?;
    let len_bytes = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let serial = printable(rest.get(..len_bytes)?);
    (head[1] == SERIAL_PAGE && !serial.is_empty()).then_some(serial)
}

fn printable(bytes: &[u8]) -> String {
    let sign = |&byte: &u8| match byte {
        b' '..=b'~' => char::from(byte),
        _ => '?',
    };
    let text: String = bytes.iter().map(sign).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests;
