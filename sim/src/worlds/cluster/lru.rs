//! Files in the order in which they were last asked for.

/// No file.
const NONE: u32 = u32::MAX;

/// A cache of whole files; those that were asked for longest ago leave first.
#[derive(Debug)]
pub struct Lru {
    /// Of each file, and at the end of the list's own head: the next newer and the next older one.
    links: Vec<[u32; 2]>,
    lengths: Vec<u32>,
    kept_bytes: u64,
    bytes_max: u64,
}

impl Lru {
    /// An empty cache for files of these lengths.
    pub fn new(lengths: &[u32], bytes_max: u64) -> Lru {
        let mut links = vec![[NONE; 2]; lengths.len()];
        links.push([lengths.len() as u32; 2]);
        Lru {
            links,
            lengths: lengths.to_vec(),
            kept_bytes: 0,
            bytes_max,
        }
    }

    /// Whether a file is there.
    pub fn has(&self, file: u32) -> bool {
        self.links[file as usize][0] != NONE
    }

    /// A file that is there was asked for.
    pub fn touch(&mut self, file: u32) {
        if self.has(file) {
            self.unlink(file);
            self.link(file);
        }
    }

    /// A file comes in; `gone` hears of those that leave for it, perhaps itself.
    pub fn add(&mut self, file: u32, mut gone: impl FnMut(u32)) {
        if self.has(file) {
            return self.touch(file);
        }
        self.link(file);
        self.kept_bytes += u64::from(self.lengths[file as usize]);
        while self.kept_bytes > self.bytes_max {
            let oldest = self.links[self.lengths.len()][0];
            self.unlink(oldest);
            self.links[oldest as usize] = [NONE; 2];
            self.kept_bytes -= u64::from(self.lengths[oldest as usize]);
            gone(oldest);
        }
    }

    fn unlink(&mut self, file: u32) {
        let [newer, older] = self.links[file as usize];
        self.links[newer as usize][1] = older;
        self.links[older as usize][0] = newer;
    }

    fn link(&mut self, file: u32) {
        let head = self.lengths.len() as u32;
        let newest = self.links[head as usize][1];
        self.links[file as usize] = [head, newest];
        self.links[newest as usize][0] = file;
        self.links[head as usize][1] = file;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_longest_ago_leaves() {
        let mut cache = Lru::new(&[10, 20, 30, 100], 60);
        let mut gone = Vec::new();
        (0..3).for_each(|file| cache.add(file, |file| gone.push(file)));
        cache.touch(0);
        assert!(gone.is_empty() && cache.kept_bytes == 60);
        cache.add(3, |file| gone.push(file));
        assert_eq!(gone, [1, 2, 0, 3], "it does not fit at all");
        cache.add(1, |_| panic!("it is empty"));
        assert!(cache.has(1) && !cache.has(0) && cache.kept_bytes == 20);
    }
}
