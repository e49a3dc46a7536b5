//! The procedures of NFS that change something, for [`NfsClient`]. Each is the status if it fails.

use crate::nfs::{NfsArgs, NfsClient, Results, procedure};

/// A file that is written until it is committed, by RFC 1813 section 3.3.7.
#[derive(Clone, Copy, Debug)]
pub enum Stable {
    /// UNSTABLE.
    Later = 0,
    /// DATA_SYNC.
    Data = 1,
    /// FILE_SYNC.
    File = 2,
}

/// What a WRITE has written, and the number of the server's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub len_bytes: u32,
    /// FILE_SYNC, DATA_SYNC, UNSTABLE.
    pub stable: u32,
    /// Of this run.
    pub verifier: u64,
}

/// Attributes that are set.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Set {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub mtime_s: Option<u32>,
}

impl Set {
    /// A mode alone.
    pub fn mode(mode: u32) -> Set {
        Set {
            mode: Some(mode),
            ..Set::default()
        }
    }

    /// A length alone.
    pub fn size(size: u64) -> Set {
        Set {
            size: Some(size),
            ..Set::default()
        }
    }

    fn put(&self, args: NfsArgs) -> NfsArgs {
        let number = |args: NfsArgs, number: Option<u32>| match number {
            Some(number) => args.u32(1).u32(number),
            None => args.u32(0),
        };
        let args = [self.mode, self.uid, self.gid]
            .into_iter()
            .fold(args, number);
        let args = match self.size {
            Some(size) => args.u32(1).u64(size),
            None => args.u32(0),
        };
        let args = args.u32(0); // atime
        match self.mtime_s {
            Some(s) => args.u32(2).u32(s).u32(0),
            None => args.u32(0),
        }
    }
}

/// Arguments of a name in a folder.
pub fn place(folder: &[u8], name: impl AsRef<[u8]>) -> NfsArgs {
    NfsArgs::default().opaque(folder).opaque(name)
}

/// Arguments of WRITE.
pub fn write_args(file: &[u8], offset: u64, bytes: &[u8], stable: Stable) -> NfsArgs {
    let args = NfsArgs::default().opaque(file).u64(offset);
    args.u32(bytes.len() as u32)
        .u32(stable as u32)
        .opaque(bytes)
}

/// Arguments of CREATE, UNCHECKED.
pub fn create_args(folder: &[u8], name: impl AsRef<[u8]>, set: Set) -> NfsArgs {
    set.put(place(folder, name).u32(0))
}

/// What WRITE has written.
pub fn written_of(mut results: Results) -> Result<Written, u32> {
    let status = results.u32();
    change(&mut results);
    match status {
        0 => Ok(Written {
            len_bytes: results.u32(),
            stable: results.u32(),
            verifier: results.u64(),
        }),
        status => Err(status),
    }
}

/// Whether the file before and after a change are told (wcc_data).
pub fn change(results: &mut Results) -> (bool, bool) {
    let before = results.u32() == 1;
    if before {
        let _ = [results.u64(), results.u64(), results.u64()];
    }
    (before, results.optional_attributes().is_some())
}

fn status(mut results: Results) -> Result<(), u32> {
    match results.u32() {
        0 => Ok(()),
        status => Err(status),
    }
}

fn made(mut results: Results) -> Result<Vec<u8>, u32> {
    match results.u32() {
        0 => {
            assert_eq!(results.u32(), 1, "a handle");
            Ok(results.opaque())
        }
        status => Err(status),
    }
}

impl NfsClient {
    /// WRITE.
    pub fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        bytes: &[u8],
        stable: Stable,
    ) -> Result<Written, u32> {
        let args = write_args(file, offset, bytes, stable);
        written_of(self.ask(procedure::WRITE, &args))
    }

    /// COMMIT: the number of the run.
    pub fn commit(&mut self, file: &[u8]) -> Result<u64, u32> {
        let args = NfsArgs::default().opaque(file).u64(0).u32(0);
        let mut results = self.ask(procedure::COMMIT, &args);
        let status = results.u32();
        change(&mut results);
        match status {
            0 => Ok(results.u64()),
            status => Err(status),
        }
    }

    /// CREATE, GUARDED.
    pub fn create(
        &mut self,
        folder: &[u8],
        name: impl AsRef<[u8]>,
        set: Set,
    ) -> Result<Vec<u8>, u32> {
        let args = set.put(place(folder, name).u32(1));
        made(self.ask(procedure::CREATE, &args))
    }

    /// CREATE, UNCHECKED.
    pub fn create_any(&mut self, folder: &[u8], name: &str, set: Set) -> Result<Vec<u8>, u32> {
        made(self.ask(procedure::CREATE, &create_args(folder, name, set)))
    }

    /// CREATE, EXCLUSIVE.
    pub fn create_once(&mut self, folder: &[u8], name: &str, number: u64) -> Result<Vec<u8>, u32> {
        let args = place(folder, name).u32(2).u64(number);
        made(self.ask(procedure::CREATE, &args))
    }

    /// MKDIR.
    pub fn make_dir(
        &mut self,
        folder: &[u8],
        name: impl AsRef<[u8]>,
        set: Set,
    ) -> Result<Vec<u8>, u32> {
        let args = set.put(place(folder, name));
        made(self.ask(procedure::MKDIR, &args))
    }

    /// SYMLINK.
    pub fn make_link(&mut self, folder: &[u8], name: &str, target: &[u8]) -> Result<Vec<u8>, u32> {
        let args = Set::default().put(place(folder, name)).opaque(target);
        made(self.ask(procedure::SYMLINK, &args))
    }

    /// MKNOD of a file of this kind (ftype3).
    pub fn make_node(
        &mut self,
        folder: &[u8],
        name: &str,
        kind: u32,
        set: Set,
    ) -> Result<Vec<u8>, u32> {
        let args = set.put(place(folder, name).u32(kind)).u64(1 << 32 | 3);
        made(self.ask(procedure::MKNOD, &args))
    }

    /// SETATTR, with the guard of a ctime.
    pub fn set(&mut self, file: &[u8], set: Set, guard: Option<(u32, u32)>) -> Result<(), u32> {
        let args = set.put(NfsArgs::default().opaque(file));
        let args = match guard {
            Some((s, ns)) => args.u32(1).u32(s).u32(ns),
            None => args.u32(0),
        };
        status(self.ask(procedure::SETATTR, &args))
    }

    /// REMOVE.
    pub fn remove(&mut self, folder: &[u8], name: impl AsRef<[u8]>) -> Result<(), u32> {
        status(self.ask(procedure::REMOVE, &place(folder, name)))
    }

    /// RMDIR.
    pub fn remove_dir(&mut self, folder: &[u8], name: impl AsRef<[u8]>) -> Result<(), u32> {
        status(self.ask(procedure::RMDIR, &place(folder, name)))
    }

    /// RENAME.
    pub fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Result<(), u32> {
        let args = place(from.0, from.1).opaque(to.0).opaque(to.1);
        status(self.ask(procedure::RENAME, &args))
    }

    /// LINK.
    pub fn link(&mut self, file: &[u8], folder: &[u8], name: &str) -> Result<(), u32> {
        let args = NfsArgs::default().opaque(file).opaque(folder).opaque(name);
        status(self.ask(procedure::LINK, &args))
    }

    /// ACCESS: what may be done, of all.
    pub fn access(&mut self, file: &[u8]) -> Result<u32, u32> {
        let args = NfsArgs::default().opaque(file).u32(0x3f);
        let mut results = self.ask(procedure::ACCESS, &args);
        let status = results.u32();
        results.optional_attributes();
        match status {
            0 => Ok(results.u32()),
            status => Err(status),
        }
    }
}
