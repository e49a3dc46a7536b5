//! What the kernel counts of retransmission timeouts for a whole network namespace (/proc/net/netstat): how many there
//! were, and how many proved needless, by the way in which the sender found out.

use std::fs;

use serde::Serialize;

/// Counts of this network namespace's senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Expiries of retransmission timers (TCPTimeouts).
    pub timeouts: u64,
    /// Timeouts found needless by F-RTO (TCPSpuriousRTOs; RFC 5682).
    pub undone_by_frto: u64,
    /// Timeouts found needless by timestamps (TCPLossUndo without those of F-RTO; Eifel, RFC 3522).
    pub undone_by_timestamps: u64,
    /// Recoveries found needless by DSACK, those after a timeout among them (TCPDSACKUndo; RFC 3708). The kernel does not
    /// tell these apart.
    pub undone_by_dsack: u64,
}

impl Counters {
    /// As they are now; `None` where /proc does not tell.
    pub fn now() -> Option<Counters> {
        Counters::parse(&fs::read_to_string("/proc/self/net/netstat").ok()?)
    }

    /// From the text of /proc/net/netstat: a line with names, then one with values.
    pub fn parse(text: &str) -> Option<Counters> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let value = |wanted: &str| {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs
                .find(|(name, _)| *name == wanted)?
                .1
                .parse::<u64>()
                .ok()
        };
        let undone_by_frto = value("TCPSpuriousRTOs")?;
        Some(Counters {
            timeouts: value("TCPTimeouts")?,
            undone_by_frto,
            undone_by_timestamps: value("TCPLossUndo")?.saturating_sub(undone_by_frto),
            undone_by_dsack: value("TCPDSACKUndo")?,
        })
    }

    /// What has come since `before`.
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            timeouts: self.timeouts.saturating_sub(before.timeouts),
            undone_by_frto: self.undone_by_frto.saturating_sub(before.undone_by_frto),
            undone_by_timestamps: self
                .undone_by_timestamps
                .saturating_sub(before.undone_by_timestamps),
            undone_by_dsack: self.undone_by_dsack.saturating_sub(before.undone_by_dsack),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "TcpExt: SyncookiesSent TCPTimeouts TCPLossUndo TCPDSACKUndo TCPSpuriousRTOs\n\
                        TcpExt: 0 9 5 2 3\nIpExt: InNoRoutes\nIpExt: 4\n";

    #[test]
    fn needless_timeouts_are_told_apart() {
        let read = Counters::parse(TEXT).expect("all there");
        assert_eq!((read.timeouts, read.undone_by_frto), (9, 3));
        assert_eq!((read.undone_by_timestamps, read.undone_by_dsack), (2, 2));
        assert_eq!(read.since(read), Counters::default());
        assert_eq!(Counters::parse("TcpExt: TCPTimeouts\nTcpExt: 1\n"), None);
        assert_eq!(Counters::parse(""), None);
    }
}
