//! File handles: what a client is given for a file, and gives back for years.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | the form: 1 |
//! | 4 | the export, by a number of its name |
//! | 8 | the file system, by a number that outlives restart, such as one of its UUID |
//! | 0 to 40 | the file in it: what name_to_handle_at(2) tells, which includes the generation, or a hash of its path |
//! | 8 | a keyed hash of all that (SipHash-2-4) |
//!
//! So a handle outlives the server and a rename, tells exports apart and can't be forged or moved to another export: without
//! the key, one guess in 2^64 is right. It is no secret. Whoever sees one on the network can use it, as all of NFS with
//! AUTH_SYS trusts the network. With another key all handles are stale, and clients mount again.

use super::siphash;
use crate::limits::{NFS_HANDLE_BODY_BYTES_MAX, NFS_HANDLE_BYTES_MAX};

const FORM: u8 = 1;
const BODY_AT: usize = 1 + 4 + 8;
const HASH_BYTES: usize = 8;
const _: () = assert!(BODY_AT + NFS_HANDLE_BODY_BYTES_MAX + HASH_BYTES <= NFS_HANDLE_BYTES_MAX);

/// Of the server: drawn once, and kept where only it can read.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// A number of some bytes that only who has the key can find others for (SipHash-2-4).
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        siphash::hash(&self.0, bytes)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The file that a handle means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// The export.
    pub export: u32,
    /// The file system.
    pub file_system: u64,
    /// The file and its generation.
    pub body: &'a [u8],
}

/// A handle's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    bytes: [u8; NFS_HANDLE_BYTES_MAX],
    len: usize,
}

impl Sealed {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed({})", self.as_bytes().escape_ascii())
    }
}

/// Makes the handle of a file. `None`: its body is longer than 40 bytes.
pub fn seal(key: &Key, file: &File<'_>) -> Option<Sealed> {
    if file.body.len() > NFS_HANDLE_BODY_BYTES_MAX {
        return None;
    }
    let mut bytes = [0; NFS_HANDLE_BYTES_MAX];
    let end = BODY_AT + file.body.len();
    bytes[0] = FORM;
    bytes[1..5].copy_from_slice(&file.export.to_le_bytes());
    bytes[5..BODY_AT].copy_from_slice(&file.file_system.to_le_bytes());
    bytes[BODY_AT..end].copy_from_slice(file.body);
    let hash = siphash::hash(&key.0, &bytes[..end]);
    bytes[end..end + HASH_BYTES].copy_from_slice(&hash.to_le_bytes());
    let len = end + HASH_BYTES;
    Some(Sealed { bytes, len })
}

/// Opens a handle. `None`: it was not made with this key, and the answer is NFS3ERR_STALE (Linux' client knows what to do
/// with that, and has no number for NFS3ERR_BADHANDLE that a program would understand).
pub fn open<'a>(key: &Key, handle: &'a [u8]) -> Option<File<'a>> {
    let (sealed, hash) = handle.split_last_chunk::<HASH_BYTES>()?;
    let (head, body) = sealed.split_first_chunk::<BODY_AT>()?;
    let [form, e0, e1, e2, e3, file_system @ ..] = *head;
    let is_ours = form == FORM
        && body.len() <= NFS_HANDLE_BODY_BYTES_MAX
        && siphash::hash(&key.0, sealed) == u64::from_le_bytes(*hash);
    is_ours.then_some(File {
        export: u32::from_le_bytes([e0, e1, e2, e3]),
        file_system: u64::from_le_bytes(file_system),
        body,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_handle_means_its_file_and_no_other(
            key: [u8; 16],
            export: u32,
            file_system: u64,
            body in prop::collection::vec(any::<u8>(), 0..=NFS_HANDLE_BODY_BYTES_MAX),
            at: prop::sample::Index,
            flip in 1..=u8::MAX,
        ) {
            let key = Key(key);
            let file = File { export, file_system, body: &body };
            let sealed = seal(&key, &file).expect("a short body");
            let handle = sealed.as_bytes();
            prop_assert!(handle.len() <= NFS_HANDLE_BYTES_MAX);
            prop_assert_eq!(open(&key, handle), Some(file));

            let mut forged = handle.to_vec();
            *at.get_mut(&mut forged) ^= flip;
            prop_assert_eq!(open(&key, &forged), None);
            for len in 0..handle.len() {
                prop_assert_eq!(open(&key, &handle[..len]), None);
            }
            let mut other = key.clone();
            other.0[0] ^= flip;
            prop_assert_eq!(open(&other, handle), None);
        }
    }

    #[test]
    fn a_handle_has_the_form_of_the_table() {
        let key = Key([7; 16]);
        let file = File {
            export: 1,
            file_system: 2,
            body: b"body",
        };
        let sealed = seal(&key, &file).expect("a short body");
        let (told, hash) = sealed.as_bytes().split_at(17);
        assert_eq!(told, b"\x01\x01\0\0\0\x02\0\0\0\0\0\0\0body");
        assert_eq!(hash, siphash::hash(&key.0, told).to_le_bytes());
        let body = [0; NFS_HANDLE_BODY_BYTES_MAX + 1];
        assert_eq!(
            seal(
                &key,
                &File {
                    body: &body,
                    ..file
                }
            ),
            None
        );
    }
}
