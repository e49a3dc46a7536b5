//! A report in words.

use std::fmt::Write;

use super::report::{Receiver, Report};
use super::rows::Bins;

/// A page for people. Names of processes come without control characters.
pub fn page(report: &Report) -> String {
    let mut page = String::new();
    if report.receivers.is_empty() {
        page += "nobody has received anything\n";
    }
    for receiver in &report.receivers {
        page += &one(receiver);
    }
    if let Some(all) = report.namespace.filter(|all| all.timeouts > 0) {
        let _ = writeln!(
            page,
            "senders of this network namespace: {} timeouts; needless by F-RTO {}, by timestamps {}; recoveries needless by \
             DSACK {}",
            all.timeouts, all.undone_by_frto, all.undone_by_timestamps, all.undone_by_dsack
        );
    }
    if report.missed_rows + report.missed_connections > 0 {
        let _ = writeln!(
            page,
            "left out: {} segments of processes and ports beyond the bound, {} of connections beyond it; --port and --pid \
             make room",
            report.missed_rows, report.missed_connections
        );
    }
    page
}

fn one(of: &Receiver) -> String {
    let mut text = head(of);
    line(&mut text, "segments", &Bins::NAMES);
    let rows = [
        ("T_wait, to TCP", &of.to_tcp),
        ("  behind the lock", &of.backlogged),
        ("to the copy", &of.to_copy),
        ("wait for it now", &of.waiting),
        ("core lost, with lock", &of.core.off_owning),
        ("core lost, without", &of.core.off_free),
    ];
    for (name, bins) in rows {
        if bins.total() > 0 || name == "T_wait, to TCP" {
            line(&mut text, name, &bins.0.map(grouped));
        }
    }
    let queues = &of.queues;
    let _ = writeln!(
        text,
        "  queues: receive {} B now in all, at most {} B in one; backlog at most {} B in one; out of order {} B now in all, at most {} B \
         in one",
        grouped(queues.receive_bytes),
        grouped(queues.receive_bytes_most.into()),
        grouped(queues.backlog_bytes_most.into()),
        grouped(queues.out_of_order_bytes),
        grouped(queues.out_of_order_bytes_most.into())
    );
    if let Some(owner) = &of.core.last_owner {
        let _ = writeln!(
            text,
            "  lock: held {} of {} times when the core was lost, {} with packets behind it; last by {} ({}), which lost it \
             to {}",
            of.core.lost_owning,
            of.core.lost_owning + of.core.lost_free,
            of.core.lost_owning_with_backlog,
            owner.name,
            owner.tid,
            owner.taker
        );
    }
    if of.core.slept_owning > 0 {
        let _ = writeln!(text, "  lock: held in {} sleeps", of.core.slept_owning);
    }
    if let Some(sender) = of.sender {
        let _ = writeln!(
            text,
            "  sender, on this machine: RTO {:.1} ms, {:.1} most; {} timeouts",
            f64::from(sender.rto_us) / 1e3,
            f64::from(sender.rto_us_most) / 1e3,
            sender.timeouts
        );
    }
    if of.again > 0 {
        let _ = writeln!(text, "  resent needlessly: {} segments", of.again);
    }
    if of.unmeasured > 0 {
        let _ = writeln!(
            text,
            "  not measured: {} segments, as too many waited",
            of.unmeasured
        );
    }
    text
}

fn head(of: &Receiver) -> String {
    let word = if of.side == "peer" {
        "from port"
    } else {
        "port"
    };
    let who = match (&of.process, of.pid) {
        (Some(process), Some(pid)) => format!("{process} ({pid})"),
        _ => "not read by anybody yet".to_owned(),
    };
    let plural = if of.connections == 1 { "" } else { "s" };
    format!(
        "{who}, {word} {}: {} connection{plural} open\n",
        of.port, of.connections
    )
}

fn line<T: AsRef<str>>(text: &mut String, name: &str, cells: &[T]) {
    let _ = write!(text, "  {name:22}");
    for cell in cells {
        let _ = write!(text, "{:>13}", cell.as_ref());
    }
    text.push('\n');
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::report::{Core, Owner, QueueTotals};
    use crate::rows::Sender;

    fn receiver() -> Receiver {
        Receiver {
            process: Some("rxrecv".to_owned()),
            pid: Some(77),
            port: 9_400,
            side: "local",
            connections: 1,
            to_tcp: Bins([122_657, 744, 896, 40, 300, 75]),
            backlogged: Bins([0, 0, 0, 0, 0, 75]),
            queues: QueueTotals {
                receive_bytes: 1_234_567,
                ..QueueTotals::default()
            },
            core: Core {
                lost_owning: 2,
                lost_free: 8,
                last_owner: Some(Owner {
                    name: "rxrecv".to_owned(),
                    tid: 78,
                    taker: "spin".to_owned(),
                }),
                ..Core::default()
            },
            sender: Some(Sender {
                timeouts: 1,
                rto_us: 204_100,
                rto_us_most: 205_000,
            }),
            ..Receiver::default()
        }
    }

    #[test]
    fn a_page_has_the_six_bins_and_names_who_held_the_lock() {
        let report = Report {
            watched_us: 1,
            receivers: vec![receiver()],
            namespace: Some(Counters {
                timeouts: 4,
                undone_by_frto: 3,
                undone_by_timestamps: 1,
                undone_by_dsack: 0,
            }),
            missed_rows: 0,
            missed_connections: 0,
        };
        assert_eq!(
            page(&report),
            "rxrecv (77), port 9400: 1 connection open\n  \
             segments                       <1ms       1-10ms     10-100ms    100-200ms     200ms-1s          >1s\n  \
             T_wait, to TCP              122,657          744          896           40          300           75\n  \
             \x20 behind the lock                 0            0            0            0            0           75\n  \
             queues: receive 1,234,567 B now in all, at most 0 B in one; backlog at most 0 B in one; out of order 0 B now in all, at \
             most 0 B in one\n  \
             lock: held 2 of 10 times when the core was lost, 0 with packets behind it; last by rxrecv (78), which lost it to \
             spin\n  \
             sender, on this machine: RTO 204.1 ms, 205.0 most; 1 timeouts\n\
             senders of this network namespace: 4 timeouts; needless by F-RTO 3, by timestamps 1; recoveries needless by DSACK \
             0\n"
        );
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let report = Report {
            watched_us: 1,
            receivers: Vec::new(),
            namespace: None,
            missed_rows: 1,
            missed_connections: 2,
        };
        let page = page(&report);
        assert!(
            page.starts_with("nobody has received anything\nleft out: 1 "),
            "{page}"
        );
    }

    #[test]
    fn digits_stand_in_groups() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
