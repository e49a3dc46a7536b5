//! Rate, round trip and loss of single paths.

use super::stamps::round_trips;
use super::tcp_info::tcp_info;
use super::traffic::{Buffers, Pair, QUEUE_MS, Sender, connect_all, datagrams, drain, pump};
use super::{Outcome, Row, address, punctuality};
use crate::topology::{BurstsSpec, LinkSpec, PathSpec, Topology};
use crate::{Wan, plan};
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::stats;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const PORT: u16 = 5001;
/// Datagrams for each loss rate: 100 expected losses at .1 %.
const DATAGRAMS: u32 = 100_000;
const DATAGRAMS_IN_A_TURN: u32 = 20;
/// Length of IP and TCP headers with timestamps around a segment's payload.
pub const HEADERS_LEN_BYTES: u32 = 52;

/// Wire bytes per second of saturated paths, compared with their configured rate.
pub fn rate() -> Result<Outcome> {
    let of = |mbit: f64| LinkSpec {
        rate_mbit_per_s: Some(mbit),
        delay_ms: Some(5.0),
        queue_ms: Some(QUEUE_MS),
        ..LinkSpec::default()
    };
    let back = LinkSpec {
        delay_ms: Some(5.0),
        ..LinkSpec::default()
    };
    let rates = [
        (1.0, Sender::Server),
        (10.0, Sender::Server),
        (10.0, Sender::Client),
    ];
    let rates = rates
        .into_iter()
        .chain([(100.0, Sender::Server), (1000.0, Sender::Server)]);
    let rates: Vec<(f64, Sender)> = rates.collect();
    let path = |nth: usize, mbit: f64, from: Sender| {
        let mut path = PathSpec::new(&format!("rate{nth}"), &client(nth));
        (path.down, path.up) = match from {
            Sender::Server => (of(mbit), back.clone()),
            Sender::Client => (back.clone(), of(mbit)),
        };
        path
    };
    let paths = rates.iter().enumerate();
    let topology = Topology {
        path: paths
            .map(|(nth, (mbit, from))| path(nth, *mbit, *from))
            .collect(),
        ..Topology::default()
    };
    let wan = Wan::up(&topology)?;
    let pairs = connect_all(&wan, &clients(rates.len())?, PORT, |nth| {
        Buffers::filling(rates[nth].0)
    })?;
    let pairs: Vec<(Pair, Sender)> = pairs.into_iter().zip(rates.iter().map(|r| r.1)).collect();
    let moved = pump(&pairs, Duration::from_secs(4), Duration::from_secs(10))?;
    let mut rows = Vec::new();
    for ((mbit, from), (moved, (pair, _))) in rates.iter().zip(moved.iter().zip(&pairs)) {
        let mss = tcp_info(pair.ends(*from).0)?.snd_mss_bytes;
        let wire = f64::from(mss + HEADERS_LEN_BYTES) / f64::from(mss);
        let got = moved.bytes as f64 * wire * 8.0 / 1e6 / moved.seconds;
        let way = if *from == Sender::Server {
            "down"
        } else {
            "up"
        };
        rows.push(Row::ratio(
            format!("{mbit} Mbit/s {way}"),
            *mbit,
            got,
            "Mbit/s",
            0.01,
        ));
    }
    let notes = vec![
        "TCP payload over 10 s, with its headers; all five paths at once".into(),
        punctuality(&wan.counters()?),
    ];
    Ok(Outcome { rows, notes })
}

/// Round trips of datagrams as stamped by the kernel, and TCP's own minimum, compared with the sum of the
/// delays.
pub fn rtt() -> Result<Outcome> {
    let rtts_ms = [1.0, 12.0, 50.0, 100.0, 200.0];
    let path = |(nth, rtt_ms): (usize, &f64)| {
        let mut path = PathSpec::new(&format!("rtt{nth}"), &client(nth));
        path.down.delay_ms = Some(rtt_ms / 2.0);
        path.up.delay_ms = Some(rtt_ms / 2.0);
        path
    };
    let topology = Topology {
        path: rtts_ms.iter().enumerate().map(path).collect(),
        ..Topology::default()
    };
    let wan = Wan::up(&topology)?;
    let pairs = connect_all(&wan, &clients(rtts_ms.len())?, PORT, |_| {
        Buffers::both(1 << 20)
    })?;
    let open = |nth: usize| datagrams(&wan, address(&client(nth))?, PORT + nth as u16);
    let timed = (0..rtts_ms.len()).map(open).collect::<Result<Vec<_>>>()?;
    let echoed = at_once(&pairs, |pair| echo(pair, Duration::from_secs(3)))?;
    let stamped = at_once(&timed, |pair| round_trips(pair, Duration::from_secs(5)))?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (nth, (rtt_ms, pair)) in rtts_ms.iter().zip(&pairs).enumerate() {
        let kernel_ms = f64::from(tcp_info(&pair.server)?.min_rtt_us) / 1e3;
        let median_ms = |times_ms: &[f64]| stats::median(times_ms).unwrap_or(f64::NAN);
        notes.push(format!(
            "{rtt_ms} ms: a byte there and back over TCP took {:+.3} ms, with two threads to wake",
            median_ms(&echoed[nth]) - rtt_ms
        ));
        let kinds = [
            ("median", median_ms(&stamped[nth])),
            ("TCP's minimum", kernel_ms),
        ];
        for (kind, got_ms) in kinds {
            rows.push(Row {
                what: format!("{rtt_ms} ms, {kind}"),
                expected: format!("{rtt_ms:.3} ms"),
                got: format!("{got_ms:.3} ms"),
                off: format!("{:+.3} ms", got_ms - rtt_ms),
                allowed: "0.3 ms".into(),
                kept: Some((got_ms - rtt_ms).abs() <= 0.3),
            });
        }
    }
    notes.insert(
        0,
        "median: of datagrams, from the call that sends to the kernel's stamp at the other end, both ways".into(),
    );
    notes.push(punctuality(&wan.counters()?));
    Ok(Outcome { rows, notes })
}

/// Measures all pairs at once, with one thread for each.
fn at_once<T: Send>(pairs: &[Pair], measure: impl Fn(&Pair) -> Result<T> + Sync) -> Result<Vec<T>> {
    let measure = &measure;
    std::thread::scope(|scope| {
        let spawn = |pair| scope.spawn(move || measure(pair));
        let threads: Vec<_> = pairs.iter().map(spawn).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<T>>| {
            let joined = thread.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Share of missing datagrams, compared with the configured loss.
pub fn loss() -> Result<Outcome> {
    let kinds = losses();
    let path = |(nth, loss): (usize, &Lossy)| {
        let mut path = PathSpec::new(&format!("loss{nth}"), &client(nth));
        match loss.from {
            Sender::Server => path.down = loss.link.clone(),
            Sender::Client => path.up = loss.link.clone(),
        }
        path
    };
    let topology = Topology {
        path: kinds.iter().enumerate().map(path).collect(),
        ..Topology::default()
    };
    let wan = Wan::up(&topology)?;
    let open = |(nth, loss): (usize, &Lossy)| {
        let port = PORT + nth as u16; // the server's end is connected, too, so each pair needs a port
        Ok((datagrams(&wan, address(&client(nth))?, port)?, loss.from))
    };
    let pairs = kinds
        .iter()
        .enumerate()
        .map(open)
        .collect::<Result<Vec<_>>>()?;
    let seen = number_and_count(&pairs)?;
    let mut rows = Vec::new();
    for (loss, seen) in kinds.iter().zip(&seen) {
        rows.extend(loss.rows(seen)?);
    }
    let notes = vec![
        format!("{DATAGRAMS} datagrams each; seed {}", topology.seed),
        punctuality(&wan.counters()?),
    ];
    Ok(Outcome { rows, notes })
}

/// A link that loses packets sent by one end.
struct Lossy {
    name: &'static str,
    from: Sender,
    link: LinkSpec,
}

fn losses() -> [Lossy; 5] {
    let bernoulli = |name, from, p| Lossy {
        name,
        from,
        link: LinkSpec {
            loss: Some(p),
            ..LinkSpec::default()
        },
    };
    let bursts = BurstsSpec {
        to_bad: 0.005,
        to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    [
        bernoulli("0.1 % down", Sender::Server, 0.001),
        bernoulli("1 % down", Sender::Server, 0.01),
        bernoulli("3 % down", Sender::Server, 0.03),
        bernoulli("1 % up", Sender::Client, 0.01),
        Lossy {
            name: "bursts down",
            from: Sender::Server,
            link: LinkSpec {
                bursts: Some(bursts),
                ..LinkSpec::default()
            },
        },
    ]
}

impl Lossy {
    /// The share of lost datagrams and, for a bursty link, the length of its bursts.
    fn rows(&self, seen: &[bool]) -> Result<Vec<Row>> {
        let p = plan::profile(&self.link)
            .map_err(LabError::Setup)?
            .loss
            .mean();
        let bursty = self.link.bursts.as_ref();
        let correlation = bursty.map_or(0.0, |b| 1.0 - b.to_bad - b.to_good);
        let inflation = (1.0 + correlation) / (1.0 - correlation);
        let sigma = (p * (1.0 - p) / f64::from(DATAGRAMS) * inflation).sqrt();
        let (lost, bursts) = lost_and_bursts(seen);
        let part = f64::from(lost) / f64::from(DATAGRAMS);
        let mut rows = vec![sigmas(format!("{}, part", self.name), p, part, sigma)];
        if let Some(spec) = bursty {
            let what = format!("{}, length", self.name);
            let sigma = (1.0 - spec.to_good).sqrt() / spec.to_good / f64::from(bursts).sqrt();
            let length = f64::from(lost) / f64::from(bursts);
            rows.push(sigmas(what, 1.0 / spec.to_good, length, sigma));
        }
        Ok(rows)
    }
}

/// Address of the nth client of a check.
pub fn client(nth: usize) -> String {
    format!("10.1.{}.{}", nth / 200, nth % 200 + 1)
}

/// Addresses of the first `count` of them.
pub fn clients(count: usize) -> Result<Vec<IpAddr>> {
    (0..count).map(|nth| address(&client(nth))).collect()
}

fn sigmas(what: String, expected: f64, got: f64, sigma: f64) -> Row {
    Row {
        what,
        expected: format!("{expected:.5}"),
        got: format!("{got:.5}"),
        off: format!("{:+.2} sigma", (got - expected) / sigma),
        allowed: "3 sigma".into(),
        kept: Some((got - expected).abs() <= 3.0 * sigma),
    }
}

/// Round-trip times of one byte there and back, in ms, one after the other.
fn echo(pair: &Pair, lasting: Duration) -> Result<Vec<f64>> {
    let what = || "an echo".to_owned();
    for end in [&pair.server, &pair.client] {
        sockopt::set_tcp_nodelay(end, true).doing(what)?;
        rustix::io::ioctl_fionbio(end, false).doing(what)?;
    }
    let mut times_ms = Vec::new();
    std::thread::scope(|scope| {
        let mirror = scope.spawn(move || {
            let mut byte = [0];
            while let Ok((1, _)) = recv(&pair.client, &mut byte, RecvFlags::empty()) {
                if byte[0] == 0 || send(&pair.client, &byte, SendFlags::NOSIGNAL).is_err() {
                    break;
                }
            }
        });
        let until = Instant::now() + lasting;
        while Instant::now() < until {
            let began = Instant::now();
            send(&pair.server, &[1], SendFlags::NOSIGNAL).doing(what)?;
            recv(&pair.server, &mut [0], RecvFlags::empty()).doing(what)?;
            times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        }
        send(&pair.server, &[0], SendFlags::NOSIGNAL).doing(what)?;
        let _ = mirror.join();
        Ok(times_ms)
    })
}

/// Sends numbered datagrams at an even pace; returns which of them arrived.
fn number_and_count(pairs: &[(Pair, Sender)]) -> Result<Vec<Vec<bool>>> {
    let mut seen = vec![vec![false; DATAGRAMS as usize]; pairs.len()];
    fn ends(pair: &(Pair, Sender)) -> (&OwnedFd, &OwnedFd) {
        pair.0.ends(pair.1)
    }
    let mut number = 0;
    while number < DATAGRAMS {
        let turn = Instant::now();
        for pair in pairs {
            for number in number..number + DATAGRAMS_IN_A_TURN {
                let sent = send(ends(pair).0, &number.to_be_bytes(), SendFlags::empty());
                sent.doing(|| "sending a datagram".into())?;
            }
        }
        number += DATAGRAMS_IN_A_TURN;
        std::thread::sleep(Duration::from_millis(2).saturating_sub(turn.elapsed()));
    }
    std::thread::sleep(Duration::from_millis(300)); // the last ones are in flight
    let mut bytes = [0; 4];
    for (pair, seen) in pairs.iter().zip(&mut seen) {
        while let Ok((4, _)) = recv(ends(pair).1, &mut bytes, RecvFlags::DONTWAIT) {
            seen[u32::from_be_bytes(bytes) as usize] = true;
        }
        drain(ends(pair).1, &mut bytes)?;
    }
    Ok(seen)
}

fn lost_and_bursts(seen: &[bool]) -> (u32, u32) {
    let (mut lost, mut bursts, mut before) = (0, 0, true);
    for arrived in seen {
        lost += u32::from(!arrived);
        bursts += u32::from(!arrived && before);
        before = *arrived;
    }
    (lost, bursts)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bursts_are_rows_of_losses() {
        let of = |text: &str| text.bytes().map(|c| c == b'x').collect::<Vec<_>>();
        assert_eq!(super::lost_and_bursts(&of("xx.x..x...")), (6, 3));
        assert_eq!(super::lost_and_bursts(&of("xxxx")), (0, 0));
    }
}
