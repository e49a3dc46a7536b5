//! The contenders: ackpace and the servers that it is measured beside, each with its settings.

mod ackpace;
mod kind;
mod nfs;
mod portmapper;
mod program;
mod running;

pub use kind::Kind;
pub use running::{Running, StartEnvironment, log_tail};

use crate::sweep::Point;
use ackpace_lab_base::error::{Doing, LabError, Result};
use program::Program;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program with its settings: who takes part.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Contender {
    /// Name in tables.
    pub name: String,
    /// The program.
    pub kind: Kind,
    /// For ackpace: options of its command line. For the others: lines of the configuration, and
    /// "listen WORDS" for what nginx shall add to its listen directive. `{AXIS}` stands for the
    /// value of the point.
    pub options: Vec<String>,
    /// The kernel's read-ahead on the emulated disk while it runs; without it the place's.
    pub read_ahead_kb: Option<u64>,
    /// The kernel's elevator before the emulated disk while it runs (queue/scheduler of sysfs); without it none.
    pub elevator: Option<&'static str>,
    /// Options of `ackpace-host tune`, which runs beside it and divides the send memory of its sockets; without them it
    /// does not run.
    pub tune: Option<&'static [&'static str]>,
    /// Ours: the build that serves; without it the one that the run was given (`--server`).
    pub build: Option<PathBuf>,
}

/// A contender that experiments and the command line know by name: name, program, settings, and what
/// it is in a sentence.
type Preset = (&'static str, Kind, &'static [&'static str], &'static str);

const PRESETS: &[Preset] = &[
    (
        "ackpace",
        Kind::Ackpace,
        &[],
        "this project's server, one worker",
    ),
    (
        "nginx",
        Kind::Nginx,
        &["sendfile on", "tcp_nopush on"],
        "as distributions configure it",
    ),
    (
        "nginx-cache",
        Kind::Nginx,
        &[
            "sendfile on",
            "tcp_nopush on",
            "open_file_cache max=100000 inactive=60s",
            "open_file_cache_valid 60s",
            "open_file_cache_errors on",
        ],
        "files stay open between requests; changes are seen within a minute",
    ),
    (
        "nginx-aio",
        Kind::Nginx,
        &["sendfile on", "tcp_nopush on", "aio threads"],
        "reads of files go to a pool of threads",
    ),
    (
        "nginx-directio",
        Kind::Nginx,
        &[
            "sendfile on",
            "tcp_nopush on",
            "aio threads",
            "directio 512",
            "output_buffers 1 @BUFFER@",
        ],
        "reads bypass the page cache, 1 MB each, or less where memory has a limit",
    ),
    ("lighttpd", Kind::Lighttpd, &[], "with its defaults"),
    (
        "apache-prefork",
        Kind::ApachePrefork,
        &[],
        "prefork MPM, a process for each connection",
    ),
    ("h2o", Kind::H2o, &[], "one thread"),
    (
        "gateway",
        Kind::Gateway,
        &[],
        "this project's server before an origin, one worker",
    ),
    (
        "nginx-slice",
        Kind::NginxGateway,
        &["sendfile on", "tcp_nopush on"],
        "nginx before an origin, with its slice module",
    ),
    ("varnish", Kind::Varnish, &[], "Varnish before an origin"),
    (
        "cluster",
        Kind::Cluster,
        &[],
        "this project's server as the nodes of a cluster, one worker each",
    ),
    (
        "haproxy",
        Kind::Haproxy,
        &["server b @ORIGIN@"],
        "HAProxy with splice before this project's server, one thread",
    ),
    (
        "nginx-proxy",
        Kind::NginxProxy,
        &["sendfile on", "tcp_nopush on"],
        "nginx before this project's server",
    ),
    (
        "nfs",
        Kind::Nfs,
        &[],
        "this project's server by NFS, one worker",
    ),
    ("ganesha", Kind::Ganesha, &[], "NFS-Ganesha, NFS version 3"),
    (
        "plain-nfs",
        Kind::PlainNfs,
        &[],
        "a plain server of NFS that copies payload, from the page cache and to the socket",
    ),
];

/// Most that a read of nginx with `directio` takes.
const BUFFER_BYTES_MAX: u64 = 1 << 20;
/// Its buffers are multiples of this, which is more than any alignment of direct I/O.
const BUFFER_STEP_BYTES: u64 = 16 << 10;

/// What a server is started for.
pub struct Site<'a> {
    /// Directory to serve.
    pub root: &'a Path,
    /// Directory for configuration, pid and error output.
    pub scratch: &'a Path,
    /// The ackpace binary.
    pub ackpace: &'a Path,
    /// Where to listen.
    pub address: SocketAddr,
    /// Connections that it has to hold at once.
    pub connections: usize,
    /// Its memory, page cache included, if that has a limit.
    pub memory_limit_bytes: Option<u64>,
    /// The origin, for gateways.
    pub origin: Option<SocketAddr>,
    /// The unit of an iSCSI target that `ackpace-host gateway` mounts at `root` for the time of a contender.
    pub target: Option<&'a str>,
    /// Clients write, with root's rights.
    pub is_written: bool,
}

/// Name, version and configuration of a contender, for the record.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Identity {
    /// The contender.
    pub name: String,
    /// What it says of itself.
    pub version: String,
    /// Its configuration or arguments, with places left open.
    pub config: String,
}

impl Contender {
    /// A contender with the settings of a preset.
    ///
    /// # Panics
    /// On a name that is not in the list: experiments are compiled with it, and a test makes them all.
    pub fn preset(name: &str) -> Self {
        match PRESETS.iter().find(|preset| preset.0 == name) {
            Some((name, kind, options, _)) => Self {
                name: (*name).to_owned(),
                kind: *kind,
                options: options.iter().map(|option| (*option).to_owned()).collect(),
                read_ahead_kb: None,
                elevator: None,
                tune: None,
                build: None,
            },
            None => panic!("no contender {name}: {}", Self::known()),
        }
    }

    /// The same under another name with more settings.
    pub fn with(mut self, name: &str, options: &[&str]) -> Self {
        self.name = name.to_owned();
        self.options
            .extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// The same under another name with another read-ahead of the disk.
    pub fn reading_ahead(self, name: &str, read_ahead_kb: u64) -> Self {
        Self {
            read_ahead_kb: Some(read_ahead_kb),
            ..self.with(name, &[])
        }
    }

    /// The same under another name with an elevator before the disk.
    pub fn behind_elevator(self, name: &str, elevator: &'static str) -> Self {
        Self {
            elevator: Some(elevator),
            ..self.with(name, &[])
        }
    }

    /// The same under another name, its sockets held to shares by `ackpace-host tune` with these options.
    pub fn tuned(self, name: &str, options: &'static [&'static str]) -> Self {
        Self {
            tune: Some(options),
            ..self.with(name, &[])
        }
    }

    /// From the command line: the name of a preset, "ackpace --option value" for ours with options, which is then
    /// its name, or "ackpace@PATH --option value" for another build of ours, whose name is that of its file; "gateway" likewise.
    ///
    /// # Errors
    /// Another name, options for another program, a build that is no file or whose name is a preset's.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        if let Some((preset @ ("ackpace" | "gateway" | "cluster" | "nfs"), path)) =
            name.split_once('@')
        {
            return Self::build(preset, path, &words.collect::<Vec<_>>());
        }
        if !PRESETS.iter().any(|preset| preset.0 == name) {
            return Err(format!(
                "no contender \"{name}\"; there are {}",
                Self::known()
            ));
        }
        let options: Vec<&str> = words.collect();
        match (Self::preset(name), options.is_empty()) {
            (contender, true) => Ok(contender),
            (contender, false) if contender.kind.is_ours() => Ok(contender.with(text, &options)),
            _ => Err(format!(
                "{name} takes no options here; settings of peers are in lab/peers/ and in the experiments"
            )),
        }
    }

    /// Another build of ours, so that before and after run in the same rounds.
    fn build(preset: &str, path: &str, options: &[&str]) -> std::result::Result<Self, String> {
        let file = PathBuf::from(path);
        let called = file.file_name().unwrap_or_default().to_string_lossy();
        if !file.is_file() {
            return Err(format!("no build at \"{path}\": it is not a file"));
        }
        if PRESETS.iter().any(|preset| preset.0 == called) {
            return Err(format!(
                "the build at \"{path}\" is called {called}, as another contender: give its file a name of its own"
            ));
        }
        let words: Vec<&str> = std::iter::once(&*called)
            .chain(options.iter().copied())
            .collect();
        Ok(Self {
            build: std::path::absolute(&file).ok(),
            ..Self::preset(preset).with(&words.join(" "), options)
        })
    }

    /// Names of all presets.
    pub fn known() -> String {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.0).collect();
        names.join(", ")
    }

    /// Name and meaning of all presets.
    pub fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
        PRESETS.iter().map(|preset| (preset.0, preset.3))
    }

    /// Itself with the values of a point in its settings.
    pub fn at(&self, point: &Point) -> Self {
        Self {
            options: self
                .options
                .iter()
                .map(|option| point.fill(option))
                .collect(),
            ..self.clone()
        }
    }

    /// Name, version and configuration.
    pub fn identity(&self, ackpace: &Path) -> Result<Identity> {
        let (version, config) = match Program::of(self.kind) {
            None if self.kind.is_ours() => {
                let build = self.build.as_deref().unwrap_or(ackpace);
                let config = ackpace::config(self.kind, &self.options);
                (says(build, "--version")?, config)
            }
            None => nfs::identity(self.kind)?,
            Some(program) => {
                let version = says(Path::new(program.path), program.version)?;
                (version, program.config(&self.options))
            }
        };
        let beside = self.tune.map_or_else(String::new, |options| {
            format!("\n# beside it: ackpace-host tune {}\n", options.join(" "))
        });
        Ok(Identity {
            name: self.name.clone(),
            version,
            config: config + &beside,
        })
    }

    /// The command that serves a site; writes its configuration first.
    pub(crate) fn command(&self, site: &Site) -> Result<Command> {
        match Program::of(self.kind) {
            None if self.kind.is_ours() => {
                let build = self.build.as_deref().unwrap_or(site.ackpace);
                Ok(ackpace::command(site, self.kind, build, &self.options))
            }
            None => nfs::command(site, self.kind),
            Some(program) => program.command(site, &self.options),
        }
    }
}

/// A program with an almost empty environment: what the caller's shell says shall not matter.
fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Fills the places that all templates share and writes the configuration to `NAME` in the scratch directory.
fn write_config(site: &Site, name: &str, config: &str) -> Result<PathBuf> {
    let path = site.scratch.join(name);
    std::fs::write(&path, fill(config, &site.places())).doing(|| path.display().to_string())?;
    Ok(path)
}

impl Site<'_> {
    /// What stands for the places that all templates share.
    fn places(&self) -> Vec<(&'static str, String)> {
        // Probes and listeners beside; and nginx closes idle ones when it has less than a sixteenth left.
        let connections = self.connections + self.connections / 8 + 1024;
        let mut places = vec![
            ("ROOT", self.root.to_string_lossy().into_owned()),
            ("SCRATCH", self.scratch.to_string_lossy().into_owned()),
            ("IP", self.address.ip().to_string()),
            ("PORT", self.address.port().to_string()),
            (
                "SECOND_PORT",
                kind::second_port(self.address.port()).to_string(),
            ),
            ("CONNECTIONS", connections.to_string()),
            ("WORKERS", self.connections.max(200).to_string()),
            ("BUFFER", format!("{}k", buffer_bytes(self) >> 10)),
            ("ACCESS", (if self.is_written { "RW" } else { "RO" }).into()),
        ];
        if let Some(target) = self.target {
            places.push(("TARGET", target.to_owned()));
            let socket = running::gateway_socket(self.scratch);
            places.push(("GATEWAY", socket.to_string_lossy().into_owned()));
        }
        if let Some(origin) = self.origin {
            places.push(("ORIGIN", origin.to_string()));
            places.push(("ORIGIN_IP", origin.ip().to_string()));
            places.push(("ORIGIN_PORT", origin.port().to_string()));
        }
        places
    }
}

/// A buffer for each connection that all may have at once: 1 MB, or what three quarters of the memory give, since a
/// server whose buffers do not fit is killed by the kernel. The last quarter is for the server itself.
fn buffer_bytes(site: &Site) -> u64 {
    let all_bytes = site
        .memory_limit_bytes
        .map_or(u64::MAX, |limit| limit / 4 * 3);
    let each_bytes = all_bytes / site.connections.max(1) as u64;
    let whole = each_bytes / BUFFER_STEP_BYTES * BUFFER_STEP_BYTES;
    whole.clamp(BUFFER_STEP_BYTES, BUFFER_BYTES_MAX)
}

/// Replaces each `@NAME@`.
fn fill(template: &str, places: &[(&str, impl AsRef<str>)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in places {
        text = text.replace(&format!("@{name}@"), value.as_ref());
    }
    text
}

/// First line of what a program says of its version; nginx says it on standard error.
fn says(program: &Path, flag: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.arg(flag);
    says_of(command)
}

fn says_of(mut command: Command) -> Result<String> {
    let output = command.output();
    let output = output.doing(|| command.get_program().to_string_lossy().into_owned())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or("").trim().to_owned())
}

/// The package that provides a contender's program, if that is missing on this machine.
pub fn lacking(contender: &Contender) -> Option<&'static str> {
    if contender.kind == Kind::Ganesha {
        return nfs::ganesha_lacking();
    }
    let program = Program::of(contender.kind)?;
    (!Path::new(program.path).exists()).then_some(program.package)
}

/// Checks that all contenders are installed.
///
/// # Errors
/// Names the packages of those that are missing.
pub fn check(contenders: &[Contender]) -> Result<()> {
    let mut packages: Vec<&str> = contenders.iter().filter_map(lacking).collect();
    packages.sort_unstable();
    packages.dedup();
    match packages.as_slice() {
        [] => Ok(()),
        missing => Err(LabError::Setup(format!(
            "these experiments measure beside {}: type apt-get install --no-install-recommends {}, or leave them out with --contenders",
            missing.join(" and "),
            missing.join(" ")
        ))),
    }
}

#[cfg(test)]
mod tests;
