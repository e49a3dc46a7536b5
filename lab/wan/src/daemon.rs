//! The background process of `wan up`: it holds a WAN and answers on a socket.
//!
//! The socket's name is in the abstract namespace, so it disappears with the process. Each request and each
//! answer is one line of JSON. Only the same user may connect.

use super::Wan;
use super::counters::Counters;
use super::plan;
use super::topology::LinkSpec;
use ackpace_lab_base::error::{Doing, LabError, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest request, including the end of its line. Longer ones are cut and then fail to parse.
const REQUEST_LEN_BYTES_MAX: u64 = 64 << 10;
/// Time limit for a request: a silent client must not block others.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
const READY: &str = "ready";

/// A request to the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Only return the answer.
    Show,
    /// Change a link.
    Set {
        /// Its name.
        link: String,
        /// What changes.
        change: Box<LinkSpec>,
    },
    /// End the process.
    Down,
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    /// Path of the servers' namespace.
    pub server: String,
    /// Path of the clients' namespace.
    pub client: String,
    /// All counters.
    pub counters: Counters,
}

/// Starts the process and waits until the WAN is up.
pub fn start(name: &str, topology: &Path) -> Result<()> {
    let own = std::env::current_exe().doing(|| "our own path".into())?;
    let mut command = Command::new(own);
    command
        .args(["wan", "serve", name])
        .arg(topology)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .doing(|| "starting the background process".into())?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut line)
            .doing(|| "its first words".into())?;
    }
    if line.trim() == READY {
        return Ok(());
    }
    let status = child.wait().doing(|| "waiting for it".into())?;
    Err(LabError::Setup(format!(
        "{name} did not come up ({status}); why is said above"
    )))
}

/// Runs the background process until it is asked to end.
pub fn serve(name: &str, topology: &Path) -> Result<()> {
    let listener = UnixListener::bind_addr(&address(name)?)
        .map_err(|error| LabError::Setup(format!("{name}: {error}: is it up already?")))?;
    let wan = Wan::up(&plan::read(topology)?)?;
    let _ = rustix::process::setsid(); // survive the end of the terminal
    println!("{READY}");
    silence()?;
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            continue; // the client has gone
        };
        let goes_on = match answer(&wan, &stream) {
            Ok(goes_on) => goes_on,
            Err(error) => {
                let _ = writeln!(
                    &stream,
                    "{}",
                    serde_json::json!({ "error": error.to_string() })
                );
                true
            }
        };
        if !goes_on {
            drop(wan);
            let _ = writeln!(&stream, "{{}}");
            return Ok(());
        }
    }
    Ok(())
}

/// Sends a request to the process of that name.
pub fn ask(name: &str, request: &Request) -> Result<About> {
    let what = || format!("asking {name}");
    let mut stream = UnixStream::connect_addr(&address(name)?)
        .map_err(|error| LabError::Setup(format!("{name} is not up ({error})")))?;
    let request_text = serde_json::to_string(request).doing(what)?;
    writeln!(stream, "{request_text}").doing(what)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).doing(what)?;
    let value: serde_json::Value = serde_json::from_str(&text).doing(what)?;
    if let Some(error) = value.get("error").and_then(|error| error.as_str()) {
        return Err(LabError::Setup(error.to_owned()));
    }
    if matches!(request, Request::Down) {
        let (server, client) = Default::default();
        let counters = Counters::default();
        return Ok(About {
            server,
            client,
            counters,
        });
    }
    serde_json::from_value(value).doing(what)
}

/// Answers one request; returns false if it asked the process to end.
fn answer(wan: &Wan, stream: &UnixStream) -> Result<bool> {
    let what = || "a request".to_owned();
    let peer = rustix::net::sockopt::socket_peercred(stream).doing(what)?;
    if peer.uid != rustix::process::geteuid() {
        return Err(LabError::Setup(
            "only the user who started it may ask".into(),
        ));
    }
    stream
        .set_read_timeout(Some(REQUEST_PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(REQUEST_PATIENCE)))
        .doing(what)?;
    let mut line = String::new();
    let mut limited = BufReader::new(stream.take(REQUEST_LEN_BYTES_MAX));
    limited.read_line(&mut line).doing(what)?;
    match serde_json::from_str(&line).doing(what)? {
        Request::Down => return Ok(false),
        Request::Set { link, change } => wan.set_link(&link, &change)?,
        Request::Show => {}
    }
    let about = About {
        server: wan.server().path(),
        client: wan.client().path(),
        counters: wan.counters()?,
    };
    let text = serde_json::to_string(&about).doing(what)?;
    let mut stream = stream;
    writeln!(stream, "{text}").doing(what)?;
    Ok(true)
}

fn address(name: &str) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("ackpace-lab/wan/{name}"))
        .map_err(|error| LabError::Setup(format!("name {name:?}: {error}; allowed: 1 to 90 bytes")))
}

/// Detaches from the terminal, so that a caller that waits for the end of our output can go on.
fn silence() -> Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    let null = null.doing(|| "/dev/null".into())?;
    rustix::stdio::dup2_stdout(&null).doing(|| "standard output".into())?;
    rustix::stdio::dup2_stderr(&null).doing(|| "standard error".into())
}
