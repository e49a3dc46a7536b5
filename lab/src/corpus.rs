//! The served files: created once, identical on every machine, and kept for the next run. Their bytes follow
//! `content.rs`, as a function of path and offset.

use ackpace_lab_base::content::{self, Tag};
use ackpace_lab_base::error::{Doing, Result};
pub use ackpace_lab_swarm::workload::path;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Incremented when names or content change, so that old files are created anew.
const VERSION: u32 = 2;
const PIECE_LEN_BYTES: usize = 1 << 20;

/// Files that are created together.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// `count` files of one length, named by [`path`].
    Files {
        /// First part of their names.
        name: &'static str,
        /// Number of files.
        count: usize,
        /// Length of each in bytes.
        len_bytes: u64,
    },
    /// `count` files named by [`path`], whose lengths are the quantiles of a bounded Pareto distribution with shape 1.
    /// Each decade of lengths then has as many bytes as the next one, and requests of any of them alike are
    /// heavy-tailed.
    Tailed {
        /// First part of their names.
        name: &'static str,
        /// Number of files.
        count: usize,
        /// Length of the shortest in bytes.
        min_bytes: u64,
        /// Bound of the lengths in bytes.
        max_bytes: u64,
    },
}

/// A small file for probes.
pub const PROBE: Set = Set::files("probe", 1, 4096);

impl Set {
    /// `count` files of one length.
    pub const fn files(name: &'static str, count: usize, len_bytes: u64) -> Self {
        Self::Files {
            name,
            count,
            len_bytes,
        }
    }

    /// First part of their names.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Files { name, .. } | Self::Tailed { name, .. } => name,
        }
    }

    /// Paths and lengths in bytes of its files.
    pub fn list(&self) -> Vec<(String, u64)> {
        match *self {
            Self::Files {
                name,
                count,
                len_bytes,
            } => (0..count).map(|n| (path(name, n), len_bytes)).collect(),
            Self::Tailed {
                name,
                count,
                min_bytes,
                max_bytes,
            } => {
                let len_bytes = |n| tailed(n, count, min_bytes, max_bytes);
                (0..count).map(|n| (path(name, n), len_bytes(n))).collect()
            }
        }
    }

    /// Total length of its files in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.list().iter().map(|(_, len_bytes)| len_bytes).sum()
    }

    /// Part of the names of markers and images; it differs where the files differ.
    pub fn key(&self) -> String {
        match self {
            Self::Files {
                name,
                count,
                len_bytes,
            } => format!("{name}-{count}x{len_bytes}"),
            Self::Tailed {
                name,
                count,
                min_bytes,
                max_bytes,
            } => format!("{name}-{count}x{min_bytes}to{max_bytes}"),
        }
    }
}

/// The length of file `nth` of `count`: a quantile of a bounded Pareto distribution with shape 1.
fn tailed(nth: usize, count: usize, min_bytes: u64, max_bytes: u64) -> u64 {
    let (min, max) = (min_bytes as f64, max_bytes as f64);
    let part = (nth as f64 + 0.5) / count as f64;
    (min / (1.0 - part * (1.0 - min / max))).round() as u64
}

/// Creates the missing files of the sets below `root`.
pub fn make(root: &Path, sets: &[Set]) -> Result<()> {
    for set in sets {
        let marker = root.join(format!(".{}-{VERSION}.complete", set.key()));
        if marker.exists() {
            continue;
        }
        eprintln!("making files in {} (once): {}", root.display(), set.key());
        std::fs::create_dir_all(root).doing(|| root.display().to_string())?;
        for (path, len_bytes) in set.list() {
            make_file(root, &path, len_bytes)?;
        }
        File::create(&marker).doing(|| marker.display().to_string())?;
    }
    Ok(())
}

/// The file system path of a URL path below a root.
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn make_file(root: &Path, path: &str, len_bytes: u64) -> Result<()> {
    let (file, tag) = (below(root, path), Tag::of(path));
    let what = || file.display().to_string();
    let mut file = File::create(&file).doing(what)?;
    let (mut offset_bytes, mut piece) = (0, vec![0; PIECE_LEN_BYTES]);
    while offset_bytes < len_bytes {
        let len = (len_bytes - offset_bytes).min(PIECE_LEN_BYTES as u64) as usize;
        content::fill(tag, offset_bytes, &mut piece[..len]);
        file.write_all(&piece[..len]).doing(what)?;
        offset_bytes += len as u64;
    }
    if len_bytes > PIECE_LEN_BYTES as u64 {
        file.sync_all().doing(what)?; // small files are many; drop_cached syncs them
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_once_and_hold_what_their_names_say() {
        let root = std::env::temp_dir().join(format!("ackpace-lab-corpus-{}", std::process::id()));
        let set = Set::files("a", 2, 5000);
        make(&root, &[set]).unwrap();
        let second = below(&root, &path("a", 1));
        let bytes = std::fs::read(&second).unwrap();
        std::fs::write(&second, b"touched").unwrap();
        make(&root, &[set]).unwrap();
        let again = std::fs::read(&second).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(bytes.len(), 5000);
        assert_eq!(
            content::first_wrong(Tag::of("a-00001.bin"), 0, &bytes),
            None
        );
        assert_eq!(again, b"touched", "made a second time");
        assert_eq!(set.len_bytes(), 10_000);
    }
}
