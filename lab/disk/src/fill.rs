//! Puts a corpus of any size onto an emulated disk without writing it.
//!
//! ext4 allocates the files (fallocate(2)), so it decides where they lie. It marks such extents unwritten; they
//! would read as zeros. While nothing is mounted, this module removes the marks on the medium and tells the
//! medium which file's blocks lie there. Format: kernel documentation, filesystems/ext4 (super block, group
//! descriptors, inodes, extent tree).

use super::engine::lock;
use super::store::Store;
use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

/// A file of a corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorpusFile {
    /// Path below the mount point, without a leading slash; it determines the content.
    pub path: String,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// A file for which ext4 has allocated space.
pub struct Allocated {
    inode: u64,
    tag: Tag,
    len_bytes: u64,
}

const EXTENT_MAGIC: u16 = 0xf30a;
/// An extent whose length field exceeds this is unwritten; its true length is the field minus this.
const WRITTEN_BLOCKS_MAX: u16 = 0x8000;
/// Extent trees are never deeper.
const DEPTH_MAX: u16 = 5;
const BLOCK: u64 = 4096;

/// Creates the files below the mount point, with space but without content.
pub fn allocate(mount: &Path, files: &[CorpusFile]) -> Result<Vec<Allocated>> {
    let mut folders: HashSet<PathBuf> = HashSet::new();
    let one = |file: &CorpusFile| {
        let path = mount.join(&file.path);
        let what = || format!("corpus file {}", path.display());
        if let Some(folder) = path.parent() {
            if folders.insert(folder.to_owned()) {
                std::fs::create_dir_all(folder).doing(what)?;
            }
        }
        let made = File::create_new(&path).doing(what)?;
        if file.len_bytes > 0 {
            fallocate(&made, FallocateFlags::empty(), 0, file.len_bytes).doing(what)?;
        }
        // Disks with the same files have them at the same time, as `rsync -t` leaves them.
        let modified = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        made.set_modified(modified).doing(what)?;
        Ok(Allocated {
            inode: made.metadata().doing(what)?.ino(),
            tag: Tag::of(&file.path),
            len_bytes: file.len_bytes,
        })
    };
    files.iter().map(one).collect()
}

/// Gives the allocated files their content. The medium must be neither mounted nor cached meanwhile.
pub fn give_content(store: &Mutex<Store>, files: &[Allocated]) -> Result<()> {
    let mut medium = Medium {
        store: &mut lock(store),
    };
    let layout = medium.layout()?;
    for file in files {
        let at = medium.inode_bytes(&layout, file.inode);
        let mut root = [0; 60];
        medium.store.read(at + 40, &mut root);
        if medium.write_extents(&mut root, file, DEPTH_MAX)? {
            medium.write(at + 40, &root)?;
        }
    }
    Ok(())
}

/// The fields of the super block that locate an inode.
struct Layout {
    inodes_per_group: u64,
    inode_bytes: u64,
    descriptor_bytes: u64,
    descriptors_at_bytes: u64,
}

struct Medium<'a> {
    store: &'a mut Store,
}

impl Medium<'_> {
    fn layout(&self) -> Result<Layout> {
        let (magic, log_block) = (self.u16(1024 + 0x38), self.u32(1024 + 0x18));
        if magic != 0xef53 || log_block != 2 {
            return Err(odd("super block"));
        }
        let descriptor_bytes = match self.u16(1024 + 0xfe) {
            0 => 32,
            size => u64::from(size),
        };
        Ok(Layout {
            inodes_per_group: u64::from(self.u32(1024 + 0x28)),
            inode_bytes: u64::from(self.u16(1024 + 0x58)),
            descriptor_bytes,
            descriptors_at_bytes: BLOCK,
        })
    }

    fn inode_bytes(&self, layout: &Layout, inode: u64) -> u64 {
        let (group, nth) = (
            (inode - 1) / layout.inodes_per_group,
            (inode - 1) % layout.inodes_per_group,
        );
        let descriptor = layout.descriptors_at_bytes + group * layout.descriptor_bytes;
        let high = match layout.descriptor_bytes {
            64.. => u64::from(self.u32(descriptor + 0x28)),
            _ => 0,
        };
        let table = (high << 32) | u64::from(self.u32(descriptor + 8));
        table * BLOCK + nth * layout.inode_bytes
    }

    /// Walks a node of an extent tree; returns true if it changed, and the caller must then write it back.
    fn write_extents(&mut self, node: &mut [u8], file: &Allocated, depth_max: u16) -> Result<bool> {
        let field = |node: &[u8], at: usize| u16::from_le_bytes([node[at], node[at + 1]]);
        let long = |node: &[u8], at: usize| {
            u64::from(field(node, at)) | (u64::from(field(node, at + 2)) << 16)
        };
        let (entries, depth) = (usize::from(field(node, 2)), field(node, 6));
        if field(node, 0) != EXTENT_MAGIC || depth > depth_max || 12 * (entries + 1) > node.len() {
            return Err(odd("extent tree"));
        }
        let mut changed = false;
        for nth in 1..=entries {
            let at = nth * 12;
            if depth > 0 {
                let child = long(node, at + 4) | (u64::from(field(node, at + 8)) << 32);
                let mut block = vec![0; BLOCK as usize];
                self.store.read(child * BLOCK, &mut block);
                if self.write_extents(&mut block, file, depth - 1)? {
                    self.write(child * BLOCK, &block)?;
                }
                continue;
            }
            let len = field(node, at + 4);
            let blocks = match len.checked_sub(WRITTEN_BLOCKS_MAX) {
                None | Some(0) => len,
                Some(unwritten) => {
                    node[at + 4..at + 6].copy_from_slice(&unwritten.to_le_bytes());
                    changed = true;
                    unwritten
                }
            };
            let number = long(node, at);
            let start = long(node, at + 8) | (u64::from(field(node, at + 6)) << 32);
            let rest_bytes = file.len_bytes.saturating_sub(number * BLOCK);
            let len_bytes = rest_bytes.min(u64::from(blocks) * BLOCK);
            self.store.place(start, file.tag, number, len_bytes);
        }
        Ok(changed)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let full = |_| LabError::Setup("the emulated disk keeps too many blocks".into());
        self.store.write(at, bytes).map_err(full)
    }

    fn u16(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        self.store.read(at, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    fn u32(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.store.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

fn odd(what: &str) -> LabError {
    LabError::Setup(format!(
        "the ext4 on the emulated disk has an unexpected {what}: mkfs.ext4 is too new for this lab"
    ))
}
