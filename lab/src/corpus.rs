//! The files that are served: made once, the same on every machine, kept for the next run.

use crate::error::{Doing, Result};
use crate::throttle;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Length of the cached file.
pub const BIG_LEN_BYTES: u64 = 384 << 20;
/// Length of the probe file.
pub const PROBE_LEN_BYTES: u64 = 4096;
/// Files on the slow disk, one for each download.
pub const COLD_FILES: usize = 20;
/// Length of each: more than its download takes in the longest window, so that none is read twice.
pub const COLD_LEN_BYTES: u64 = 32 << 20;
/// Entries of the big directory.
pub const ENTRIES: usize = 50_000;
/// Length of the image of the slow disk.
const IMAGE_LEN_BYTES: u64 = 800 << 20;
/// Rises when the content changes, so that an old corpus is made anew.
const VERSION: u32 = 1;

/// Where the corpus is.
pub struct Corpus {
    /// Root of the site with the cached file, the probe file and the big directory.
    pub site: PathBuf,
    /// Image of the slow disk.
    pub image: PathBuf,
    /// Where it gets mounted.
    pub mount: PathBuf,
}

impl Corpus {
    /// The cached file.
    pub fn big(&self) -> PathBuf {
        self.site.join("big.bin")
    }

    /// The files on the slow disk, once it is mounted.
    pub fn cold(&self) -> Vec<PathBuf> {
        (0..COLD_FILES)
            .map(|nth| self.mount.join(cold_name(nth)))
            .collect()
    }
}

/// Name of a file on the slow disk.
pub fn cold_name(nth: usize) -> String {
    format!("cold-{nth:02}.bin")
}

/// Names in the big directory.
pub fn entry_names() -> Vec<String> {
    (0..ENTRIES)
        .map(|nth| format!("package-{nth:05}_1.{}-1_amd64.deb", nth % 97))
        .collect()
}

/// Makes what is missing below `scratch`: the site, not yet the slow disk.
pub fn prepare(scratch: &Path) -> Result<Corpus> {
    let corpus = Corpus {
        site: scratch.join("site"),
        image: scratch.join("slow.ext4"),
        mount: scratch.join("slow"),
    };
    let marker = scratch.join(format!("site-{VERSION}.complete"));
    if !marker.exists() {
        eprintln!("making the corpus in {} (once)", scratch.display());
        let many = corpus.site.join("many");
        std::fs::create_dir_all(&many).doing(|| many.display().to_string())?;
        write_noise(&corpus.big(), BIG_LEN_BYTES)?;
        write_noise(&corpus.site.join("probe.bin"), PROBE_LEN_BYTES)?;
        for name in entry_names() {
            let path = many.join(name);
            File::create(&path).doing(|| path.display().to_string())?;
        }
        File::create(&marker).doing(|| marker.display().to_string())?;
    }
    Ok(corpus)
}

/// Mounts the slow disk, not yet throttled, and fills it if it is new.
pub fn mount_slow(corpus: &Corpus) -> Result<()> {
    let marker = corpus.mount.join(format!("slow-{VERSION}.complete"));
    let new = throttle::format(&corpus.image, IMAGE_LEN_BYTES)?;
    throttle::attach(&corpus.image, &corpus.mount)?;
    if new || !marker.exists() {
        eprintln!("filling the slow disk (once)");
        write_noise(&corpus.mount.join("probe.bin"), PROBE_LEN_BYTES)?;
        for path in corpus.cold() {
            write_noise(&path, COLD_LEN_BYTES)?;
        }
        File::create(&marker).doing(|| marker.display().to_string())?;
        rustix::fs::sync();
    }
    Ok(())
}

/// Writes bytes that look random but depend on the file's name only: a server that sends a wrong
/// offset or file is found out by comparing.
fn write_noise(path: &Path, len_bytes: u64) -> Result<()> {
    let what = || path.display().to_string();
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let mut noise = Noise::new(&name.unwrap_or_default());
    let mut file = File::create(path).doing(what)?;
    let (mut left, mut piece) = (len_bytes, vec![0; 1 << 20]);
    while left > 0 {
        let len = left.min(piece.len() as u64) as usize;
        noise.fill(&mut piece[..len]);
        file.write_all(&piece[..len]).doing(what)?;
        left -= len as u64;
    }
    file.sync_all().doing(what)
}

/// xorshift64* (Vigna 2016), seeded by FNV-1a of a name.
struct Noise {
    state: u64,
}

impl Noise {
    fn new(name: &str) -> Self {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self {
            state: name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv) | 1,
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            let word = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            eight.copy_from_slice(&word[..eight.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_depends_on_the_name_alone_and_does_not_repeat() {
        let fill = |name: &str| {
            let mut bytes = [0; 64];
            Noise::new(name).fill(&mut bytes);
            bytes
        };
        assert_eq!(fill("a"), fill("a"));
        assert_ne!(fill("a"), fill("b"));
        assert_ne!(fill("a")[..8], fill("a")[8..16]);
    }

    #[test]
    fn names_of_the_big_directory_differ() {
        let mut names = entry_names();
        names.dedup();
        assert_eq!(names.len(), ENTRIES);
    }
}
