//! What READs become: runs, and a world of one client, one connection and one target behind the disk machine.

use alloc::collections::BTreeMap;

use super::*;
use crate::disk::{self, Destination, Disk, Layout};

/// Sends a READ whose bytes are not in memory: the wants that follow.
fn miss(nfs: &mut Nfs, offset_bytes: u64, len_bytes: u64, now: Instant) -> Vec<Want> {
    let id = call(nfs, now);
    let answer = read_of(FILE, offset_bytes, len_bytes);
    nfs.on(In::Resolved { call: id, answer }, now);
    let outs = orders(nfs, now);
    assert!(matches!(outs[..], [Out::Probe { .. }]), "{outs:?}");
    let is_resident = false;
    nfs.on(
        In::Probed {
            call: id,
            is_resident,
        },
        now,
    );
    let wanted = orders(nfs, now).into_iter().map(|out| match out {
        Out::Want(want) => want,
        out => panic!("{out:?}"),
    });
    wanted.collect()
}

/// Which bytes were wanted, in KiB, and whether by a run.
fn spans(wants: &[Want]) -> Vec<(u64, u64, bool)> {
    let of_run = SETTINGS.readers.index + NFS_CALLS_MAX as u32;
    let one = |want: &Want| {
        let Span {
            offset_bytes,
            len_bytes,
        } = want.span;
        let by_run = want.stream.conn.index >= of_run;
        (offset_bytes / KIB, len_bytes / KIB, by_run)
    };
    wants.iter().map(one).collect()
}

#[test]
fn reads_of_one_file_are_one_stream_whatever_their_order() {
    let whole = 1 << 20; // KiB
    let rows: [(&str, &[u64], &[(u64, u64, bool)]); 5] = [
        (
            "in order: the second one begins to read ahead, and the third waits for that",
            &[0, 64, 128],
            &[(0, 64, false), (64, 64, false), (128, whole - 128, true)],
        ),
        (
            "backwards",
            &[128, 64, 0],
            &[
                (128, 64, false),
                (64, 64, false),
                (192, whole - 192, true),
                (0, 64, false),
            ],
        ),
        (
            "with holes: what fills them wants for itself",
            &[0, 128, 64],
            &[
                (0, 64, false),
                (128, 64, false),
                (192, whole - 192, true),
                (64, 64, false),
            ],
        ),
        (
            "scattered",
            &[0, 100_000, 50_000, 700_000],
            &[
                (0, 64, false),
                (100_000, 64, false),
                (50_000, 64, false),
                (700_000, 64, false),
            ],
        ),
        (
            "scattered nearby: too thin",
            &[0, 512, 1_024, 256],
            &[
                (0, 64, false),
                (512, 64, false),
                (1_024, 64, false),
                (256, 64, false),
            ],
        ),
    ];
    for (what, offsets, expected) in rows {
        let mut nfs = Nfs::new(SETTINGS, NOW);
        let wants = offsets
            .iter()
            .flat_map(|at| miss(&mut nfs, at * KIB, 64 * KIB, NOW));
        let wants: Vec<Want> = wants.collect();
        assert_eq!(spans(&wants), expected, "{what}");
    }
}

#[test]
fn two_readers_of_one_file_are_two_streams() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let far = 500_000;
    let offsets = [0, far, 64, far + 64];
    let wants = offsets
        .iter()
        .flat_map(|at| miss(&mut nfs, at * KIB, 64 * KIB, NOW));
    let ahead: Vec<_> = spans(&wants.collect::<Vec<_>>());
    let ahead: Vec<u64> = ahead
        .iter()
        .filter(|want| want.2)
        .map(|want| want.0)
        .collect();
    assert_eq!(ahead, [128, far + 128]);
}

#[test]
fn a_run_that_fails_leaves_each_read_to_itself() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    let wants: Vec<_> = [0, 64, 128, 192]
        .iter()
        .flat_map(|at| miss(&mut nfs, at * KIB, 64 * KIB, NOW))
        .collect();
    let of_run = wants[2];
    assert_eq!(spans(&wants).len(), 3);
    let failed = In::FetchFailed {
        stream: of_run.stream,
        seq: of_run.seq,
        why: Why::ReadFailed,
    };
    nfs.on(failed, NOW);
    let wanted = orders(&mut nfs, NOW).into_iter().map(|out| match out {
        Out::Want(want) => want,
        out => panic!("{out:?}"),
    });
    let wanted: Vec<_> = wanted.collect();
    assert_eq!(spans(&wanted), [(128, 64, false), (192, 64, false)]);
}

#[test]
fn more_runs_than_there_are_places_make_room_or_do_without() {
    let mut nfs = Nfs::new(SETTINGS, NOW);
    for nth in 0..NFS_CALLS_MAX as u64 {
        let wants = miss(&mut nfs, nth * 10_000 * KIB, 64 * KIB, NOW);
        assert_eq!(wants.len(), 1, "each wants for itself");
    }
    assert_eq!(nfs.calls(), NFS_CALLS_MAX);
    nfs.on(In::Tcp(TcpEvent::Reset), NOW);
    let outs = orders(&mut nfs, NOW);
    let forgotten = outs
        .iter()
        .filter(|out| matches!(out, Out::Forget(_)))
        .count();
    assert_eq!(forgotten, NFS_CALLS_MAX);
}

/// A target that is so far away, and so fast.
const TARGET_US: u64 = 10_000;
const TARGET_BYTES_PER_S: u64 = 400_000_000;

/// What happens later.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A READ of the client arrives, at this byte.
    Asked(u64),
    /// A read of the target is done.
    Done(disk::ReadId, u64),
}

/// One client with one file, one connection, one target.
struct World {
    now: Instant,
    nfs: Nfs,
    disk: Disk,
    /// By time, and in order of coming.
    events: BTreeMap<(Instant, u64), Event>,
    next: u64,
    /// Until then the target's line is taken.
    line_until: Instant,
    /// Which pieces of 4 KiB are in memory.
    resident: Vec<bool>,
    read_bytes: u64,
    /// The byte at which each call reads.
    calls: BTreeMap<CallId, u64>,
    asked: Vec<u64>,
    answered_bytes: u64,
    len_bytes: u64,
    rng: u64,
}

const PIECE_BYTES: u64 = 4 * KIB;

impl World {
    fn new(len_bytes: u64) -> World {
        let settings = disk::Settings {
            rotational: false,
            memory_bytes: 64 << 20,
            page_cache_bytes: 1 << 30,
            reads: Some(16),
            ..disk::Settings::ONE_DISK
        };
        World {
            now: NOW,
            nfs: Nfs::new(SETTINGS, NOW),
            disk: Disk::new(settings),
            events: BTreeMap::new(),
            next: 0,
            line_until: NOW,
            resident: vec![false; (len_bytes / PIECE_BYTES) as usize],
            read_bytes: 0,
            calls: BTreeMap::new(),
            asked: Vec::new(),
            answered_bytes: 0,
            len_bytes,
            rng: 1,
        }
    }

    fn later(&mut self, us: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.now.plus_us(us), self.next), event);
    }

    fn pieces(&mut self, span: Span) -> &mut [bool] {
        let (from, end) = (span.offset_bytes, span.end_bytes().min(self.len_bytes));
        let [from, end] = [from / PIECE_BYTES, end.div_ceil(PIECE_BYTES)];
        &mut self.resident[from as usize..end as usize]
    }

    /// The client reads all of the file, some READs of a length at once, which arrive in random order. Returns its rate.
    fn read_all(&mut self, each_bytes: u64, at_once: u64) -> u64 {
        for nth in 0..at_once {
            self.ask(nth * each_bytes);
        }
        let mut next_bytes = at_once * each_bytes;
        let mut steps = 0;
        while self.answered_bytes < self.len_bytes {
            steps += 1;
            assert!(steps < 1_000_000, "it does not end");
            let event = self.events.pop_first();
            let ((at, _), event) =
                event.unwrap_or_else(|| panic!("stuck: {:?}", self.disk.forgotten()));
            self.now = at;
            match event {
                Event::Asked(at_bytes) => self.asked.push(at_bytes),
                Event::Done(read, len_bytes) => {
                    let result = Ok(len_bytes);
                    self.disk.on(disk::In::Done { read, result }, at);
                }
            }
            let before = self.answered_bytes;
            self.turn(each_bytes);
            // Each answer lets the client ask for more.
            for _ in 0..(self.answered_bytes - before) / each_bytes {
                if next_bytes < self.len_bytes {
                    self.ask(next_bytes);
                    next_bytes += each_bytes;
                }
            }
        }
        let us = self.now.since_us(NOW);
        self.len_bytes * 1_000_000 / us
    }

    /// A READ arrives within 200 us.
    fn ask(&mut self, at_bytes: u64) {
        self.rng = self
            .rng
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let us = 1 + (self.rng >> 33) % 200;
        self.later(us, Event::Asked(at_bytes));
    }

    fn turn(&mut self, each_bytes: u64) {
        let now = self.now;
        self.nfs.on(In::Tcp(TcpEvent::Readable), now);
        loop {
            let mut is_idle = true;
            while let Some(out) = self.nfs.poll(now) {
                is_idle = false;
                self.execute(out, each_bytes);
                if let (Out::Receive, true) = (out, self.asked.is_empty()) {
                    break;
                }
            }
            while let Some(out) = self.disk.poll(now) {
                is_idle = false;
                self.target(out);
            }
            if is_idle || self.asked.is_empty() && self.nfs.deadline().is_none() {
                break;
            }
        }
    }

    fn execute(&mut self, out: Out, each_bytes: u64) {
        let now = self.now;
        match out {
            Out::Receive => {
                let received = match self.asked.is_empty() {
                    true => Received::Nothing,
                    false => Received::Call {
                        reply_bytes_max: 512,
                    },
                };
                self.nfs.on(In::Received(received), now);
            }
            Out::Resolve(call) => {
                let at_bytes = self.asked.remove(0);
                self.calls.insert(call, at_bytes);
                let Answer::Read(read) = read_of(FILE, at_bytes, each_bytes) else {
                    unreachable!("it is a READ");
                };
                let file_len_bytes = self.len_bytes;
                let answer = Answer::Read(Read {
                    file_len_bytes,
                    ..read
                });
                self.nfs.on(In::Resolved { call, answer }, now);
            }
            Out::Probe { call, span, .. } => {
                let is_resident = self.pieces(span).iter().all(|piece| *piece);
                self.nfs.on(In::Probed { call, is_resident }, now);
            }
            Out::Want(want) => self.disk.on(disk::In::Want(want), now),
            Out::Forget(stream) => self.disk.on(disk::In::Forget(stream), now),
            Out::Send { call, .. } => {
                let span = Span {
                    offset_bytes: self.calls[&call],
                    len_bytes: each_bytes,
                };
                assert!(
                    self.pieces(span).iter().all(|piece| *piece),
                    "not in memory"
                );
                let taken_bytes = 128 + each_bytes;
                let full = false;
                self.nfs.on(In::Sent { taken_bytes, full }, now);
                self.answered_bytes += each_bytes;
            }
            Out::Left(_) => {}
            Out::Refuse { .. } | Out::Close { .. } => panic!("{out:?}"),
        }
    }

    fn target(&mut self, out: disk::Out) {
        let now = self.now;
        match out {
            disk::Out::Map(object) => {
                let (layout, direct) = (Layout::default(), false);
                let mapped = disk::In::Mapped {
                    object,
                    layout,
                    direct,
                };
                self.disk.on(mapped, now);
            }
            disk::Out::Read {
                read, span, into, ..
            } => {
                assert_eq!(into, Destination::PageCache);
                let begins = self.line_until.max(now);
                let us = span.len_bytes * 1_000_000 / TARGET_BYTES_PER_S;
                self.line_until = begins.plus_us(us);
                self.pieces(span).fill(true); // nobody is told before it is done
                self.read_bytes += span.len_bytes;
                let done_us = self.line_until.since_us(now) + TARGET_US;
                self.later(done_us, Event::Done(read, span.len_bytes));
            }
            disk::Out::Fetched {
                stream, seq, span, ..
            } => self.nfs.on(In::Fetched { stream, seq, span }, now),
            disk::Out::Cancel(_) => {}
            disk::Out::Failed { .. } => panic!("{out:?}"),
        }
    }
}

#[test]
fn a_cold_file_is_read_as_fast_as_the_target_sends_whatever_the_order() {
    for (each_bytes, at_once) in [
        (64 * KIB, 16),
        (64 * KIB, 1),
        (1024 * KIB, 16),
        (1024 * KIB, 4),
    ] {
        let len_bytes = 1 << 30;
        let mut world = World::new(len_bytes);
        let rate = world.read_all(each_bytes, at_once);
        let part = rate * 100 / TARGET_BYTES_PER_S;
        println!(
            "{} KiB, {at_once}: {part} %, read {}",
            each_bytes / KIB,
            world.read_bytes * 100 / len_bytes
        );
    }
}
