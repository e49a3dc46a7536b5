//! Settings of both machines, as the input says.

use ackpace_core::congestion::Delay;
use ackpace_core::disk;
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::prefetch::Prefetch;
use ackpace_core::units::{KIB, MIB};
use ackpace_core::worker::{SendPolicy, Settings};

use super::client::PLACES;
use super::input::Input;

/// Longer than any run, so that no time limit ends a response that the laws require to go on.
const NEVER_US: u64 = u64::MAX / 4;

pub(super) fn settings(input: &mut Input<'_>) -> Settings {
    let send = match input.below(3) {
        0 => SendPolicy::Eager,
        1 => SendPolicy::Margin {
            budget_bytes: 52 * MIB,
        },
        _ => SendPolicy::Margin {
            budget_bytes: 64 * KIB,
        },
    };
    Settings {
        worker: 0,
        connections_max: PLACES,
        connections_per_address: 0,
        header_timeout_us: NEVER_US,
        idle_timeout_us: NEVER_US,
        send_timeout_us: NEVER_US,
        pause_timeout_us: NEVER_US,
        rate_min_bytes_per_s: 0,
        drain_timeout_us: NEVER_US,
        arrivals: input.once_in(2),
        arrivals_bytes_max: 1 << 20,
        send,
        pacing: input.once_in(2),
        delay: input.pick(&[Delay::Rate, Delay::Rate, Delay::Paper, Delay::Off]),
    }
}

pub(super) fn disk_settings(input: &mut Input<'_>) -> disk::Settings {
    let fixed = Prefetch::Fixed {
        read_bytes: 128 * KIB,
    };
    let constant = Prefetch::Rate {
        target_us: 2_000_000,
    };
    disk::Settings {
        prefetch: input.pick(&[Prefetch::Tdap, Prefetch::Tdap, fixed, constant]),
        order: input.pick(&[
            disk::Order::CLook,
            disk::Order::CLook,
            disk::Order::Deadline,
            disk::Order::Arrival,
        ]),
        cancel: !input.once_in(8),
        delay: input.pick(&[Delay::Rate, Delay::Paper, Delay::Off]),
        direct: !input.once_in(4),
        memory_bytes: input.pick(&[8, 64, 1_024, 16]) * SLOT_BYTES,
        page_cache_bytes: input.pick(&[8, 64, 0, u64::MAX / (1 << 20)]) << 20,
        rotational: input.once_in(2),
        spindles: 1,
        reads: input.pick(&[None, None, Some(1), Some(3)]),
        arriving: false,
    }
}

/// A share of the send memory, also a silly one.
pub(super) fn share_bytes(input: &mut Input<'_>) -> u64 {
    input.pick(&[14_480, 60_000, 0, 1, 2_896, 5_000, MIB, u64::MAX])
}
