//! What `receive watch` tells: the rows of the kernel with what waits now, and with the sender of each service.

use std::collections::BTreeMap;

use ackpace_host_base::fields::Fields;
use serde::Serialize;

use super::counters::Counters;
use super::rows::{Bins, Sender, Service, Watched, Who};

/// All that the kernel has counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Rows by process and service.
    pub rows: Vec<(Who, Receiver)>,
    /// Connections that are open now.
    pub watched: Vec<Watched>,
    /// Senders on this machine, as they see their service.
    pub senders: Vec<(Service, Sender)>,
    /// Segments without a row, since there were too many.
    pub missed_rows: u64,
    /// Segments of connections that are not followed, since there were too many.
    pub missed_connections: u64,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// For how long it was watched.
    pub watched_us: u64,
    /// A line for each process and port.
    pub receivers: Vec<Receiver>,
    /// Timeouts in this network namespace, of all its senders.
    pub namespace: Option<Counters>,
    /// See [`Counted`].
    pub missed_rows: u64,
    /// See [`Counted`].
    pub missed_connections: u64,
}

/// A process and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Receiver {
    /// Name of the thread that received first; none: nobody has read yet.
    pub process: Option<String>,
    /// Likewise.
    pub pid: Option<u32>,
    /// The service.
    pub port: u16,
    /// `local`: the process serves at this port; `peer`: it is a client of one.
    pub side: &'static str,
    /// Open connections.
    pub connections: u64,
    /// T_wait: segments by the time from arrival to TCP.
    pub to_tcp: Bins,
    /// Those that waited behind the socket's lock.
    pub backlogged: Bins,
    /// Segments by the time from arrival to the copy by the process.
    pub to_copy: Bins,
    /// Segments that wait for the copy now, by age.
    pub waiting: Bins,
    /// Queues.
    pub queues: QueueTotals,
    /// The core.
    pub core: Core,
    /// Segments whose bytes had all arrived before: the sender resent them needlessly.
    pub again: u64,
    /// Segments that were not measured.
    pub unmeasured: u64,
    /// Its sender, if that is on this machine.
    pub sender: Option<Sender>,
}

/// Queues of all connections together now, and the longest of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueTotals {
    /// Received, not copied.
    pub receive_bytes: u64,
    /// The longest of one connection.
    pub receive_bytes_most: u32,
    /// The longest backlog of one connection, behind its lock, in kernel memory.
    pub backlog_bytes_most: u32,
    /// From a hole to the end of what arrived behind it.
    pub out_of_order_bytes: u64,
    /// The longest of one connection.
    pub out_of_order_bytes_most: u32,
}

/// How the process lost its core although it could have gone on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Core {
    /// How often while it owned the lock.
    pub lost_owning: u64,
    /// And packets stood behind the lock when it was back.
    pub lost_owning_with_backlog: u64,
    /// How often without the lock.
    pub lost_free: u64,
    /// For how long, with the lock.
    pub off_owning: Bins,
    /// For how long, without.
    pub off_free: Bins,
    /// How often it slept with the lock.
    pub slept_owning: u64,
    /// The thread that lost it with the lock last.
    pub last_owner: Option<Owner>,
}

/// A thread that lost its core with the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// Who got the core.
    pub taker: String,
}

impl Report {
    /// Puts together what belongs together. `pid`: of this process alone.
    pub fn of(
        counted: Counted,
        namespace: Option<Counters>,
        pid: Option<u32>,
        watched_us: u64,
    ) -> Report {
        let mut receivers: BTreeMap<Who, Receiver> = BTreeMap::new();
        let is_meant = |who: &Who| pid.is_none_or(|pid| pid == who.pid);
        receivers.extend(counted.rows.into_iter().filter(|(who, _)| is_meant(who)));
        for seen in counted.watched.iter().filter(|seen| is_meant(&seen.who)) {
            // A connection on which nothing has come tells nothing of a receiver.
            let is_quiet = seen.who.pid == 0 && seen.waiting.total() == 0 && seen.unmeasured == 0;
            if !is_quiet {
                let new = || Receiver::new(seen.who);
                receivers.entry(seen.who).or_insert_with(new).add(seen);
            }
        }
        for (who, receiver) in &mut receivers {
            let other = Service {
                is_peer: !who.service.is_peer,
                ..who.service
            };
            let sender = counted
                .senders
                .iter()
                .find(|(service, _)| *service == other);
            receiver.sender = sender.map(|(_, sender)| *sender);
        }
        Report {
            watched_us,
            receivers: receivers.into_values().collect(),
            namespace,
            missed_rows: counted.missed_rows,
            missed_connections: counted.missed_connections,
        }
    }
}

impl Receiver {
    /// Of which nothing was counted yet.
    fn new(who: Who) -> Receiver {
        Receiver {
            pid: (who.pid != 0).then_some(who.pid),
            port: who.service.port,
            side: if who.service.is_peer { "peer" } else { "local" },
            ..Receiver::default()
        }
    }

    /// From a `struct row`.
    pub fn parse(who: Who, bytes: &[u8]) -> Receiver {
        let mut fields = Fields(bytes);
        let mut of = Receiver::new(who);
        of.to_tcp = Bins::of(&mut fields);
        of.to_copy = Bins::of(&mut fields);
        of.backlogged = Bins::of(&mut fields);
        let core = &mut of.core;
        core.off_owning = Bins::of(&mut fields);
        core.off_free = Bins::of(&mut fields);
        core.lost_free = core.off_free.total();
        core.lost_owning = fields.long();
        core.lost_owning_with_backlog = fields.long();
        core.slept_owning = fields.long();
        of.again = fields.long();
        of.unmeasured = fields.long();
        of.queues.receive_bytes_most = fields.word();
        of.queues.backlog_bytes_most = fields.word();
        of.queues.out_of_order_bytes_most = fields.word();
        let tid = fields.word();
        of.process = Some(fields.name()).filter(|_| of.pid.is_some());
        let (name, taker) = (fields.name(), fields.name());
        core.last_owner = (core.lost_owning > 0).then_some(Owner { name, tid, taker });
        of
    }

    fn add(&mut self, seen: &Watched) {
        let queues = &mut self.queues;
        self.connections += 1;
        for (bin, more) in self.waiting.0.iter_mut().zip(seen.waiting.0) {
            *bin += more;
        }
        self.again += seen.again;
        self.unmeasured += seen.unmeasured;
        queues.receive_bytes += u64::from(seen.queue_bytes);
        queues.out_of_order_bytes += u64::from(seen.gap_bytes);
        let longest = |of: &mut u32, seen: u32| *of = seen.max(*of);
        longest(&mut queues.receive_bytes_most, seen.queue_bytes_most);
        longest(&mut queues.backlog_bytes_most, seen.backlog_bytes_most);
        longest(&mut queues.out_of_order_bytes_most, seen.gap_bytes_most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(pid: u32, is_peer: bool) -> Who {
        let service = Service {
            port: 9_400,
            is_peer,
        };
        Who { pid, service }
    }

    fn counted() -> Counted {
        let row = Receiver {
            process: Some("rx".to_owned()),
            again: 1,
            ..Receiver::new(who(7, false))
        };
        let waits = Watched {
            who: who(7, false),
            waiting: Bins([0, 0, 0, 0, 2, 0]),
            queue_bytes: 99,
            queue_bytes_most: 100,
            again: 2,
            ..Watched::default()
        };
        let unread = Watched {
            who: who(0, false),
            ..waits
        };
        let quiet = Watched {
            who: who(0, true),
            ..Watched::default()
        };
        let sender = Sender {
            timeouts: 3,
            rto_us: 204_000,
            rto_us_most: 205_000,
        };
        Counted {
            rows: vec![(who(7, false), row)],
            watched: vec![waits, waits, unread, quiet],
            senders: vec![(who(0, true).service, sender)],
            ..Counted::default()
        }
    }

    #[test]
    fn a_row_is_read_field_by_field() {
        let mut bytes: Vec<u8> = (1..=35u64).flat_map(u64::to_ne_bytes).collect();
        bytes.extend(
            [101u32, 102, 103, 104]
                .into_iter()
                .flat_map(u32::to_ne_bytes),
        );
        for name in ["receiver", "worker-1", "spin\u{7}"] {
            let mut field = [0; 16];
            field[..name.len()].copy_from_slice(name.as_bytes());
            bytes.extend(field);
        }
        assert_eq!(bytes.len(), 344, "struct row");
        let row = Receiver::parse(who(7, false), &bytes);
        assert_eq!(row.to_tcp, Bins([1, 2, 3, 4, 5, 6]));
        assert_eq!(row.core.off_free.0[5], 30);
        let core = row.core;
        assert_eq!(
            [
                core.lost_owning,
                core.lost_owning_with_backlog,
                core.slept_owning
            ],
            [31, 32, 33]
        );
        assert_eq!([row.again, row.unmeasured], [34, 35]);
        assert_eq!(
            [
                row.queues.receive_bytes_most,
                row.queues.out_of_order_bytes_most
            ],
            [101, 103]
        );
        assert_eq!(row.process.as_deref(), Some("receiver"));
        let owner = core.last_owner.expect("it was lost");
        assert_eq!((owner.tid, owner.name.as_str()), (104, "worker-1"));
        assert_eq!(owner.taker, "spin?", "no control characters on a terminal");
    }

    #[test]
    fn what_waits_joins_its_row_and_an_unread_connection_has_one_of_its_own() {
        let report = Report::of(counted(), None, None, 1);
        let [unread, read] = &report.receivers[..] else {
            panic!("{report:?}");
        };
        assert_eq!(
            (unread.pid, unread.connections, unread.waiting.total()),
            (None, 1, 2)
        );
        assert_eq!(
            (read.pid, read.process.as_deref(), read.connections),
            (Some(7), Some("rx"), 2)
        );
        assert_eq!((read.waiting.0[4], read.again), (4, 5));
        assert_eq!(
            (read.queues.receive_bytes, read.queues.receive_bytes_most),
            (198, 100)
        );
        assert_eq!(read.core.last_owner, None);
        for receiver in &report.receivers {
            assert_eq!(receiver.sender.expect("the other end").timeouts, 3);
        }
    }

    #[test]
    fn one_process_alone() {
        let report = Report::of(counted(), None, Some(7), 1);
        assert_eq!(report.receivers.len(), 1);
        assert!(Report::of(counted(), None, Some(8), 1).receivers.is_empty());
    }
}
