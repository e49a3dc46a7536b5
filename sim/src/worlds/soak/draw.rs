//! Draws a world of downloads: its device, its clients, its bounds and its faults.

use ackpace_core::congestion::Delay;
use ackpace_core::disk::{self, Order};
use ackpace_core::limits::{SEND_QUEUE_BYTES, SLOT_BYTES};
use ackpace_core::prefetch::Prefetch;
use ackpace_core::units::{Instant, KIB, MIB};
use ackpace_core::worker::SendPolicy;

use crate::models::disk::profile::{
    ArrayProfile, Discipline, DiskProfile, FlashProfile, Profile, QueueProfile, scsi_2003,
};
use crate::worlds::delivery::{Download, Fault, Faults, World};
use crate::worlds::dice::Dice;
use crate::worlds::socket::{Change, Client, Pace};

/// Most clients of a world.
const CLIENTS_MAX: u64 = 200;
/// The longest file.
const FILE_BYTES_MAX: u64 = 8 * MIB;
/// At the first rate of its path, a client gets the whole file within this time, so that worlds end soon.
const DOWNLOAD_MAX_S: u64 = 60;
/// Clients start and faults happen within this time.
const BUSY_US: u64 = 30_000_000;
/// A world has to be over by then, which is much later than the slowest disk and client need.
const ENDS_AT: Instant = Instant { us: 7_200_000_000 };

pub(super) fn world(dice: &mut Dice, faulty: bool) -> World {
    let clients = dice.between(1, CLIENTS_MAX);
    let files = 1 + dice.below(clients) as u32;
    let file_bytes = dice.between(1, FILE_BYTES_MAX);
    let profile = profile(dice);
    let faults = if faulty {
        let each_bytes = profile.size_bytes() / u64::from(files);
        faults(dice, files, file_bytes, each_bytes)
    } else {
        Faults::default()
    };
    World {
        downloads: (0..clients)
            .map(|_| download(dice, files, file_bytes))
            .collect(),
        files,
        file_bytes,
        profile,
        page_cache_bytes: dice.pick(&[16, 64, 1 << 20]) * MIB,
        disk: settings(dice),
        send: match dice.below(4) {
            0 => SendPolicy::Eager,
            1 => SendPolicy::Margin {
                budget_bytes: 64 * KIB,
            },
            _ => SendPolicy::Margin {
                budget_bytes: SEND_QUEUE_BYTES,
            },
        },
        measured_from: Instant { us: 0 },
        ends_at: ENDS_AT,
        faults,
    }
}

fn download(dice: &mut Dice, files: u32, file_bytes: u64) -> Download {
    let slowest_bytes_per_s = 2_000.max(file_bytes / DOWNLOAD_MAX_S);
    let rate_bytes_per_s = dice.between(slowest_bytes_per_s, 20_000_000);
    let starts_at = Instant {
        us: 1 + dice.below(BUSY_US / 2),
    };
    let change = dice.once_in(4).then(|| Change {
        at: starts_at.plus_us(dice.below(BUSY_US / 2)),
        percent: dice.pick(&[20, 50, 90, 200, 500]),
    });
    let pace = match dice.below(4) {
        0 => Pace::Swings,
        1 => Pace::Unsteady(dice.any()),
        _ => Pace::Steady,
    };
    Download {
        client: Client {
            rate_bytes_per_s,
            starts_at,
            change,
            pace,
            socket_bytes: dice.between(16 * KIB, 2 * MIB),
        },
        file: dice.below(files.into()) as u32,
        from_bytes: if dice.once_in(3) {
            dice.below(file_bytes)
        } else {
            0
        },
        resets_at: dice
            .once_in(5)
            .then(|| starts_at.plus_us(dice.between(1, BUSY_US))),
    }
}

fn settings(dice: &mut Dice) -> disk::Settings {
    let fixed = Prefetch::Fixed {
        read_bytes: 128 * KIB,
    };
    let constant = Prefetch::Rate {
        target_us: 2_000_000,
    };
    disk::Settings {
        prefetch: dice.pick(&[Prefetch::Tdap, Prefetch::Tdap, fixed, constant]),
        order: dice.pick(&[Order::CLook, Order::CLook, Order::Deadline, Order::Arrival]),
        cancel: !dice.once_in(8),
        delay: dice.pick(&[Delay::Rate, Delay::Paper, Delay::Off]),
        direct: !dice.once_in(4),
        memory_bytes: dice.pick(&[8, 64, 1_024, 4_096]) * SLOT_BYTES,
        page_cache_bytes: dice.pick(&[0, 8, 64, 1 << 20]) * MIB,
        rotational: dice.once_in(2),
        spindles: dice.pick(&[1, 1, 4]),
        reads: dice.pick(&[None, None, Some(1), Some(3)]),
        arriving: dice.once_in(4),
    }
}

fn profile(dice: &mut Dice) -> Profile {
    let disk = DiskProfile {
        size_bytes: dice.between(8, 64) << 30,
        rpm: dice.pick(&[5_400, 7_200, 15_000]),
        rate_outer_bytes_per_s: dice.between(20_000_000, 200_000_000),
        rate_inner_bytes_per_s: 20_000_000,
        segment_bytes: dice.pick(&[0, 524_288]),
        queue: QueueProfile {
            discipline: dice.pick(&[Discipline::Fifo, Discipline::Clook, Discipline::Sptf]),
            depth: dice.pick(&[1, 4, 32]),
            age_max_ns: 1_000_000_000,
        },
        ..scsi_2003()
    };
    match dice.below(4) {
        0 => Profile::Array(ArrayProfile {
            disk,
            disks: 4,
            chunk_bytes: dice.pick(&[64 * KIB, MIB]),
        }),
        1 => Profile::Flash(FlashProfile {
            size_bytes: 64 << 30,
            channels: dice.pick(&[1, 8]),
            stripe_bytes: 64 * KIB,
            latency_ns: dice.between(20_000, 500_000),
            channel_bytes_per_s: dice.between(20_000_000, 500_000_000),
        }),
        _ => Profile::Disk(disk),
    }
}

fn faults(dice: &mut Dice, files: u32, file_bytes: u64, each_bytes: u64) -> Faults {
    let bad = (0..dice.below(3)).map(|_| {
        let file = dice.below(files.into());
        let start = file * (each_bytes / 4096 * 4096) + dice.below(file_bytes);
        start..start + dice.between(1, 64 * KIB)
    });
    let bad = bad.collect();
    let mut timed = Vec::new();
    for _ in 0..dice.between(1, 8) {
        let at = Instant {
            us: dice.below(BUSY_US),
        };
        let file = dice.below(files.into()) as u32;
        match dice.below(6) {
            0 => {
                let us = dice.between(1_000, 20_000_000);
                timed.push((at, Fault::Hangs));
                timed.push((at.plus_us(us), Fault::Resumes));
            }
            1 => {
                let len_bytes = dice.below(file_bytes);
                timed.push((at, Fault::Truncated { file, len_bytes }));
            }
            2 => timed.push((at, Fault::Written { file })),
            3 => {
                let memory_bytes = dice.pick(&[8, 16, 256]) * SLOT_BYTES;
                timed.push((at, Fault::Pool { memory_bytes }));
            }
            _ => timed.push((at, Fault::Evicted)),
        }
    }
    timed.sort_by_key(|(at, _)| *at);
    Faults { bad, timed }
}
