//! Those who call: readers of files that never change, and writers of files of their own.

use std::sync::atomic::Ordering::Relaxed;

use super::Storm;
use super::call::{Caller, nfs};
use crate::hunter::wrong::{Kind, Wrong};
use crate::nfs::{Results, procedure, read_args};
use crate::nfs_writes::{Set, Stable, change, create_args, write_args};
use crate::{Rng, pattern};

/// READs that a reader has under way at most.
const DEPTH: usize = 12;
/// The length of the longest READ, twice what a call may have.
const READ_BYTES: usize = 2 << 20;
/// What a writer's file has, and the longest of its WRITEs.
const OWN_BYTES: usize = 4 << 20;
const WRITE_BYTES: usize = 256 << 10;

/// A writer's file: what it has, by what was answered.
pub struct Own {
    pub name: String,
    pub content: Vec<u8>,
    uid: u32,
}

impl Own {
    pub fn new(nth: usize) -> Own {
        Own {
            name: format!("own-{nth}"),
            content: Vec::new(),
            uid: 1000 + nth as u32,
        }
    }
}

/// READs until it is over.
pub fn reader(storm: &Storm<'_>, rng: &mut Rng) {
    if let Err(wrong) = read_on(storm, rng) {
        storm.findings.add(&wrong, "a reader");
    }
}

fn read_on(storm: &Storm<'_>, rng: &mut Rng) -> Result<(), Wrong> {
    let mut caller = Caller::new(storm, 2000);
    let root = caller.mount()?;
    let mut handles = Vec::new();
    for file in 0..storm.files.len() {
        let args = crate::nfs::NfsArgs::default().opaque(&root);
        let args = args.opaque(Storm::name(file));
        handles.push(caller.one("LOOKUP", procedure::LOOKUP, args)?.opaque());
    }
    while !storm.is_over() {
        let file = rng.below(handles.len());
        let content = &storm.files[file];
        // Pieces that follow each other, in any order, or that have nothing to do with each other.
        let piece = 4096 << rng.below(7);
        let from = rng.below(content.len());
        let is_stream = rng.below(2) == 0;
        let mut spans: Vec<(usize, usize)> = (0..1 + rng.below(DEPTH))
            .map(|nth| match is_stream {
                true => (from + nth * piece, piece),
                false => (rng.below(content.len()), 1 + rng.below(READ_BYTES)),
            })
            .collect();
        for at in (1..spans.len()).rev() {
            spans.swap(at, rng.below(at + 1));
        }
        check(
            &mut caller,
            (storm, &handles[file]),
            content,
            &spans,
            &Storm::name(file),
        )?;
    }
    Ok(())
}

/// READs these spans at once, and compares each byte.
fn check(
    caller: &mut Caller<'_>,
    (storm, handle): (&Storm<'_>, &[u8]),
    content: &[u8],
    spans: &[(usize, usize)],
    name: &str,
) -> Result<(), Wrong> {
    let call = |&(from, len): &(usize, usize)| {
        let args = read_args(handle, from as u64, len as u32);
        nfs(procedure::READ, args)
    };
    let calls: Vec<_> = spans.iter().map(call).collect();
    for (mut results, &(from, len)) in caller.all(&calls)?.into_iter().zip(spans) {
        let status = results.u32();
        results.optional_attributes();
        if status != 0 {
            let text = format!("{name}: READ of {len} at {from}: status {status}");
            return Wrong::err(Kind::Status, text);
        }
        let (count, is_end) = (results.u32() as usize, results.u32() == 1);
        let bytes = results.opaque();
        let expected = &content[from.min(content.len())..];
        let expected = &expected[..expected.len().min(len).min(count)];
        if let Some(at) = bytes.iter().zip(expected).position(|(a, b)| a != b) {
            let text = format!("{name}: READ of {len} at {from}: byte {}", from + at);
            return Wrong::err(Kind::WrongBytes, text);
        }
        let reaches = from + count >= content.len();
        let is_whole = bytes.len() == expected.len() && count == bytes.len();
        if !is_whole || is_end != reaches || (count == 0 && !reaches) {
            let text = format!(
                "{name}: READ of {len} at {from}: {count}, {} bytes, end {is_end}, of {}",
                bytes.len(),
                content.len()
            );
            return Wrong::err(Kind::Frame, text);
        }
        storm.done.reads.fetch_add(1, Relaxed);
        storm.done.read_bytes.fetch_add(bytes.len() as u64, Relaxed);
    }
    Ok(())
}

/// WRITEs, COMMITs and READs until it is over; at the end all is committed.
pub fn writer(storm: &Storm<'_>, own: &mut Own, rng: &mut Rng) {
    let name = own.name.clone();
    if let Err(wrong) = write_on(storm, own, rng) {
        storm.findings.add(&wrong, &format!("the writer of {name}"));
    }
}

fn write_on(storm: &Storm<'_>, own: &mut Own, rng: &mut Rng) -> Result<(), Wrong> {
    let mut caller = Caller::new(storm, own.uid);
    let root = caller.mount()?;
    let args = create_args(&root, &own.name, Set::mode(0o644));
    let mut made = caller.one("CREATE", procedure::CREATE, args)?;
    if made.u32() != 1 {
        return Wrong::err(Kind::Frame, "CREATE without a handle");
    }
    let mut file = File {
        caller,
        handle: made.opaque(),
        later: Vec::new(),
    };
    while !storm.is_over() {
        let len = 1 + rng.below(WRITE_BYTES);
        let from = match rng.below(3) {
            0 => own.content.len().min(OWN_BYTES - len), // more of it
            _ => rng.below(own.content.len().min(OWN_BYTES - len) + 1),
        };
        let bytes = pattern(len, rng.next_u64());
        let end = own.content.len().max(from + len);
        own.content.resize(end, 0);
        own.content[from..from + len].copy_from_slice(&bytes);
        let stable = [Stable::Later, Stable::Later, Stable::Data, Stable::File][rng.below(4)];
        file.write(storm, &own.content, (from, len), stable)?;
        if rng.below(8) == 0 {
            file.commit(storm, &own.content)?;
        }
        if rng.below(3) == 0 {
            let from = rng.below(own.content.len());
            let spans = [(from, 1 + rng.below(READ_BYTES))];
            let whose = (storm, &file.handle[..]);
            check(&mut file.caller, whose, &own.content, &spans, &own.name)?;
        }
    }
    file.commit(storm, &own.content)?;
    let spans: Vec<(usize, usize)> = (0..own.content.len().div_ceil(1 << 20))
        .map(|nth| (nth << 20, 1 << 20))
        .collect();
    let whose = (storm, &file.handle[..]);
    check(&mut file.caller, whose, &own.content, &spans, &own.name)
}

/// A file that is written.
struct File<'a> {
    caller: Caller<'a>,
    handle: Vec<u8>,
    /// What is not committed: place, length, and the run of the server that has it.
    later: Vec<(usize, usize, u64)>,
}

impl File<'_> {
    /// WRITEs this span of the content, in as many calls as the server makes of it.
    fn write(
        &mut self,
        storm: &Storm<'_>,
        content: &[u8],
        (mut from, len): (usize, usize),
        stable: Stable,
    ) -> Result<(), Wrong> {
        let end = from + len;
        while from < end {
            let bytes = &content[from..end];
            let args = write_args(&self.handle, from as u64, bytes, stable);
            let mut results = self.caller.one("WRITE", procedure::WRITE, args)?;
            change(&mut results);
            let (count, is) = (results.u32() as usize, results.u32());
            let verifier = results.u64();
            if count == 0 || count > bytes.len() || is < stable as u32 {
                let text = format!("WRITE {stable:?} of {}: {count}, {is}", bytes.len());
                return Wrong::err(Kind::Frame, text);
            }
            if is == 0 {
                self.later.push((from, count, verifier));
            }
            from += count;
            storm.done.writes.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// COMMITs, and writes again what an earlier run of the server had, until nothing is left.
    fn commit(&mut self, storm: &Storm<'_>, content: &[u8]) -> Result<(), Wrong> {
        while !self.later.is_empty() {
            let args = crate::nfs::NfsArgs::default().opaque(&self.handle);
            let args = args.u64(0).u32(0);
            let mut results: Results = self.caller.one("COMMIT", procedure::COMMIT, args)?;
            change(&mut results);
            let verifier = results.u64();
            storm.done.commits.fetch_add(1, Relaxed);
            let later = std::mem::take(&mut self.later);
            for (from, len, of) in later {
                if of != verifier {
                    storm.done.rewrites.fetch_add(1, Relaxed);
                    self.write(storm, content, (from, len), Stable::Later)?;
                }
            }
        }
        Ok(())
    }
}
