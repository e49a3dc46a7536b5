//! The figures that make a device: what a data sheet says of it.

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
    /// Tracks of a cylinder: between these the arm does not move (track skew hides the head switch).
    pub heads: u64,
    /// Arm movement.
    pub seek: Seek,
    /// Processing of one command.
    pub overhead_ns: u64,
    /// Rate at which the drive's memory reaches the host.
    pub bus_bytes_per_s: u64,
    /// Read-ahead segments of the drive's memory.
    pub segments: usize,
    /// Length of a segment; the drive reads that far ahead of the host while it is idle. 0: no read-ahead.
    pub segment_bytes: u64,
    /// Order of service.
    pub queue: QueueProfile,
}

/// Seek time by distance d, a fraction of the full stroke: `settle + sqrt * d^0.5 + linear * d`.
/// Nothing within a cylinder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seek {
    /// Constant part.
    pub settle_ns: u64,
    /// Factor of the square root: the arm accelerates.
    pub sqrt_ns: u64,
    /// Factor of the distance: the arm coasts.
    pub linear_ns: u64,
}

/// Which request of the queue is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// The oldest.
    Fifo,
    /// The next one upwards; from the last back to the lowest.
    Clook,
    /// The one with the shortest positioning time, seek and rotation together.
    Sptf,
}

/// A drive's tagged queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProfile {
    /// Order of service.
    pub discipline: Discipline,
    /// The drive chooses among the oldest so many; the others wait in the host.
    pub depth: usize,
    /// A request older than this is served first whatever the discipline says, the oldest of them before.
    pub age_max_ns: u64,
}

/// Equal disks side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayProfile {
    /// Each of them.
    pub disk: DiskProfile,
    /// How many; an even number when mirrored.
    pub disks: usize,
    /// Bytes on one column before the next follows.
    pub chunk_bytes: u64,
    /// RAID-10 (pairs of equal disks) instead of RAID-0.
    pub mirrored: bool,
}

/// Flash: channels side by side, each does one thing at a time in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashProfile {
    /// Capacity.
    pub size_bytes: u64,
    /// Number of channels.
    pub channels: usize,
    /// Bytes on one channel before the next follows.
    pub stripe_bytes: u64,
    /// Time before the first byte.
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
                let columns = array.disks as u64 / if array.mirrored { 2 } else { 1 };
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
                let columns = array.disks as u64 / if array.mirrored { 2 } else { 1 };
                let chunks = size_bytes.div_ceil(columns * array.chunk_bytes);
                array.disk.size_bytes = chunks * array.chunk_bytes;
            }
            Profile::Flash(flash) => flash.size_bytes = size_bytes,
        }
        self
    }
}

/// A disk of 10,000 rpm, 73.4 GB, SCSI, about 2003. The tests of the models measure it;
/// the lab's own file of the same name says the same.
#[cfg(test)]
pub(crate) fn scsi_2003() -> DiskProfile {
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
