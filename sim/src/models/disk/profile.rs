//! The parameters of a device, as its data sheet gives them.

/// Any device that the models know.
#[derive(Clone, Debug, PartialEq)]
pub enum Profile {
    /// One hard disk.
    Disk(DiskProfile),
    /// Several equal hard disks, striped.
    Array(ArrayProfile),
    /// Flash memory.
    Flash(FlashProfile),
}

/// A hard disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskProfile {
    /// Capacity.
    pub size_bytes: u64,
    /// Revolutions per minute.
    pub rpm: u64,
    /// Media rate of the outermost zone, where offset 0 is.
    pub rate_outer_bytes_per_s: u64,
    /// Media rate of the innermost zone.
    pub rate_inner_bytes_per_s: u64,
    /// Zones of equally many tracks; their rates fall evenly from outer to inner.
    pub zones: u64,
    /// Tracks per cylinder. The arm does not move between them (track skew hides the head switch).
    pub heads: u64,
    /// Seek curve.
    pub seek: Seek,
    /// Processing time of one command.
    pub overhead_ns: u64,
    /// Rate from the drive's cache to the host.
    pub bus_bytes_per_s: u64,
    /// Read-ahead segments of the drive's cache.
    pub segments: usize,
    /// Length of a segment: an idle drive reads that far ahead of the host. 0: no read-ahead.
    pub segment_bytes: u64,
    /// Order of service.
    pub queue: QueueProfile,
}

/// Seek time by distance d, a fraction of the full stroke: `settle + sqrt * d^0.5 + linear * d`. A seek within a
/// cylinder takes no time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seek {
    /// Constant part.
    pub settle_ns: u64,
    /// Factor of the square root: the arm accelerates.
    pub sqrt_ns: u64,
    /// Factor of the distance: the arm coasts.
    pub linear_ns: u64,
}

/// Which request of the queue is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// The oldest.
    Fifo,
    /// The next higher offset; after the highest, back to the lowest.
    Clook,
    /// The one with the shortest positioning time, seek and rotation together.
    Sptf,
}

/// A drive's tagged queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProfile {
    /// Order of service.
    pub discipline: Discipline,
    /// The drive chooses among this many of the oldest requests; the others wait in the host.
    pub depth: usize,
    /// A request older than this is served first whatever the discipline says, the oldest of such requests before the
    /// others.
    pub age_max_ns: u64,
}

/// Equal disks, striped.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayProfile {
    /// One of them.
    pub disk: DiskProfile,
    /// Number of disks.
    pub disks: usize,
    /// Bytes on one column before the next column follows.
    pub chunk_bytes: u64,
}

/// Flash: parallel channels, each of which serves one request at a time in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashProfile {
    /// Capacity.
    pub size_bytes: u64,
    /// Number of channels.
    pub channels: usize,
    /// Bytes on one channel before the next channel follows.
    pub stripe_bytes: u64,
    /// Latency before the first byte.
    pub latency_ns: u64,
    /// Rate of one channel.
    pub channel_bytes_per_s: u64,
}

impl Profile {
    /// Capacity of the whole device.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Profile::Disk(disk) => disk.size_bytes,
            Profile::Array(array) => {
                let columns = array.disks as u64;
                columns * (array.disk.size_bytes / array.chunk_bytes * array.chunk_bytes)
            }
            Profile::Flash(flash) => flash.size_bytes,
        }
    }

    /// The same device with another capacity. A smaller disk has fewer tracks, not slower ones, and
    /// its arm still needs the full time for the full stroke.
    pub fn with_size(mut self, size_bytes: u64) -> Self {
        match &mut self {
            Profile::Disk(disk) => disk.size_bytes = size_bytes,
            Profile::Array(array) => {
                let columns = array.disks as u64;
                let chunks = size_bytes.div_ceil(columns * array.chunk_bytes);
                array.disk.size_bytes = chunks * array.chunk_bytes;
            }
            Profile::Flash(flash) => flash.size_bytes = size_bytes,
        }
        self
    }
}

/// A SCSI disk of 10,000 rpm and 73.4 GB, about 2003. The tests measure it, and the soak draws others from it; the lab's
/// `10k-scsi-2003` has the same values.
pub fn scsi_2003() -> DiskProfile {
    DiskProfile {
        size_bytes: 73_400_000_000,
        rpm: 10_000,
        rate_outer_bytes_per_s: 62_000_000,
        rate_inner_bytes_per_s: 38_000_000,
        zones: 16,
        heads: 8,
        seek: Seek {
            settle_ns: 400_000,
            sqrt_ns: 6_000_000,
            linear_ns: 3_300_000,
        },
        overhead_ns: 150_000,
        bus_bytes_per_s: 200_000_000,
        segments: 16,
        segment_bytes: 512 << 10,
        queue: QueueProfile {
            discipline: Discipline::Sptf,
            depth: 32,
            age_max_ns: 1_000_000_000,
        },
    }
}
