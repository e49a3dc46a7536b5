//! Passes over the sockets, by a process of their own. A pass takes the lock of each socket of the network namespace. Whoever owns that
//! of his own may keep it for long, as in a send(2) from a file of a FUSE daemon that does not answer; then the pass hangs, and neither
//! SIGTERM nor SIGKILL ends its process. So the process that decides makes no passes: it asks one that has CAP_BPF and nothing else to
//! do, waits for each answer with a bound, and can always end.
//!
//! They talk by a socket, in frames: what it is and its length (`u32` each), then its bytes. A question has frames of
//! data as its answer, and one that ends it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::clock::thread_cpu_ns;
use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::Fields;
use ackpace_host_base::signals;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::kernel::{Kernel, Mode, ORDER_BYTES, ORDERS_MAX, Order};
use crate::matching::Matching;
use crate::snapshot::{ANSWER_BYTES, Answer, View};

/// A pass takes milliseconds, and some hundred with the most sockets. One that takes so long hangs.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// A pass that hangs for so long is given up, unless this process waits for it until it is stopped.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);
/// A pass that waits for a core does not hang. One that takes so long is given up likewise.
const BUSY_MAX: Duration = Duration::from_secs(30);
/// How often who waits looks for a signal, and tells that a pass hangs.
const LOOK: Duration = Duration::from_millis(100);
/// A frame's bytes. Longer: the one at the other end is not ours.
const FRAME_BYTES_MAX: usize = ORDERS_MAX * ORDER_BYTES;
const HEAD_BYTES: usize = 8;

/// What a frame of a question is. `Mode` has the others.
const OPEN: u32 = 16;

/// What a frame of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Told {
    /// What the program in the kernel tells, cut anywhere.
    Data = 1,
    /// The end: HZ (`u32`), and the CPU time that the question took, in microseconds (`u64`).
    Done = 2,
    /// The end: the operator has to mend this.
    Operator = 3,
    /// The end: it failed.
    Failed = 4,
}

/// What the process is to open.
#[derive(Debug, Serialize, Deserialize)]
struct Open {
    pin: Option<PathBuf>,
    matching: Matching,
}

/// Makes passes as it is asked on its standard input, until that ends.
///
/// # Errors
/// Whoever asks is gone, or asks for what there is not.
pub fn serve() -> Result<(), Failure> {
    let gone = |error: io::Error| Failure::runtime(format!("whoever asks for passes: {error}"));
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // Whoever ends a service as a whole signals both: this one is needed until all is undone. It ends with its parent.
    let _caught = signals::catch()?;
    let _ = rustix::thread::set_name(c"ackpace-host"); // not "exe", after /proc/self/exe
    let stream = rustix::io::dup(io::stdin()).map_err(|error| gone(error.into()))?;
    let mut stream = UnixStream::from(stream);
    let Ok(Some((OPEN, asked))) = hear(&mut stream) else {
        return Err(Failure::operator("'passes' is internal; run 'tune'"));
    };
    let opened = serde_json::from_slice::<Open>(&asked)
        .map_err(|error| Failure::runtime(error.to_string()))
        .and_then(|open| Kernel::open(open.pin.as_deref(), &open.matching))
        .and_then(|kernel| capabilities::keep_only(CapabilitySet::BPF).map(|()| kernel));
    let mut kernel = match opened {
        Ok(kernel) => kernel,
        Err(why) => return end(&mut stream, Err(why), 0, 0).map_err(gone),
    };
    let ticks_per_s = kernel.ticks_per_s;
    end(&mut stream, Ok(()), ticks_per_s, 0).map_err(gone)?;
    while let Some((what, asked)) = hear(&mut stream).map_err(gone)? {
        let from_ns = thread_cpu_ns();
        let mut tell = |bytes: &[u8]| frame(&mut stream, Told::Data as u32, bytes).map_err(gone);
        let done = match Mode::of(what) {
            Some(Mode::Orders) => kernel.order(&asked, &mut tell),
            Some(mode) => {
                let cgroup = asked.first_chunk().copied().map_or(0, u64::from_ne_bytes);
                kernel.pass(mode, cgroup, &mut tell)
            }
            None => Err(Failure::runtime(format!(
                "no question has the number {what}"
            ))),
        };
        end(&mut stream, done, ticks_per_s, thread_cpu_ns() - from_ns).map_err(gone)?;
    }
    Ok(())
}

fn end(
    stream: &mut UnixStream,
    done: Result<(), Failure>,
    ticks_per_s: u32,
    cpu_ns: u64,
) -> io::Result<()> {
    match done {
        Ok(()) => {
            let mut told = ticks_per_s.to_ne_bytes().to_vec();
            told.extend((cpu_ns / 1_000).to_ne_bytes());
            frame(stream, Told::Done as u32, &told)
        }
        Err(Failure::Operator(why)) => frame(stream, Told::Operator as u32, why.as_bytes()),
        Err(why) => frame(stream, Told::Failed as u32, why.to_string().as_bytes()),
    }
}

fn frame(stream: &mut UnixStream, what: u32, bytes: &[u8]) -> io::Result<()> {
    let len = bytes.len() as u32;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&what.to_ne_bytes());
    head[4..].copy_from_slice(&len.to_ne_bytes());
    stream.write_all(&head)?;
    stream.write_all(bytes)
}

/// What a frame is, and how long.
fn head(bytes: [u8; HEAD_BYTES]) -> io::Result<(u32, usize)> {
    let [what, len] = [0, 4].map(|at| {
        let word = bytes[at..].first_chunk().copied();
        word.map_or(0, u32::from_ne_bytes)
    });
    match len as usize {
        len if len <= FRAME_BYTES_MAX => Ok((what, len)),
        len => Err(io::Error::other(format!("a frame of {len} bytes"))),
    }
}

/// The next question; `None`: there is no more.
fn hear(stream: &mut UnixStream) -> io::Result<Option<(u32, Vec<u8>)>> {
    let mut bytes = [0; HEAD_BYTES];
    match stream.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let (what, len) = head(bytes)?;
    let mut asked = vec![0; len];
    stream.read_exact(&mut asked)?;
    Ok(Some((what, asked)))
}

/// The process that makes passes. It ends with this, as soon as it can.
pub struct Passes {
    child: Child,
    stream: UnixStream,
    /// Hears that this process is to end; `None`: a pass that hangs is given up.
    stopped: Option<Receiver<()>>,
    is_stopped: bool,
    /// A pass has hung for so long that it was given up: there will be no other.
    is_given_up: bool,
    /// The present pass hangs.
    is_stuck: bool,
    /// Told every [`LOOK`] for how long a pass hangs, and 0 at its end.
    on_stuck: Box<dyn FnMut(Duration)>,
    ticks_per_s: u32,
    /// CPU time of the process so far.
    pub cpu_us: u64,
    heard: Vec<u8>,
}

impl Passes {
    /// Starts the process, from the binary `program`. A pass that hangs is given up after some seconds.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(program: &Path) -> Result<Passes, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::runtime(format!("{}: {error}", program.display()))
        };
        let (stream, theirs) = UnixStream::pair().map_err(|error| failed(&error))?;
        stream
            .set_read_timeout(Some(LOOK))
            .and_then(|()| stream.set_write_timeout(Some(BUSY_MAX)))
            .map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command
            .arg0("ackpace-host")
            .arg("passes")
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        // It says what it has to say in frames: whoever reads our lines must not wait for a process that hangs.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0); // Ctrl-C is for the one who decides
        Ok(Passes {
            child: command.spawn().map_err(|error| failed(&error))?,
            stream,
            stopped: None,
            is_stopped: false,
            is_given_up: false,
            is_stuck: false,
            on_stuck: Box::new(|_| {}),
            ticks_per_s: 0,
            cpu_us: 0,
            heard: Vec::new(),
        })
    }

    /// From now on one that hangs is waited for until `stopped` hears that this process is to end. `told` hears every tenth of a second
    /// for how long it hangs, and 0 when it hangs no more.
    pub fn wait_until(&mut self, stopped: Receiver<()>, told: impl FnMut(Duration) + 'static) {
        self.stopped = Some(stopped);
        self.on_stuck = Box::new(told);
    }

    /// Opens the kernel's program for what matches. `pin`: where the records of changed sockets are; `None`: they end with the process.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(&mut self, pin: Option<&Path>, matching: &Matching) -> Result<(), Failure> {
        let open = Open {
            pin: pin.map(Path::to_owned),
            matching: matching.clone(),
        };
        let open =
            serde_json::to_vec(&open).map_err(|error| Failure::runtime(error.to_string()))?;
        self.ask(OPEN, &open, |_| 0)
    }

    /// Waits so long, or until this process is to end: `true`.
    pub fn is_stopped_within(&mut self, wait: Duration) -> bool {
        if let (Some(stopped), false) = (&self.stopped, self.is_stopped) {
            let heard = stopped.recv_timeout(wait);
            self.is_stopped = heard != Err(RecvTimeoutError::Timeout);
        }
        self.is_stopped
    }

    /// Takes a snapshot of each socket that matches, and of those that were changed, and hands them over piece by piece, while
    /// what the kernel told is still in the processor's caches. `cgroup` is the id of the one that is meant, if one is.
    ///
    /// # Errors
    /// As [`Kernel::pass`]; or it hangs, and this process is to end.
    pub fn look(
        &mut self,
        cgroup: u64,
        view: &mut View,
        mut piece: impl FnMut(&View),
    ) -> Result<(), Failure> {
        let ticks_per_s = self.ticks_per_s;
        let take = |bytes: &[u8]| {
            view.clear();
            let mut from = 0;
            while let Some(len_bytes) = view.take(&bytes[from..], ticks_per_s) {
                from += len_bytes;
            }
            piece(view);
            from
        };
        self.ask(Mode::Look as u32, &cgroup.to_ne_bytes(), take)
    }

    /// Carries out orders. Sockets that are gone by now have no answer.
    ///
    /// # Errors
    /// As [`Passes::look`].
    pub fn carry_out(
        &mut self,
        orders: &[Order],
        mut answered: impl FnMut(Answer),
    ) -> Result<(), Failure> {
        for orders in orders.chunks(ORDERS_MAX) {
            let orders: Vec<u8> = orders.iter().flat_map(Order::told).collect();
            self.answers(Mode::Orders, &orders, &mut answered)?;
        }
        Ok(())
    }

    /// Undoes all that was changed and is still as it was set.
    ///
    /// # Errors
    /// As [`Passes::look`].
    pub fn restore(&mut self) -> Result<(), Failure> {
        self.answers(Mode::Restore, &[], |_| {})
    }

    /// How many sockets there are that were changed, whether they match or not.
    ///
    /// # Errors
    /// As [`Passes::look`].
    pub fn changed(&mut self) -> Result<u64, Failure> {
        let mut sockets = 0;
        self.answers(Mode::Changed, &[], |_| sockets += 1)?;
        Ok(sockets)
    }

    fn answers(
        &mut self,
        mode: Mode,
        asked: &[u8],
        mut answered: impl FnMut(Answer),
    ) -> Result<(), Failure> {
        let take = |bytes: &[u8]| {
            let answers = bytes.chunks_exact(ANSWER_BYTES);
            let read = answers.len() * ANSWER_BYTES;
            answers.filter_map(Answer::parse).for_each(&mut answered);
            read
        };
        self.ask(mode as u32, asked, take)
    }

    /// A question and its answer. `take` takes what is whole from the front of what was told so far, and says how long that was.
    fn ask(
        &mut self,
        what: u32,
        asked: &[u8],
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Result<(), Failure> {
        if self.is_given_up {
            return Err(Failure::runtime("no more passes: one hangs"));
        }
        let sent = frame(&mut self.stream, what, asked);
        sent.map_err(|error| self.lost(&error))?;
        let (asked_at, mut held) = (Instant::now(), Vec::new());
        loop {
            let (what, bytes) = self.answer(asked_at)?;
            match what {
                what if what == Told::Data as u32 => {
                    held.extend(bytes);
                    let taken = take(&held);
                    held.drain(..taken);
                }
                what if what == Told::Done as u32 => {
                    if std::mem::take(&mut self.is_stuck) {
                        (self.on_stuck)(Duration::ZERO);
                    }
                    let mut fields = Fields(&bytes);
                    self.ticks_per_s = fields.word();
                    self.cpu_us += fields.long();
                    return Ok(());
                }
                what => {
                    let why = String::from_utf8_lossy(&bytes).into_owned();
                    return Err(match what == Told::Operator as u32 {
                        true => Failure::operator(why),
                        false => Failure::runtime(why),
                    });
                }
            }
        }
    }

    /// The next frame of the answer to what was asked at that time.
    fn answer(&mut self, asked_at: Instant) -> Result<(u32, Vec<u8>), Failure> {
        let mut bytes = [0; 64 << 10];
        loop {
            if let Some(told) = self.whole_frame().map_err(|error| self.lost(&error))? {
                return Ok(told);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.heard.extend(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.waits(asked_at)?,
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    /// Takes a frame out of what was heard; `None`: none is whole.
    fn whole_frame(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let Some(bytes) = self.heard.first_chunk().copied() else {
            return Ok(None);
        };
        let (what, len) = head(bytes)?;
        if self.heard.len() < HEAD_BYTES + len {
            return Ok(None);
        }
        let told = self.heard[HEAD_BYTES..HEAD_BYTES + len].to_vec();
        self.heard.drain(..HEAD_BYTES + len);
        Ok(Some((what, told)))
    }

    /// There is no answer yet to what was asked at that time. One that hangs is given up if this process is to end.
    fn waits(&mut self, asked_at: Instant) -> Result<(), Failure> {
        let waited = asked_at.elapsed();
        if waited < STUCK_AFTER || (waited < BUSY_MAX && self.is_runnable()) {
            return Ok(());
        }
        self.is_stuck = true;
        (self.on_stuck)(waited);
        let is_over = match self.stopped {
            Some(_) => self.is_stopped_within(Duration::ZERO),
            None => waited >= GIVE_UP_AFTER,
        };
        if !is_over {
            return Ok(());
        }
        self.is_given_up = true;
        Err(Failure::runtime(format!(
            "a pass over the sockets has hung for {} s: another process keeps the lock of a socket of its own. What an instance has \
             set stays until 'ackpace-host tune --restore' or the next start, once that process lets go and process {} is gone",
            waited.as_secs(),
            self.child.id()
        )))
    }

    /// Whether the process runs or waits for a core, by proc_pid_stat(5).
    fn is_runnable(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.is_ok_and(|stat| stat.contains(") R "))
    }

    /// The process does not answer any more.
    fn lost(&mut self, error: &io::Error) -> Failure {
        self.is_given_up = true;
        Failure::runtime(format!(
            "the process that passes over the sockets has ended ({error}): 'ackpace-host tune --restore' undoes what it has set"
        ))
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        if !self.is_given_up {
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_or_refused() {
        let (mut here, mut there) = UnixStream::pair().expect("two sockets");
        frame(&mut here, 7, b"seven").expect("there is room");
        assert_eq!(
            hear(&mut there).expect("a frame"),
            Some((7, b"seven".to_vec()))
        );
        let long = (FRAME_BYTES_MAX as u32 + 1).to_ne_bytes();
        let heads = [1u32.to_ne_bytes(), long].concat();
        here.write_all(&heads).expect("likewise");
        assert!(hear(&mut there).is_err());
        drop(here);
        assert_eq!(hear(&mut there).expect("an end"), None);
    }
}
