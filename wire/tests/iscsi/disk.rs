//! A shell of the initiator in its simplest form: one thread, blocking calls, a vector as the memory of each task.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ackpace_wire::iscsi::{
    Agreed, Command, Event, Initiator, Login, LoginError, Outcome, Settings, TaskId, Turn, crc,
};

use crate::tgtd::Tgtd;

/// What a test waits for the target at most.
const SILENCE: Duration = Duration::from_secs(10);

/// A command with the memory that it reads to or writes from.
pub struct Task {
    pub command: Command,
    pub memory: Vec<u8>,
}

pub struct Disk {
    stream: TcpStream,
    initiator: Initiator,
    memory: BTreeMap<TaskId, Vec<u8>>,
    done: BTreeMap<TaskId, Outcome>,
    next: u64,
    pongs: u32,
    is_out: bool,
    /// Checksums that came with payload.
    pub crcs: u32,
}

pub fn settings(tgtd: &Tgtd) -> Settings {
    Settings {
        initiator: "iqn.2026-01.org.example:test".to_owned(),
        target: tgtd.target(),
        isid: [0x80, 0, 0, 0, 0, 1],
        chap: None,
        header_digests: false,
        data_digests: false,
        segment_bytes: 256 << 10,
    }
}

/// Connects and logs in.
pub fn log_in(tgtd: &Tgtd, settings: &Settings) -> Result<(TcpStream, Agreed), LoginError> {
    let mut stream = TcpStream::connect(("127.0.0.1", tgtd.port)).expect("it listens");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(SILENCE)).expect("an option");
    let (mut login, first) = Login::new(settings.clone()).expect("settings");
    stream.write_all(&first).expect("sent");
    let mut buffer = [0; 4096];
    loop {
        let most = login.wants_bytes().min(buffer.len());
        let len = read(&mut stream, &mut buffer[..most]).expect("received");
        assert!(len > 0, "it closed");
        let (used, turn) = login.receive(&buffer[..len])?;
        assert_eq!(used, len);
        match turn {
            Turn::Receive => {}
            Turn::Send(bytes) => stream.write_all(&bytes).expect("sent"),
            Turn::Done(agreed) => return Ok((stream, agreed)),
        }
    }
}

/// Reads once. A process that is stopped and goes on is interrupted, because its reads have a time limit.
fn read(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        let read = stream.read(into);
        if !read
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
        {
            return read;
        }
    }
}

impl Disk {
    pub fn connect(tgtd: &Tgtd, settings: &Settings, lun: u16) -> Result<Disk, LoginError> {
        let (stream, agreed) = log_in(tgtd, settings)?;
        Ok(Disk {
            stream,
            initiator: Initiator::new(agreed, lun),
            memory: BTreeMap::new(),
            done: BTreeMap::new(),
            next: 0,
            pongs: 0,
            is_out: false,
            crcs: 0,
        })
    }

    pub fn agreed(&self) -> &Agreed {
        self.initiator.agreed()
    }

    fn ask(&mut self, task: Task) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        self.memory.insert(id, task.memory);
        self.initiator.ask(id, task.command).expect("room");
        id
    }

    fn send(&mut self) -> io::Result<()> {
        while let Some(send) = self.initiator.poll() {
            self.stream.write_all(send.header())?;
            let mut payload_crc = 0;
            if let Some(payload) = send.payload() {
                let from = payload.offset_bytes as usize;
                let data = &self.memory[&payload.task][from..from + payload.len_bytes as usize];
                if send.needs_crc() {
                    payload_crc = crc::of(data);
                }
                self.stream.write_all(data)?;
            }
            self.stream.write_all(send.tail(payload_crc).bytes())?;
        }
        Ok(())
    }

    /// Receives once: payload where it stays, anything else to a buffer.
    fn receive(&mut self) -> io::Result<()> {
        let wants = self.initiator.wants();
        let mut buffer = [0; 4096];
        let into = match wants.place {
            Some(place) => {
                let memory = self.memory.get_mut(&place.task).expect("its memory");
                let from = place.offset_bytes as usize;
                &mut memory[from..from + wants.len_bytes]
            }
            None => &mut buffer[..wants.len_bytes.min(4096)],
        };
        let len = read(&mut self.stream, into)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let used = self.initiator.receive(&into[..len]).expect("tgtd is right");
        assert_eq!(used, len);
        self.take_events();
        Ok(())
    }

    fn take_events(&mut self) {
        while let Some(event) = self.initiator.event() {
            self.hear(&event);
        }
    }

    fn hear(&mut self, event: &Event) {
        match *event {
            Event::Data {
                place,
                len_bytes,
                crc,
            } => {
                let from = place.offset_bytes as usize;
                let data = &self.memory[&place.task][from..from + len_bytes as usize];
                assert_eq!(crc.unwrap_or_else(|| crc::of(data)), crc::of(data));
                self.crcs += u32::from(crc.is_some());
            }
            Event::Done { task, outcome } => _ = self.done.insert(task, outcome),
            Event::Attention(sense) => println!("{sense}"),
            Event::Pong => self.pongs += 1,
            Event::LoggedOut => self.is_out = true,
            Event::LogoutRequested { within_s } => panic!("a logout within {within_s} s"),
        }
    }

    fn result(&mut self, id: TaskId) -> (Outcome, Vec<u8>) {
        let outcome = self.done.remove(&id).expect("it is done");
        (outcome, self.memory.remove(&id).expect("its memory"))
    }

    /// Carries tasks out, as many at a time as there is room for.
    pub fn run(&mut self, tasks: Vec<Task>) -> io::Result<Vec<(Outcome, Vec<u8>)>> {
        let ids: Vec<TaskId> = tasks.into_iter().map(|task| self.ask(task)).collect();
        self.finish(&ids)
    }

    fn finish(&mut self, ids: &[TaskId]) -> io::Result<Vec<(Outcome, Vec<u8>)>> {
        self.send()?;
        while self.initiator.load() > 0 {
            self.receive()?;
            self.send()?;
        }
        Ok(ids.iter().map(|id| self.result(*id)).collect())
    }

    /// As [`Disk::run`], but one task is aborted after all were sent.
    pub fn run_aborting(
        &mut self,
        tasks: Vec<Task>,
        nth: usize,
    ) -> io::Result<Vec<(Outcome, Vec<u8>)>> {
        let ids: Vec<TaskId> = tasks.into_iter().map(|task| self.ask(task)).collect();
        self.send()?;
        self.initiator.abort(ids[nth]);
        self.take_events();
        self.finish(&ids)
    }

    /// Carries tasks out until so many are done, then does something that ends the connection. Tells how many were done,
    /// and gives back those that were not.
    pub fn run_until(
        mut self,
        tasks: Vec<Task>,
        done: usize,
        then: impl FnOnce(),
    ) -> (usize, Vec<Task>) {
        tasks.into_iter().for_each(|task| _ = self.ask(task));
        self.send().expect("sent");
        while self.done.len() < done {
            self.receive().expect("received");
            self.send().expect("sent");
        }
        then();
        // What the target had sent before may still come.
        while self.receive().is_ok() && self.send().is_ok() {}
        let left = self.initiator.unanswered().into_iter();
        let left = left.map(|(id, command)| Task {
            command,
            memory: self.memory.remove(&id).expect("its memory"),
        });
        (self.done.len(), left.collect())
    }

    /// Carries out one command that ends well, and gives what it read.
    pub fn one(&mut self, command: Command) -> Vec<u8> {
        let memory = vec![0; command.in_bytes() as usize];
        let (outcome, mut memory) = self
            .run(vec![Task { command, memory }])
            .expect("an answer")
            .remove(0);
        let Outcome::Good { len_bytes } = outcome else {
            panic!("{command:?}: {outcome:?}")
        };
        memory.truncate(len_bytes as usize);
        memory
    }

    pub fn ping(&mut self) {
        self.initiator.ping();
        self.send().expect("sent");
        while self.pongs == 0 {
            self.receive().expect("received");
        }
    }

    pub fn log_out(mut self) {
        self.initiator.log_out();
        self.send().expect("sent");
        while !self.is_out {
            self.receive().expect("received");
        }
    }
}
