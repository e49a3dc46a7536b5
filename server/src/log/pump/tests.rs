use super::*;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::channel;

#[path = "renewal_tests.rs"]
mod renewal;

/// A sink that follows its script, then takes everything.
#[derive(Clone, Default)]
struct Sink {
    taken: Arc<Mutex<Vec<u8>>>,
    script: Arc<Mutex<VecDeque<io::Result<usize>>>>,
}

impl Sink {
    fn new(script: impl IntoIterator<Item = io::Result<usize>>) -> Sink {
        Sink {
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            ..Sink::default()
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.taken.lock().expect("no panic before").clone()).expect("UTF-8")
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let step = self.script.lock().expect("no panic before").pop_front();
        let taken_bytes = step.unwrap_or(Ok(bytes.len()))?.min(bytes.len());
        self.taken
            .lock()
            .expect("no panic before")
            .extend_from_slice(&bytes[..taken_bytes]);
        Ok(taken_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl super::Sink for Sink {}
impl super::Sink for Stuck {}

type Render = fn(&&'static str, &mut Vec<u8>);

fn render(line: &&'static str, out: &mut Vec<u8>) {
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

type Troubles = Arc<Mutex<Vec<String>>>;

fn noting(troubles: &Troubles) -> impl FnMut(Trouble, &mut Vec<u8>) + Send + 'static {
    let troubles = troubles.clone();
    move |trouble, _: &mut Vec<u8>| {
        let text = match trouble {
            Trouble::Dropped { lines } => format!("dropped {lines}"),
            Trouble::Failed { error } => format!("failed {:?}", error.kind()),
            Trouble::Recovered { lines_lost } => format!("recovered, lost {lines_lost}"),
        };
        troubles.lock().expect("no panic before").push(text);
    }
}

fn noted(troubles: &Troubles) -> Vec<String> {
    troubles.lock().expect("no panic before").clone()
}

/// A writer without its thread, for tests that control the time.
fn writer<W: super::Sink, Report: FnMut(Trouble, &mut Vec<u8>)>(
    sink: W,
    report: Report,
) -> Writer<W, Render, Report> {
    Writer::new(
        sink,
        render as Render,
        report,
        Arc::new(QueueState::new(std::thread::current())),
    )
}

fn line(text: &'static str) -> Message<&'static str> {
    Message::Line {
        line: text,
        held_bytes: 0,
    }
}

#[test]
fn all_lines_are_written_in_order_by_the_stop() {
    let sink = Sink::default();
    let pump =
        Pump::start("test", sink.clone(), render, noting(&Troubles::default())).expect("a thread");
    let handle = pump.handle();
    for text in ["a", "b", "c"] {
        assert!(handle.push(text, 1));
    }
    assert_eq!(
        pump.stop(),
        Counts {
            written: 3,
            ..Counts::default()
        }
    );
    assert_eq!(sink.text(), "a\nb\nc\n");
    assert!(!handle.push("late", 1), "nobody is there any more");
    assert_eq!(
        handle.counts(),
        Counts {
            written: 3,
            dropped: 1,
            failed: 0
        }
    );
}

#[test]
fn a_flush_waits_for_what_was_pushed_before() {
    let sink = Sink::default();
    let pump =
        Pump::start("test", sink.clone(), render, noting(&Troubles::default())).expect("a thread");
    pump.handle().push("a", 1);
    pump.handle().flush(Duration::from_secs(60));
    assert_eq!(sink.text(), "a\n");
}

/// A sink that holds its first write until it is released.
struct Stuck {
    entered: std::sync::mpsc::Sender<()>,
    release: Receiver<()>,
    is_first: bool,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.is_first, false) {
            self.entered.send(()).expect("the test waits");
            let _ = self.release.recv(); // or the test is over
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A pump whose thread is stuck in its first write, and the sender that releases it.
fn stuck(troubles: &Troubles) -> (Pump<&'static str>, std::sync::mpsc::Sender<()>) {
    let (entered, has_entered) = channel();
    let (go_on, release) = channel();
    let pump = Pump::start(
        "test",
        Stuck {
            entered,
            release,
            is_first: true,
        },
        render,
        noting(troubles),
    )
    .expect("a thread");
    assert!(pump.handle().push("first", 0));
    has_entered.recv().expect("the thread writes");
    (pump, go_on)
}

#[test]
fn a_full_queue_drops_lines_counts_them_and_says_so_once() {
    let troubles = Troubles::default();
    let (pump, go_on) = stuck(&troubles);
    let handle = pump.handle();
    let accepted = (0..LOG_QUEUE_LINES_MAX + 3)
        .filter(|_| handle.push("x", 1))
        .count();
    assert_eq!(accepted, LOG_QUEUE_LINES_MAX);
    go_on.send(()).expect("the thread waits");
    assert_eq!(
        pump.stop(),
        Counts {
            written: LOG_QUEUE_LINES_MAX as u64 + 1,
            dropped: 3,
            failed: 0
        }
    );
    assert_eq!(noted(&troubles), ["dropped 3"]);
}

#[test]
fn the_bytes_that_wait_are_bounded_too() {
    let (pump, go_on) = stuck(&Troubles::default());
    let handle = pump.handle();
    let half_bytes = LOG_QUEUE_BYTES_MAX as usize / 2;
    assert!(handle.push("a", half_bytes - 1)); // below
    assert!(handle.push("b", half_bytes + 1)); // at
    assert!(!handle.push("c", 1)); // above
    assert!(handle.push("d", 0), "a dropped line gives its bytes back");
    handle.bound(LOG_QUEUE_BYTES_MAX / 2);
    assert!(!handle.push("e", 0), "where memory is little");
    go_on.send(()).expect("the thread waits");
    assert_eq!(
        pump.stop(),
        Counts {
            written: 4,
            dropped: 2,
            failed: 0
        }
    );
}

#[test]
fn a_stuck_sink_does_not_hold_the_stop() {
    let (pump, _go_on) = stuck(&Troubles::default());
    pump.end(Duration::ZERO); // as stop() does, which waits longer
    assert_eq!(pump.handle().counts(), Counts::default());
}

#[test]
fn a_failing_sink_is_reported_once_until_it_recovers() {
    let full = || Err(io::ErrorKind::StorageFull.into());
    let (sink, troubles) = (Sink::new([full(), full()]), Troubles::default());
    let mut writer = writer(sink.clone(), noting(&troubles));
    let now = Instant::now();
    for text in ["a", "b", "c", "d"] {
        writer.take(line(text));
        writer.write(now);
    }
    assert_eq!(sink.text(), "c\nd\n");
    assert_eq!(
        noted(&troubles),
        ["failed StorageFull", "recovered, lost 2"]
    );
    assert_eq!(
        writer.shared.counts(),
        Counts {
            written: 2,
            dropped: 0,
            failed: 2
        }
    );
}

#[test]
fn a_sink_that_fails_and_recovers_in_turn_is_reported_once_per_interval() {
    let full = || Err(io::ErrorKind::StorageFull.into());
    // A full disk on which somebody frees a little now and then.
    let script = (0..400).flat_map(|_| [full(), Ok(usize::MAX)]);
    let (sink, troubles) = (Sink::new(script), Troubles::default());
    let mut writer = writer(sink, noting(&troubles));
    let start = Instant::now();
    let step = LOG_REPORT_INTERVAL / 100;
    for nth in 0..400 {
        writer.take(line("a"));
        writer.write(start + step * nth);
    }
    let failed = "failed StorageFull".to_owned();
    let recovered = |lines: u64| format!("recovered, lost {lines}");
    let expected = [
        [failed.clone(), recovered(1)],
        [failed.clone(), recovered(50)],
        [failed.clone(), recovered(50)],
        [failed, recovered(50)],
    ];
    assert_eq!(noted(&troubles), expected.concat());
    // No further line comes, and those that were lost since are told all the same.
    let due = writer.losses.waits_until().expect("49 are not told");
    assert_eq!(due, start + LOG_REPORT_INTERVAL * 4);
    writer.write(due);
    assert_eq!(noted(&troubles).last(), Some(&recovered(49)));
    assert_eq!(writer.losses.waits_until(), None);
    assert_eq!(writer.shared.counts().failed, 200);
}

#[test]
fn a_failure_that_began_too_soon_after_the_last_report_is_reported_when_it_may() {
    let full = || Err(io::ErrorKind::StorageFull.into());
    let script = [full(), Ok(2)].into_iter().chain((0..3).map(|_| full()));
    let (sink, troubles) = (Sink::new(script), Troubles::default());
    let mut writer = writer(sink, noting(&troubles));
    let start = Instant::now();
    for _ in 0..4 {
        writer.take(line("a"));
        writer.write(start);
    }
    assert_eq!(noted(&troubles).len(), 2, "{:?}", noted(&troubles));
    writer.write(start + LOG_REPORT_INTERVAL);
    assert_eq!(noted(&troubles)[2], "failed StorageFull");
    writer.take(line("a"));
    writer.write(start + LOG_REPORT_INTERVAL);
    assert_eq!(noted(&troubles).len(), 3, "it fails on");
    writer.take(line("a"));
    writer.write(start + LOG_REPORT_INTERVAL);
    assert_eq!(noted(&troubles)[3], "recovered, lost 3");
}

#[test]
fn half_a_line_that_an_earlier_process_left_is_ended_before_the_first_one() {
    struct Left(Sink);
    impl Write for Left {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl super::Sink for Left {
        fn ends_torn(&self) -> bool {
            !self.0.text().ends_with('\n')
        }
    }
    let sink = Sink::default();
    sink.taken
        .lock()
        .expect("no panic before")
        .extend(b"half a li");
    let mut writer = writer(Left(sink.clone()), noting(&Troubles::default()));
    for text in ["a", "b"] {
        writer.take(line(text));
        writer.write(Instant::now());
    }
    assert_eq!(sink.text(), "half a li\na\nb\n");
    assert_eq!(writer.shared.counts().written, 2);
}

#[test]
fn a_line_torn_by_a_failure_is_ended_before_the_next_one() {
    let sink = Sink::new([
        Ok(5),
        Err(io::ErrorKind::StorageFull.into()),
        Err(io::ErrorKind::StorageFull.into()),
    ]);
    let mut writer = writer(sink.clone(), noting(&Troubles::default()));
    let now = Instant::now();
    for batch in [&["aaa", "bbb", "ccc"][..], &["ddd"], &["eee", "fff"]] {
        batch.iter().for_each(|text| writer.take(line(text)));
        writer.write(now);
    }
    assert_eq!(sink.text(), "aaa\nb\neee\nfff\n");
    assert_eq!(
        writer.shared.counts(),
        Counts {
            written: 3,
            dropped: 0,
            failed: 3
        }
    );
}

#[test]
fn short_writes_and_interruptions_are_continued() {
    let script = [
        Ok(1),
        Err(io::ErrorKind::Interrupted.into()),
        Ok(2),
        Err(io::ErrorKind::WouldBlock.into()),
    ];
    let (sink, troubles) = (Sink::new(script), Troubles::default());
    let mut writer = writer(sink.clone(), noting(&troubles));
    writer.take(line("abcdef"));
    writer.write(Instant::now());
    assert_eq!(sink.text(), "abcdef\n");
    assert_eq!(noted(&troubles), [""; 0]);
}

#[test]
fn a_line_torn_before_its_file_was_emptied_leaves_no_empty_line() {
    struct Emptied(Sink);
    impl Write for Emptied {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl super::Sink for Emptied {
        fn is_empty(&self) -> bool {
            self.0.text().is_empty()
        }
    }
    let sink = Sink::new([Ok(2), Err(io::ErrorKind::StorageFull.into())]);
    let mut writer = writer(Emptied(sink.clone()), |_, _: &mut Vec<u8>| {});
    writer.take(line("torn"));
    writer.write(Instant::now());
    sink.taken.lock().expect("no panic before").clear();
    writer.take(line("next"));
    writer.write(Instant::now());
    assert_eq!(sink.text(), "next\n");
    assert_eq!(writer.shared.counts().written, 1);
}

#[test]
fn dropped_lines_are_reported_once_per_interval() {
    let troubles = Troubles::default();
    let mut writer = writer(Sink::default(), noting(&troubles));
    let start = Instant::now();
    let mut step = |dropped: u64, after: Duration| {
        writer.shared.dropped.fetch_add(dropped, Relaxed);
        writer.write(start + after);
        noted(&troubles)
    };
    assert_eq!(step(2, Duration::ZERO), ["dropped 2"]);
    assert_eq!(
        step(3, LOG_REPORT_INTERVAL - Duration::from_nanos(1)),
        ["dropped 2"]
    );
    assert_eq!(step(1, LOG_REPORT_INTERVAL), ["dropped 2", "dropped 4"]);
    assert_eq!(step(0, LOG_REPORT_INTERVAL * 3), ["dropped 2", "dropped 4"]);
}

#[test]
fn a_report_may_write_a_line_of_its_own() {
    let sink = Sink::new([Err(io::ErrorKind::BrokenPipe.into())]);
    let report = |_: Trouble, out: &mut Vec<u8>| out.extend_from_slice(b"trouble\n");
    let mut writer = writer(sink.clone(), report);
    for text in ["a", "b"] {
        writer.take(line(text));
        writer.write(Instant::now());
    }
    writer.write(Instant::now());
    assert_eq!(sink.text(), "trouble\nb\ntrouble\n"); // that it failed, and that it works again
    assert_eq!(
        writer.shared.counts(),
        Counts {
            written: 3,
            dropped: 0,
            failed: 1
        }
    );
}
