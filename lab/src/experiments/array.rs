//! Throughput of one disk, four striped disks, and flash: does the server use the whole device?

use super::slow_disk::{self, PLAIN, beside_nginx, local, place, viewers};
use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::place::Disk;
use crate::sweep::{Axis, Point};
use crate::workloads::Swarm;
use ackpace_lab_disk::profile;
use ackpace_lab_swarm::workload::Class;
use ackpace_sim::models::array::Device;
use ackpace_sim::models::closed::{self, Host, Pattern};

const PROFILES: [&str; 3] = ["7200-sata", "raid0-4x7200", "flash"];
const CLIENTS: u32 = 100;
/// 800 MB/s together: more than any of the devices delivers.
const CLIENT_BITS_PER_S: u64 = 64_000_000;
const FILM: Set = Set::Files {
    name: "film",
    count: CLIENTS as usize + 1,
    len_bytes: 2 << 30,
};
const MEMORY_MIB: u64 = 1024;
/// Requests in flight when the model's own rate is computed. Their length is the kernel's maximum.
const DEPTH: usize = 8;
const REQUEST_BYTES: u64 = 512 << 10;

/// Goodput for each device.
pub fn experiment() -> Experiment {
    let array: fn(&Point) -> bool = |at| at.count("device") == 1;
    let flash: fn(&Point) -> bool = |at| at.count("device") == 2;
    let goodput = "goodput_bytes_per_s";
    let over = |metric, title| Figure::over("device", metric, title);
    Experiment {
        asks: "100 clients of 8 MB/s want more than the device has: a disk of 7,200 rpm, four of these in stripes of 256 KB, and \
            flash with eight channels. Do four disks give four times what one gives, and does flash give what it can (the same model, \
            read at random with 8 requests of 512 KB under way)? The emulated devices and the clients share a core: its figure beside \
            tells when that, and no server, was the limit.",
        sweep: vec![Axis::named(
            "device",
            "device",
            &["one disk", "four disks", "flash"],
        )],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 8.0,
            window_s: 15.0,
            window_quick_s: 5.0,
        },
        judged: vec![
            Judge::over_itself(goodput, "device", 0.0, Limit::MedianRatioAtLeast(3.5)).at(array),
            Judge::alone(
                "goodput_of_ideal_share",
                Fold::Median,
                Limit::ValueAtLeast(0.95),
            )
            .at(flash),
            Judge::best_of(goodput, PLAIN, Limit::MedianRatioAtLeast(1.0)),
            Judge::alone("lab_core_share", Fold::Max, Limit::None),
        ],
        figures: vec![
            over(goodput, "Goodput"),
            over("disk_busy_share", "Devices busy"),
            over("cpu_s_per_gb", "CPU time of the server"),
            over("disk_read_mean_bytes", "Length of a read"),
        ],
        ..beside_nginx("array", "One disk, four striped ones, flash", scenario)
    }
}

fn scenario(at: &Point) -> Scenario {
    let profile = PROFILES[at.count("device").min(PROFILES.len() - 1)];
    let film = Class {
        receive_buffer_bytes: Some(512 << 10), // on loopback this buffer holds the server's pages
        ..viewers("film", CLIENTS, CLIENT_BITS_PER_S)
    };
    let mut place = place(&[FILM], MEMORY_MIB);
    place.disk = Disk::Emulated {
        profile,
        read_ahead_kb: 128,
        cached: &[],
    };
    let (place, swarm) = local(place, vec![film]);
    let swarm = Swarm {
        ideal_bytes_per_s: (profile == "flash")
            .then(|| model_bytes_per_s(profile))
            .flatten(),
        ..swarm
    };
    slow_disk::scenario((place, swarm))
}

/// Throughput of the device's model under direct load, in bytes/s.
fn model_bytes_per_s(name: &str) -> Option<f64> {
    let mut device = Device::new(&profile::load(name).ok()?);
    let reads = Pattern::Random { seed: 1 };
    let reads = reads.reads(device.size_bytes(), REQUEST_BYTES, 1000);
    let host = Host::of_depth(DEPTH);
    Some(closed::run(&mut device, &reads, host, 0).bytes_per_s())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_has_a_rate_below_that_of_its_channels() {
        let rate = model_bytes_per_s("flash").unwrap();
        assert!((300e6..520e6).contains(&rate), "{rate}");
    }
}
