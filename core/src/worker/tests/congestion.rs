//! A path is congested while the disk reads for it: what the worker does with the stream's want.

use super::*;
use crate::congestion::Signal;
use crate::conn::Want;
use crate::why::What;

const MS: u64 = 1000;
const CUT: Path = Path {
    state: CaState::Cwr,
    cwnd_bytes: 80_000,
    threshold_bytes: Some(40_000),
    rtt_min_us: 100_000,
    marked_segments: 1,
    resent_segments: 0,
};

struct Download {
    bench: Bench,
    stream: StreamId,
}

impl Download {
    /// A download from the disk at 1 MB/s for two seconds, so that its rate is known. Returns its wants.
    fn begun(delay: Delay) -> (Download, Vec<Want>) {
        let send = SendPolicy::Margin {
            budget_bytes: 48 << 20,
        };
        let mut bench = Bench::new(Settings {
            send,
            delay,
            ..settings()
        });
        let conn = bench.client(0);
        let stream = bench.request(conn);
        bench.resolved(
            stream,
            plan([body(ResidencySource::Remember, 0, 1 << 30)], true),
        );
        bench.sent(stream, HEAD_BYTES, false);
        let span = Span {
            offset_bytes: 0,
            len_bytes: 40 << 20,
        };
        bench.tell(In::Fetched {
            stream,
            seq: PENDING,
            span,
            held: Held::Slots,
            chosen: CHOSEN,
        });
        let mut download = Download { bench, stream };
        let (wants, samples) = download.goes_on(20, 100_000);
        assert!(
            samples > 0,
            "its rate is asked for, its path if that matters"
        );
        (download, wants)
    }

    /// Lets tenths of a second pass, in each of which the client takes this much. Returns the wants, and how often
    /// TCP_INFO was sampled.
    fn goes_on(&mut self, tenths: u32, taken_bytes: u64) -> (Vec<Want>, usize) {
        let mut outs = Vec::new();
        for _ in 0..tenths {
            outs.extend(self.bench.wait_us(100 * MS));
            outs.extend(self.bench.tcp(self.stream.conn, TcpEvent::Writable));
            outs.extend(self.bench.tell(In::Sent {
                stream: self.stream,
                taken_bytes,
                full: true,
                unsent_bytes: Some(200_000),
            }));
        }
        let wants = outs.iter().filter_map(|out| match out {
            Out::Want(want) => Some(*want),
            _ => None,
        });
        let samples = outs.iter().filter(|out| matches!(out, Out::Sample(_)));
        (wants.collect(), samples.count())
    }
}

#[test]
fn by_the_rate_a_want_is_dated_by_what_the_cut_window_carries() {
    let (mut download, before) = Download::begun(Delay::Rate);
    let before = before.last().expect("a want");
    assert_eq!((before.rate_bytes_per_s, before.signals), (800_000, 0));
    download.bench.sample.path = CUT;
    let (wants, _) = download.goes_on(3, 100_000);
    let [want] = wants[..] else {
        panic!("one want for one sign: {wants:?}")
    };
    assert_eq!((want.rate_bytes_per_s, want.signals), (600_000, 1));
    assert!(
        want.underrun_at > before.underrun_at.plus_us(5_000_000),
        "{want:?}"
    );
    let worker = &download.bench.worker;
    assert_eq!(worker.counts().signals, [1, 0, 0]);
    let told = worker.decisions().any(|told| {
        matches!(told.what, What::Congested { signal: Signal::Ecn, delay: Delay::Rate, from_bytes_per_s, to_bytes_per_s }
            if from_bytes_per_s > 800_000 && to_bytes_per_s == 600_000)
    });
    assert!(told, "what was done, and why");
    let (wants, _) = download.goes_on(20, 30_000);
    let measured = wants.last().expect("it is slower still");
    assert!(measured.rate_bytes_per_s < 500_000, "{measured:?}");
    assert_eq!(measured.signals, 1);
}

#[test]
fn by_the_paper_the_want_keeps_its_date_and_tells_of_the_sign() {
    let (mut download, before) = Download::begun(Delay::Paper);
    let before = before.last().expect("a want");
    download.bench.sample.path = CUT;
    let (wants, _) = download.goes_on(30, 50_000);
    let told = Want {
        signals: 1,
        ..*before
    };
    assert_eq!(wants, [told]);
}

#[test]
fn without_delay_a_want_is_never_dated_later_and_by_the_rate_it_is() {
    let slower = |delay| {
        let (mut download, before) = Download::begun(delay);
        let (wants, _) = download.goes_on(30, 50_000);
        let before = before.last().expect("a want").underrun_at;
        wants.iter().any(|want| want.underrun_at > before)
    };
    assert!(!slower(Delay::Off));
    assert!(slower(Delay::Rate));
}
