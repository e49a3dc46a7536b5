//! The bounds of residency.

use crate::units::{KIB, MIB, US_PER_S};

/// The most that one sendfile(2) sends of pages that another program may drop meanwhile, where a wait for one is short. More:
/// a call that has met a drop reads more of them, one by one. Less: more calls (64 KiB: 7 % more CPU time; 512 KiB: 3 %).
pub const SEND_BYTES_SHORT_WAIT_MAX: u64 = MIB;
/// The same where a wait may be long and nothing can be copied: the 16 pages that a call takes from the page cache before it
/// gives any to the socket (splice(2), PIPE_DEF_BUFFERS).
pub const SEND_BYTES_LONG_WAIT_MAX: u64 = 64 * KIB;
/// How long the kernel's answer that bytes are in memory holds within its turn, microseconds; most turns are shorter.
/// Longer: it is asked again.
pub const CONFIRMED_US: u64 = 1_000;
/// How long the kernel's count of scanned pages is relied on at least, microseconds. Shorter: reading it costs more than it saves.
pub const SCANS_HOLD_US_MIN: u64 = 20_000;
/// How long at most, microseconds. Longer: pages could be dropped and read again by another program meanwhile.
pub const SCANS_HOLD_US_MAX: u64 = 100_000;
/// How long windows that were entered in page tables count as resident without a question, microseconds. Longer: pages that
/// are taken out by DAMON are not missed.
pub const EPOCH_US_MAX: u64 = 10 * US_PER_S;
/// While pages are in doubt it is relied on for so long only, microseconds. Shorter: reading it costs as much as copying.
pub const DOUBT_READ_US: u64 = 2_000;
/// One in so many microseconds of a processor may go into reading that count. Fewer: it is noticeable on large machines.
pub const SCANS_SHARE: u64 = 200;
/// A piece that takes so long while its worker sleeps has waited for a page that was dropped, microseconds: no more is sent
/// without a question. Shorter: more calls are asked whether they slept.
pub const SEND_WAITED_US: u64 = 2_000;
/// Reads after which a device may count as fast. Fewer: a disk with an arm that reads from its own cache looks fast.
pub const LATENCY_READS: u16 = 16;
/// As many short reads outweigh a long one. More: a device counts as slow for longer after a busy hour. Fewer: one whose reads
/// mostly come from the memory of a controller, or of another machine, counts as fast.
pub const LONG_READ_WEIGHT: u16 = 500;
/// What all long reads weigh at most.
pub const LONG_READS_WEIGH_MAX: u16 = 4 * LONG_READ_WEIGHT;
/// How long a read of a fast device takes, microseconds, without its bytes. Longer: a lost race, which reads at most the 128 pages
/// of a call in some requests, keeps a worker for long. Shorter: solid-state disks that are busy count as slow.
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
/// A piece that takes so long counts as a long read of its device, microseconds. Shorter: a worker that lost its processor, too.
pub const SEND_WAITED_LONG_US: u64 = 50_000;
/// For how long entered windows of slow devices are sent only with a fresh proof, after pages went missing that had just been
/// there, microseconds. Longer: a processor looks at the kernel's counts more. Shorter: a wait for the disk is risked again.
pub const DOUBT_US_MIN: u64 = 10 * US_PER_S;
/// How long at most, if pages went missing for so long, microseconds.
pub const DOUBT_US_MAX: u64 = 600 * US_PER_S;
/// Where the kernel does not report each page, one in this many bytes is checked: the least that a program that reads a
/// file from its start reads at once.
pub const SAMPLE_BYTES: u64 = 16 * KIB;
/// One in so many bytes is checked where pages are counted: half of what the kernel reads ahead at once, by default. Smaller:
/// more calls. Larger: a worker waits for another program's reads.
pub const COARSE_SAMPLE_BYTES: u64 = 64 * KIB;
/// Windows whose residency is remembered by one worker. A collision costs one question.
pub const RESIDENCY_CACHED_MAX: usize = 4096;
/// How long "this window is in memory" is believed without asking again, where the kernel tells of pages. Longer: what was dropped is missed later, which costs a
/// question on slow disks and some short reads on fast ones. Shorter: a client that takes a window slowly has it asked about
/// again and again.
pub const RESIDENCY_TRUST_US: u64 = 1_000_000;
/// The same where it does not. On an overlay of other users' files nobody notices a page that was dropped, and a send waits for it.
pub const RESIDENCY_TRUST_BLIND_US: u64 = 250_000;
const _: () = assert!(
    SEND_BYTES_SHORT_WAIT_MAX / (128 * KIB) * SHORT_READ_US <= 20_000,
    "a lost race on a fast disk, read by the kernel's usual readahead, is over soon"
);
