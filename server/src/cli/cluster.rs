//! `ackpace cluster`: keys of nodes, and the nodes of a running server.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgMatches, Command, ValueHint};

use super::{admin_argument, admin_path, analyse, say, switch, with_help};
use crate::admin::client;
use crate::cluster::{Key, KeyError};
use crate::failure::Failure;
use crate::options::{shown_key, shown_path};

/// Where a key goes if no file is named.
const KEY_FILE: &str = "cluster.key";

pub fn command() -> Command {
    let what = Arg::new("what")
        .value_name("status|drain|undrain|key|analyse")
        .value_parser(["status", "drain", "undrain", "key", "analyse"])
        .help("Show the nodes; have one hand its downloads to the others and take no more requests, or take them again; make a node's key; count in a log how many requests share a connection or a file")
        .required(true);
    let node = Arg::new("which")
        .value_name("NODE|LOG")
        .value_parser(OsStringValueParser::new())
        .value_hint(ValueHint::FilePath)
        .help("The node to drain or undrain; the log to analyse, of Squid (native), nginx, Apache or this server; - is standard input");
    let file = |name: &'static str, help: &'static str| {
        let file = Arg::new(name).long(name).value_name("FILE").help(help);
        file.value_hint(ValueHint::FilePath)
            .value_parser(OsStringValueParser::new())
            .help_heading("Keys")
    };
    let command = Command::new("cluster")
        .about("Show the nodes of a cluster, drain one, make keys, analyse a log")
        .args([
            what,
            node,
            file("out", "New file for the private key [cluster.key]"),
            file(
                "public",
                "Don't make a key: print the public half of this one",
            )
            .conflicts_with("out"),
            switch("json", "A JSON object, units in the names"),
            admin_argument(),
        ]);
    let usage = [
        "ackpace cluster status [--json] [--admin PATH]",
        "ackpace cluster drain|undrain [--json] [--admin PATH] NODE",
        "ackpace cluster key [--out FILE | --public FILE]",
        "ackpace cluster analyse [--json] LOG",
    ];
    with_help(command, &usage, &[])
}

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let (path, json) = (admin_path(matches), matches.get_flag("json"));
    let what = matches.get_one::<String>("what").map(String::as_str);
    let which = matches.get_one::<OsString>("which");
    let node = which.map(|which| which.to_string_lossy());
    match (what.unwrap_or_default(), node.as_deref()) {
        ("analyse", Some(_)) => analyse::run(
            Path::new(which.map_or("".as_ref(), |it| it.as_os_str())),
            json,
        ),
        ("analyse", None) => Err(Failure::operator("name the log; - is standard input")),
        ("drain", Some(node)) => client::drain(path.as_deref(), node, true, json),
        ("undrain", Some(node)) => client::drain(path.as_deref(), node, false, json),
        ("drain" | "undrain", None) => Err(Failure::operator(
            "name the node; `ackpace cluster status` lists them",
        )),
        (what, Some(_)) => Err(Failure::operator(format!("{what} takes no node"))),
        ("key", None) => key(matches),
        (_, None) => client::cluster(path.as_deref(), json),
    }
}

/// Makes a key, or reads one, and prints what the other nodes are given.
fn key(matches: &ArgMatches) -> Result<(), Failure> {
    let named = |name: &str| matches.get_one::<OsString>(name).map(Path::new);
    let out = named("out").unwrap_or(Path::new(KEY_FILE));
    let (path, key) = match named("public") {
        Some(path) => (path, Key::load(path)),
        None => (out, Key::make(out)),
    };
    let key = key.map_err(|error| {
        let told = format!("{}: {error}", shown_path(path));
        match error {
            KeyError::Io(_) => Failure::not_now(told),
            KeyError::Bad(_) => Failure::operator(told),
        }
    })?;
    say(&format!("{}\n", shown_key(&key.public)))
}
