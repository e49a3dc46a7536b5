//! The swarm's process: its start, its orders and its answers.

use crate::peers::Running;
use crate::testbed::Testbed;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_swarm::command::SwarmCommand;
use ackpace_lab_swarm::summary::{Answer, Line, Second, Summary};
use ackpace_lab_swarm::workload::Workload as Clients;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit for the swarm to answer an order, and to end.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The swarm's process and its output.
pub struct Process {
    who: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<std::result::Result<Line, String>>,
    seconds: Vec<Second>,
}

impl Process {
    /// Starts it on the clients' core and in their network, and reads its output.
    pub fn start(clients: &Clients, server: &Running, testbed: &Testbed) -> Result<Self> {
        let file = testbed.scratch().join("workload.json");
        let text = serde_json::to_string(clients).expect("workloads have string keys only");
        std::fs::write(&file, text).doing(|| file.display().to_string())?;
        let program = std::env::current_exe().doing(|| "our own program".into())?;
        let mut command = Command::new(program);
        command
            .arg("swarm")
            .arg(&file)
            .args(["--target", &server.address.to_string()])
            .args(["--core", &testbed.load_core().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = testbed
            .client(command)
            .spawn()
            .doing(|| "swarm: start".into())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output
            .ok_or(rustix::io::Errno::BADF)
            .doing(|| "swarm: its output".into())?;
        let (speaker, lines) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(output)
                .lines()
                .map_while(std::io::Result::ok)
            {
                let line = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"));
                if speaker.send(line).is_err() {
                    return; // the reader is gone
                }
            }
        });
        Ok(Self {
            who: server.name.clone(),
            child,
            input,
            lines,
            seconds: Vec::new(),
        })
    }

    /// Reads its output for `time` and keeps its per-second lines.
    pub fn hear_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.lines.recv_timeout(left) {
                Ok(Ok(line)) => self.keep(&line),
                Ok(Err(what)) => return Err(LabError::Setup(format!("swarm: {what}"))),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
            }
        }
        Ok(())
    }

    /// The same until no client wants anything any more, for `most` at most.
    pub fn hear_until_done(&mut self, most: Duration) -> Result<()> {
        let start = Instant::now();
        while let Some(left) = most.checked_sub(start.elapsed()) {
            self.hear_for(left.min(Duration::from_millis(100)))?;
            let last = self.seconds.last();
            if last.is_some_and(|last| last.classes.iter().all(|class| class.active == 0)) {
                break;
            }
        }
        Ok(())
    }

    fn say(&mut self, order: &SwarmCommand) -> Result<()> {
        let Some(input) = &mut self.input else {
            return Err(self.gone());
        };
        let text = serde_json::to_string(order).expect("a command has string keys only");
        writeln!(input, "{text}").doing(|| format!("swarm: {text}"))
    }

    fn keep(&mut self, line: &Line) {
        if let Line::Second(second) = line {
            self.seconds.push(second.clone());
        }
    }

    /// Sends an order and waits until it is carried out.
    pub fn order(&mut self, order: &SwarmCommand) -> Result<Answer> {
        self.say(order)?;
        let answer = self.wait(|line| match line {
            Line::Answer(answer) => Some(answer),
            _ => None,
        })?;
        match answer.refused {
            false => Ok(answer),
            true => Err(LabError::Setup(format!("swarm: no class for {order:?}"))),
        }
    }

    /// Waits for the end of one of its seconds.
    pub fn await_second(&mut self) -> Result<()> {
        self.wait(|line| matches!(line, Line::Second(_)).then_some(()))
    }

    /// Ends it; returns its figures since the last reset, and all its seconds.
    pub fn end(mut self) -> Result<(Summary, Vec<Second>)> {
        self.say(&SwarmCommand::Stop)?;
        let summary = self.wait(|line| match line {
            Line::Summary(summary) => Some(summary),
            _ => None,
        })?;
        Ok((summary, std::mem::take(&mut self.seconds)))
    }

    fn wait<T>(&mut self, wanted: impl Fn(Line) -> Option<T>) -> Result<T> {
        let end = Instant::now() + ANSWER_MAX;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(Ok(line)) => {
                    self.keep(&line);
                    if let Some(found) = wanted(line) {
                        return Ok(found);
                    }
                }
                Ok(Err(what)) => return Err(LabError::Setup(format!("swarm: {what}"))),
                Err(_) => return Err(self.gone()),
            }
        }
    }

    /// The error of a process that ended early; its standard error gives the reason.
    fn gone(&mut self) -> LabError {
        LabError::contender(
            &self.who,
            "the swarm ended or fell silent; its own words are above",
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None; // it ends at the end of its input
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
