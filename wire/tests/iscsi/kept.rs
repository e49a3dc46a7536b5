//! A session that is kept: the target ends, hangs and comes back, and no task is lost.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ackpace_wire::iscsi::session::{End, Order, Output, Told, Unit};
use ackpace_wire::iscsi::{Command, Session, Settings, TaskId};

use crate::disk::settings;
use crate::tgtd::{BLOCK_BYTES, DISK_BYTES, LUN, Tgtd};

/// A test that waits longer has failed.
const LONG: Duration = Duration::from_secs(60);

/// The shell in its simplest form: one socket that is asked often.
struct Shell {
    session: Session,
    stream: Option<TcpStream>,
    unsent: Vec<u8>,
    memory: BTreeMap<TaskId, Vec<u8>>,
    ends: BTreeMap<TaskId, End>,
    units: Vec<Unit>,
    troubles: Vec<String>,
    start: Instant,
    is_out: bool,
}

impl Shell {
    fn new(tgtd: &Tgtd, patience: Duration) -> Shell {
        let address = format!("iscsi://127.0.0.1:{}/{}/{LUN}", tgtd.port, tgtd.target());
        let address = address.parse().expect("an address");
        let patience_us = patience.as_micros() as u64;
        Shell {
            session: Session::new(&address, settings(tgtd), patience_us).expect("settings"),
            stream: None,
            unsent: Vec::new(),
            memory: BTreeMap::new(),
            ends: BTreeMap::new(),
            units: Vec::new(),
            troubles: Vec::new(),
            start: Instant::now(),
            is_out: false,
        }
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn ask(&mut self, id: u64, command: Command, memory: Vec<u8>) {
        self.memory.insert(TaskId(id), memory);
        self.session.ask(TaskId(id), command).expect("room");
    }

    fn turn(&mut self) {
        let now_us = self.now_us();
        while let Some(order) = self.session.poll(now_us) {
            self.unsent.clear();
            self.stream = None;
            let Order::Connect { host, port } = order else {
                continue;
            };
            match TcpStream::connect((host.as_str(), port)) {
                Ok(stream) => {
                    stream.set_nonblocking(true).expect("an option");
                    self.stream = Some(stream);
                    self.session.connected(now_us);
                }
                Err(error) => self.session.lost(&error.to_string(), now_us),
            }
        }
        if let Err(why) = self.transfer(now_us) {
            self.unsent.clear();
            self.stream = None;
            self.session.lost(&why, now_us);
        }
        while let Some(told) = self.session.told() {
            match told {
                Told::Ready(unit) => self.units.push(unit),
                Told::Data { .. } => {}
                Told::Done { task, end } => _ = self.ends.insert(task, end),
                Told::Trouble(why) => self.troubles.push(why),
                Told::LoggedOut => self.is_out = true,
            }
        }
    }

    /// Sends and receives what can be, without waiting.
    fn transfer(&mut self, now_us: u64) -> Result<(), String> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        loop {
            while let Some(output) = self.session.to_send() {
                match output {
                    Output::Bytes(bytes) => self.unsent.extend(bytes),
                    Output::Pdu(send) => {
                        self.unsent.extend_from_slice(send.header());
                        if let Some(payload) = send.payload() {
                            let from = payload.offset_bytes as usize;
                            let data = &self.memory[&payload.task][from..];
                            let data = &data[..payload.len_bytes as usize];
                            self.unsent.extend_from_slice(data);
                        }
                        self.unsent.extend_from_slice(send.tail(0).bytes());
                    }
                }
            }
            let mut moved = false;
            match stream.write(&self.unsent) {
                Ok(0) => {}
                Ok(len) => {
                    self.unsent.drain(..len);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
            let wants = self.session.wants();
            let mut buffer = [0; 4096];
            let into = match wants.place {
                Some(place) => {
                    let memory = self.memory.get_mut(&place.task).expect("its memory");
                    let from = place.offset_bytes as usize;
                    &mut memory[from..from + wants.len_bytes]
                }
                None => &mut buffer[..wants.len_bytes.min(4096)],
            };
            match stream.read(into) {
                Ok(0) => return Err("it closed the connection".to_owned()),
                Ok(len) => {
                    let bytes = into[..len].to_vec();
                    self.session.receive(&bytes, now_us);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn until(&mut self, what: impl Fn(&Shell) -> bool) {
        let start = Instant::now();
        while !what(self) {
            assert!(start.elapsed() < LONG, "troubles: {:?}", self.troubles);
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn piece(nth: u64) -> Vec<u8> {
    (0..PIECE_BYTES)
        .map(|at| (at / 64 + at * 3 + nth * 31) as u8)
        .collect()
}

const PIECE_BYTES: u64 = 64 << 10;

fn at(nth: u64) -> (u64, u32, u32) {
    let lba = nth * PIECE_BYTES / u64::from(BLOCK_BYTES);
    (lba, PIECE_BYTES as u32 / BLOCK_BYTES, BLOCK_BYTES)
}

fn write(nth: u64) -> Command {
    let (lba, blocks, block_bytes) = at(nth);
    Command::Write {
        lba,
        blocks,
        block_bytes,
    }
}

fn read(nth: u64) -> Command {
    let (lba, blocks, block_bytes) = at(nth);
    Command::Read {
        lba,
        blocks,
        block_bytes,
    }
}

#[test]
fn a_target_that_restarts_costs_no_task() {
    let Some(mut tgtd) = Tgtd::start() else {
        return;
    };
    let mut shell = Shell::new(&tgtd, LONG);
    shell.until(|shell| !shell.units.is_empty());
    assert_eq!(shell.units[0].capacity.len_bytes(), DISK_BYTES);
    for nth in 0..100 {
        shell.ask(nth, write(nth), piece(nth));
    }
    shell.until(|shell| shell.ends.len() >= 10);
    tgtd.kill();
    shell.until(|shell| !shell.troubles.is_empty());
    tgtd.restart();
    shell.until(|shell| shell.ends.len() == 100);
    assert!(shell.units.len() >= 2);
    for nth in 0..100 {
        shell.ask(200 + nth, read(nth), vec![0; PIECE_BYTES as usize]);
    }
    shell.until(|shell| shell.ends.len() >= 150);
    tgtd.kill();
    tgtd.restart();
    shell.until(|shell| shell.ends.len() == 200);
    for nth in 0..100 {
        let len_bytes = PIECE_BYTES as u32;
        assert_eq!(shell.ends[&TaskId(nth)], End::Good { len_bytes: 0 });
        assert_eq!(shell.ends[&TaskId(200 + nth)], End::Good { len_bytes });
        assert_eq!(shell.memory[&TaskId(200 + nth)], piece(nth), "piece {nth}");
    }
    shell.session.log_out();
    shell.until(|shell| shell.is_out && shell.session.deadline_us().is_none());
}

#[test]
fn a_target_that_is_away_for_too_long_ends_tasks_and_is_found_again() {
    let Some(mut tgtd) = Tgtd::start() else {
        return;
    };
    let mut shell = Shell::new(&tgtd, Duration::from_secs(2));
    shell.until(|shell| !shell.units.is_empty());
    tgtd.kill();
    shell.ask(1, read(1), vec![0; PIECE_BYTES as usize]);
    shell.until(|shell| !shell.ends.is_empty());
    assert_eq!(shell.ends[&TaskId(1)], End::Unreachable);
    tgtd.restart();
    shell.until(|shell| shell.units.len() == 2);
    shell.ask(2, read(1), vec![0; PIECE_BYTES as usize]);
    shell.until(|shell| shell.ends.len() == 2);
    assert!(matches!(shell.ends[&TaskId(2)], End::Good { .. }));
}

#[test]
fn what_can_not_be_used_is_told() {
    let Some(tgtd) = Tgtd::start() else {
        return;
    };
    let address = |lun: u16, target: &str| {
        let text = format!("iscsi://127.0.0.1:{}/{target}/{lun}", tgtd.port);
        text.parse::<ackpace_wire::iscsi::Address>()
            .expect("an address")
    };
    let cases = [
        (address(0, &tgtd.target()), "no disk"),
        (address(77, &tgtd.target()), "no disk"),
        (
            address(LUN, "iqn.2026-01.org.example:none"),
            "target of this name",
        ),
    ];
    for (address, expected) in cases {
        let mut shell = Shell::new(&tgtd, LONG);
        let settings = Settings {
            target: address.target.clone(),
            ..settings(&tgtd)
        };
        shell.session = Session::new(&address, settings, 1_000_000).expect("settings");
        shell.until(|shell| !shell.troubles.is_empty());
        let trouble = &shell.troubles[0];
        assert!(trouble.contains(expected), "{address:?}: {trouble}");
        assert!(shell.units.is_empty());
    }
}
