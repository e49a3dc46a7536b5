//! Carries out the calls of all connections: no socket is here, and no thread but the one that closes removed files.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ackpace_core::limits::RESOLVERS_MAX;
use ackpace_core::why::Why;
use ackpace_wire::nfs3::handle::{self, Key};
use ackpace_wire::nfs3::{Args, Asked, Change, Request, Results, Status, Write, reply};

use super::alone::Changes;
use super::broker::Broker;
use super::call::Call;
use super::exports::Exports;
use super::handles::{NFS_HANDLES_BYTES, NFS_OPEN_MAX};
use super::means::Writing;
use super::origin::{From, ORIGIN_BYTES, Origin};
pub use super::outcome::Outcome;
use super::repeats::{REPLIES_BYTES, Repeats, Seen};
use super::search::NFS_INDEXES_BYTES;
use super::tree::Tree;
use super::writers::{WRITERS_BYTES, WRITERS_MAX, Writers};
use super::{key, mount, procedures};
use crate::config::Layer;
use crate::failure::Failure;
use crate::front::site::Site;
use crate::options::{ExportSpec, Network, ServeOptions, Squash, shown_path};
use crate::store::door::Wait;

/// How often removed files are looked for among the open ones. Longer: their space stays taken for so long.
const SWEEP_EACH: Duration = Duration::from_secs(1);
/// A broker that has another folder than this server is asked so often whether it has found a new mount, at the start. It looks once a
/// second.
const LOOKS: u32 = 3;
const LOOK: Duration = Duration::from_secs(1);
/// One open file of NFS for so many descriptors that the process may have; each may take three.
const DESCRIPTORS_PER_FILE: u64 = 12;

/// Memory of what is known of files at worst, or of an origin in their place.
pub const FILES_BYTES: u64 = NFS_HANDLES_BYTES + NFS_INDEXES_BYTES;
const _: () = assert!(ORIGIN_BYTES <= FILES_BYTES);
/// Descriptors of the files that are kept open at worst.
pub const FILES_DESCRIPTORS: u64 = 3 * NFS_OPEN_MAX as u64;

/// The same of what is known where clients write: open files, and replies to calls that may be repeated.
pub const WRITES_BYTES: u64 = WRITERS_BYTES + REPLIES_BYTES;
/// Descriptors of these files, and lines to the broker.
pub const WRITES_DESCRIPTORS: u64 = (WRITERS_MAX + RESOLVERS_MAX) as u64;

/// What is exported, shared by all threads.
pub struct Served {
    pub(super) tree: Tree,
    pub(super) exports: Exports,
    pub(super) key: Key,
    /// What it takes to change files, if an export may be changed.
    pub(super) writing: Option<Writing>,
    /// What is served in place of files.
    pub(super) origin: Option<Origin>,
}

impl Served {
    /// The exports of a site by these options, for a server that listens at these addresses and may have so many descriptors
    /// (`None`: any number).
    pub fn open(
        options: &ServeOptions,
        given: &Layer,
        site: &Arc<Site>,
        at: &[IpAddr],
        descriptors: Option<u64>,
    ) -> Result<Served, Failure> {
        let key = || key_of(&options.nfs_options.nfs_key, given);
        Served::open_with((options, given), site, at, descriptors, key)
    }

    /// Whether they can be served, without an effect: a key that is missing is not made.
    pub fn check(
        options: &ServeOptions,
        given: &Layer,
        site: &Arc<Site>,
        at: &[IpAddr],
    ) -> Result<(), Failure> {
        let named = &options.nfs_options.nfs_key;
        let is_there = named.as_os_str() != "auto" && named.exists();
        let key = || match is_there {
            true => key_of(named, given),
            false => Ok(Key([0; 16])),
        };
        Served::open_with((options, given), site, at, None, key).map(drop)
    }

    fn open_with(
        (options, given): (&ServeOptions, &Layer),
        site: &Arc<Site>,
        at: &[IpAddr],
        descriptors: Option<u64>,
        key: impl FnOnce() -> Result<Key, Failure>,
    ) -> Result<Served, Failure> {
        if site.gateway.is_none() && site.root.only().is_some() {
            let text =
                "NFS serves a directory, and no single file: name the directory, or leave nfs out";
            return Err(Failure::operator(text));
        }
        let specs = specs(&options.nfs_options.nfs_export, at)?;
        let exports = Exports::new(&specs).map_err(|[one, other]| {
            let text = format!("{one} and {other} hash to one number: rename one of them");
            Failure::value(given, "nfs_export", &text)
        })?;
        let gateway = site.gateway.as_ref();
        if let Some(spec) = specs
            .iter()
            .find(|spec| spec.is_writable && gateway.is_some())
        {
            let text = format!("{}: an origin can't be changed: export it ro", spec.path);
            return Err(Failure::value(given, "nfs_export", &text));
        }
        let most = descriptors.map_or(u64::MAX, |most| most / DESCRIPTORS_PER_FILE);
        let open_max = usize::try_from(most).unwrap_or(usize::MAX);
        let tree = Tree::new(Arc::clone(site), open_max);
        for spec in &specs {
            if gateway.is_none() && !tree.has_folder(spec.path.as_bytes()) {
                let text = format!(
                    "{}: there is no such folder in {} that this user may enter (links are not followed)",
                    spec.path,
                    shown_path(site.root.path())
                );
                return Err(Failure::value_now(given, "nfs_export", &text));
            }
        }
        let writing = match specs.iter().find(|spec| spec.is_writable) {
            Some(spec) => Some(writing(options, given, site, spec)?),
            None => None,
        };
        let key = key()?;
        Ok(Served {
            tree,
            exports,
            origin: gateway.map(|gateway| Origin::new(Arc::clone(gateway), &key)),
            key,
            writing,
        })
    }

    /// Starts the thread that closes removed files, so that they free their space.
    pub fn watch(served: &Arc<Served>) -> io::Result<()> {
        if served.origin.is_some() {
            return Ok(()); // no file is open
        }
        let weak = Arc::downgrade(served);
        let watch = move || {
            while let Some(served) = weak.upgrade() {
                served.tree.sweep();
                if let Some(writing) = &served.writing {
                    writing.writers.sweep();
                }
                drop(served);
                thread::sleep(SWEEP_EACH);
            }
        };
        let thread = thread::Builder::new().name("nfs-sweep".to_owned());
        thread.spawn(watch).map(|_| ())
    }

    /// Carries out a call, for a client at this address. [`Wait::No`]: only what the kernel's caches answer, else
    /// [`Outcome::Cold`].
    /// `payload` is what a WRITE brings.
    pub fn carry_out(
        &self,
        request: &Request<'_>,
        payload: &[u8],
        from: IpAddr,
        wait: Wait,
    ) -> Outcome {
        let call = Call {
            tree: &self.tree,
            exports: &self.exports,
            key: &self.key,
            xid: request.xid,
            credential: request.credential,
            from,
            wait,
            writing: self.writing.as_ref(),
            payload,
        };
        match &request.asked {
            Asked::Nfs(args) => procedures::carry_out(&call, args),
            Asked::Mount(args) => mount::carry_out(&call, args),
        }
    }

    /// The same where an origin is served, with what the call has heard from it so far. `None`: files are served.
    pub fn inquire(&self, request: &Request<'_>, from: From<'_>) -> Option<Outcome> {
        let origin = self.origin.as_ref()?;
        Some(origin.carry_out(&self.exports, request, from))
    }

    /// The same, for a thread that may wait, and once: a call that is repeated gets the reply of the first one. `record` is all of it
    /// but its payload.
    pub fn carry_out_once(
        &self,
        request: &Request<'_>,
        record: &[u8],
        payload: &[u8],
        from: IpAddr,
    ) -> Outcome {
        let run = || self.carry_out(request, payload, from, Wait::Yes);
        let writing = self.writing.as_ref().filter(|_| has_effect(request));
        let Some(Writing { repeats, .. }) = writing else {
            return run();
        };
        let key = repeats.key(from, request.xid, record);
        match repeats.begin(key) {
            Seen::Replied(reply) => Outcome::Reply(reply),
            Seen::Waits => self.put_off(request),
            Seen::New => {
                let outcome = run();
                let reply = match &outcome {
                    Outcome::Reply(reply) => Some(&**reply),
                    _ => None,
                };
                repeats.end(key, reply);
                outcome
            }
        }
    }

    /// The reply to a call that can't be carried out now: the client tries again.
    pub fn put_off(&self, request: &Request<'_>) -> Outcome {
        let Asked::Nfs(args) = &request.asked else {
            return Outcome::Cold;
        };
        let (mut to, none) = (Vec::new(), Change::default());
        let results = procedures::failed(args, Status::Jukebox, none);
        reply(request.xid, &results, &mut to);
        Outcome::Reply(to)
    }

    /// Whether the payload of a WRITE from this address is to be received: its export may be changed.
    pub fn takes(&self, write: &Write<'_>, from: IpAddr) -> bool {
        let export = handle::open(&self.key, write.file.0).and_then(|file| {
            let export = self.exports.of_number(file.export, from);
            export.ok()
        });
        let is_writable = export.is_some_and(|export| export.spec.is_writable);
        is_writable && write.len_bytes == write.payload_bytes
    }

    /// Appends the reply of a READ whose bytes can't be read. Of a file that has changed meanwhile, the client asks again.
    pub fn refuse_read(&self, xid: u32, why: Why, to: &mut Vec<u8>) {
        let status = match why {
            Why::FileChanged => Status::Jukebox,
            _ => Status::Io,
        };
        reply(xid, &Results::Read(Err(status), None), to);
    }
}

/// Whether it makes a difference to carry out a call twice.
fn has_effect(request: &Request<'_>) -> bool {
    match request.asked {
        Asked::Nfs(args) => matches!(
            args,
            Args::SetAttr { .. }
                | Args::Create { .. }
                | Args::MkDir { .. }
                | Args::SymLink { .. }
                | Args::MkNod { .. }
                | Args::Remove(_)
                | Args::RmDir(_)
                | Args::Rename { .. }
                | Args::Link { .. }
        ),
        Asked::Mount(_) => false,
    }
}

/// What it takes to change files: a broker that has the same folder.
fn writing(
    options: &ServeOptions,
    given: &Layer,
    site: &Site,
    spec: &ExportSpec,
) -> Result<Writing, Failure> {
    let path = &options.nfs_options.nfs_broker;
    let (root, at) = (shown_path(site.root.path()), shown_path(path));
    let refused = |why: &str| {
        let text = format!(
            "{}: rw takes a broker at {at} that changes files with the rights of the clients' users: {why}. Run 'ackpace-host files --root {root} --for USER --socket {at}' as root, USER being the one of this server, or export ro",
            spec.path
        );
        Err(Failure::value_now(given, "nfs_export", &text))
    };
    let broker = Broker::new(path);
    let own = site.root.top_id();
    let mut here = broker.hello();
    for _ in 0..LOOKS {
        if !matches!(here, Ok(here) if Some(here.root) != own) {
            break;
        }
        thread::sleep(LOOK);
        here = broker.hello();
    }
    let here = match here {
        Ok(here) if Some(here.root) == own => here,
        Ok(_) => {
            return refused("the one there has another folder, or does not see what is mounted");
        }
        Err(error) => return refused(&error.to_string()),
    };
    let squashes = |spec: &ExportSpec| spec.squash != Squash::None;
    let has_roots = options.nfs_options.nfs_export.iter();
    let mut has_roots = has_roots.filter(|spec| spec.is_writable && !squashes(spec));
    if let Some(spec) = has_roots.next().filter(|_| !here.allows_root) {
        tracing::warn!(
            "nfs_export: {}: no_root_squash: root of a client can change nothing, since the broker refuses it: start that with --allow-root",
            spec.path
        );
    }
    let verifier =
        key::draw().map_err(|error| Failure::runtime(format!("a random number: {error}")))?;
    let Key([a, b, c, d, e, f, g, h, ..]) = verifier;
    Ok(Writing {
        broker,
        writers: Writers::default(),
        repeats: Repeats::default(),
        changes: Changes::default(),
        verifier: [a, b, c, d, e, f, g, h],
    })
}

/// The exports that were named; by default everything, to this machine.
fn specs(named: &[ExportSpec], at: &[IpAddr]) -> Result<Vec<ExportSpec>, Failure> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    if let Some(other) = at.iter().find(|addr| !addr.to_canonical().is_loopback()) {
        return Err(Failure::operator(format!(
            "nfs: {other} is an address for other machines, too, and nothing says which of them may mount: give nfs_export, such as \
             --nfs-export /=192.0.2.0/24, or listen at 127.0.0.1"
        )));
    }
    let this_machine = vec![
        Network::Of {
            addr: Ipv4Addr::new(127, 0, 0, 0).into(),
            bits: 8,
        },
        Network::Of {
            addr: Ipv6Addr::LOCALHOST.into(),
            bits: 128,
        },
    ];
    Ok(vec![ExportSpec::new("/", this_machine)])
}

/// The key that was named. Without a place for one, it ends with the process.
fn key_of(named: &Path, given: &Layer) -> Result<Key, Failure> {
    if named.as_os_str() != "auto" {
        return key::load(named).map_err(|error| {
            let text = format!("{}: {error}", shown_path(named));
            match error {
                key::KeyError::Io(_) => Failure::value_now(given, "nfs_key", &text),
                key::KeyError::Bad(_) => Failure::value(given, "nfs_key", &text),
            }
        });
    }
    let why = match key::usual_place(key::variable) {
        None => "there is no home for it".to_owned(),
        Some(path) => {
            let made = key::make_folder(&path).map_err(key::KeyError::Io);
            match made.and_then(|()| key::load(&path)) {
                Ok(key) => return Ok(key),
                Err(error) => format!("{}: {error}", shown_path(&path)),
            }
        }
    };
    tracing::warn!(
        "nfs_key: {why}; file handles end with this process, so that clients must mount again after a restart: name a file with --nfs-key"
    );
    key::draw().map_err(|error| Failure::runtime(format!("nfs_key: {error}")))
}

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
