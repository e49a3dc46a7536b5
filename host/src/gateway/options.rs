//! The command line of `gateway`, each option defined once.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ackpace_host_base::failure::Failure;
use ackpace_host_base::say;
use ackpace_wire::gateway::{Hello, SECRET_CLOSED_TO};
use ackpace_wire::iscsi::Address;
use ackpace_wire::limits::{GATEWAY_PATH_BYTES_MAX, ISCSI_CHAP_BYTES_MAX, ISCSI_NAME_BYTES_MAX};
use clap::{ArgGroup, Args, ValueEnum};

use super::messages::Secret;

/// Where the server asks. Not in the folder with this program's own files, which only root may enter.
pub const SOCKET: &str = "/run/ackpace-gateway/gateway.sock";
/// Where the FUSE file is.
pub const RUNTIME: &str = "/run/ackpace-host/gateway";
/// Secrets below are easily guessed by who has seen a login (RFC 7143 section 12.1.3).
const SECRET_BYTES_MIN: usize = 12;
/// Where other initiators of this machine have their name.
const NAME_FILE: &str = "/etc/iscsi/initiatorname.iscsi";

/// `gateway`.
#[derive(Debug, Default, Args)]
#[command(group = ArgGroup::new("where").args(["mount", "no_mount"]).required(true))]
pub struct Gateway {
    /// The disk, such as iscsi://10.0.0.9/iqn.2026-01.org.example:disk/1
    #[arg(long, value_name = "iscsi://HOST[:PORT]/IQN/LUN", value_parser = address, required = true)]
    pub iscsi: Option<Address>,
    /// The folder on which its ext4 is mounted
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Mount nothing: print the loop device, for e2fsck or mkfs.ext4 by hand, and keep it until stopped
    #[arg(long, conflicts_with = "format")]
    pub no_mount: bool,
    /// Make an ext4 first; refused if the first MiB of the disk is not all zeros
    #[arg(long, conflicts_with = "read_only")]
    pub format: bool,
    /// Write nothing, not even the journal
    #[arg(long)]
    pub read_only: bool,
    /// Let the mount have programs that run, set-user-ID bits, or devices
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    pub allow: Vec<Allowed>,
    /// How long requests wait for a target that is away; then programs get EIO, and the mount becomes read-only
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: u32,
    /// This machine's name at the target; by default that in /etc/iscsi/initiatorname.iscsi, or one with the host's name
    #[arg(long, value_name = "IQN", value_parser = initiator)]
    pub initiator: Option<String>,
    /// Name for CHAP, by which the target knows this machine
    #[arg(long, value_name = "NAME", requires = "chap_secret_file")]
    pub chap_user: Option<String>,
    /// File with the secret for CHAP
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// Name with which the target proves by CHAP who it is
    #[arg(long, value_name = "NAME", requires_all = ["target_secret_file", "chap_user"])]
    pub target_user: Option<String>,
    /// File with the target's secret
    #[arg(long, value_name = "FILE", requires = "target_user")]
    pub target_secret_file: Option<PathBuf>,
    /// Ask for checksums of headers
    #[arg(long)]
    pub header_digest: bool,
    /// Ask for checksums of data
    #[arg(long)]
    pub data_digest: bool,
    /// Unix socket for the server
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Users, besides root, that may connect to it, by name or number, such as www-data
    #[arg(long = "allow-uid", value_name = "USER", value_delimiter = ',', value_parser = crate::handoff::options::user)]
    pub allow_uid: Vec<crate::handoff::options::User>,
    /// Folder for this gateway's own use; each gateway of a machine needs another one, and another --socket
    #[arg(long, value_name = "DIR", default_value = RUNTIME)]
    pub runtime: PathBuf,
}

/// What a mount may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Allowed {
    /// Programs can be run
    Exec,
    /// Programs can run as their owner
    Suid,
    /// Device files work
    Dev,
}

/// What a process of the supervisor builds or removes.
#[derive(Debug, Args)]
pub struct Stack {
    /// The FUSE file
    #[arg(long)]
    pub file: PathBuf,
    /// Remove what lies on it
    #[arg(long)]
    pub down: bool,
    /// Nobody answers any more: do not wait
    #[arg(long)]
    pub dead: bool,
    /// Where to mount it
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Bytes of a block
    #[arg(long, default_value_t = 512)]
    pub block_bytes: u32,
    /// Write nothing
    #[arg(long)]
    pub read_only: bool,
    /// Make an ext4 first
    #[arg(long)]
    pub format: bool,
    /// What the mount may have
    #[arg(long, value_enum, value_delimiter = ',')]
    pub allow: Vec<Allowed>,
}

impl Gateway {
    /// Whether the folder can be mounted on; gives its canonical path.
    ///
    /// # Errors
    /// It can't.
    pub fn mount_point(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(mount) = &self.mount else {
            return Ok(None);
        };
        let shown = mount.display();
        let real = fs::canonicalize(mount).map_err(|error| {
            Failure::operator(format!("--mount {shown}: {error}: make the folder"))
        })?;
        if !real.is_dir() {
            return Err(Failure::operator(format!(
                "--mount {shown}: it is no folder"
            )));
        }
        if super::mounts::is_mounted(&real) {
            return Err(Failure::operator(format!(
                "--mount {shown}: something is mounted there already: umount it, or choose another folder"
            )));
        }
        if real.as_os_str().len() > GATEWAY_PATH_BYTES_MAX || real.to_str().is_none() {
            return Err(Failure::operator(format!(
                "--mount {shown}: the path is longer than {GATEWAY_PATH_BYTES_MAX} bytes, or not UTF-8"
            )));
        }
        Ok(Some(real))
    }

    /// What the server is told, but for the mount.
    pub fn hello(&self, mount: &Path) -> Hello {
        Hello {
            is_read_only: self.read_only,
            mount: mount.to_string_lossy().into_owned(),
            url: self.url(),
            ..Hello::default()
        }
    }

    /// The unit's address.
    pub fn url(&self) -> String {
        self.iscsi
            .as_ref()
            .map(Address::to_string)
            .unwrap_or_default()
    }

    /// This machine's name at the target.
    pub fn initiator(&self) -> String {
        let file = fs::read_to_string(NAME_FILE).unwrap_or_default();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let own = self.initiator.clone();
        own.or_else(|| name_in(&file))
            .unwrap_or_else(|| name_of(&host))
    }

    /// The credentials: this side's, and the target's.
    ///
    /// # Errors
    /// A file can't be read, or has no secret.
    pub fn secrets(&self) -> Result<[Option<Secret>; 2], Failure> {
        Ok([
            secret(
                "--chap-secret-file",
                &self.chap_user,
                &self.chap_secret_file,
            )?,
            secret(
                "--target-secret-file",
                &self.target_user,
                &self.target_secret_file,
            )?,
        ])
    }
}

fn secret(
    option: &str,
    name: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<Secret>, Failure> {
    let (Some(name), Some(file)) = (name, file) else {
        return Ok(None);
    };
    let shown = format!("{option} {}", file.display());
    let failed = |error: io::Error| {
        Failure::operator(format!(
            "{shown}: {error}: name a file with the secret in its first line"
        ))
    };
    let mode = fs::metadata(file).map_err(failed)?.mode() & 0o777;
    if mode & SECRET_CLOSED_TO != 0 {
        return Err(Failure::operator(format!(
            "{shown}: others may use it (mode {mode:03o}): chmod 600, and set another secret if others could have read it"
        )));
    }
    let text = fs::read(file).map_err(failed)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let secret = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
    if secret.is_empty() || secret.len() > ISCSI_CHAP_BYTES_MAX {
        return Err(Failure::operator(format!(
            "{shown}: the first line has to be the secret, with 1 to {ISCSI_CHAP_BYTES_MAX} bytes"
        )));
    }
    if secret.len() < SECRET_BYTES_MIN {
        say!(
            "gateway: {shown}: a secret of less than {SECRET_BYTES_MIN} bytes is found by trying, by whoever sees one login"
        );
    }
    let name = name.clone();
    Ok(Some(Secret { name, secret }))
}

fn address(text: &str) -> Result<Address, String> {
    text.parse()
        .map_err(|error: ackpace_wire::iscsi::AddressError| error.to_string())
}

fn initiator(text: &str) -> Result<String, String> {
    let has_kind = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| text.starts_with(kind));
    let may_stand =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte);
    let is_name = has_kind && text.len() > 4 && text.len() <= ISCSI_NAME_BYTES_MAX;
    match is_name && text.bytes().all(may_stand) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "not a name: write iqn., eui. or naa. and lower case letters, digits, '.', '-' and ':', {ISCSI_NAME_BYTES_MAX} bytes at most"
        )),
    }
}

/// By the line `InitiatorName=` of open-iscsi's file.
fn name_in(file: &str) -> Option<String> {
    let line = file
        .lines()
        .find_map(|line| line.trim().strip_prefix("InitiatorName="))?;
    initiator(line.trim()).ok()
}

/// From the name of the host.
fn name_of(host: &str) -> String {
    let host = host.trim().to_ascii_lowercase();
    let sign = |sign: char| match sign {
        'a'..='z' | '0'..='9' | '.' | '-' => sign,
        _ => '-',
    };
    let host: String = host.chars().map(sign).take(64).collect();
    format!(
        "iqn.2026-01.ackpace.host:{}",
        if host.is_empty() { "localhost" } else { &host }
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_machine_has_the_name_that_other_initiators_have() {
        let file = "## comment\nInitiatorName=iqn.1993-08.org.debian:01:abc\n";
        assert_eq!(
            name_in(file).as_deref(),
            Some("iqn.1993-08.org.debian:01:abc")
        );
        assert_eq!(name_in("InitiatorName=x\n"), None);
        assert_eq!(name_in("#InitiatorName=iqn.a\n"), None);
        assert_eq!(name_of("Web_1\n"), "iqn.2026-01.ackpace.host:web-1");
        assert!(initiator(&name_of("")).is_ok());
        assert!(initiator("iqn.A").is_err());
    }

    #[test]
    fn a_secret_is_the_first_line_of_its_file() {
        let path = std::env::temp_dir().join(format!("ackpace-secret-{}", std::process::id()));
        let name = Some("web".to_owned());
        let read = |text: &str| {
            fs::write(&path, text).expect("our own file");
            let closed = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&path, closed).expect("our own file");
            secret("--chap-secret-file", &name, &Some(path.clone()))
        };
        let first = read("a secret of 24 bytes....\r\nmore\n").expect("a secret");
        assert_eq!(first.expect("both are given").secret.len(), 24);
        assert!(read("\nnot here\n").is_err());
        read("a secret of 24 bytes....").expect("a secret");
        let open = fs::Permissions::from_mode(0o644);
        fs::set_permissions(&path, open).expect("our own file");
        let refused = secret("--chap-secret-file", &name, &Some(path.clone()));
        let why = refused.expect_err("others may read it").to_string();
        assert!(why.contains("mode 644"), "{why}");
        fs::remove_file(&path).expect("our own file");
    }
}
