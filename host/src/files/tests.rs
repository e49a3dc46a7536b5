//! Each on a thread of its own, since rights are a thread's. They need root, and are skipped elsewhere.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::PathBuf;
use std::thread;

use ackpace_wire::files::{For, How, Known, Node, Operation, Reply, Request, Spot, User};
use ackpace_wire::nfs3::{Device, SetAttributes, SetTime, Time};
use rustix::io::Errno;

use super::identity::{FILE_RIGHTS, become_user};
use super::{Answer, Served};

/// A folder where everybody may write, and a broker of it.
struct World {
    dir: PathBuf,
    served: Served,
}

impl World {
    fn stat(&self, path: &str) -> fs::Metadata {
        fs::symlink_metadata(self.dir.join(path)).expect(path)
    }

    fn known(&self, path: &str) -> Known {
        let stat = self.stat(path);
        Known {
            path: path.as_bytes().to_vec(),
            device: stat.dev(),
            inode: stat.ino(),
        }
    }

    fn spot(&self, folder: &str, name: &str) -> Spot {
        Spot {
            folder: self.known(folder),
            name: name.as_bytes().to_vec(),
        }
    }

    fn dir(&self, path: &str, mode: u32, owner: u32, group: u32) {
        let path = self.dir.join(path);
        fs::create_dir(&path).expect("a new folder");
        chown(&path, Some(owner), Some(group)).expect("root may");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("root may");
    }

    /// On a thread of its own, which has the user's rights from then on.
    fn ask(&self, user: &User, operation: Operation) -> Answer {
        let request = Request::Do(user.clone(), operation);
        thread::scope(|scope| {
            let answered = scope.spawn(|| self.served.answer(&request));
            answered.join().expect("no panic")
        })
    }

    fn errno(&self, user: &User, operation: Operation) -> Errno {
        match self.ask(user, operation).reply {
            Reply::Failed { errno } => Errno::from_raw_os_error(errno),
            other => panic!("{other:?}"),
        }
    }

    fn done(&self, user: &User, operation: Operation) {
        assert_eq!(self.ask(user, operation).reply, Reply::Done);
    }

    fn opened(&self, user: &User, operation: Operation) -> (OwnedFd, bool) {
        let answer = self.ask(user, operation);
        match (answer.reply, answer.descriptor) {
            (Reply::Opened { is_new }, Some(file)) => (file, is_new),
            other => panic!("{other:?}"),
        }
    }
}

fn user(uid: u32, gid: u32, gids: &[u32]) -> User {
    User {
        uid,
        gid,
        gids: gids.to_vec(),
    }
}

fn with_mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

/// Runs a test on a thread of its own, which loses its rights.
fn try_as_root(name: &str, allows_root: bool, test: fn(&World)) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: {name}: users need root");
        return;
    }
    let dir = std::env::temp_dir().join(format!("ackpace-files-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("our own");
    let served = Served::open(&dir, allows_root).expect("a folder");
    let world = World { dir, served };
    let outcome = thread::spawn(move || {
        test(&world);
        world
    });
    match outcome.join() {
        Ok(world) => fs::remove_dir_all(&world.dir).expect("our own"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn ids_of_thread() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("it runs");
    let lines = status.lines();
    let lines = lines.filter(|it| {
        ["Uid:", "Gid:", "Groups:", "CapEff:"]
            .iter()
            .any(|key| it.starts_with(key))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_thread_has_the_rights_of_the_user_and_no_other() {
    try_as_root("rights", true, |_| {
        let one = user(1234, 77, &[9, 8, 8]);
        become_user(&one).expect("root may");
        let told = ids_of_thread();
        assert!(told.contains("Uid:\t0\t0\t0\t1234"), "{told}");
        assert!(told.contains("Gid:\t0\t0\t0\t77"), "{told}");
        assert!(told.contains("Groups:\t8 8 9"), "{told}");
        let sets = rustix::thread::capabilities(None).expect("its own");
        assert!(!sets.effective.intersects(FILE_RIGHTS));
        let other = thread::spawn(|| become_user(&user(5, 5, &[])).map(|()| ids_of_thread()));
        let other = other.join().expect("no panic").expect("root may");
        assert!(other.contains("Uid:\t0\t0\t0\t5"), "{other}");
        assert_eq!(ids_of_thread(), told, "the other's are its own");
        become_user(&user(0, 0, &[])).expect("root may");
        let told = ids_of_thread();
        assert!(
            told.contains("Uid:\t0\t0\t0\t0") && !told.contains("Groups:\t8"),
            "{told}"
        );
        for bad in [
            user(u32::MAX, 1, &[]),
            user(1, u32::MAX, &[]),
            user(1, 1, &[u32::MAX]),
        ] {
            assert!(become_user(&bad).is_err());
        }
    });
}

#[test]
fn root_is_refused_unless_it_is_allowed() {
    try_as_root("root", false, |world| {
        let make = |name| Operation::MakeFolder(world.spot("", name), SetAttributes::default());
        for root in [user(0, 5, &[]), user(5, 0, &[]), user(5, 5, &[4, 0])] {
            assert_eq!(world.errno(&root, make("x")), Errno::PERM);
        }
        world.done(&user(5, 5, &[4]), make("x"));
        let stat = world.stat("x");
        assert_eq!(
            (stat.uid(), stat.gid(), stat.mode() & 0o7777),
            (5, 5, 0o700)
        );
    });
    try_as_root("allowed", true, |world| {
        world.dir("closed", 0o700, 7, 7);
        let spot = world.spot("closed", "made");
        world.done(
            &user(0, 0, &[]),
            Operation::MakeFolder(spot.clone(), with_mode(0o755)),
        );
        assert_eq!(
            world.errno(&user(5, 5, &[]), Operation::RemoveFolder(spot)),
            Errno::ACCESS
        );
        let device = Device { major: 1, minor: 3 };
        let node = |name| {
            Operation::MakeNode(
                world.spot("", name),
                Node::Character(device),
                with_mode(0o600),
            )
        };
        assert_eq!(world.errno(&user(5, 5, &[]), node("null")), Errno::PERM);
        world.done(&user(0, 0, &[]), node("null"));
    });
}

#[test]
fn files_are_made_in_three_ways() {
    try_as_root("make", false, |world| {
        let (one, other) = (user(5, 6, &[]), user(7, 8, &[]));
        let create = |name, how| Operation::Create(world.spot("", name), how);
        let set = SetAttributes {
            size_bytes: Some(3),
            ..with_mode(0o4444)
        };
        let (file, is_new) = world.opened(&one, create("a", How::Guarded(set)));
        assert!(is_new);
        rustix::io::write(&file, b"written").expect("it is open, whatever its mode");
        let stat = world.stat("a");
        assert_eq!(
            (stat.uid(), stat.gid(), stat.mode() & 0o7777),
            (5, 6, 0o4444)
        );
        assert_eq!(
            world.errno(&one, create("a", How::Guarded(set))),
            Errno::EXIST
        );

        // One that is there is found, and cut only by who may write it.
        let plain = SetAttributes::default();
        let cut = SetAttributes {
            size_bytes: Some(0),
            ..plain
        };
        assert_eq!(
            world.ask(&other, create("a", How::Unchecked(plain))).reply,
            Reply::Found
        );
        assert_eq!(
            world.errno(&other, create("a", How::Unchecked(cut))),
            Errno::ACCESS
        );
        let (_, is_new) = world.opened(&one, create("b", How::Unchecked(with_mode(0o644))));
        assert!(is_new);
        fs::write(world.dir.join("b"), "content").expect("root may");
        let (_, is_new) = world.opened(&one, create("b", How::Unchecked(cut)));
        assert!(!is_new && world.stat("b").len() == 0);
        world.dir("folder", 0o777, 5, 5);
        symlink("/etc/passwd", world.dir.join("link")).expect("a link");
        for name in ["folder", "link"] {
            assert_eq!(
                world.errno(&one, create(name, How::Unchecked(cut))),
                Errno::EXIST
            );
        }

        // A number makes a file once.
        let exclusive = |number: u8| create("c", How::Exclusive([number; 8]));
        assert!(world.opened(&one, exclusive(0xff)).1);
        assert!(!world.opened(&one, exclusive(0xff)).1);
        assert_eq!(world.errno(&one, exclusive(2)), Errno::EXIST);
        assert_eq!(world.errno(&other, exclusive(0xff)), Errno::EXIST);
        assert_eq!(world.stat("c").mode() & 0o7777, 0o600);
    });
}

#[test]
fn the_kernel_decides_by_mode_groups_and_sticky_bits() {
    try_as_root("modes", false, |world| {
        world.dir("own", 0o755, 5, 5);
        world.dir("team", 0o770, 5, 60);
        world.dir("tmp", 0o1777, 5, 5);
        let (owner, member, other) = (user(5, 5, &[]), user(7, 7, &[8, 60]), user(9, 9, &[]));
        let make = |folder, name| {
            Operation::MakeFolder(world.spot(folder, name), SetAttributes::default())
        };
        world.done(&owner, make("own", "a"));
        assert_eq!(world.errno(&member, make("own", "b")), Errno::ACCESS);
        world.done(&member, make("team", "a"));
        assert_eq!(world.errno(&other, make("team", "b")), Errno::ACCESS);
        world.done(&member, make("tmp", "a"));
        let remove = || Operation::RemoveFolder(world.spot("tmp", "a"));
        assert_eq!(world.errno(&other, remove()), Errno::PERM);
        world.done(&member, remove());
        // What is below a closed folder is closed.
        world.dir("team/deep", 0o777, 5, 5);
        assert_eq!(world.errno(&other, make("team/deep", "b")), Errno::ACCESS);
    });
}

#[test]
fn only_the_file_that_is_meant_is_touched() {
    try_as_root("moved", false, |world| {
        let one = user(5, 5, &[]);
        world.dir("a", 0o777, 5, 5);
        fs::write(world.dir.join("a/file"), "x").expect("root may");
        fs::set_permissions(world.dir.join("a/file"), fs::Permissions::from_mode(0o666))
            .expect("our own");
        let (folder, file) = (world.known("a"), world.known("a/file"));
        let open = |file: &Known| Operation::Open(file.clone(), For::Writing);
        world.opened(&one, open(&file));
        fs::rename(world.dir.join("a"), world.dir.join("b")).expect("root may");
        assert_eq!(world.ask(&one, open(&file)).reply, Reply::Moved);
        world.dir("a", 0o777, 5, 5);
        fs::write(world.dir.join("a/file"), "another").expect("root may");
        assert_eq!(world.ask(&one, open(&file)).reply, Reply::Moved);
        let spot = Spot {
            folder,
            name: b"file".to_vec(),
        };
        assert_eq!(world.ask(&one, Operation::Remove(spot)).reply, Reply::Moved);

        // No link is followed, wherever it leads.
        symlink("/etc", world.dir.join("etc")).expect("a link");
        symlink("b", world.dir.join("inside")).expect("a link");
        for path in ["etc/passwd", "inside/file", "none"] {
            let looked = world.ask(&one, Operation::Look(path.as_bytes().to_vec()));
            assert_eq!(looked.reply, Reply::Moved, "{path}");
        }
        let link = Operation::Look(b"etc".to_vec());
        let (link, _) = world.opened(&one, link);
        let stat = rustix::fs::fstat(&link).expect("open");
        assert_eq!(stat.st_ino, world.stat("etc").ino(), "the link itself");
        assert_eq!(
            world.errno(&one, Operation::Open(world.known("etc"), For::Writing)),
            Errno::INVAL
        );
    });
}

#[test]
fn attributes_are_set_by_who_may_and_if_the_guard_fits() {
    try_as_root("set", false, |world| {
        let (one, other) = (user(5, 5, &[60]), user(7, 7, &[]));
        let create = Operation::Create(world.spot("", "f"), How::Guarded(with_mode(0o644)));
        world.opened(&one, create);
        let ask = |user: &User, set, guard| {
            world
                .ask(user, Operation::Set(world.known("f"), set, guard))
                .reply
        };
        let perm = Reply::Failed {
            errno: Errno::PERM.raw_os_error(),
        };
        let plain = SetAttributes::default();
        let owner = |uid, gid| SetAttributes { uid, gid, ..plain };
        assert_eq!(ask(&other, with_mode(0o777), None), perm);
        assert_eq!(ask(&one, owner(Some(7), None), None), perm);
        assert_eq!(ask(&one, owner(None, Some(61)), None), perm);
        assert_eq!(ask(&one, owner(Some(5), Some(60)), None), Reply::Done);
        assert_ne!(ask(&one, owner(Some(u32::MAX), None), None), Reply::Done);
        let all = SetAttributes {
            mode: Some(0o100_640),
            size_bytes: Some(1 << 40),
            read_at: Some(SetTime::Now),
            written_at: Some(SetTime::At(Time { s: 3, ns: 7 })),
            ..plain
        };
        assert_eq!(ask(&one, all, None), Reply::Done);
        let stat = world.stat("f");
        assert_eq!(
            (stat.gid(), stat.mode() & 0o7777, stat.len()),
            (60, 0o640, 1 << 40)
        );
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (3, 7));
        let size = SetAttributes {
            size_bytes: Some(1 << 63),
            ..plain
        };
        let too_big = Reply::Failed {
            errno: Errno::FBIG.raw_os_error(),
        };
        assert_eq!(ask(&one, size, None), too_big);
        let guard = Time {
            s: stat.ctime() as u32,
            ns: stat.ctime_nsec() as u32,
        };
        let wrong = Time { s: 1, ns: 1 };
        assert_eq!(ask(&one, with_mode(0o600), Some(wrong)), Reply::NotSync);
        assert_eq!(ask(&one, with_mode(0o600), Some(guard)), Reply::Done);
        assert_eq!(ask(&one, with_mode(0o644), Some(guard)), Reply::NotSync);

        let size = SetAttributes {
            size_bytes: Some(1),
            ..plain
        };
        world.dir("folder", 0o777, 5, 5);
        assert_eq!(
            world.errno(&one, Operation::Set(world.known("folder"), size, None)),
            Errno::ISDIR
        );
        symlink("f", world.dir.join("link")).expect("a link");
        lchown(world.dir.join("link"), Some(5), Some(5)).expect("root may");
        let times = SetAttributes {
            written_at: Some(SetTime::At(Time { s: 9, ns: 0 })),
            ..plain
        };
        world.done(&one, Operation::Set(world.known("link"), times, None));
        assert_eq!(
            (world.stat("link").mtime(), world.stat("f").mtime()),
            (9, 3)
        );

        // Who may write may set a time to now, but to nothing else.
        let create = Operation::Create(world.spot("", "open"), How::Guarded(with_mode(0o666)));
        world.opened(&one, create);
        world.done(
            &one,
            Operation::Set(world.known("open"), with_mode(0o666), None),
        );
        let now = SetAttributes {
            written_at: Some(SetTime::Now),
            ..plain
        };
        let set = |set| Operation::Set(world.known("open"), set, None);
        world.done(&other, set(now));
        assert_eq!(world.errno(&other, set(times)), Errno::PERM);
    });
}

#[test]
fn names_are_moved_added_and_removed() {
    try_as_root("names", false, |world| {
        let one = user(5, 5, &[]);
        for (name, mode) in [("a", 0o777), ("b", 0o777), ("b/c", 0o777)] {
            world.dir(name, mode, 5, 5);
        }
        let create = Operation::Create(world.spot("a", "f"), How::Guarded(with_mode(0o644)));
        world.opened(&one, create);
        let rename =
            |from, name, to, new| Operation::Rename(world.spot(from, name), world.spot(to, new));
        assert_eq!(world.errno(&one, rename("", "a", "", "b")), Errno::NOTEMPTY);
        assert_eq!(world.errno(&one, rename("", "a", "a", "x")), Errno::INVAL);
        assert_eq!(world.errno(&one, rename("a", "f", "b", "c")), Errno::ISDIR);
        assert_eq!(world.errno(&one, rename("b", "c", "a", "f")), Errno::NOTDIR);
        assert_eq!(
            world.errno(&one, rename("a", "none", "b", "x")),
            Errno::NOENT
        );
        world.done(&one, rename("a", "f", "b", "g"));
        world.done(
            &one,
            Operation::AddName(world.known("b/g"), world.spot("a", "h")),
        );
        assert_eq!(world.stat("a/h").ino(), world.stat("b/g").ino());
        assert_eq!(
            world.errno(
                &one,
                Operation::AddName(world.known("b/g"), world.spot("a", "h"))
            ),
            Errno::EXIST
        );
        assert_eq!(
            world.errno(
                &one,
                Operation::AddName(world.known("a"), world.spot("b", "x"))
            ),
            Errno::ISDIR
        );
        assert_eq!(
            world.errno(&one, Operation::Remove(world.spot("", "a"))),
            Errno::ISDIR
        );
        assert_eq!(
            world.errno(&one, Operation::RemoveFolder(world.spot("a", "h"))),
            Errno::NOTDIR
        );
        assert_eq!(
            world.errno(&one, Operation::RemoveFolder(world.spot("", "a"))),
            Errno::NOTEMPTY
        );
        world.done(&one, Operation::Remove(world.spot("a", "h")));
        world.done(&one, Operation::RemoveFolder(world.spot("", "a")));
        let link = |name, target: &[u8]| {
            Operation::MakeLink(world.spot("", name), target.to_vec(), with_mode(0o777))
        };
        world.done(&one, link("away", b"../../etc/\xff"));
        assert_eq!(world.errno(&one, link("away", b"x")), Errno::EXIST);
        for (name, node) in [("pipe", Node::Pipe), ("socket", Node::Socket)] {
            world.done(
                &one,
                Operation::MakeNode(world.spot("", name), node, with_mode(0o640)),
            );
            assert_eq!(world.stat(name).mode() & 0o7777, 0o640);
        }
        // A pipe without a reader is not waited for.
        assert_eq!(
            world.errno(&one, Operation::Open(world.known("pipe"), For::Writing)),
            Errno::INVAL
        );
    });
}

#[test]
fn what_is_opened_can_be_used() {
    try_as_root("open", false, |world| {
        let (one, other) = (user(5, 5, &[]), user(7, 7, &[]));
        let create = Operation::Create(world.spot("", "f"), How::Guarded(with_mode(0o600)));
        world.opened(&one, create);
        let (file, _) = world.opened(&one, Operation::Open(world.known("f"), For::Writing));
        rustix::io::pwrite(&file, b"content", 0).expect("open for writing");
        let (file, _) = world.opened(&one, Operation::Open(world.known("f"), For::Reading));
        let mut bytes = [0; 9];
        assert_eq!(rustix::io::pread(&file, &mut bytes, 0), Ok(7));
        assert!(rustix::io::pwrite(file.as_fd(), b"x", 0).is_err());
        for aim in [For::Reading, For::Writing] {
            assert_eq!(
                world.errno(&other, Operation::Open(world.known("f"), aim)),
                Errno::ACCESS
            );
        }
        world.dir("closed", 0o700, 5, 5);
        world.opened(&one, Operation::Open(world.known("closed"), For::Reading));
        assert_eq!(
            world.errno(&other, Operation::Open(world.known("closed"), For::Reading)),
            Errno::ACCESS
        );
    });
}

#[test]
fn another_folder_at_the_path_is_opened() {
    try_as_root("anew", false, |world| {
        let hello = || match world.served.answer(&Request::Hello).reply {
            Reply::Here { inode, .. } => inode,
            other => panic!("{other:?}"),
        };
        let before = hello();
        assert_eq!(world.served.look(), Ok(false));
        let aside = world.dir.with_extension("aside");
        fs::rename(&world.dir, &aside).expect("our own");
        assert_eq!(world.served.look(), Err(Errno::NOENT));
        assert_eq!(hello(), before, "what is open stays so");
        fs::create_dir(&world.dir).expect("our own");
        assert_eq!(world.served.look(), Ok(true));
        assert_eq!(hello(), world.stat("").ino());
        assert_ne!(hello(), before);
        fs::remove_dir(&aside).expect("our own");
    });
}
