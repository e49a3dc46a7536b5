//! Before a connection comes: its file is opened and compared, and the bytes that it needs at once are in memory. Disks may
//! hang, so threads of their own do that.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::thread;

use ackpace_core::conn::Version;
use ackpace_core::handoff::Refusal;
use ackpace_wire::cluster::Object;
use ackpace_wire::listing::Format;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rustix::io::preadv;

use super::Key;
use crate::front::site::{Query, Site, SiteAnswer};
use crate::store::file::File;
use crate::store::root::Wait;

/// Threads that prepare. More would wait for the same disks.
const THREADS: usize = 4;
/// Files that wait to be prepared. More: refused.
const WAITING_MAX: usize = 256;
/// Bytes that are read at a time to have them in memory.
const PIECE_BYTES: usize = 256 << 10;

/// A file of the promised version.
pub type Ready = (Arc<File>, Version);

/// The threads.
pub struct Preparers {
    asked: Sender<(Key, Object)>,
    done: Receiver<(Key, Result<Ready, Refusal>)>,
}

impl Preparers {
    /// Starts the threads; each wakes who asked.
    pub fn start(
        site: impl Fn() -> Arc<Site> + Clone + Send + 'static,
        wake: impl Fn() + Clone + Send + 'static,
    ) -> std::io::Result<Preparers> {
        let (asked, waiting) = bounded::<(Key, Object)>(WAITING_MAX);
        let (tell, done) = unbounded(); // as many as were asked
        for _ in 0..THREADS {
            let (waiting, tell) = (waiting.clone(), tell.clone());
            let (site, wake) = (site.clone(), wake.clone());
            let work = move || {
                let mut buffer = vec![0; PIECE_BYTES];
                for (key, object) in waiting.iter() {
                    let ready = prepare(&site(), &object, &mut buffer);
                    if tell.send((key, ready)).is_err() {
                        return;
                    }
                    wake();
                }
            };
            let name = "prepare".to_owned();
            thread::Builder::new().name(name).spawn(work)?;
        }
        Ok(Preparers { asked, done })
    }

    /// Has a file prepared. `false`: too many wait.
    pub fn ask(&self, key: Key, object: Object) -> bool {
        self.asked.try_send((key, object)).is_ok()
    }

    /// What was prepared.
    pub fn next(&self) -> Option<(Key, Result<Ready, Refusal>)> {
        self.done.try_recv().ok()
    }
}

fn prepare(site: &Site, object: &Object, buffer: &mut [u8]) -> Result<Ready, Refusal> {
    let query = Query {
        path: [b"/", &object.name[..]].concat().into(),
        accept_encoding: Box::default(),
        format: Format::default(),
        chunked: None,
    };
    let Some(SiteAnswer::File(served)) = site.find(&query, Wait::Yes) else {
        return Err(Refusal::Object);
    };
    let version = served.version;
    let same = version.len_bytes == object.size_bytes
        && version.mtime_ns == i128::from(object.mtime_ns)
        && *served.path == *object.name;
    if !same {
        return Err(Refusal::Object);
    }
    let mut at_bytes = object.from_bytes;
    while at_bytes < object.to_bytes {
        let most = (object.to_bytes - at_bytes).min(buffer.len() as u64) as usize;
        let mut into = [IoSliceMut::new(&mut buffer[..most])];
        match preadv(&served.file, &mut into, at_bytes) {
            Ok(read) if read > 0 => at_bytes += read as u64,
            _ => return Err(Refusal::Object),
        }
    }
    Ok((served.file, version))
}
