//! The contenders: ackpace and the servers that it is measured beside. Each starts as a fresh process
//! on the server's core and ends with the round.

mod ackpace;
pub mod install;
mod lighttpd;
mod nginx;

pub use install::provide;

use crate::cpu::{self, Spent, Usage};
use crate::error::{Doing, LabError, Result};
use crate::world::World;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server must accept connections this long after its start at the latest, and end this long
/// after SIGTERM.
const START_STOP_MAX: Duration = Duration::from_secs(10);

/// A server to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Ours.
    Ackpace,
    /// nginx with sendfile, as Debian configures it.
    Nginx,
    /// nginx whose file reads go to its thread pool.
    NginxAio,
    /// lighttpd with its defaults.
    Lighttpd,
}

/// How to start a contender.
pub struct Site<'a> {
    /// Directory to serve.
    pub root: &'a Path,
    /// Directory for configuration, pid and error output.
    pub scratch: &'a Path,
    /// The ackpace binary.
    pub ackpace: &'a Path,
    /// Open `cgroup.procs` of the group that throttles the disk.
    pub cgroup: Option<&'a File>,
}

/// Name, version and configuration of a contender, for the record.
#[derive(Debug, serde::Serialize)]
pub struct Identity {
    /// The contender.
    pub name: &'static str,
    /// What it says of itself.
    pub version: String,
    /// Its configuration or arguments, with places left open.
    pub config: String,
}

impl Contender {
    /// Short name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ackpace => "ackpace",
            Self::Nginx => "nginx",
            Self::NginxAio => "nginx-aio",
            Self::Lighttpd => "lighttpd",
        }
    }

    /// Name, version and configuration.
    pub fn identity(self, ackpace: &Path) -> Result<Identity> {
        let (version, config) = match self {
            Self::Ackpace => (says(ackpace, "--version")?, ackpace::config()),
            Self::Nginx => (says(Path::new(nginx::PROGRAM), "-v")?, nginx::config(false)),
            Self::NginxAio => (says(Path::new(nginx::PROGRAM), "-v")?, nginx::config(true)),
            Self::Lighttpd => (
                says(Path::new(lighttpd::PROGRAM), "-v")?,
                lighttpd::config(),
            ),
        };
        Ok(Identity {
            name: self.name(),
            version,
            config,
        })
    }

    /// Starts it and waits until it accepts connections.
    pub fn start(self, world: &World, site: &Site) -> Result<Running> {
        let port = free_port()?;
        let command = match self {
            Self::Ackpace => ackpace::command(world, site, port),
            Self::Nginx => nginx::command(world, site, port, false)?,
            Self::NginxAio => nginx::command(world, site, port, true)?,
            Self::Lighttpd => lighttpd::command(world, site, port)?,
        };
        Running::start(
            self,
            command,
            site,
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            world,
        )
    }
}

/// A server that runs; killed when dropped.
pub struct Running {
    /// Which one.
    pub contender: Contender,
    /// Where it listens.
    pub address: SocketAddr,
    core: usize,
    child: Child,
    errors: PathBuf,
}

/// State of a server's threads and of its core at one moment.
pub struct Look {
    usage: Usage,
    stolen_s: f64,
}

impl Running {
    fn start(
        contender: Contender,
        mut command: Command,
        site: &Site,
        address: SocketAddr,
        world: &World,
    ) -> Result<Self> {
        let who = contender.name();
        let errors = site.scratch.join(format!("{who}.stderr"));
        let output = File::create(&errors).doing(|| errors.display().to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        let child = command.spawn().doing(|| format!("{who}: start"))?;
        let mut running = Self {
            contender,
            address,
            core: world.server_core,
            child,
            errors,
        };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = running.child.try_wait().doing(|| format!("{who}: wait"))?;
            if ended.is_some() || start.elapsed() > START_STOP_MAX {
                let text = running.errors();
                let tail = text.lines().rev().take(5).collect::<Vec<_>>();
                let tail = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
                return Err(LabError::contender(who, format!("did not come up: {tail}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(running)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.contender.name()
    }

    /// A look at its threads and its core, to be compared with a later one.
    pub fn look(&self) -> Result<Look> {
        Ok(Look {
            usage: cpu::usage(self.child.id() as i32)?,
            stolen_s: cpu::stolen_s(self.core)?,
        })
    }

    /// CPU time since that look, and the time for which strangers or the hypervisor had its core.
    pub fn spent_since(&self, before: &Look) -> Result<Spent> {
        let now = self.look()?;
        let mut spent = now.usage.since(&before.usage);
        spent.waited_s += now.stolen_s - before.stolen_s;
        Ok(spent)
    }

    /// Its processes.
    pub fn pids(&self) -> Result<Vec<i32>> {
        cpu::tree(self.child.id() as i32)
    }

    /// SIGTERM, then what it wrote to its standard error.
    pub fn stop(mut self) -> Result<String> {
        let who = self.name();
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            kill_process(pid, Signal::TERM).doing(|| format!("{who}: SIGTERM"))?;
        }
        let start = Instant::now();
        while self
            .child
            .try_wait()
            .doing(|| format!("{who}: wait"))?
            .is_none()
        {
            if start.elapsed() > START_STOP_MAX {
                return Err(LabError::contender(who, "still there 10 s after SIGTERM"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(self.errors())
    }

    fn errors(&self) -> String {
        let bytes = std::fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // already ended in the usual case
        let _ = self.child.wait();
    }
}

/// Fills the places `@NAME@` of a template and writes it.
fn write_config(path: &Path, template: &str, places: &[(&str, &str)]) -> Result<()> {
    std::fs::write(path, fill(template, places)).doing(|| path.display().to_string())
}

fn fill(template: &str, places: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in places {
        text = text.replace(&format!("@{name}@"), value);
    }
    text
}

/// A port that nobody listens on: our network namespace is ours alone.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.doing(|| "looking for a free port".into())?.port())
}

/// First line of what a program says of its version; nginx says it on standard error.
fn says(program: &Path, flag: &str) -> Result<String> {
    let output = Command::new(program).arg(flag).output();
    let output = output.doing(|| program.display().to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or("").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_no_place_that_stays_empty() {
        let places = [
            ("ROOT", "/r"),
            ("PORT", "1"),
            ("SCRATCH", "/s"),
            ("AIO", ""),
        ];
        for config in [nginx::TEMPLATE, lighttpd::TEMPLATE] {
            let text = fill(config, &places);
            let open = text.lines().find(|line| line.contains('@'));
            assert_eq!(open, None);
            assert!(text.contains("/r"));
        }
    }
}
