//! The bounds of residency.

use crate::units::{KIB, MIB};

/// How long what the kernel told of a file's version holds within its turn, microseconds; most turns are shorter.
/// Longer: it is asked again.
pub const CONFIRMED_US: u64 = 1_000;
/// Reads after which a device may count as fast. Fewer: a disk with an arm that reads from its own cache looks fast.
pub const LATENCY_READS: u16 = 16;
/// As many short reads outweigh a long one. More: a device counts as slow for longer after a busy hour. Fewer: one whose reads
/// mostly come from the memory of a controller, or of another machine, counts as fast.
pub const LONG_READ_WEIGHT: u16 = 500;
/// What all long reads weigh at most.
pub const LONG_READS_WEIGH_MAX: u16 = 4 * LONG_READ_WEIGHT;
/// How long a read of a fast device takes, microseconds, without its bytes. Longer: a send whose pages were dropped reads 2 MiB
/// in 32 requests and keeps a worker for long. Shorter: solid-state disks that are busy count as slow.
pub const SHORT_READ_US: u64 = 2_000;
/// A read that took less, and less than its bytes at [`MEMORY_BYTES_PER_S`], asked no device: there is a hole in its file.
pub const DEVICE_READ_US_MIN: u64 = 20;
/// How fast memory is filled with zeroes at least.
pub const MEMORY_BYTES_PER_S: u64 = 8_000_000_000;
/// How fast the bytes of a read of a fast device come at least.
pub const SHORT_READ_BYTES_PER_S: u64 = 200_000_000;
/// How much is read at once to find out.
pub const LATENCY_READ_BYTES: u64 = 64 * KIB;
/// The least length of a file that shows it: sixteen places so far apart that a disk with an arm has not read the next one
/// by itself. Shorter: it looks fast.
pub const LATENCY_FILE_BYTES_MIN: u64 = 16 * MIB;
/// A send that takes so long counts as a long read of its device, microseconds. Shorter: a worker that lost its processor, too.
pub const SEND_WAITED_LONG_US: u64 = 50_000;
/// Windows whose residency is remembered by one worker. A collision costs one question.
pub const RESIDENCY_CACHED_MAX: usize = 4096;
/// How long "this window is in memory" is believed without asking again. Longer: what was dropped is missed later. Shorter: a
/// client that takes a window slowly has it asked about again and again.
pub const RESIDENCY_TRUST_US: u64 = 1_000_000;
