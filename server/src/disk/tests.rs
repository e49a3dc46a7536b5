use std::cell::Cell;
use std::io;
use std::time::Duration;

use ackpace_core::conn::{ConnId, WantSeq};
use ackpace_core::disk::{Layout, Settings};
use ackpace_core::limits::SLOT_BYTES;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::readers::{Finished, ReaderJob};
use super::start::Starting;
use super::*;
use crate::ledger::Ledger;
use crate::store::files::Files;
use crate::store::pool::Pool;
use ackpace_core::disk::ReadId;
use ackpace_core::units::Instant;

const FILE_BYTES: u64 = 300_000;

/// The shell without its threads, and the other end of its readers.
struct Bench {
    shell: Shell,
    work: Receiver<ReaderJob>,
    done: Sender<Finished>,
}

impl Bench {
    fn new() -> Bench {
        let waker = || Arc::new(ThreadWaker::new().expect("a descriptor"));
        let channel = Channel {
            completions: Mailboxes::new(4),
            waker: waker(),
        };
        let settings = settings();
        let slots = (settings.memory_bytes / SLOT_BYTES) as u32;
        let ledger = Arc::new(Ledger::new(u64::MAX >> 1, 0, u64::MAX >> 1));
        ledger.enter(0, waker());
        assert!(ledger.claim_ahead(u64::from(slots) * SLOT_COST_BYTES));
        let (questions, asked) = bounded(1);
        let pool = Pool::new(slots, waker()).expect("address space");
        pool.enlist(slots);
        let handle = DiskHandle {
            questions,
            asks: vec![Mailboxes::new(4)],
            pool: Arc::new(pool),
            waker: waker(),
            tally: DeviceTally::default(),
        };
        let (readers, work, done) = Readers::by_hand();
        let shell = Shell {
            disk: Disk::new(settings),
            files: Wanted::new(true),
            landed: None,
            handle: Arc::new(handle),
            questions: asked,
            channels: Arc::new(vec![channel]),
            readers,
            ring: None,
            clock: Clock::start(),
            devices: Arc::default(),
            index: 0,
            budget: Budget::new(ledger),
            told_refusal: false,
        };
        Bench { shell, work, done }
    }

    /// The next read that is ordered; requests for layouts are answered.
    fn read(&mut self) -> Option<(ReadId, Span, Lease)> {
        loop {
            match self.work.try_recv().ok()? {
                ReaderJob::Map(file) => {
                    self.finish(Finished::Mapped {
                        object: file.id,
                        layout: Layout::default(),
                        refusal: None,
                    });
                }
                ReaderJob::Direct {
                    read, span, lease, ..
                } => return Some((read, span, lease)),
                ReaderJob::Promote { .. } => panic!("nobody shares the file"),
            }
        }
    }

    fn finish(&mut self, finished: Finished) {
        self.done.send(finished).expect("the shell listens");
        self.shell.turn();
    }

    fn fill(&mut self, (read, span, lease): (ReadId, Span, Lease)) {
        self.finish(Finished::Read {
            read,
            span,
            lease: Some(lease),
            result: Ok(span.len_bytes),
            service_us: 1,
        });
    }

    fn free_slots(&self) -> u32 {
        self.shell.handle.pool.free_slots()
    }

    fn completions(&self) -> Option<Completion> {
        self.shell.channels[0].completions.take()
    }
}

fn settings() -> Settings {
    Settings {
        memory_bytes: 1 << 20,
        page_cache_bytes: 1 << 20,
        ..Settings::ONE_DISK
    }
}

fn file() -> Arc<File> {
    let fd = memfd_create("file", MemfdFlags::empty()).expect("a file");
    ftruncate(&fd, FILE_BYTES).expect("room for it");
    Files::default().of(fd, &Devices::default())
}

fn want(index: u32, heard: u32, from_bytes: u64) -> DiskAsk {
    let file = file();
    let conn = ConnId {
        index,
        generation: 0,
    };
    let stream = StreamId {
        worker: 0,
        conn,
        nth: 0,
    };
    let span = Span {
        offset_bytes: from_bytes,
        len_bytes: FILE_BYTES - from_bytes,
    };
    let want = Want {
        stream,
        object: file.id,
        span,
        underrun_at: Instant { us: 0 },
        rate_bytes_per_s: 0,
        seq: WantSeq(heard + 1),
        answers: heard,
        signals: 0,
        through_cache: false,
    };
    DiskAsk::Want(want, Source::File(file))
}

fn stream_of(ask: &DiskAsk) -> StreamId {
    match ask {
        DiskAsk::Want(want, _) => want.stream,
        DiskAsk::Forget(stream) => *stream,
    }
}

#[test]
fn what_is_read_goes_to_the_stream_with_its_memory() {
    let mut bench = Bench::new();
    let all = bench.free_slots();
    bench.shell.handle.ask(0, 1, want(1, 0, 0));
    bench.shell.turn();
    let read = bench.read().expect("a read");
    assert!(bench.free_slots() < all);
    bench.fill(read);
    let Some(Completion::Fetched(_, WantSeq(1), span, ReadBytes::Slots(piece), _)) =
        bench.completions()
    else {
        panic!("the bytes are there");
    };
    assert_eq!((span.offset_bytes, piece.from_bytes), (0, 0));
    drop(piece);
    assert_eq!(bench.free_slots(), all);
}

#[test]
fn a_want_from_before_the_answer_is_void_and_the_next_is_not() {
    let mut bench = Bench::new();
    bench.shell.handle.ask(0, 1, want(1, 0, 0));
    bench.shell.turn();
    let read = bench.read().expect("a read");
    let end_bytes = read.1.end_bytes();
    bench.shell.handle.ask(0, 1, want(1, 0, 0));
    bench.fill(read);
    assert!(bench.read().is_none(), "it has not heard of the first");
    bench.shell.handle.ask(0, 1, want(1, 1, end_bytes));
    bench.shell.turn();
    let next = bench.read().expect("it has");
    assert_eq!(next.1.offset_bytes, end_bytes);
}

#[test]
fn a_late_completion_for_a_departed_connection_does_not_replace_that_of_the_next_one() {
    let bench = Bench::new();
    let channel = &bench.shell.channels[0];
    let failed = |generation, nth, seq| {
        let conn = ConnId {
            index: 1,
            generation,
        };
        let stream = StreamId {
            worker: 0,
            conn,
            nth,
        };
        let error = ReadError {
            errno: libc::EIO,
            offset_bytes: 0,
        };
        Completion::Failed(stream, WantSeq(seq), error)
    };
    let wakes = || {
        let mut polled = [PollFd::new(&*channel.waker, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).expect("poll") == 1
    };
    for earlier in [(6, 3, 5), (7, 1, 9), (7, 2, 4)] {
        let (generation, nth, seq) = earlier;
        channel.tell(failed(7, 2, 5));
        channel.waker.awake(); // and then the worker finds the earlier one, for a moment
        channel.tell(failed(generation, nth, seq));
        assert!(wakes(), "{earlier:?}: the later one was put back");
        channel.waker.awake();
        let left = channel.completions.take().map(|left| left.want());
        assert_eq!(left, Some(failed(7, 2, 5).want()), "{earlier:?}");
        assert!(channel.completions.take().is_none());
        // In order, the later one replaces the earlier one.
        channel.tell(failed(generation, nth, seq));
        channel.tell(failed(7, 2, 5));
        let left = channel.completions.take().map(|left| left.want());
        assert_eq!(left, Some(failed(7, 2, 5).want()), "{earlier:?}");
    }
}

#[test]
fn what_is_forgotten_before_its_read_costs_none() {
    let mut bench = Bench::new();
    let ask = want(2, 0, 0);
    let stream = stream_of(&ask);
    bench.shell.handle.ask(0, 2, ask);
    bench.shell.handle.ask(0, 2, DiskAsk::Forget(stream));
    bench.shell.turn();
    assert!(bench.work.is_empty() && bench.shell.files.is_empty() && bench.completions().is_none());
}

#[test]
fn memory_of_a_read_for_one_who_left_comes_back() {
    let mut bench = Bench::new();
    let all = bench.free_slots();
    let ask = want(1, 0, 0);
    let stream = stream_of(&ask);
    bench.shell.handle.ask(0, 1, ask);
    bench.shell.turn();
    let read = bench.read().expect("a read");
    bench.shell.handle.ask(0, 1, DiskAsk::Forget(stream));
    bench.shell.turn();
    bench.fill(read);
    assert!(bench.completions().is_none() && bench.shell.files.is_empty());
    assert_eq!(bench.free_slots(), all);
}

#[test]
fn a_smaller_budget_is_obeyed_from_the_next_read_on() {
    let mut bench = Bench::new();
    // Others want all but this.
    let pool = Arc::clone(&bench.shell.handle.pool);
    let ledger = Arc::new(Ledger::new(32 << 20, 0, 4 * SLOT_COST_BYTES));
    ledger.enter(0, Arc::clone(&bench.shell.handle.waker));
    assert!(ledger.claim_ahead(u64::from(pool.slots()) * SLOT_COST_BYTES));
    bench.shell.budget = Budget::new(ledger);
    bench.shell.handle.ask(0, 1, want(1, 0, 0));
    bench.shell.turn();
    let (_, span, _) = bench.read().expect("a read");
    assert_eq!(span.len_bytes, SLOT_BYTES, "a quarter of it");
    assert_eq!(pool.slots(), 4, "the others have it");
}

/// The thread of this shell, before it has readers.
fn starting(shell: &Shell) -> Starting {
    let context = Context {
        devices: Arc::clone(&shell.devices),
        channels: Arc::clone(&shell.channels),
        clock: shell.clock,
        settings: settings(),
        ledger: Arc::new(Ledger::new(1 << 20, 0, 1 << 20)),
        pool_bytes: 1 << 20,
        device_bytes: 0,
        seldom: Arc::default(),
    };
    Starting {
        index: 0,
        settings: settings(),
        context,
        handle: Arc::clone(&shell.handle),
        questions: shell.questions.clone(),
    }
}

#[test]
fn a_question_is_answered_while_no_reader_starts() {
    let bench = Bench::new();
    let (reply, told) = bounded(1);
    let asked = bench.shell.handle.questions.try_send(reply);
    asked.expect("nobody else asks");
    bench.shell.handle.wake();
    let tries = Cell::new(0);
    let _readers = starting(&bench.shell).readers(|| {
        tries.set(tries.get() + 1);
        match tries.get() {
            1 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            _ => Ok(Readers::by_hand().0),
        }
    });
    match told.try_recv() {
        Ok(DeviceAnswer::Waits(why)) => assert!(
            why.contains("Too many open files") && why.contains("LimitNOFILE="),
            "{why}"
        ),
        Ok(DeviceAnswer::Serves(_)) => panic!("nobody serves"),
        Err(error) => panic!("no answer: {error}"),
    }
}

#[test]
fn a_want_fails_while_no_reader_starts_and_a_later_one_tries_again() {
    let bench = Bench::new();
    let shell = &bench.shell;
    let starting = starting(shell);
    let ask = want(1, 0, 0);
    let wanted = stream_of(&ask);
    shell.handle.ask(0, 1, ask);
    shell.handle.wake();
    let tries = Cell::new(0);
    let _readers = starting.readers(|| {
        tries.set(tries.get() + 1);
        match (tries.get(), bench.completions()) {
            (1, None) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            (2, Some(Completion::Failed(stream, WantSeq(1), error))) => {
                assert_eq!((stream, error.errno), (wanted, libc::EMFILE));
                Ok(Readers::by_hand().0)
            }
            (n, completion) => panic!("try {n}: {completion:?}"),
        }
    });
    assert_eq!(tries.get(), 2);
}

#[test]
fn a_want_whose_wake_up_was_taken_before_the_thread_ran_is_read() {
    let Bench { shell, work, .. } = Bench::new();
    shell.handle.ask(0, 1, want(1, 0, 0));
    shell.handle.wake();
    shell.handle.waker.awake();
    std::thread::spawn(move || shell.run());
    let job = work.recv_timeout(Duration::from_secs(30));
    assert!(matches!(job, Ok(ReaderJob::Map(_))), "nobody looked at it");
}
