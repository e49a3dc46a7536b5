//! Linux's view of a TCP connection: parses `struct tcp_info` (tcp(7), TCP_INFO; include/uapi/linux/tcp.h).
//!
//! getsockopt(2) and sock_diag(7) return the same bytes. The kernel only appends fields and never moves one, so
//! offsets are stable and an older kernel returns fewer bytes. The structure in the libc crate ends before
//! `tcpi_snd_wnd`.

/// Bytes to ask the kernel for: all fields read here, as of Linux 5.4. The kernel truncates a longer structure.
pub const LEN_BYTES: usize = 232;

/// The fields in use. Names are the kernel's without `tcpi_`, with their units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of the connection: 1 established (`enum` in net/tcp_states.h).
    pub state: u8,
    /// Timeouts in a row that nothing answered.
    pub retransmits: u8,
    /// Timestamps were negotiated (RFC 7323).
    pub timestamps: bool,
    /// Segments that were selectively acknowledged, are taken for lost, or were sent again and are not acknowledged.
    pub repairing_segments: u32,
    /// State of congestion control: 0 open, 1 disorder, 2 reduced window, 3 recovery, 4 loss (`enum tcp_ca_state`).
    pub ca_state: u8,
    /// Unanswered probes of a closed window or of an idle connection.
    pub probes: u8,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Payload of a full segment sent by this side.
    pub snd_mss_bytes: u32,
    /// Time since this side sent payload last. The kernel counts in ticks of some milliseconds.
    pub last_data_sent_ms: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Slow-start threshold; `0x7fff_ffff` means none yet.
    pub snd_ssthresh_segments: u32,
    /// Congestion window.
    pub snd_cwnd_segments: u32,
    /// Segments retransmitted since the connection began.
    pub total_retrans_segments: u32,
    /// Payload that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Payload written but not yet sent.
    pub notsent_bytes: u32,
    /// Minimum recent round-trip time; `u32::MAX` before the first sample.
    pub min_rtt_us: u32,
    /// Segments with payload that were sent, again ones included.
    pub data_segs_out_segments: u32,
    /// Time with data in flight.
    pub busy_time_us: u64,
    /// The part of `busy_time_us` in which the receiver's window was the limit.
    pub rwnd_limited_us: u64,
    /// The part of `busy_time_us` in which the send buffer was the limit.
    pub sndbuf_limited_us: u64,
    /// Segments that arrived with "congestion experienced".
    pub delivered_ce_segments: u32,
    /// The peer's receive window; `None` before Linux 5.4.
    pub snd_wnd_bytes: Option<u32>,
}

impl TcpInfo {
    /// Parses what the kernel wrote, in this machine's byte order. `None` if there are fewer bytes than Linux
    /// 4.18 returns, as for a socket that is not TCP.
    pub fn parse(bytes: &[u8]) -> Option<TcpInfo> {
        Some(TcpInfo {
            state: *bytes.first()?,
            retransmits: *bytes.get(2)?,
            timestamps: *bytes.get(5)? & 1 != 0,
            repairing_segments: [28, 32, 36]
                .into_iter()
                .try_fold(0u32, |sum, at| Some(sum.saturating_add(word(bytes, at)?)))?,
            ca_state: *bytes.get(1)?,
            probes: *bytes.get(3)?,
            rto_us: word(bytes, 8)?,
            snd_mss_bytes: word(bytes, 16)?,
            last_data_sent_ms: word(bytes, 44)?,
            rtt_us: word(bytes, 68)?,
            snd_ssthresh_segments: word(bytes, 76)?,
            snd_cwnd_segments: word(bytes, 80)?,
            total_retrans_segments: word(bytes, 100)?,
            bytes_acked: long(bytes, 120)?,
            notsent_bytes: word(bytes, 144)?,
            min_rtt_us: word(bytes, 148)?,
            data_segs_out_segments: word(bytes, 156)?,
            busy_time_us: long(bytes, 168)?,
            rwnd_limited_us: long(bytes, 176)?,
            sndbuf_limited_us: long(bytes, 184)?,
            delivered_ce_segments: word(bytes, 196)?,
            snd_wnd_bytes: word(bytes, 228),
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_at_their_places_and_older_kernels_have_fewer() {
        let bytes: Vec<u8> = (0..=231).collect();
        let info = TcpInfo::parse(&bytes).unwrap();
        let word_at = |at: u8| u32::from_ne_bytes([at, at + 1, at + 2, at + 3]);
        assert_eq!((info.ca_state, info.probes), (1, 3));
        assert_eq!(
            (info.state, info.retransmits, info.timestamps),
            (0, 2, true)
        );
        let repairing = word_at(28)
            .wrapping_add(word_at(32))
            .wrapping_add(word_at(36));
        assert_eq!(info.repairing_segments, repairing);
        assert_eq!(info.snd_mss_bytes, word_at(16));
        assert_eq!(info.last_data_sent_ms, word_at(44));
        assert_eq!(
            (info.rto_us, info.data_segs_out_segments),
            (word_at(8), word_at(156))
        );
        assert_eq!(info.delivered_ce_segments, word_at(196));
        assert_eq!(info.snd_wnd_bytes, Some(word_at(228)));
        let older = TcpInfo::parse(&bytes[..LEN_BYTES - 1]).unwrap();
        assert_eq!(
            older,
            TcpInfo {
                snd_wnd_bytes: None,
                ..info
            }
        );
        for len in 0..200 {
            assert_eq!(TcpInfo::parse(&bytes[..len]), None, "{len}");
        }
        assert!(TcpInfo::parse(&bytes[..200]).is_some());
    }
}
