//! What the session is given by the options: names and secrets.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ackpace_wire::gateway::{SECRET_CLOSED_TO, server_isid};
use ackpace_wire::iscsi::{Address, Chap, Mutual, Settings};
use ackpace_wire::limits::{ISCSI_CHAP_BYTES_MAX, ISCSI_SEGMENT_BYTES_MAX};

use crate::config::Layer;
use crate::failure::Failure;
use crate::options::{IscsiOptions, shown_path};

/// Where other initiators of this machine have their name.
const NAME_FILE: &str = "/etc/iscsi/initiatorname.iscsi";
/// What a secret file may have. More: it is none.
const FILE_BYTES_MAX: u64 = 4096;

/// The settings of a session with the unit.
pub fn settings(
    options: &IscsiOptions,
    given: &Layer,
    address: &Address,
) -> Result<Settings, Failure> {
    let own = secret(&options.iscsi_secret_file, "iscsi_secret_file", given)?;
    let target = &options.iscsi_target_secret_file;
    let target = secret(target, "iscsi_target_secret_file", given)?;
    let mutual = target.map(|secret| Mutual {
        name: options.iscsi_target_user.clone(),
        secret,
        challenge: std::array::from_fn(|_| random() as u8),
        id: random() as u8,
    });
    let chap = own.map(|secret| Chap {
        name: options.iscsi_user.clone(),
        secret,
        mutual,
    });
    let [first, second, third, ..] = random().to_le_bytes();
    Ok(Settings {
        initiator: match options.iscsi_initiator.as_str() {
            "auto" => initiator(),
            name => name.to_owned(),
        },
        target: address.target.clone(),
        // Random (RFC 7143 section 11.12.5): the gateway program has another one, and so has another server with this name. A login with
        // the same one would end the other's session.
        isid: server_isid([first, second, third]),
        chap,
        header_digests: options.iscsi_digests.header,
        data_digests: options.iscsi_digests.data,
        segment_bytes: ISCSI_SEGMENT_BYTES_MAX,
    })
}

/// A number that nobody can foresee: keys of hash tables are random.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn secret(file: &Path, option: &str, given: &Layer) -> Result<Option<Vec<u8>>, Failure> {
    if file.as_os_str() == "off" {
        return Ok(None);
    }
    let shown = shown_path(file);
    let fail = |why: &str| Failure::value(given, option, &format!("{shown}: {why}"));
    let told = fs::metadata(file).map_err(|error| fail(&error.to_string()))?;
    if !told.is_file() || told.len() > FILE_BYTES_MAX {
        return Err(fail("it is no file with a secret"));
    }
    if told.mode() & SECRET_CLOSED_TO != 0 {
        let mode = told.mode() & 0o777;
        return Err(fail(&format!(
            "others may use it (mode {mode:03o}): chmod 640, and set another secret if others could have read it"
        )));
    }
    let text = fs::read(file).map_err(|error| fail(&error.to_string()))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() {
        1..=ISCSI_CHAP_BYTES_MAX => Ok(Some(line.to_vec())),
        _ => Err(fail("the first line has to be the secret, 1 to 255 bytes")),
    }
}

/// This machine's name.
fn initiator() -> String {
    let file = fs::read_to_string(NAME_FILE).unwrap_or_default();
    let mut lines = file.lines().map(str::trim);
    let named = lines.find_map(|line| line.strip_prefix("InitiatorName="));
    if let Some(name) = named.map(str::trim).filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    let sign = |sign: char| match sign {
        'a'..='z' | '0'..='9' | '.' | '-' => sign,
        _ => '-',
    };
    let host: String = host.chars().map(sign).take(64).collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("iqn.2026-01.ackpace.host:{host}")
}
