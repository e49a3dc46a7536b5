//! The bounds of residency.

use crate::units::{KIB, US_PER_S};

/// The most that one sendfile(2) sends of pages that another program may drop meanwhile: the 16 pages that it takes from
/// the page cache before it gives any to the socket (splice(2), PIPE_DEF_BUFFERS). More: it comes to the others after the
/// socket's work, and they may be gone by then. Less: more calls and questions.
pub const UNPROVEN_SEND_BYTES_MAX: u64 = 64 * KIB;
/// How long the kernel's answer that bytes are in memory holds within its turn, microseconds; most turns are shorter.
/// Longer: it is asked again.
pub const CONFIRMED_US: u64 = 50;
/// How often the kernel is asked about one piece, if each answer is too old when the piece is to be sent. More: a worker
/// that loses its core again and again sends nothing.
pub const QUESTIONS_MAX: u32 = 3;
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
/// A send that takes so long has waited for a page that was dropped, microseconds. Shorter: a worker that was off its processor
/// meanwhile looks the same.
pub const SEND_WAITED_US: u64 = 20_000;
/// How long sends from the page cache are copied, which never waits, after pages went missing that had just been there,
/// microseconds. Longer: a processor copies more. Shorter: a wait for the disk is risked again.
pub const DOUBT_US_MIN: u64 = 10 * US_PER_S;
/// How long at most, if pages went missing for so long, microseconds.
pub const DOUBT_US_MAX: u64 = 600 * US_PER_S;
/// Where the kernel does not report each page, one in this many bytes is checked: the least that a program that reads a
/// file from its start reads at once.
pub const SAMPLE_BYTES: u64 = 16 * KIB;
/// Windows whose residency is remembered by one worker. A collision costs one question.
pub const RESIDENCY_CACHED_MAX: usize = 4096;
/// How long "this window is in memory" is believed without asking again.
pub const RESIDENCY_TRUST_US: u64 = 250_000;
