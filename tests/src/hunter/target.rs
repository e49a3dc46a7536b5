//! NFS over an iSCSI target: clients READ and WRITE, and check every byte, while the target, the answerer of the mount, the broker
//! and the server are killed and come back. A client sees nothing of it but time.
//!
//! `programs` has what is killed, `clients` who call, `call` repeats what was not answered.

mod call;
mod clients;
mod programs;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::findings::{Findings, Log};
use super::wrong::{Kind, Wrong};
use crate::{AtTheEnd, Rng};
use clients::{Own, reader, writer};
use programs::Programs;

const READERS: usize = 5;
const WRITERS: usize = 3;
/// The files that are only read: their number, and the length of the longest.
const FILES: usize = 6;
const FILE_BYTES: usize = 10 << 20;

/// What all clients share.
struct Storm<'a> {
    nfs: SocketAddr,
    findings: &'a Findings,
    /// Clients end.
    over: AtomicBool,
    done: Done,
    files: Vec<Vec<u8>>,
}

/// What was done so far.
#[derive(Default)]
struct Done {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    commits: AtomicU64,
    /// Writes that were repeated, since another run of the server committed them.
    rewrites: AtomicU64,
    reconnects: AtomicU64,
}

impl Storm<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn name(file: usize) -> String {
        format!("still-{file}")
    }
}

/// Lasts so long. Returns the number of findings.
pub fn storm(seed: u64, each: Duration, log: &Log, start: Instant) -> usize {
    // A mount namespace of its own: what is mounted ends with it.
    std::thread::scope(|scope| {
        let name = std::thread::current().name().unwrap_or("a hunt").to_owned();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn_scoped(scope, || run(seed, each, log, start));
        let thread = thread.expect("a thread");
        thread.join().expect("what is wrong is a finding")
    })
}

fn run(seed: u64, each: Duration, log: &Log, start: Instant) -> usize {
    let mut rng = Rng::new(seed);
    let files: Vec<Vec<u8>> = (0..FILES)
        .map(|_| crate::pattern(1 + rng.below(FILE_BYTES), rng.next_u64()))
        .collect();
    let Some(mut programs) = Programs::start(&files) else {
        return 0;
    };
    let findings = Findings::new(log.clone(), "target", start, programs.server().metrics());
    let storm = Storm {
        nfs: programs.nfs(),
        findings: &findings,
        over: AtomicBool::new(false),
        done: Done::default(),
        files,
    };
    let mut own: Vec<Own> = (0..WRITERS).map(Own::new).collect();
    std::thread::scope(|scope| {
        let (storm, end) = (&storm, AtTheEnd(&storm.over));
        for nth in 0..READERS {
            scope.spawn(move || reader(storm, &mut Rng::new(seed ^ (100 + nth as u64))));
        }
        for (nth, own) in own.iter_mut().enumerate() {
            scope.spawn(move || writer(storm, own, &mut Rng::new(seed ^ (200 + nth as u64))));
        }
        disturb(storm, &mut programs, Instant::now() + each, &mut rng);
        drop(end);
    });
    let kills = programs.kills;
    let contents = storm.files.iter().map(|file| &file[..]).enumerate();
    let still = contents.map(|(nth, bytes)| (Storm::name(nth), bytes));
    let written = own.iter().map(|own| (own.name.clone(), &own.content[..]));
    let all: Vec<(String, &[u8])> = still.chain(written).collect();
    for text in programs.end(&all) {
        findings.add(&Wrong::new(Kind::WrongBytes, text), "after the end");
    }
    let done = &storm.done;
    let [reads, mb, writes, commits, rewrites, reconnects] = [
        &done.reads,
        &done.read_bytes,
        &done.writes,
        &done.commits,
        &done.rewrites,
        &done.reconnects,
    ]
    .map(|count| count.load(Relaxed));
    log.say(&format!(
        "weather target is over: {} findings{}; {kills:?}; {reads} READs of {} MB, {writes} WRITEs, {commits} COMMITs, {rewrites} written again, \
         {reconnects} reconnects",
        findings.count(),
        findings.summary(),
        mb / 1_000_000,
    ));
    findings.count()
}

/// Kills something every few seconds.
fn disturb(storm: &Storm<'_>, programs: &mut Programs, until: Instant, rng: &mut Rng) {
    let rest = |ms: usize| {
        let end = Instant::now() + Duration::from_millis(ms as u64);
        while Instant::now() < end.min(until) {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    while Instant::now() < until {
        rest(500 + rng.below(3000));
        match rng.below(10) {
            0 => programs.kill_server(libc::SIGKILL, storm.findings),
            1 => programs.kill_server(libc::SIGTERM, storm.findings),
            2 => programs.kill_answerer(),
            3 => programs.kill_broker(),
            _ => {
                programs.kill_target();
                rest(rng.below(2000));
                programs.restart_target();
            }
        }
    }
}
