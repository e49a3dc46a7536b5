//! ackpace: one worker, as the peers have, no access log, defaults otherwise.

use super::{Kind, Site, bare, fill};
use std::path::Path;
use std::process::Command;

/// Arguments beside root and address.
const ARGS: [&str; 8] = [
    "--workers",
    "1",
    "--admin",
    "off",
    "--access-log",
    "off",
    "--log-level",
    "info",
];

/// What it serves: the place's files, or its origin.
fn served(kind: Kind) -> &'static str {
    match kind {
        Kind::Gateway => "http://@ORIGIN@",
        _ => "@ROOT@",
    }
}

/// Where it listens. Of a contender that serves NFS, that is measured, and HTTP has a port beside it.
fn listens(kind: Kind, is_written: bool) -> &'static [&'static str] {
    match kind {
        Kind::Nfs if is_written => &[
            "--nfs",
            "@IP@:@PORT@",
            "--nfs-export",
            "/=*,rw,no_root_squash",
            "--nfs-broker",
            "@SCRATCH@/files.sock",
            "--listen",
            "@IP@:@SECOND_PORT@",
        ],
        Kind::Nfs => &[
            "--nfs",
            "@IP@:@PORT@",
            "--nfs-export",
            "/=*",
            "--listen",
            "@IP@:@SECOND_PORT@",
        ],
        _ => &["--listen", "@IP@:@PORT@"],
    }
}

/// The command that serves it at the site's address; options may repeat one of ours, and then count instead of it.
pub fn command(site: &Site, kind: Kind, build: &Path, options: &[String]) -> Command {
    let places = site.places();
    let mut command = bare(&build.to_string_lossy());
    command.arg("serve").arg(fill(served(kind), &places));
    let listens = listens(kind, site.is_written);
    command.args(listens.iter().map(|arg| fill(arg, &places)));
    command.args(args(options).iter().map(|arg| fill(arg, &places)));
    command
}

/// The arguments, for the record.
pub fn config(kind: Kind, options: &[String]) -> String {
    let (what, listens) = (served(kind), listens(kind, false).join(" "));
    let args = args(options).join(" ");
    format!("ackpace serve {what} {listens} {args}")
}

/// Our defaults that the options don't name, and the options.
fn args(options: &[String]) -> Vec<String> {
    let names = |option: &String, name: &str| {
        option == name
            || option
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('='))
    };
    let mut args = Vec::new();
    for pair in ARGS.chunks(2) {
        if !options.iter().any(|option| names(option, pair[0])) {
            args.extend(pair.iter().map(|word| (*word).to_owned()));
        }
    }
    args.extend(options.iter().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_the_place_of_a_default() {
        let options = ["--workers=2".to_owned(), "--rate-min".into(), "0".into()];
        let text = config(Kind::Ackpace, &options);
        assert!(
            text.ends_with("off --log-level info --workers=2 --rate-min 0"),
            "{text}"
        );
        assert!(!text.contains("--workers 1"), "{text}");
    }
}
