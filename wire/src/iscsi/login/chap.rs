//! CHAP with MD5 (RFC 1994, RFC 7143 section 12.1.3): the target challenges the initiator and, if that wants to know who
//! it talks to, the initiator the target.

use std::fmt;
use std::hint::black_box;

use md5::{Digest, Md5};

use super::{LoginError, SettingsError};
use crate::base64;
use crate::iscsi::text::{self, find};
use crate::limits::{ISCSI_CHALLENGE_BYTES_MAX, ISCSI_CHAP_BYTES_MAX};

/// The credentials of this side.
#[derive(Clone, PartialEq, Eq)]
pub struct Chap {
    /// The name.
    pub name: String,
    /// The secret.
    pub secret: Vec<u8>,
    /// The target has to prove who it is, too.
    pub mutual: Option<Mutual>,
}

/// The credentials of the target, and a question to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Mutual {
    /// The target's name in CHAP.
    pub name: String,
    /// Its secret, another one than this side's.
    pub secret: Vec<u8>,
    /// Random bytes, new for each login.
    pub challenge: [u8; 16],
    /// A random byte, new for each login.
    pub id: u8,
}

impl Mutual {
    /// A new question for the next login: nobody without the secrets can tell it from the last one.
    pub(in crate::iscsi) fn renew(&mut self, secret: &[u8]) {
        let hash = Md5::new().chain_update(self.challenge);
        let hash = hash.chain_update(&self.secret).chain_update(secret);
        self.challenge = hash.finalize().into();
        self.id = self.id.wrapping_add(self.challenge[0] | 1);
    }
}

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Chap");
        let shown = shown
            .field("name", &self.name)
            .field("mutual", &self.mutual);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for Mutual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mutual");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the target has to answer.
#[derive(Debug)]
pub(super) struct Prover(Option<Expected>);

struct Expected {
    name: String,
    response: [u8; 16],
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expected")
    }
}

impl Chap {
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let fits = |len: usize| (1..=ISCSI_CHAP_BYTES_MAX).contains(&len);
        let mutual = self.mutual.as_ref();
        let names = [Some(&self.name), mutual.map(|mutual| &mutual.name)];
        let secrets = [Some(&self.secret), mutual.map(|mutual| &mutual.secret)];
        let is_name = |name: &String| fits(name.len()) && is_printable(name.as_bytes());
        if !names.into_iter().flatten().all(is_name)
            || !secrets
                .into_iter()
                .flatten()
                .all(|secret| fits(secret.len()))
        {
            return Err(SettingsError::Chap);
        }
        match mutual.is_some_and(|mutual| mutual.secret == self.secret) {
            true => Err(SettingsError::SameSecrets),
            false => Ok(()),
        }
    }

    /// The answer to a challenge, with the counter-challenge if there is one.
    pub(super) fn answer(&self, pairs: &[(&str, &str)]) -> Result<(Prover, Vec<u8>), LoginError> {
        if find(pairs, "CHAP_A") != Some("5") {
            return Err(LoginError::Chap("it wants another hash than MD5"));
        }
        let id = find(pairs, "CHAP_I").and_then(|id| id.parse().ok());
        let id: u8 = id.ok_or(LoginError::Chap(
            "its challenge has no number from 0 to 255",
        ))?;
        let challenge = find(pairs, "CHAP_C");
        let challenge = challenge.and_then(|text| binary(text, ISCSI_CHALLENGE_BYTES_MAX));
        let challenge = challenge.filter(|challenge| !challenge.is_empty());
        let challenge =
            challenge.ok_or(LoginError::Chap("it sends no challenge of 1 to 1024 bytes"))?;
        let mut answer = Vec::new();
        text::put(&mut answer, "CHAP_N", &self.name);
        text::put(
            &mut answer,
            "CHAP_R",
            &hex(&response(id, &self.secret, &challenge)),
        );
        let Some(mutual) = &self.mutual else {
            return Ok((Prover(None), answer));
        };
        if challenge == mutual.challenge {
            return Err(LoginError::Chap("it sends our own challenge back"));
        }
        text::put(&mut answer, "CHAP_I", &mutual.id.to_string());
        text::put(&mut answer, "CHAP_C", &hex(&mutual.challenge));
        let expected = Expected {
            name: mutual.name.clone(),
            response: response(mutual.id, &mutual.secret, &mutual.challenge),
        };
        Ok((Prover(Some(expected)), answer))
    }
}

impl Prover {
    /// Whether the target is who it has to be.
    pub(super) fn check(&self, pairs: &[(&str, &str)]) -> Result<(), LoginError> {
        let Some(expected) = &self.0 else {
            return Ok(());
        };
        let name = find(pairs, "CHAP_N").unwrap_or_default();
        let came = find(pairs, "CHAP_R").and_then(|text| binary(text, expected.response.len()));
        // The name is no secret, but a hint at which of both is wrong would help only an impostor.
        let is_right = came.is_some_and(|came| is_equal(&came, &expected.response));
        match is_right && name == expected.name {
            true => Ok(()),
            false => Err(LoginError::Chap(
                "it does not prove who it is: its name or secret is another",
            )),
        }
    }
}

/// RFC 1994 section 4.1.
fn response(id: u8, secret: &[u8], challenge: &[u8]) -> [u8; 16] {
    let hash = Md5::new().chain_update([id]).chain_update(secret);
    hash.chain_update(challenge).finalize().into()
}

/// Compares in a time that depends on the lengths alone.
fn is_equal(came: &[u8], expected: &[u8]) -> bool {
    let pairs = came.iter().zip(expected);
    let differing = pairs.fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
    came.len() == expected.len() && differing == 0
}

/// Something that stands in a key as it is.
pub(super) fn is_printable(text: &[u8]) -> bool {
    !text.is_empty() && !text.iter().any(u8::is_ascii_control)
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

/// A value in hexadecimal or base64 (RFC 7143 section 6.1); `None`: it is neither, or too long.
fn binary(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let (kind, text) = text.split_at_checked(2)?;
    match kind {
        "0x" | "0X" => unhex(text, bytes_max),
        "0b" | "0B" => base64::decode(text, bytes_max),
        _ => None,
    }
}

fn unhex(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if text.len() % 2 != 0 || text.len() / 2 > bytes_max {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
    text.as_bytes().chunks_exact(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_have_two_forms() {
        assert_eq!(binary("0x00fFa1", 3), Some(vec![0, 0xff, 0xa1]));
        assert_eq!(binary("0bAP+h", 3), Some(vec![0, 0xff, 0xa1]));
        for bad in [
            "",
            "0",
            "é",
            "0x0",
            "0x0g",
            "0x00ffa1b2",
            "0b?",
            "1234",
            "0x+1",
        ] {
            assert_eq!(binary(bad, 3), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_read_as_they_are_written(bytes: Vec<u8>) {
            prop_assert_eq!(binary(&hex(&bytes), bytes.len()), Some(bytes));
        }

        #[test]
        fn equal_is_equal(a in prop::collection::vec(0u8..2, 0..4), b in prop::collection::vec(0u8..2, 0..4)) {
            prop_assert_eq!(is_equal(&a, &b), a == b);
        }
    }
}
