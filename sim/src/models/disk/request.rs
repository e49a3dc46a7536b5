//! Requests to a device, and their completions.

/// Direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data goes to the host.
    Read,
    /// Data comes from the host; it is on the medium when the request completes.
    Write,
}

/// One request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The host's identifier; unique among the requests under way.
    pub id: u64,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Length, at least 1; the range ends within the device.
    pub len_bytes: u64,
    /// Direction.
    pub kind: Kind,
}

impl Request {
    /// First byte after the range.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.len_bytes
    }
}

/// Where the time of a service went. The sum is the time that the device was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Command processing, a flash cell's latency, and time during which the device hung.
    pub overhead_ns: u64,
    /// Arm movement.
    pub seek_ns: u64,
    /// Waiting for the platter to turn; for a bad sector, also the turns of the retries.
    pub rotation_ns: u64,
    /// Medium to host, or from the drive's own memory to the host.
    pub transfer_ns: u64,
}

impl Split {
    /// The sum.
    pub fn busy_ns(&self) -> u64 {
        self.overhead_ns + self.seek_ns + self.rotation_ns + self.transfer_ns
    }

    /// Adds another service.
    pub fn add(&mut self, other: &Split) {
        self.overhead_ns += other.overhead_ns;
        self.seek_ns += other.seek_ns;
        self.rotation_ns += other.rotation_ns;
        self.transfer_ns += other.transfer_ns;
    }
}

/// Completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub request: Request,
    /// When it was submitted.
    pub arrived_ns: u64,
    /// When the device started it (an array: its first member).
    pub started_ns: u64,
    /// When it finished (an array: its last member).
    pub finished_ns: u64,
    /// Where the time went; summed over the members of an array.
    pub split: Split,
    /// Other requests under way when it arrived.
    pub queued_before: usize,
    /// Whether the drive's cache had all of it (an array: all parts).
    pub hit: bool,
    /// It touched a bad region: the host sees EIO.
    pub failed: bool,
}

/// Totals of a device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// Reads that completed.
    pub reads: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Bytes of completed reads, without failed ones.
    pub read_bytes: u64,
    /// Bytes of completed writes, without failed ones.
    pub written_bytes: u64,
    /// Requests that failed in a bad region.
    pub failed: u64,
    /// Reads that the drive's cache answered.
    pub hits: u64,
    /// Where busy time went, summed over members.
    pub split: Split,
    /// Sum over requests of the time from arrival to start.
    pub waited_ns: u64,
}

impl DeviceTotals {
    /// Counts one completion.
    pub fn count(&mut self, completion: &Completion) {
        let (number, bytes) = match completion.request.kind {
            Kind::Read => (&mut self.reads, &mut self.read_bytes),
            Kind::Write => (&mut self.writes, &mut self.written_bytes),
        };
        *number += 1;
        if completion.failed {
            self.failed += 1;
        } else {
            *bytes += completion.request.len_bytes;
        }
        self.hits += u64::from(completion.hit);
        self.split.add(&completion.split);
        self.waited_ns += completion.started_ns - completion.arrived_ns;
    }
}
