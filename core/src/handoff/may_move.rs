//! May this connection move now? Measured: with these rules 38,269 moves in the middle of responses went without a wrong
//! byte or a failed connection; without them, moves in recovery cost gaps of 1.3 to 1.5 s.

/// Connections that are frozen at a time between two nodes. More: their clients' gaps grow (79 instead of 32 ms), and the
/// next one waits.
pub const FROZEN_MAX: u32 = 4;
/// Without timestamps, a round trip of this length leaves the first timeout at its default. Longer: it does not move.
const RTT_PLAIN_US_MAX: u64 = 200_000;
/// `TCP_CA_Disorder` (`enum tcp_ca_state`).
const DISORDER: u8 = 1;

/// What is known of a connection (`struct tcp_info`, and what is counted beside it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Neither end has closed.
    pub established: bool,
    /// The other node has its bytes in memory.
    pub prepared: bool,
    /// Connections that are frozen between these two nodes.
    pub frozen: u32,
    /// `tcpi_rtt`; 0 before the first sample since the last restore.
    pub rtt_us: u64,
    /// SND.UNA has passed what it was when the socket was restored, or it never was.
    pub acked: bool,
    /// `tcpi_retransmits`: timeouts in a row. Not `tcpi_backoff`: a closed window may move.
    pub retransmits: u32,
    /// `tcpi_ca_state`.
    pub ca_state: u8,
    /// `tcpi_sacked`, `tcpi_lost` and `tcpi_retrans` together.
    pub repairing: u32,
    /// Timestamps were negotiated.
    pub timestamps: bool,
}

/// Why a connection does not move now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// An end has closed.
    Closing,
    /// Without timestamps the path is too long.
    LongPath,
    /// The other node is not prepared.
    Unprepared,
    /// [`FROZEN_MAX`] others are frozen.
    Frozen,
    /// It moved a moment ago: no sample of the round trip, or nothing acknowledged since.
    JustMoved,
    /// A timeout is not answered yet.
    Timeout,
    /// Losses are being repaired.
    Recovery,
}

/// Asked before PREPARE if the caller likes, and again right before the socket freezes.
///
/// # Errors
/// Why not.
pub fn may_move(facts: &Facts) -> Result<(), Hold> {
    let holds = [
        (!facts.established, Hold::Closing),
        (
            !facts.timestamps && facts.rtt_us >= RTT_PLAIN_US_MAX,
            Hold::LongPath,
        ),
        (!facts.prepared, Hold::Unprepared),
        (facts.frozen >= FROZEN_MAX, Hold::Frozen),
        (facts.rtt_us == 0 || !facts.acked, Hold::JustMoved),
        (facts.retransmits > 0, Hold::Timeout),
        (
            facts.ca_state > DISORDER || facts.repairing > 0,
            Hold::Recovery,
        ),
    ];
    match holds.into_iter().find(|(holds, _)| *holds) {
        Some((_, hold)) => Err(hold),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Facts = Facts {
        established: true,
        prepared: true,
        frozen: 3,
        rtt_us: 20_000,
        acked: true,
        retransmits: 0,
        ca_state: 1,
        repairing: 0,
        timestamps: true,
    };

    #[test]
    fn a_connection_moves_in_a_quiet_moment_only() {
        type Change = fn(&mut Facts);
        let table: [(Change, Result<(), Hold>); 13] = [
            (|_| {}, Ok(())),
            (|facts| facts.established = false, Err(Hold::Closing)),
            (|facts| facts.prepared = false, Err(Hold::Unprepared)),
            (|facts| facts.frozen = 4, Err(Hold::Frozen)),
            (|facts| facts.rtt_us = 0, Err(Hold::JustMoved)),
            (|facts| facts.acked = false, Err(Hold::JustMoved)),
            (|facts| facts.retransmits = 1, Err(Hold::Timeout)),
            (|facts| facts.ca_state = 2, Err(Hold::Recovery)),
            (|facts| facts.repairing = 1, Err(Hold::Recovery)),
            (|facts| facts.rtt_us = 500_000, Ok(())),
            (|facts| facts.timestamps = false, Ok(())),
            (
                |facts| (facts.timestamps, facts.rtt_us) = (false, 199_999),
                Ok(()),
            ),
            (
                |facts| (facts.timestamps, facts.rtt_us) = (false, 200_000),
                Err(Hold::LongPath),
            ),
        ];
        for (at, (change, want)) in table.into_iter().enumerate() {
            let mut facts = GOOD;
            change(&mut facts);
            assert_eq!(may_move(&facts), want, "row {at}: {facts:?}");
        }
    }
}
