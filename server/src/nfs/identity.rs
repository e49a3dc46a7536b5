//! What tells a file from all others of its file system, also from later ones with its inode number, and how it is named in a
//! file handle.

use std::os::fd::{AsFd, AsRawFd};

use ackpace_wire::limits::NFS_HANDLE_BODY_BYTES_MAX;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

/// Bytes of what tells a file from others. Longer handles of the kernel are not used: inode number and birth time stand in for
/// them, and handles have room for hints all the same.
const OWN_BYTES_MAX: usize = 31;
/// The kernel's handle follows, behind its type.
const BY_KERNEL: u8 = 1;
/// Inode number and birth time follow.
const BY_BIRTH: u8 = 2;

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Its file system, by a number that outlives restart.
    pub file_system: u64,
    own: [u8; OWN_BYTES_MAX],
    own_len: u8,
}

impl Identity {
    /// That of an open file, which may be open as a place. The kernel makes it of what it has in memory.
    pub fn of(file: &impl AsFd, file_system: u64) -> rustix::io::Result<Identity> {
        match by_kernel(file) {
            Some(own) => Ok(Identity::new(file_system, &own.bytes[..own.len])),
            None => by_birth(file).map(|own| Identity::new(file_system, &own)),
        }
    }

    fn new(file_system: u64, own: &[u8]) -> Identity {
        let mut identity = Identity {
            file_system,
            own: [0; OWN_BYTES_MAX],
            own_len: own.len().min(OWN_BYTES_MAX) as u8,
        };
        let len = usize::from(identity.own_len);
        identity.own[..len].copy_from_slice(&own[..len]);
        identity
    }

    fn own(&self) -> &[u8] {
        &self.own[..usize::from(self.own_len)]
    }

    /// A number that spreads files evenly.
    pub fn mixed(&self) -> u32 {
        hash(self.own()) ^ self.file_system as u32
    }
}

/// The kernel's handle, with its type before it.
struct Own {
    bytes: [u8; OWN_BYTES_MAX],
    len: usize,
}

/// What name_to_handle_at(2) tells, which includes the generation of the inode; `None`: the file system has no handles, or long
/// ones. It needs no privilege.
fn by_kernel(file: &impl AsFd) -> Option<Own> {
    const HANDLE_BYTES: usize = OWN_BYTES_MAX - 2;
    #[repr(C)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        handle: [u8; HANDLE_BYTES],
    }
    let mut told = Handle {
        bytes: HANDLE_BYTES as libc::c_uint,
        kind: 0,
        handle: [0; HANDLE_BYTES],
    };
    let mut mount_id = 0;
    let fd = file.as_fd().as_raw_fd();
    let to: *mut Handle = &raw mut told;
    // SAFETY: `told` begins as struct file_handle does, and has room for as many bytes behind it as it says. The path is empty and
    // ends with a NUL.
    let result = unsafe {
        libc::name_to_handle_at(
            fd,
            c"".as_ptr(),
            to.cast(),
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    let kind = u8::try_from(told.kind).ok()?;
    let handle = told.handle.get(..told.bytes as usize)?;
    if result != 0 {
        return None;
    }
    let mut own = Own {
        bytes: [0; OWN_BYTES_MAX],
        len: 2 + handle.len(),
    };
    own.bytes[..2].copy_from_slice(&[BY_KERNEL, kind]);
    own.bytes[2..own.len].copy_from_slice(handle);
    Some(own)
}

/// A file system that knows no birth time reuses inode numbers unseen.
fn by_birth(file: &impl AsFd) -> Result<[u8; 1 + 8 + 8 + 4], Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = statx(file, c"", flags, StatxFlags::INO | StatxFlags::BTIME)?;
    let mut own = [0; 21];
    own[0] = BY_BIRTH;
    own[1..9].copy_from_slice(&told.stx_ino.to_le_bytes());
    own[9..17].copy_from_slice(&told.stx_btime.tv_sec.to_le_bytes());
    own[17..].copy_from_slice(&told.stx_btime.tv_nsec.to_le_bytes());
    Ok(own)
}

/// The body of a file handle: length of what tells the file from others, that, and hints at the path by which the file was found
/// first ([`Hints`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Body {
    bytes: [u8; NFS_HANDLE_BODY_BYTES_MAX],
    len: u8,
}

impl Body {
    /// That of a file found by this path below the served directory. A path that is too deep has no hints.
    pub fn new(identity: &Identity, path: &[u8]) -> Body {
        let own = identity.own();
        let mut bytes = [0; NFS_HANDLE_BODY_BYTES_MAX];
        bytes[0] = identity.own_len;
        bytes[1..=own.len()].copy_from_slice(own);
        let mut len = 1 + own.len();
        let names: Vec<u32> = parts(path).map(hash).collect();
        if let Some((last, folders)) = names.split_last() {
            if let Some(to) = bytes[len..].get_mut(..folders.len() + LAST_BYTES) {
                let (to_folders, to_last) = to.split_at_mut(folders.len());
                for (to, name) in to_folders.iter_mut().zip(folders) {
                    *to = (name >> 24) as u8;
                }
                to_last.copy_from_slice(&last.to_be_bytes());
                len += folders.len() + LAST_BYTES;
            }
        }
        let len = len as u8; // at most 40
        Body { bytes, len }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Bytes of the hint at the last name of a path.
const LAST_BYTES: usize = 4;

/// Hints at a path: the highest byte of each folder's name's hash, and the whole hash of the last name. A server that does not know a
/// handle finds its file by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hints<'a>(&'a [u8]);

impl Hints<'_> {
    /// How many names the path has. One that is the served directory itself, or too deep, has none.
    pub fn depth(&self) -> usize {
        self.0.len().saturating_sub(LAST_BYTES - 1)
    }

    /// The lowest and the highest hash that a name of the path can have, below [`Hints::depth`].
    pub fn range(&self, at: usize) -> (u32, u32) {
        match self.0[at..] {
            [a, b, c, d] => {
                let last = u32::from_be_bytes([a, b, c, d]);
                (last, last)
            }
            [folder, ..] => (u32::from(folder) << 24, u32::from(folder) << 24 | 0xff_ffff),
            [] => (u32::MAX, 0), // none
        }
    }
}

/// The file of a body that came in a handle, and its hints; `None`: it is none of ours.
pub fn read(file_system: u64, body: &[u8]) -> Option<(Identity, Hints<'_>)> {
    let (len, rest) = body.split_first()?;
    let (own, hints) = rest.split_at_checked(usize::from(*len))?;
    (own.len() <= OWN_BYTES_MAX).then(|| (Identity::new(file_system, own), Hints(hints)))
}

/// The names of a path.
pub fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

/// FNV-1a (RFC 9923): it is the same in each process.
pub fn hash(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_body_tells_its_file_and_hints_at_its_path() {
        let own = [7; OWN_BYTES_MAX];
        for len in [1, 12, OWN_BYTES_MAX] {
            let identity = Identity::new(5, &own[..len]);
            let body = Body::new(&identity, b"a/b//ccc");
            let (found, hints) = read(5, body.as_bytes()).expect("ours");
            assert_eq!((found, hints.depth()), (identity, 3));
            for (at, name) in [&b"a"[..], b"b", b"ccc"].into_iter().enumerate() {
                let (first, last) = hints.range(at);
                assert!((first..=last).contains(&hash(name)));
                assert_eq!(first == last, at == 2);
            }
        }
        let longest = Identity::new(5, &own);
        for (path, depth) in [
            (&b""[..], 0),
            (b"a", 1),
            (b"a/b/c/d/e", 5),
            (b"a/b/c/d/e/f", 0),
        ] {
            let body = Body::new(&longest, path);
            let (_, hints) = read(5, body.as_bytes()).expect("ours");
            assert_eq!(hints.depth(), depth);
        }
        assert_eq!(read(5, b""), None);
        assert_eq!(read(5, b"\x02a"), None);
        assert_eq!(read(5, &[b"\x20", &[0; 39][..]].concat()), None);
    }

    #[test]
    fn files_differ_and_links_to_one_do_not() {
        let dir = std::env::temp_dir().join(format!("ackpace-identity-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let of = |name: &str| {
            let file = fs::File::open(dir.join(name)).expect("a file");
            Identity::of(&file, 1).expect("an open file")
        };
        fs::write(dir.join("a"), "a").expect("a file");
        fs::write(dir.join("b"), "b").expect("a file");
        fs::hard_link(dir.join("a"), dir.join("c")).expect("a link");
        let (a, b) = (of("a"), of("b"));
        assert_ne!(a, b);
        assert_eq!(a, of("c"));
        fs::rename(dir.join("a"), dir.join("d")).expect("our own");
        assert_eq!(a, of("d"));
        let birth = |name: &str| by_birth(&fs::File::open(dir.join(name)).expect("a file"));
        assert!(birth("d").is_ok() && birth("d") != birth("b"));
        fs::remove_dir_all(&dir).expect("our own directory");
    }
}
