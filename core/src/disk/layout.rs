//! Where the bytes of a file lie on its device, as precisely as the order of reads needs it.

use alloc::vec::Vec;

use crate::limits::EXTENTS_MAX;

/// A contiguous piece of a file on the device (FIEMAP, `struct fiemap_extent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub file_bytes: u64,
    /// Where it begins on the device.
    pub device_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

/// The extents known of one file. A file being written may have moved since; then a slightly wrong order costs a seek.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Where each extent begins, in the file and on the device. An extent reaches to the beginning of the next.
    extents: Vec<(u64, u64)>,
}

impl Layout {
    /// From extents in any order, at most [`EXTENTS_MAX`] of which are kept. Without any, only the file's own order is
    /// known.
    pub fn new(mut extents: Vec<Extent>) -> Layout {
        extents.sort_by_key(|extent| extent.file_bytes);
        extents.truncate(EXTENTS_MAX);
        let begins = |extent: &Extent| (extent.file_bytes, extent.device_bytes);
        Layout {
            extents: extents.iter().map(begins).collect(),
        }
    }

    /// The number of extents known.
    pub(super) fn len(&self) -> usize {
        self.extents.len()
    }

    /// Keeps this many of them, spread over the file. Between two of them the file is taken to be contiguous.
    pub(super) fn thin(&mut self, extents_max: usize) {
        let (len, most) = (self.extents.len(), extents_max.max(1));
        if len > most {
            let kept = (0..most).map(|nth| self.extents[nth * len / most]);
            self.extents = kept.collect();
        }
    }

    /// Where a byte of the file lies on the device, bytes. In a hole and behind the last extent it counts as following
    /// the extent before. `None` if nothing is known.
    pub fn device_bytes(&self, file_bytes: u64) -> Option<u64> {
        let behind = self
            .extents
            .partition_point(|(from_bytes, _)| *from_bytes <= file_bytes);
        let (from_bytes, device_bytes) = self.extents.get(behind.saturating_sub(1))?;
        let into = file_bytes.saturating_sub(*from_bytes);
        Some(device_bytes.saturating_add(into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_in_their_extent_and_holes_behind_the_one_before() {
        let extent = |file_bytes, device_bytes, len_bytes| Extent {
            file_bytes,
            device_bytes,
            len_bytes,
        };
        let layout = Layout::new(alloc::vec![extent(8192, 500, 100), extent(0, 9000, 4096)]);
        assert_eq!(layout.device_bytes(10), Some(9010));
        assert_eq!(layout.device_bytes(5000), Some(14_000), "a hole");
        assert_eq!(layout.device_bytes(8292), Some(600), "behind the end");
        let lies = Layout::new(alloc::vec![extent(0, u64::MAX, u64::MAX)]);
        assert_eq!(lies.device_bytes(u64::MAX), Some(u64::MAX));
        assert_eq!(Layout::default().device_bytes(0), None);
    }

    #[test]
    fn a_thinned_layout_keeps_its_first_extent_and_spreads_the_others() {
        let extent = |nth: u64| Extent {
            file_bytes: nth * 100,
            device_bytes: 1_000_000 - nth * 1000,
            len_bytes: 100,
        };
        let mut layout = Layout::new((0..64).map(extent).collect());
        layout.thin(4);
        assert_eq!(layout.len(), 4);
        assert_eq!(layout.device_bytes(5), Some(1_000_005));
        assert_eq!(layout.device_bytes(1600), Some(984_000));
        assert_eq!(
            layout.device_bytes(1700),
            Some(984_100),
            "as if it followed"
        );
        let whole = layout.clone();
        layout.thin(8);
        assert_eq!(layout, whole);
    }
}
