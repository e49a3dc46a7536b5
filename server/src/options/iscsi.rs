//! The options of NFS over an iSCSI target.

use std::path::PathBuf;
use std::str::FromStr;

use ackpace_wire::iscsi::Address;
use clap::ValueHint;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::names;
use super::value::{ValueError, shown};

/// The options of the target.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "NFS over a target")]
pub struct IscsiOptions {
    /// iSCSI unit on which the served files lie
    ///
    /// `ackpace-host gateway` mounts the file system of the unit, and this server serves that folder. With this option, what NFS clients
    /// read of plain files comes straight from the target and stays in memory (`cache_memory`) in the form in which it leaves. All
    /// else goes through the mount, and so does everything while that program is not there. It is given the same unit.
    ///
    /// Default: `off`. Range: `iscsi://HOST[:PORT]/NAME/LUN`. Or off. It needs `nfs` and a directory, and no cluster.
    #[arg(long, value_name = "URL", default_value = "off", help_heading = "NFS over a target", value_parser = UnitAt::parse)]
    pub iscsi: UnitAt,

    /// Socket of `ackpace-host gateway`
    ///
    /// That program has the privileges to mount. The server looks for it each second.
    ///
    /// Default: `/run/ackpace-gateway/gateway.sock`. Range: the path of a unix socket.
    #[arg(long, value_name = "FILE", default_value = "/run/ackpace-gateway/gateway.sock", value_hint = ValueHint::FilePath,
          help_heading = "NFS over a target", value_parser = OsStringValueParser::new().try_map(names::path))]
    pub iscsi_gateway: PathBuf,

    /// Name that the server gives the target as its own
    ///
    /// Targets know initiators by it. The server and `ackpace-host gateway` may have the same one.
    ///
    /// Default: `auto`, the one in /etc/iscsi/initiatorname.iscsi, or else one with the name of this host. Range: at most 223 letters, digits,
    /// `-`, `.` and `:`, beginning with `iqn.`, `eui.` or `naa.` Or auto.
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "NFS over a target", value_parser = initiator)]
    pub iscsi_initiator: String,

    /// User of CHAP, by whom the server is known to the target
    ///
    /// Default: `off`, without authentication. Range: 1 to 255 printable characters. Or off. It needs `iscsi_secret_file`.
    #[arg(long, value_name = "NAME", default_value = "off", help_heading = "NFS over a target")]
    pub iscsi_user: String,

    /// File with the secret of that user
    ///
    /// Its first line. It is read at the start.
    ///
    /// Default: `off`. Range: a file that this user can read, and others than its group can't. Or off.
    #[arg(long, value_name = "FILE", default_value = "off", value_hint = ValueHint::FilePath, help_heading = "NFS over a target",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub iscsi_secret_file: PathBuf,

    /// User of CHAP, by whom the target is known to the server
    ///
    /// With it the target has to prove who it is, too.
    ///
    /// Default: `off`. Range: 1 to 255 printable characters. Or off. It needs `iscsi_target_secret_file` and `iscsi_user`.
    #[arg(long, value_name = "NAME", default_value = "off", help_heading = "NFS over a target")]
    pub iscsi_target_user: String,

    /// File with the secret of the target
    ///
    /// Its first line, another secret than that of the server.
    ///
    /// Default: `off`. Range: a file that this user can read, and others than its group can't. Or off.
    #[arg(long, value_name = "FILE", default_value = "off", value_hint = ValueHint::FilePath, help_heading = "NFS over a target",
          value_parser = OsStringValueParser::new().try_map(names::path))]
    pub iscsi_target_secret_file: PathBuf,

    /// Checksums between server and target
    ///
    /// CRC32C of headers, of data or of both (`header,data`), where the target has them. TCP has a weak checksum of its own.
    ///
    /// Default: `off`. Range: header, data, `header,data` or off.
    #[arg(long, value_name = "WHAT", default_value = "off", help_heading = "NFS over a target", value_parser = Digests::parse)]
    pub iscsi_digests: Digests,
}

impl IscsiOptions {
    /// Whether there is a unit.
    pub fn is_on(&self) -> bool {
        self.iscsi != UnitAt::Off
    }
}

/// A unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitAt {
    /// None.
    Off,
    /// This one.
    At(Address),
}

impl UnitAt {
    fn parse(text: &str) -> Result<UnitAt, ValueError> {
        match text {
            "off" => Ok(UnitAt::Off),
            text => match Address::from_str(text) {
                Ok(address) => Ok(UnitAt::At(address)),
                Err(error) => Err(ValueError::new(format!("{}: {error}", shown(text)))),
            },
        }
    }
}

impl std::fmt::Display for UnitAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UnitAt::Off => f.write_str("off"),
            UnitAt::At(address) => address.fmt(f),
        }
    }
}

/// Which checksums are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digests {
    /// Of headers.
    pub header: bool,
    /// Of data.
    pub data: bool,
}

impl Digests {
    fn parse(text: &str) -> Result<Digests, ValueError> {
        let mut digests = Digests::default();
        if text == "off" {
            return Ok(digests);
        }
        for word in text.split(',') {
            match word {
                "header" => digests.header = true,
                "data" => digests.data = true,
                word => {
                    let word = shown(word);
                    let text =
                        format!("{word} is neither header nor data; write header,data or off");
                    return Err(ValueError::new(text));
                }
            }
        }
        Ok(digests)
    }
}

fn initiator(text: &str) -> Result<String, ValueError> {
    let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    let has_kind = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| text.starts_with(kind));
    let is_name = has_kind && (5..=223).contains(&text.len()) && text.bytes().all(may_stand);
    match is_name || text == "auto" {
        true => Ok(text.to_owned()),
        false => {
            let text = shown(text);
            let why = "is no name of an initiator, such as iqn.2026-01.org.example:server";
            Err(ValueError::new(format!("{text} {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_digests_and_names_are_read_or_refused_with_the_reason() {
        let text = "iscsi://192.0.2.1/iqn.2026-01.org.example:disk/1";
        assert_eq!(
            UnitAt::parse(text).map(|at| at.to_string()),
            Ok(text.to_owned())
        );
        assert_eq!(UnitAt::parse("off"), Ok(UnitAt::Off));
        let error = UnitAt::parse("http://a/b/1").expect_err("another scheme");
        assert!(error.to_string().contains("iscsi://"), "{error}");
        let both = Digests {
            header: true,
            data: true,
        };
        assert_eq!(Digests::parse("data,header"), Ok(both));
        assert_eq!(Digests::parse("off"), Ok(Digests::default()));
        assert!(Digests::parse("both").is_err() && Digests::parse("").is_err());
        assert!(initiator("iqn.2026-01.org.example:a-b").is_ok());
        for bad in ["", "iqn.", "host", "iqn.a b"] {
            assert!(initiator(bad).is_err(), "{bad}");
        }
    }
}
