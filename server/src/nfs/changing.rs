//! The procedures that change the tree: SETATTR, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK. The broker carries them
//! out with the caller's rights; here is found what is meant, and what a client hears of it.

use std::os::fd::OwnedFd;

use ackpace_wire::files::{How, Node as Special, Operation, Spot};
use ackpace_wire::limits::NFS_PATH_BYTES_MAX;
use ackpace_wire::nfs3::{
    Args, Before, Change, Create, Handle, Kind, Made, Name, Place, Results, SetAttributes, Status,
    Time, reply,
};

use super::alone::Under;
use super::broker::Told;
use super::call::{Call, There};
use super::fail::Fail;
use super::means::Writing;
use super::tree::Node;

/// Tries with files that are moved meanwhile. More: the client tries again.
const RACES_MAX: u32 = 3;

/// A procedure under way on an export that may be changed.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub call: &'a Call<'a>,
    pub writing: &'a Writing,
}

/// A file that is being changed, and how it was before.
pub struct Changing<'a> {
    before: Before,
    under: Under<'a>,
    node: Node,
}

impl Changing<'_> {
    /// What a client hears of the change.
    pub fn end(&self) -> Change {
        let after = self.node.now();
        Change {
            before: self.under.is_alone().then_some(self.before),
            after,
        }
    }
}

impl<'a> Work<'a> {
    /// Carries out a call; `None`: it changes nothing of the tree.
    pub fn carry_out(self, args: &Args<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
        match args {
            Args::SetAttr { file, set, guard } => self.set(*file, set, *guard, to),
            Args::Create { place, .. }
            | Args::MkDir { place, .. }
            | Args::SymLink { place, .. }
            | Args::MkNod { place, .. } => self.make(place, args, to),
            Args::Remove(place) => self.remove(place, Operation::Remove, to),
            Args::RmDir(place) => self.remove(place, Operation::RemoveFolder, to),
            Args::Rename { from, to: into } => self.rename(from, into, to),
            Args::Link { file, place } => self.link(*file, place, to),
            _ => Err(Fail::Is(Status::ServerFault)), // it changes nothing
        }
    }

    /// A change of this file begins.
    pub fn begin(self, node: &Node) -> Changing<'a> {
        let under = self.writing.changes.begin(node);
        let node = node.clone();
        let now = node.now().unwrap_or_else(|| node.attributes());
        Changing {
            before: Before {
                size_bytes: now.size_bytes,
                written_at: now.written_at,
                changed_at: now.changed_at,
            },
            under,
            node,
        }
    }

    /// Has the broker do something with files as this caller; once more with each that has moved.
    pub fn ask(
        self,
        there: &There<'_>,
        nodes: &mut [Node],
        operation: impl Fn(&[Node]) -> Operation,
    ) -> Result<Told, Fail> {
        for _ in 0..RACES_MAX {
            let asked = operation(nodes);
            match self.writing.broker.ask(there.caller.user(), asked)? {
                Told::Moved => {
                    for node in nodes.iter_mut() {
                        *node = self.call.tree.find_again(node, self.call.eyes_of(there))?;
                        if !there.export.has(&node.path) {
                            return Err(Fail::Is(Status::Stale)); // it was moved out
                        }
                    }
                }
                told => return Ok(told),
            }
        }
        self.writing
            .broker
            .compare(self.call.tree.site.root.top_id());
        Err(Fail::Is(Status::Jukebox))
    }

    fn set(
        self,
        file: Handle<'_>,
        set: &SetAttributes,
        guard: Option<Time>,
        to: &mut Vec<u8>,
    ) -> Result<(), Fail> {
        let there = self.call.find(file)?;
        let changing = self.begin(&there.node);
        let asked = self.ask(&there, &mut [there.node.clone()], |nodes| {
            Operation::Set(nodes[0].known(), *set, guard)
        });
        let result = match asked {
            Ok(Told::NotSync) => Err(Status::NotSync),
            other => done(other)?,
        };
        reply(self.call.xid, &Results::SetAttr(result, changing.end()), to);
        Ok(())
    }

    fn make(self, place: &Place<'_>, args: &Args<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
        let folder = self.call.find_folder(place.folder)?;
        let changing = self.begin(&folder.node);
        let made = status(self.made(&folder, place.name, args))?;
        let sealed = match &made {
            Ok(Some(node)) => Some(folder.seal(node, self.call.key)?),
            _ => None,
        };
        let made = made.map(|node| Made {
            file: sealed.as_ref().map(|sealed| Handle(sealed.as_bytes())),
            attributes: node.map(|node| node.attributes()),
        });
        reply(self.call.xid, &Results::Make(made, changing.end()), to);
        Ok(())
    }

    /// Makes a file, and finds it; `None`: another one has its name meanwhile.
    fn made(
        self,
        folder: &There<'_>,
        name: Name<'_>,
        args: &Args<'_>,
    ) -> Result<Option<Node>, Fail> {
        let name = self.new_name(name)?;
        let mut nodes = [folder.node.clone()];
        let told = self.ask(folder, &mut nodes, |nodes| {
            making(spot(&nodes[0], name), args)
        })?;
        let [folder_node] = nodes;
        let found = (self.call.tree).below(&folder_node, name, true, self.call.eyes_of(folder));
        let node = match found {
            Ok(node) => node,
            Err(Fail::Cold) => return Err(Fail::Cold),
            Err(Fail::Is(_)) => return Ok(None),
        };
        Ok(match told {
            Told::Opened(file) if !is_same(&file, &node) => None,
            Told::Opened(file) => {
                let (file_is, by) = (&node.identity, &folder.caller);
                self.writing.writers.keep(file_is, by, &node.told, file);
                Some(node)
            }
            _ => Some(node),
        })
    }

    fn remove(
        self,
        place: &Place<'_>,
        operation: fn(Spot) -> Operation,
        to: &mut Vec<u8>,
    ) -> Result<(), Fail> {
        let folder = self.call.find_folder(place.folder)?;
        let changing = self.begin(&folder.node);
        let removed = self.old_name(place.name).and_then(|name| {
            let mut nodes = [folder.node.clone()];
            self.ask(&folder, &mut nodes, |nodes| {
                operation(spot(&nodes[0], name))
            })
        });
        let results = Results::Remove(done(removed)?, changing.end());
        reply(self.call.xid, &results, to);
        Ok(())
    }

    fn rename(self, from: &Place<'_>, into: &Place<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
        let before = self.call.find_folder(from.folder)?;
        let after = self.call.find_folder(into.folder)?;
        let changing = [self.begin(&before.node), self.begin(&after.node)];
        let renamed = self.renamed((&before, from.name), (&after, into.name));
        let result = done(renamed)?;
        // Of one folder nothing is told before: both have counted each other.
        let [from, into] = changing.map(|changing| changing.end());
        reply(self.call.xid, &Results::Rename(result, from, into), to);
        Ok(())
    }

    fn renamed(
        self,
        (before, from): (&There<'_>, Name<'_>),
        (after, into): (&There<'_>, Name<'_>),
    ) -> Result<Told, Fail> {
        if before.export.number != after.export.number {
            return Err(Fail::Is(Status::XDev));
        }
        let (from, into) = (self.old_name(from)?, self.new_name(into)?);
        let mut nodes = [before.node.clone(), after.node.clone()];
        let told = self.ask(before, &mut nodes, |nodes| {
            Operation::Rename(spot(&nodes[0], from), spot(&nodes[1], into))
        })?;
        // What is known of the file follows it at once.
        let _ = (self.call.tree).below(&nodes[1], into, true, self.call.eyes_of(after));
        Ok(told)
    }

    fn link(self, file: Handle<'_>, place: &Place<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
        let there = self.call.find(file)?;
        let folder = self.call.find_folder(place.folder)?;
        let changing = self.begin(&folder.node);
        let linked = match there.export.number == folder.export.number {
            true => self.new_name(place.name).and_then(|name| {
                let mut nodes = [there.node.clone(), folder.node.clone()];
                let told = self.ask(&folder, &mut nodes, |nodes| {
                    Operation::AddName(nodes[0].known(), spot(&nodes[1], name))
                })?;
                // The file is found by the new name when the old one is removed; its descriptor has the old one.
                let _ = (self.call.tree).below(&nodes[1], name, true, self.call.eyes_of(&folder));
                Ok(told)
            }),
            false => Err(Fail::Is(Status::XDev)),
        };
        let result = done(linked)?;
        let results = Results::Link(result, there.node.now(), changing.end());
        reply(self.call.xid, &results, to);
        Ok(())
    }

    /// A name that something gets. One that clients do not see would be lost.
    fn new_name<'n>(self, name: Name<'n>) -> Result<&'n [u8], Fail> {
        let is_dots = name.is_dots();
        match name.check()? {
            _ if is_dots => Err(Fail::Is(Status::Exist)),
            name if self.call.tree.hides(name) => Err(Fail::Is(Status::Acces)),
            name => Ok(name),
        }
    }

    /// A name that something has.
    fn old_name<'n>(self, name: Name<'n>) -> Result<&'n [u8], Fail> {
        let is_dots = name.is_dots();
        match name.check()? {
            _ if is_dots => Err(Fail::Is(Status::Inval)),
            name if self.call.tree.hides(name) => Err(Fail::Is(Status::NoEnt)),
            name => Ok(name),
        }
    }
}

/// What the broker makes.
fn making(spot: Spot, args: &Args<'_>) -> Operation {
    match args {
        Args::Create { how, .. } => Operation::Create(
            spot,
            match *how {
                Create::Unchecked(set) => How::Unchecked(set),
                Create::Guarded(set) => How::Guarded(set),
                Create::Exclusive(verifier) => How::Exclusive(verifier),
            },
        ),
        Args::SymLink { target, set, .. } => Operation::MakeLink(spot, target.to_vec(), *set),
        Args::MkNod {
            kind, device, set, ..
        } => {
            let node = match kind {
                Kind::Block => Special::Block(*device),
                Kind::Character => Special::Character(*device),
                Kind::Socket => Special::Socket,
                _ => Special::Pipe, // the others were refused
            };
            Operation::MakeNode(spot, node, *set)
        }
        Args::MkDir { set, .. } => Operation::MakeFolder(spot, *set),
        _ => unreachable!("it makes nothing"),
    }
}

/// Why something is not made, whatever its name and folder.
pub fn refusal(args: &Args<'_>) -> Option<Status> {
    match args {
        Args::MkNod { kind, .. } => match kind {
            Kind::Block | Kind::Character | Kind::Socket | Kind::Pipe => None,
            Kind::Regular | Kind::Folder | Kind::Link => Some(Status::BadType),
        },
        Args::SymLink { target, .. } => match target.len() {
            NFS_PATH_BYTES_MAX.. => Some(Status::NameTooLong),
            0 => Some(Status::Inval),
            _ => target.contains(&0).then_some(Status::Inval),
        },
        _ => None,
    }
}

fn spot(folder: &Node, name: &[u8]) -> Spot {
    Spot {
        folder: folder.known(),
        name: name.to_vec(),
    }
}

fn is_same(file: &OwnedFd, node: &Node) -> bool {
    let stat = rustix::fs::fstat(file);
    stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (node.place.st_dev(), node.told.stx_ino))
}

/// The status of an attempt; only a call that was not to wait fails.
fn status<T>(attempt: Result<T, Fail>) -> Result<Result<T, Status>, Fail> {
    match attempt {
        Ok(value) => Ok(Ok(value)),
        Err(Fail::Is(status)) => Ok(Err(status)),
        Err(Fail::Cold) => Err(Fail::Cold),
    }
}

fn done(attempt: Result<Told, Fail>) -> Result<Result<(), Status>, Fail> {
    status(attempt.map(|_| ()))
}
