//! What `ackpace-host gateway` and the server say to each other: where the file system of an iSCSI target is mounted, and which of
//! its blocks have changed.
//!
//! On connecting to its socket (unix(7), SOCK_SEQPACKET) the server is sent one [`Hello`], with a descriptor of the counters beside
//! it (SCM_RIGHTS). Nothing follows. The end of the connection says that the mount is gone.
//!
//! **Counters.** A memfd of [`COUNTERS`] numbers (u32, the machine's byte order), which the server maps to read. That of a chunk
//! ([`counter_of`]) is incremented before a write of the chunk goes to the target and again after its answer, also where the write
//! fails or is repeated. So who reads the counter, then the target, then the counter again, and finds the same number, has bytes that
//! are right as long as the number stays. Chunks that are [`COUNTERS`] apart share one: their bytes are then thrown away too early.

use crate::limits::{GATEWAY_PATH_BYTES_MAX, GATEWAY_SERIAL_BYTES_MAX, GATEWAY_URL_BYTES_MAX};

/// Numbers in the memfd, which has four bytes for each.
pub const COUNTERS: usize = 1 << 20;
/// Bytes of the unit that share a counter.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Bits of the mode of a file with a secret of CHAP for which both programs refuse it. Its group may read it: that of a service does.
pub const SECRET_CLOSED_TO: u32 = 0o027;
/// The version of this module's messages.
pub const VERSION: u16 = 1;
/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize =
    HEAD_BYTES + GATEWAY_SERIAL_BYTES_MAX + GATEWAY_PATH_BYTES_MAX + GATEWAY_URL_BYTES_MAX;

/// First bytes of a hello: "ACKG".
const MAGIC: [u8; 4] = *b"ACKG";
/// Magic, version u16, flags u16, device u64, length u64, block u32, and the lengths of three texts, u16 each.
const HEAD_BYTES: usize = 4 + 2 + 2 + 8 + 8 + 4 + 3 * 2;
const READ_ONLY: u16 = 1;

/// The number of a gateway's session with the target (RFC 7143 section 11.12.5; a random one by its form, whose qualifier is the
/// logical unit). A login with the same name and number ends the session that is there (section 6.3.5): so the next process ends the
/// session of one that died, and a gateway for another unit of the target ends none.
pub fn gateway_isid(lun: u16) -> [u8; 6] {
    let [high, low] = lun.to_be_bytes();
    [0x80, b'a', b'c', b'k', high, low]
}

/// The number of a server's session, by what it has drawn. No logical unit has the number of its qualifier
/// ([`crate::limits::ISCSI_LUN_MAX`]), so it is no gateway's.
pub fn server_isid([first, second, third]: [u8; 3]) -> [u8; 6] {
    [0x80, first, second, third, 0xff, 0xff]
}

/// The counter of the chunk with this byte of the unit.
pub fn counter_of(offset_bytes: u64) -> usize {
    ((offset_bytes / CHUNK_BYTES) % COUNTERS as u64) as usize
}

/// The counters of all chunks with these bytes, each chunk once; at most [`COUNTERS`].
pub fn counters_of(offset_bytes: u64, len_bytes: u32) -> impl Iterator<Item = usize> {
    let first = offset_bytes / CHUNK_BYTES;
    let last = offset_bytes.saturating_add(u64::from(len_bytes).saturating_sub(1)) / CHUNK_BYTES;
    let end = if len_bytes == 0 { first } else { last + 1 };
    (first..end).map(|chunk| (chunk % COUNTERS as u64) as usize)
}

/// What is mounted where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// `st_dev` (stat(2)) of all files of the mount.
    pub device: u64,
    /// Bytes of the unit. An extent of a file ends before.
    pub len_bytes: u64,
    /// Bytes of a block of the unit.
    pub block_bytes: u32,
    /// The unit, or the mount, can't be written.
    pub is_read_only: bool,
    /// The unit's serial number; empty: it has none. The server's own session has to find the same one.
    pub serial: String,
    /// Where it is mounted, an absolute path.
    pub mount: String,
    /// The unit, as [`crate::iscsi::Address`] writes it.
    pub url: String,
}

/// Why bytes are no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They are not [`HELLO_BYTES`] long, or a text is longer than its place.
    Length,
    /// They don't begin as one.
    Magic,
    /// Another version: both programs have to come from one release.
    Version(u16),
    /// A number that can't be, a text that is not UTF-8, or something where nothing should be.
    Value,
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bad::Length => f.write_str("a hello of the wrong length"),
            Bad::Magic => f.write_str("no hello of ackpace-host gateway"),
            Bad::Version(version) => write!(
                f,
                "ackpace-host gateway speaks version {version} and this program {VERSION}: install both from one release"
            ),
            Bad::Value => f.write_str("a hello with an impossible value"),
        }
    }
}

impl Hello {
    /// Its bytes. A text that is too long is cut, and nothing that long is valid ([`Hello::fits`]).
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut head = MAGIC.to_vec();
        let flags = if self.is_read_only { READ_ONLY } else { 0 };
        head.extend(VERSION.to_le_bytes());
        head.extend(flags.to_le_bytes());
        head.extend(self.device.to_le_bytes());
        head.extend(self.len_bytes.to_le_bytes());
        head.extend(self.block_bytes.to_le_bytes());
        let mut bytes = [0; HELLO_BYTES];
        let mut at = HEAD_BYTES;
        for (text, len_bytes_max) in self.texts() {
            let len_bytes = text.len().min(len_bytes_max);
            head.extend((len_bytes as u16).to_le_bytes());
            bytes[at..at + len_bytes].copy_from_slice(&text.as_bytes()[..len_bytes]);
            at += len_bytes_max;
        }
        bytes[..HEAD_BYTES].copy_from_slice(&head);
        bytes
    }

    /// Whether each text has room.
    pub fn fits(&self) -> bool {
        self.texts()
            .iter()
            .all(|(text, len_bytes_max)| text.len() <= *len_bytes_max)
    }

    /// A hello from its bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn parse(bytes: &[u8]) -> Result<Hello, Bad> {
        let mut rest = bytes;
        if take(&mut rest)? != MAGIC {
            return Err(Bad::Magic);
        }
        // A later version may be longer, and has its number at the same place.
        let version = u16::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        if bytes.len() != HELLO_BYTES {
            return Err(Bad::Length);
        }
        let flags = u16::from_le_bytes(take(&mut rest)?);
        let device = u64::from_le_bytes(take(&mut rest)?);
        let len_bytes = u64::from_le_bytes(take(&mut rest)?);
        let block_bytes = u32::from_le_bytes(take(&mut rest)?);
        let mut lens = [0; 3];
        for len in &mut lens {
            *len = usize::from(u16::from_le_bytes(take(&mut rest)?));
        }
        let [serial, mount, url] = lens;
        let hello = Hello {
            device,
            len_bytes,
            block_bytes,
            is_read_only: flags == READ_ONLY,
            serial: text(&mut rest, serial, GATEWAY_SERIAL_BYTES_MAX)?,
            mount: text(&mut rest, mount, GATEWAY_PATH_BYTES_MAX)?,
            url: text(&mut rest, url, GATEWAY_URL_BYTES_MAX)?,
        };
        let is_block = block_bytes.is_power_of_two() && (512..=1 << 16).contains(&block_bytes);
        match is_block && flags <= READ_ONLY && hello.mount.starts_with('/') {
            true => Ok(hello),
            false => Err(Bad::Value),
        }
    }

    fn texts(&self) -> [(&str, usize); 3] {
        [
            (&self.serial, GATEWAY_SERIAL_BYTES_MAX),
            (&self.mount, GATEWAY_PATH_BYTES_MAX),
            (&self.url, GATEWAY_URL_BYTES_MAX),
        ]
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Bad> {
    let (taken, behind) = rest.split_first_chunk().ok_or(Bad::Length)?;
    *rest = behind;
    Ok(*taken)
}

/// A text in its place, with zeros behind it.
fn text(rest: &mut &[u8], len_bytes: usize, place_bytes: usize) -> Result<String, Bad> {
    let (place, behind) = rest.split_at_checked(place_bytes).ok_or(Bad::Length)?;
    *rest = behind;
    let (text, zeros) = place.split_at_checked(len_bytes).ok_or(Bad::Length)?;
    if zeros.iter().any(|byte| *byte != 0) {
        return Err(Bad::Value);
    }
    let text = std::str::from_utf8(text).map_err(|_| Bad::Value)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_two_programs_of_a_machine_end_each_others_sessions() {
        let luns = 0..=crate::limits::ISCSI_LUN_MAX;
        let own: std::collections::HashSet<_> = luns.clone().map(gateway_isid).collect();
        assert_eq!(own.len(), luns.count());
        assert!(!own.contains(&server_isid(*b"ack")));
        let is_random = |isid: [u8; 6]| isid[0] == 0x80;
        assert!(is_random(gateway_isid(7)) && is_random(server_isid([1, 2, 3])));
    }

    fn hello() -> Hello {
        Hello {
            device: 0x700,
            len_bytes: 1 << 40,
            block_bytes: 4096,
            is_read_only: true,
            serial: "beaf11".to_owned(),
            mount: "/srv/disk".to_owned(),
            url: "iscsi://10.0.0.1/iqn.2026-01.org.example:disk/1".to_owned(),
        }
    }

    #[test]
    fn a_chunk_has_one_counter() {
        assert_eq!(
            (counter_of(0), counter_of(65_535), counter_of(65_536)),
            (0, 0, 1)
        );
        assert_eq!(counter_of(COUNTERS as u64 * CHUNK_BYTES), 0);
        assert!(counter_of(u64::MAX) < COUNTERS);
        let all = |offset, len| counters_of(offset, len).collect::<Vec<_>>();
        assert_eq!(all(65_535, 2), [0, 1]);
        assert_eq!(all(65_536, 65_536), [1]);
        assert_eq!(all(0, 0), [0; 0]);
        assert_eq!(all(COUNTERS as u64 * CHUNK_BYTES - 1, 2), [COUNTERS - 1, 0]);
        assert_eq!(all(u64::MAX, 4096).len(), 1, "it ends where numbers end");
    }

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        assert_eq!(Hello::parse(&hello().encode()), Ok(hello()));
        let longest = Hello {
            mount: format!("/{}", "m".repeat(GATEWAY_PATH_BYTES_MAX - 1)),
            ..hello()
        };
        assert!(longest.fits());
        assert_eq!(Hello::parse(&longest.encode()), Ok(longest.clone()));
        let too_long = Hello {
            mount: longest.mount + "m",
            ..hello()
        };
        assert!(!too_long.fits());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let bytes = hello().encode();
        assert_eq!(Hello::parse(&[]), Err(Bad::Length));
        assert_eq!(Hello::parse(&bytes[1..]), Err(Bad::Magic));
        assert_eq!(Hello::parse(&bytes[..HELLO_BYTES - 1]), Err(Bad::Length));
        let mut other = bytes;
        other[4] = 9;
        assert_eq!(Hello::parse(&other), Err(Bad::Version(9)));
        assert!(Bad::Version(9).to_string().contains("version 9"));
        for (at, value) in [(6, 2), (24, 1), (HELLO_BYTES - 1, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(Hello::parse(&wrong), Err(Bad::Value), "byte {at}");
        }
        let mut wrong = bytes;
        wrong[HEAD_BYTES - 1] = 0xff;
        assert_eq!(Hello::parse(&wrong), Err(Bad::Length));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_a_hello_has_one_form(at in 0..HELLO_BYTES, value: u8) {
            let mut bytes = hello().encode();
            bytes[at] = value;
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert_eq!(hello.encode(), bytes);
            }
        }
    }
}
