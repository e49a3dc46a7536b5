//! Profiles of disks: the model's figures as TOML.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_sim::models::disk::profile::{
    Discipline, DiskProfile, FlashProfile, Profile, QueueProfile, Seek,
};

/// The built-in profiles: name and text.
const BUILT_IN: [(&str, &str); 2] = [
    (
        "10k-scsi-2003",
        include_str!("../profiles/10k-scsi-2003.toml"),
    ),
    ("flash", include_str!("../profiles/flash.toml")),
];

/// The keys of a file.
#[derive(serde::Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Keys {
    Disk {
        size_bytes: u64,
        rpm: u64,
        rate_outer_bytes_per_s: u64,
        rate_inner_bytes_per_s: u64,
        zones: u64,
        heads: u64,
        seek_settle_us: u64,
        seek_sqrt_us: u64,
        seek_linear_us: u64,
        overhead_us: u64,
        bus_bytes_per_s: u64,
        segments: usize,
        segment_bytes: u64,
        queue_depth: usize,
        queue_age_max_us: u64,
    },
    Flash {
        size_bytes: u64,
        channels: usize,
        stripe_bytes: u64,
        latency_us: u64,
        channel_bytes_per_s: u64,
    },
}

/// Loads a profile by its name, or by the path of a file (a text with a `/`).
///
/// # Errors
/// An unknown name, a missing file, invalid TOML, or an unknown or missing key.
pub fn load(name_or_path: &str) -> Result<Profile> {
    let known = BUILT_IN.iter().find(|(name, _)| *name == name_or_path);
    let text = match known {
        Some((_, text)) => (*text).to_owned(),
        None if name_or_path.contains('/') => {
            std::fs::read_to_string(name_or_path).doing(|| name_or_path.to_owned())?
        }
        None => {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            let what = format!("no profile of a disk is called {name_or_path}; there are {names}");
            return Err(LabError::Setup(what));
        }
    };
    let keys = toml::from_str(&text);
    keys.map(Keys::profile)
        .map_err(|error| LabError::Setup(format!("{name_or_path}: {error}")))
}

impl Keys {
    fn profile(self) -> Profile {
        match self {
            Self::Disk {
                size_bytes,
                rpm,
                rate_outer_bytes_per_s,
                rate_inner_bytes_per_s,
                zones,
                heads,
                seek_settle_us,
                seek_sqrt_us,
                seek_linear_us,
                overhead_us,
                bus_bytes_per_s,
                segments,
                segment_bytes,
                queue_depth,
                queue_age_max_us,
            } => Profile::Disk(DiskProfile {
                size_bytes: size_bytes / 4096 * 4096,
                rpm,
                rate_outer_bytes_per_s,
                rate_inner_bytes_per_s,
                zones,
                heads,
                seek: Seek {
                    settle_ns: seek_settle_us * 1000,
                    sqrt_ns: seek_sqrt_us * 1000,
                    linear_ns: seek_linear_us * 1000,
                },
                overhead_ns: overhead_us * 1000,
                bus_bytes_per_s,
                segments,
                segment_bytes,
                queue: QueueProfile {
                    discipline: Discipline::Sptf,
                    depth: queue_depth,
                    age_max_ns: queue_age_max_us * 1000,
                },
            }),
            Self::Flash {
                size_bytes,
                channels,
                stripe_bytes,
                latency_us,
                channel_bytes_per_s,
            } => Profile::Flash(FlashProfile {
                size_bytes: size_bytes / 4096 * 4096,
                channels,
                stripe_bytes,
                latency_ns: latency_us * 1000,
                channel_bytes_per_s,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_profiles_are_right_and_another_name_tells_theirs() {
        for (name, _) in BUILT_IN {
            let profile = load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.size_bytes() % 4096, 0, "{name}");
        }
        let Profile::Disk(disk) = load("10k-scsi-2003").unwrap() else {
            panic!("a disk");
        };
        assert_eq!((disk.rpm, disk.seek.sqrt_ns), (10_000, 6_000_000));
        let text = load("floppy").unwrap_err().to_string();
        assert!(text.contains("10k-scsi-2003, flash"), "{text}");
    }
}
