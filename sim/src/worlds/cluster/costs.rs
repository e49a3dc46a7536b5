//! What things cost: a machine of 1998 (DTCP 4.4, from LARD), and a hand-off as it was measured on Linux.

/// Payload of a packet.
const MSS_BYTES: u64 = 1_460;

/// Times are nanoseconds of the CPU unless they say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// To open a connection, and again to close it. LARD says "each"; DTCP leaves the word out. With it, 8 KB take
    /// 2 x 145 + 640 us: LARD's 1,075 requests per second.
    pub connection_ns: u64,
    /// To send or receive so many bytes.
    pub unit_ns: u64,
    /// How many.
    pub unit_bytes: u64,
    /// Time of the disk to find a file.
    pub seek_ns: u64,
    /// Time of the disk to read a byte: 10 MB/s.
    pub disk_ns_per_byte: u64,
    /// Time of an adaptor for a byte. The paper gives none; with 1 Gbit/s adaptors never bind.
    pub adaptor_ns_per_byte: u64,
    /// Longer files are not cached.
    pub cached_bytes_max: u32,
    /// A request, bytes.
    pub request_bytes: u64,
    /// The state of a connection that moves, bytes: measured.
    pub state_bytes: u64,
    /// One end of one way of a hand-off. Measured: there and back, both ends cost 2.4 times a relay of 10 KB.
    pub move_end_ns: u64,
    /// How long a move takes each way, beside the CPU: measured.
    pub move_latency_ns: u64,
    /// From which length on a hand-off, there and back, costs less than a relay.
    pub break_even_bytes: u64,
    /// To forward an ACK to another node: what LARD's prototype needed for a packet.
    pub ack_ns: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        let (unit_ns, unit_bytes) = (40_000, 512);
        let relay_10_kb_ns = 2 * unit_ns * (10 << 10) / unit_bytes;
        Costs {
            connection_ns: 145_000,
            unit_ns,
            unit_bytes,
            seek_ns: 14_000_000,
            disk_ns_per_byte: 100,
            adaptor_ns_per_byte: 8,
            cached_bytes_max: 500 << 10,
            request_bytes: 300,
            state_bytes: 272,
            move_end_ns: relay_10_kb_ns * 24 / 10 / 4,
            move_latency_ns: 125_000,
            break_even_bytes: (10 << 10) * 24 / 10,
            ack_ns: 9_000,
        }
    }
}

impl Costs {
    /// To send so many bytes.
    pub fn send_ns(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.unit_bytes) * self.unit_ns
    }

    /// Of the disk, for a file.
    pub fn read_ns(&self, bytes: u64) -> u64 {
        self.seek_ns + bytes * self.disk_ns_per_byte
    }

    /// ACKs for a response: one for two packets.
    pub fn acks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(2 * MSS_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_serves_8_kb_from_memory_1075_times_a_second() {
        let costs = Costs::default();
        let request_ns = 2 * costs.connection_ns + costs.send_ns(8 << 10);
        assert_eq!(1_000_000_000 / request_ns, 1_075);
        assert_eq!(costs.read_ns(1_000_000), 114_000_000);
        assert_eq!(
            (costs.move_end_ns, costs.break_even_bytes),
            (960_000, 24_576)
        );
    }
}
