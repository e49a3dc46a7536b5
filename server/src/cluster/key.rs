//! A node's key: Ed25519 in a file that nobody else may read. Its public half is what the other nodes are given.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ackpace_wire::base64;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::SigningKey;

use crate::options::KEY_BYTES;

/// Bytes of a file with a key; one has 120. More: it is refused.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// PKCS#8 (RFC 8410 section 7) before the 32 bytes of a private key.
const PRIVATE_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// SubjectPublicKeyInfo (RFC 8410 section 4) before the 32 bytes of a public key.
const PUBLIC_HEAD: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A public key.
pub type PublicKey = [u8; KEY_BYTES];

/// The key of this node.
#[derive(Clone, Debug)]
pub struct Key {
    pub signing: Arc<dyn SigningKey>,
    pub public: PublicKey,
}

/// Why a file gives no key; the path stands before it.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refuses the file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What it is is no key, or not a secret one.
    #[error("{0}")]
    Bad(String),
}

impl Key {
    /// Reads the private key of this node.
    pub fn load(path: &Path) -> Result<Key, KeyError> {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Bad(format!(
                "others may use it (mode {mode:03o}): chmod 600, or make a new key if others could have read it"
            )));
        }
        let mut pem = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut pem)?;
        Key::of_pem(&pem).ok_or_else(|| {
            let text = "there is no Ed25519 key in PEM (PKCS#8), as `ackpace cluster key` makes it";
            KeyError::Bad(text.to_owned())
        })
    }

    fn of_pem(pem: &[u8]) -> Option<Key> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?;
        let signing = ring::sign::any_eddsa_type(&der).ok()?;
        let public = of_spki(signing.public_key()?.as_ref())?;
        Some(Key { signing, public })
    }

    /// Makes a key and writes it to a file that is not there yet.
    pub fn make(path: &Path) -> Result<Key, KeyError> {
        let mut der = PRIVATE_HEAD.to_vec();
        der.extend(drawn::<KEY_BYTES>()?);
        let text = base64::encode(&der);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
        let key = Key::of_pem(pem.as_bytes());
        let key = key.ok_or_else(|| KeyError::Bad("no key could be made".to_owned()))?;
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(pem.as_bytes())?;
        file.sync_all()?;
        Ok(key)
    }
}

/// Random bytes of the system.
pub fn drawn<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    let filled = ring::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

/// A public key as TLS has it.
pub fn to_spki(key: &PublicKey) -> Vec<u8> {
    [&PUBLIC_HEAD[..], key].concat()
}

/// The key that TLS tells of; `None`: it is of another kind.
pub fn of_spki(spki: &[u8]) -> Option<PublicKey> {
    spki.strip_prefix(&PUBLIC_HEAD)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_again_while_nobody_else_may_read_it() {
        let path = std::env::temp_dir().join(format!("ackpace-key-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let made = Key::make(&path).expect("a new file");
        let mode = || fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        assert_eq!(Key::load(&path).expect("the key").public, made.public);
        assert!(
            matches!(Key::make(&path), Err(KeyError::Io(_))),
            "it is there"
        );
        for open in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(open)).expect("ours");
            let told = Key::load(&path)
                .expect_err("others may read it")
                .to_string();
            assert!(told.contains("chmod 600"), "{told}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        fs::write(&path, "no key").expect("ours");
        let told = Key::load(&path).expect_err("no key").to_string();
        assert!(told.contains("no Ed25519 key"), "{told}");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn two_keys_differ_and_have_one_form() {
        let key = [9; KEY_BYTES];
        assert_eq!(of_spki(&to_spki(&key)), Some(key));
        assert_eq!(of_spki(&to_spki(&key)[1..]), None);
        assert_ne!(drawn::<8>().expect("bytes"), drawn::<8>().expect("bytes"));
    }
}
