//! Calls that are repeated until they are answered, as the kernel's client repeats them.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Storm;
use crate::hunter::wrong::{Kind, Wrong};
use crate::nfs::{NfsArgs, NfsClient, NfsReply, Results};

/// A client without an answer for so long is a finding: all programs are back within seconds.
const STALL: Duration = Duration::from_secs(45);
/// Until a call is repeated, or a connection tried again.
const PAUSE: Duration = Duration::from_millis(50);
const JUKEBOX: u32 = 10_008;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// A client and its connection.
pub struct Caller<'a> {
    storm: &'a Storm<'a>,
    uid: u32,
    client: Option<NfsClient>,
}

/// A call: program, procedure, arguments.
pub type Call = (u32, u32, NfsArgs);

impl<'a> Caller<'a> {
    pub fn new(storm: &'a Storm<'a>, uid: u32) -> Caller<'a> {
        Caller {
            storm,
            uid,
            client: None,
        }
    }

    /// Makes all these calls at once. What each has said, with 0 or another status in front.
    pub fn all(&mut self, calls: &[Call]) -> Result<Vec<Results>, Wrong> {
        let mut heard: Vec<Option<Results>> = calls.iter().map(|_| None).collect();
        let begun = Instant::now();
        while heard.iter().any(Option::is_none) {
            if begun.elapsed() > STALL {
                let missing = heard.iter().filter(|heard| heard.is_none()).count();
                let s = begun.elapsed().as_secs();
                return Wrong::err(Kind::Stall, format!("{missing} calls in vain for {s} s"));
            }
            let round = self.round(calls, &mut heard);
            if let Err(error) = round {
                self.client = None;
                if error.kind() == io::ErrorKind::InvalidData {
                    return Wrong::err(Kind::Frame, error.to_string());
                }
                self.storm.done.reconnects.fetch_add(1, Relaxed);
                std::thread::sleep(PAUSE);
            } else if heard.iter().any(Option::is_none) {
                std::thread::sleep(PAUSE); // NFS3ERR_JUKEBOX
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    /// Sends what has no answer yet, and hears all answers.
    fn round(&mut self, calls: &[Call], heard: &mut [Option<Results>]) -> io::Result<()> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let stream = TcpStream::connect_timeout(&self.storm.nfs, STALL)?;
                none.insert(NfsClient::over(stream).user(self.uid))
            }
        };
        let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
        for (nth, (program, procedure, args)) in calls.iter().enumerate() {
            if heard[nth].is_none() {
                let (xid, record) = client.record(*program, *procedure, args);
                bytes.extend(record);
                numbers.push((xid, nth));
            }
        }
        client.stream().write_all(&bytes)?;
        while !numbers.is_empty() {
            let NfsReply {
                xid,
                accepted,
                results,
            } = client.try_next_reply()?;
            let at = numbers.iter().position(|(number, _)| *number == xid);
            let Some(at) = at.filter(|_| accepted) else {
                let text = format!("the reply to call {xid:#x}, accepted: {accepted}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            };
            let (_, nth) = numbers.swap_remove(at);
            let status = results.rest().get(..4);
            if status != Some(&JUKEBOX.to_be_bytes()) {
                heard[nth] = Some(results);
            }
        }
        Ok(())
    }

    /// One call of NFS, which has to succeed: what it has said behind its status.
    pub fn one(&mut self, what: &str, procedure: u32, args: NfsArgs) -> Result<Results, Wrong> {
        self.succeed(what, (NFS, procedure, args))
    }

    /// The root of the export.
    pub fn mount(&mut self) -> Result<Vec<u8>, Wrong> {
        let call = (MOUNT, 1, NfsArgs::default().opaque("/"));
        let mut results = self.succeed("MNT", call)?;
        Ok(results.opaque())
    }

    fn succeed(&mut self, what: &str, call: Call) -> Result<Results, Wrong> {
        let mut all = self.all(&[call])?;
        let mut results = all.remove(0);
        match results.u32() {
            0 => Ok(results),
            status => Wrong::err(Kind::Status, format!("{what}: status {status}")),
        }
    }
}

/// A call of NFS.
pub fn nfs(procedure: u32, args: NfsArgs) -> Call {
    (NFS, procedure, args)
}
