//! Where a byte lies on the platters, and how long the arm takes to reach it.
//!
//! A place is a time: how long the head would take to read from offset 0 to there without a pause. The place modulo a
//! revolution is the angle, its quotient is the track, and a difference of places is a transfer time. The platter's
//! angle at time t is t modulo a revolution.

use super::profile::{DiskProfile, Seek};

const NS_PER_S: u64 = 1_000_000_000;

/// Zones, tracks and cylinders of one disk.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Time of one revolution.
    pub revolution_ns: u64,
    zones: Vec<Zone>,
    cylinder_ns: u64,
    stroke_ns: u64,
    seek: Seek,
}

#[derive(Clone, Debug)]
struct Zone {
    start_bytes: u64,
    start_ns: u64,
    track_bytes: u64,
}

impl Geometry {
    /// Computes the zones of a profile.
    pub fn new(profile: &DiskProfile) -> Self {
        let revolution_ns = 60 * NS_PER_S / profile.rpm;
        let (outer, inner) = (
            profile.rate_outer_bytes_per_s as f64,
            profile.rate_inner_bytes_per_s as f64,
        );
        let track_bytes = |zone: u64| {
            let inward = zone as f64 / (profile.zones - 1).max(1) as f64;
            let rate = outer - (outer - inner) * inward;
            ((rate * revolution_ns as f64 / NS_PER_S as f64) as u64).max(1)
        };
        let all_bytes: u64 = (0..profile.zones).map(track_bytes).sum();
        let zone_tracks = profile.size_bytes.div_ceil(all_bytes);
        let mut start_bytes = 0;
        let zones = (0..profile.zones).map(|nth| {
            let zone = Zone {
                start_bytes,
                start_ns: nth * zone_tracks * revolution_ns,
                track_bytes: track_bytes(nth),
            };
            start_bytes += zone.track_bytes * zone_tracks;
            zone
        });
        Self {
            zones: zones.collect(),
            revolution_ns,
            cylinder_ns: revolution_ns * profile.heads,
            stroke_ns: profile.zones * zone_tracks * revolution_ns,
            seek: profile.seek,
        }
    }

    /// The place of a byte.
    pub fn place_ns(&self, offset_bytes: u64) -> u64 {
        let zone = self.zone(|zone| zone.start_bytes <= offset_bytes);
        let within = u128::from(offset_bytes - zone.start_bytes) * u128::from(self.revolution_ns);
        zone.start_ns + (within / u128::from(zone.track_bytes)) as u64
    }

    /// The offset at a place, rounded down: the inverse of [`Self::place_ns`].
    pub fn offset_bytes(&self, place_ns: u64) -> u64 {
        let zone = self.zone(|zone| zone.start_ns <= place_ns);
        let within = u128::from(place_ns - zone.start_ns) * u128::from(zone.track_bytes);
        zone.start_bytes + (within / u128::from(self.revolution_ns)) as u64
    }

    /// Seek time from one place to another.
    pub fn seek_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let cylinders = (from_ns / self.cylinder_ns).abs_diff(to_ns / self.cylinder_ns);
        if cylinders == 0 {
            return 0;
        }
        let distance = (cylinders * self.cylinder_ns) as f64 / self.stroke_ns as f64;
        let Seek {
            settle_ns,
            sqrt_ns,
            linear_ns,
        } = self.seek;
        settle_ns + (sqrt_ns as f64 * distance.sqrt() + linear_ns as f64 * distance) as u64
    }

    /// Rotational delay at `now_ns`: the time until the place comes under the head.
    pub fn rotation_ns(&self, place_ns: u64, now_ns: u64) -> u64 {
        let (place, angle) = (place_ns % self.revolution_ns, now_ns % self.revolution_ns);
        (place + self.revolution_ns - angle) % self.revolution_ns
    }

    /// The last zone for which `begins` holds.
    fn zone(&self, begins: impl Fn(&Zone) -> bool) -> &Zone {
        &self.zones[self.zones.partition_point(begins) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::scsi_2003;
    use super::*;

    #[test]
    fn a_place_and_its_byte_are_each_others_inverse_and_never_go_back() {
        let (profile, mut last) = (scsi_2003(), 0);
        let geometry = Geometry::new(&profile);
        for nth in 0..10_000 {
            let offset = profile.size_bytes / 10_000 * nth;
            let place = geometry.place_ns(offset);
            assert!(nth == 0 || place > last);
            let back = geometry.offset_bytes(place);
            assert!(offset - back <= 1, "{offset} came back as {back}");
            last = place;
        }
    }

    #[test]
    fn the_outer_track_is_read_at_the_outer_rate_and_the_inner_at_the_inner() {
        let profile = scsi_2003();
        let geometry = Geometry::new(&profile);
        let rate = |offset| {
            let second = geometry.place_ns(offset + 10_000_000) - geometry.place_ns(offset);
            10_000_000 * NS_PER_S / second
        };
        assert!(rate(0).abs_diff(62_000_000) <= 1);
        assert!(rate(profile.size_bytes - 10_000_001).abs_diff(38_000_000) <= 1);
    }

    #[test]
    fn a_seek_costs_nothing_in_a_cylinder_and_the_whole_curve_over_the_stroke() {
        let profile = scsi_2003();
        let geometry = Geometry::new(&profile);
        assert_eq!(geometry.seek_ns(5, 5 + geometry.revolution_ns), 0);
        let end = geometry.place_ns(profile.size_bytes - 1);
        let full = geometry.seek_ns(0, end);
        assert!((9_690_000..=9_700_000).contains(&full), "{full}");
        assert_eq!(full, geometry.seek_ns(end, 0));
    }
}
